import type { RateLimitConfig } from '../snapshot.js';

/** Numbered windows of one length. Instants in microseconds. */
export interface Windows {
  /** The number of the window that contains `now`; 0 is the one that began at or before the epoch. */
  index(now: number): number;
  /** The instant `offset` microseconds into window `index`; not before the epoch. */
  begin(index: number, offset?: number): number;
  /** How far `now` is into its window. */
  offset(now: number): number;
}

export function windowsOf({ period, start }: RateLimitConfig): Windows {
  return {
    index(now) {
      // `start` is subtracted first, because a period more may exceed 2^53. The division is exact.
      const since = now - start;
      return since < 0 ? 0 : (since - (since % period)) / period + 1;
    },
    begin: (index, offset = 0) => Math.max((index - 1) * period + start + offset, 0),
    offset: (now) => (now < start ? now - start + period : (now - start) % period),
  };
}
