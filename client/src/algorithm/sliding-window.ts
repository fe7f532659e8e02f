import { boundary, index, intoWindow, offset } from './fixed-window.js';
import { LAST } from './instant.js';
import type { Quota } from './quota.js';
import type { Algebra, Row } from './row.js';

/**
 * Sliding window: `spent` is the current window's count, `ts` the boundary where it began, `previous` the count of the
 * window before, weighted by how much of that one is still in view.
 */
export const slidingWindow: Algebra = {
  roll(quota, row, now) {
    const then = index(quota, row.ts);
    const here = index(quota, now);
    const ts = boundary(quota, Math.max(then, here));
    if (here <= then) {
      return { ...row, ts };
    }
    return { spent: 0, previous: here - then === 1 ? row.spent : 0, ts };
  },

  spent: (quota, row, now) => row.spent + inView(quota, row.previous, elapsed(quota, row, now)),

  within: (quota, row, now, level) => inView(quota, row.previous, elapsed(quota, row, now)) <= level - row.spent,

  when(quota, row, now, level) {
    const window = index(quota, row.ts);
    const room = level - row.spent;
    let then: number;
    if (room >= 0) {
      if (row.previous <= room) {
        return now;
      }
      // Later in this window, when less of the one before is in view.
      then = intoWindow(quota, window, outOfView(quota, row.previous, room));
    } else {
      // Not before the next window, in which this one is the one before.
      then = intoWindow(quota, window + 1, outOfView(quota, row.spent, level));
    }
    then = Math.max(then, now);
    return then < LAST ? then : null;
  },
};

/** Whether the row begins at one of this quota's boundaries. One that does not was not written under this quota. */
export function aligned(quota: Quota, row: Row): boolean {
  return boundary(quota, index(quota, row.ts)) === row.ts;
}

/** Microseconds into the window; a row ahead of the clock is at its beginning. */
function elapsed(quota: Quota, row: Row, now: number): number {
  return now < row.ts ? 0 : offset(quota, now);
}

/** The part of the window before's `count` that is still in view after `elapsed` microseconds of this one. */
function inView(quota: Quota, count: number, elapsed: number): number {
  // Rounded twice: at the very beginning of a window that may come out above the whole.
  return Math.min((count * (quota.period - elapsed)) / quota.period, count);
}

/** The microseconds of a window after which at most `room` of the window before's `count` is in view. */
function outOfView(quota: Quota, count: number, room: number): number {
  if (count <= room) {
    return 0;
  }
  let elapsed = Math.min(Math.ceil(((count - room) * quota.period) / count), quota.period);
  // Rounded twice; step onto the very microsecond.
  for (let i = 0; i < 4; i++) {
    if (elapsed < quota.period && inView(quota, count, elapsed) > room) {
      elapsed += 1;
    } else if (elapsed > 0 && inView(quota, count, elapsed - 1) <= room) {
      elapsed -= 1;
    } else {
      break;
    }
  }
  return elapsed;
}
