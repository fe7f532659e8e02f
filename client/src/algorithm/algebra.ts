// The operations that each algorithm implements, and the rows they work on.
import type { Algorithm } from '../snapshot.js';

/** The stored state of one key under one policy. Spent tokens are a debt that is repaid as time passes. */
export interface Row {
  /** The number of tokens spent but not yet repaid as of `ts`. */
  readonly spent: number;
  /**
   * The instant from which `spent` is repaid, in microseconds since the Unix epoch. For the window algorithms, this is
   * the boundary at which a window begins.
   */
  readonly ts: number;
  /** For a sliding window, the count of the previous window; otherwise 0. */
  readonly previous: number;
  /** If another quota wrote the row, the instant at which the row expires, where 2^53 - 1 means never. */
  readonly clear?: number;
  /** If another quota wrote the row, that quota's algorithm. */
  readonly written_by?: Algorithm;
}

/** An algorithm's operations on a row under one quota. Instants are in microseconds. */
export interface Algebra {
  /** The time it takes to repay a debt of the full capacity, or of one token if the capacity is 0. */
  readonly fill: number;
  /** Returns the row at `now`, after subtracting the tokens that have been repaid by then. */
  roll(row: Row, now: number): Row;
  /** Returns the number of tokens that are spent as of `now`. The row must have been rolled to `now`. */
  spent(row: Row, now: number): number;
  /** Returns whether no more than `level` tokens were spent as of `now`. The row must have been rolled to `now`. */
  within(row: Row, now: number, level: number): boolean;
  /**
   * Returns the first instant at which `within` is true if nothing more is spent. This instant may be beyond `LAST`.
   * Returns `ALREADY` if `within` is true from the start.
   *
   * A sum or product beyond 2^53 is never rounded to a value below 2^53. An instant beyond `LAST` therefore remains
   * beyond `LAST`, and doubles lead to the same decisions as the server's larger integers.
   */
  when(row: Row, level: number): number;
}

/** The last instant (in the year 2255) and the largest number of spent tokens: 2^53 - 1. */
export const LAST = Number.MAX_SAFE_INTEGER;

export const ALREADY = -1;

/** Returns the first microsecond at which `enough` is true. `guess` may be off by a few microseconds. */
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
