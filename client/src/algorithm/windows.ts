import type { RateLimitConfig } from '../snapshot.js';

/** Windows of one length, numbered. Instants in microseconds. */
export interface Windows {
  /** The number of the window in which `now` lies; 0 is the one that began at the epoch or before it. */
  index(now: number): number;
  /** Where window `index` begins, or the instant `offset` microseconds into it; not before the epoch. */
  begin(index: number, offset?: number): number;
  /** How far `now` is into its window, in microseconds. */
  offset(now: number): number;
}

/** The windows of a quota. */
export function windowsOf({ period, start }: RateLimitConfig): Windows {
  return {
    index(now) {
      // `start` is taken off first: a period more may be beyond what a double counts. The division leaves no rest.
      const since = now - start;
      return since < 0 ? 0 : (since - (since % period)) / period + 1;
    },
    begin: (index, offset = 0) => Math.max((index - 1) * period + start + offset, 0),
    offset: (now) => (now < start ? now - start + period : (now - start) % period),
  };
}
