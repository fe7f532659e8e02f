import type { Algorithm } from '../snapshot.js';

/** The stored state of one key under one policy. Spent tokens are a debt, which is repaid as time passes. */
export interface Row {
  /** Tokens spent and not yet repaid at `ts`. */
  readonly spent: number;
  /** The instant from which `spent` is repaid, in microseconds since the Unix epoch. Windows: a boundary. */
  readonly ts: number;
  /** Sliding window: the count of the previous window. Otherwise 0. */
  readonly previous: number;
  /** If another quota wrote the row: the instant at which the row expires; 2^53 - 1 means never. */
  readonly clear?: number;
  /** If another quota wrote the row: that quota's algorithm. */
  readonly written_by?: Algorithm;
}

/** An algorithm's operations on a row under one quota. Instants are in microseconds. */
export interface Algebra {
  /** The time in which a debt of the full capacity (one token if it is 0) is repaid. */
  readonly fill: number;
  /** The row at `now`, with the tokens repaid until then subtracted. */
  roll(row: Row, now: number): Row;
  /** The tokens spent at `now`. Takes a row rolled to `now`, as does `within`. */
  spent(row: Row, now: number): number;
  /** Whether at most `level` tokens are spent at `now`. */
  within(row: Row, now: number, level: number): boolean;
  /**
   * The first instant at which `within` holds without further spending, which may be beyond `LAST`. `ALREADY` if
   * `within` holds from the beginning.
   *
   * A sum or product beyond 2^53 is never rounded to below 2^53. An instant beyond `LAST` therefore stays there, and
   * doubles lead to the same decisions as the server's larger integers.
   */
  when(row: Row, level: number): number;
}

/**
 * The last instant and the largest number of spent tokens: 2^53 - 1, up to which doubles represent all integers. As
 * microseconds since the Unix epoch, this is in the year 2255.
 */
export const LAST = Number.MAX_SAFE_INTEGER;

export const ALREADY = -1;

/** Steps from `guess`, which was rounded twice, to the first microsecond that is `enough`. */
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
