import type { Algorithm } from '../snapshot.js';

/** The stored state of one key under one policy. */
export interface Row {
  /** Tokens spent and, at `ts`, not yet repaid. */
  readonly spent: number;
  /** The instant from which they are repaid, microseconds since the Unix epoch; for windows, a boundary. */
  readonly ts: number;
  /** Sliding window: tokens of the previous window. Otherwise 0. */
  readonly previous: number;
  /** If another quota wrote the row: the instant by which it is fully repaid; 2^53 - 1 means never. */
  readonly clear?: number;
  /** If another quota wrote the row: that quota's algorithm. */
  readonly written_by?: Algorithm;
}

/** An algorithm's operations on a row under one quota. Instants in microseconds. */
export interface Algebra {
  /** The time in which a full capacity (one token if that is 0) is repaid. */
  readonly fill: number;
  /** The row at `now`, less what has been repaid. */
  roll(row: Row, now: number): Row;
  /** The tokens spent at `now`, of a row rolled to `now`. */
  spent(row: Row, now: number): number;
  /** Whether at most `level` is spent at `now`. */
  within(row: Row, now: number, level: number): boolean;
  /**
   * The first instant at which `within` holds without further spending: `ALREADY`, or one that may be beyond `LAST`.
   *
   * A sum or product beyond 2^53 is never rounded to below 2^53. So an instant beyond `LAST` stays there, and doubles
   * decide as the server's larger integers do.
   */
  when(row: Row, level: number): number;
}

/**
 * The last instant, and the most that is ever spent: 2^53 - 1, up to which doubles represent all integers. Microseconds
 * since the Unix epoch reach it in the year 2255.
 */
export const LAST = Number.MAX_SAFE_INTEGER;

export const ALREADY = -1;

/** Moves `guess`, which was rounded twice, to the first microsecond that is `enough`. */
export function tighten(guess: number, enough: (elapsed: number) => boolean): number {
  let elapsed = guess;
  for (let i = 0; i < 4; i++) {
    if (!enough(elapsed)) {
      elapsed += 1;
    } else if (elapsed > 0 && enough(elapsed - 1)) {
      elapsed -= 1;
    }
  }
  return elapsed;
}
