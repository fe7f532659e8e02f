// The boundaries of windows.
import type { RateLimitConfig } from '../snapshot.js';

/** Numbered windows of equal length. Instants are in microseconds. */
export interface Windows {
  /** Returns the number of the window that contains `now`. Window 0 begins at or before the epoch. */
  index(now: number): number;
  /** Returns the instant `offset` microseconds into window `index`, but never an instant before the epoch. */
  begin(index: number, offset?: number): number;
  /** Returns the offset of `now` from the start of its window, in microseconds. */
  offset(now: number): number;
}

export function windowsOf({ period, start }: RateLimitConfig): Windows {
  return {
    index(now) {
      // Subtract `start` instead of adding a period, because the sum may exceed 2^53. The division is exact.
      const since = now - start;
      return since < 0 ? 0 : (since - (since % period)) / period + 1;
    },
    begin: (index, offset = 0) => Math.max((index - 1) * period + start + offset, 0),
    offset: (now) => (now < start ? now - start + period : (now - start) % period),
  };
}
