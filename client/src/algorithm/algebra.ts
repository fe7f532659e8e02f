import type { Algorithm } from '../snapshot.js';

/** What a server remembers of one key under one policy. */
export interface Row {
  /** Tokens spent and, at `ts`, not yet paid back. */
  readonly spent: number;
  /** The instant from which they are paid back, microseconds since the Unix epoch; of windows a boundary. */
  readonly ts: number;
  /** Sliding window: tokens of the window before. Else 0. */
  readonly previous: number;
  /** If another quota wrote the row: the instant from which nothing of it counts any more; 2^53 - 1 is never. */
  readonly clear?: number;
  /** If another quota wrote the row: the algorithm of that one. */
  readonly written_by?: Algorithm;
}

/** How spending is paid back: what an algorithm says of a row under one quota. Instants in microseconds. */
export interface Algebra {
  /** The time in which a full capacity (one token if that is 0) is paid back. */
  readonly fill: number;
  /** The row brought to `now`: what has been paid back is off it. */
  roll(row: Row, now: number): Row;
  /** What stands as spent at `now`, of a row that was rolled there. */
  spent(row: Row, now: number): number;
  /** Whether no more than `level` stands as spent at `now`. */
  within(row: Row, now: number, level: number): boolean;
  /**
   * The first instant at which `within` holds if nobody spends meanwhile: `ALREADY`, or one that may be beyond `LAST`.
   *
   * A sum or a product beyond 2^53 is rounded, but never to below 2^53. So what is beyond `LAST` stays there, and
   * doubles decide as the server's larger integers do.
   */
  when(row: Row, level: number): number;
}

/**
 * The last instant, and the most that is ever spent: 2^53 - 1, the largest integer up to which a double counts by ones.
 * Microseconds since the Unix epoch reach it in the year 2255.
 */
export const LAST = Number.MAX_SAFE_INTEGER;

/** Before every instant. */
export const ALREADY = -1;

/** `guess`, which was rounded twice, moved onto the very microsecond from which on it is `enough`. */
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
