import { instant, LAST } from './instant.js';
import type { Quota } from './quota.js';
import type { Algebra } from './row.js';

/** Fixed window: `rate` tokens are paid back at each boundary; `ts` is the last boundary that has been counted. */
export const fixedWindow: Algebra = {
  roll(quota, row, now) {
    const then = index(quota, row.ts);
    const here = index(quota, now);
    return here <= then
      ? { ...row, ts: boundary(quota, then) }
      : { ...row, spent: Math.max(row.spent - quota.rate * (here - then), 0), ts: boundary(quota, here) };
  },

  spent: (_quota, row) => row.spent,

  within: (_quota, row, _now, level) => row.spent <= level,

  when(quota, row, now, level) {
    const debt = row.spent - level;
    if (debt <= 0) {
      return now;
    }
    const windows = Math.ceil(debt / quota.rate);
    if (windows * quota.period > LAST) {
      return null;
    }
    const then = Math.max(boundary(quota, index(quota, row.ts) + windows), now);
    return then < LAST ? then : null;
  },
};

/** The number of the window in which `now` lies; 0 is the one that began at the epoch or before it. */
export function index(quota: Quota, now: number): number {
  // `start` is taken off first: a period more may be beyond what a double counts. The division leaves no rest.
  const since = now - quota.start;
  return since < 0 ? 0 : (since - (since % quota.period)) / quota.period + 1;
}

/** Where window `index` begins. Window 0 may have begun before the epoch, which stands in for that. */
export function boundary(quota: Quota, index: number): number {
  return intoWindow(quota, index, 0);
}

/** The instant `offset` microseconds into window `index`. */
export function intoWindow(quota: Quota, index: number, offset: number): number {
  return instant((index - 1) * quota.period + quota.start + offset);
}

/** How far `now` is into its window, in microseconds. */
export function offset(quota: Quota, now: number): number {
  const since = now - quota.start;
  return since < 0 ? since + quota.period : since % quota.period;
}
