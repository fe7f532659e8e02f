import type { RateLimitConfig } from '../snapshot.js';
import { ALREADY, tighten, type Algebra, type Row } from './algebra.js';
import { windowsOf } from './windows.js';

/**
 * Sliding window: `spent` is the current window's count, `ts` the boundary where it began, `previous` the previous
 * window's count, weighted by how much of that window is still in view.
 */
export function slidingWindow(config: RateLimitConfig): Algebra {
  const { period } = config;
  const { index, begin, offset } = windowsOf(config);

  /** The part of the previous window's `count` still in view after `elapsed` microseconds of this one. */
  // `min`: at the beginning of a window, two rounding errors can push the result above `count`.
  const inView = (count: number, elapsed: number): number => Math.min((count * (period - elapsed)) / period, count);
  /** How much of a row is in view at `now`. A row ahead of the clock is treated as at the beginning of its window. */
  const previousInView = (row: Row, now: number): number => inView(row.previous, now < row.ts ? 0 : offset(now));
  /** Microseconds into a window after which at most `room` of the previous window's `count` is in view. */
  const outOfView = (count: number, room: number): number =>
    count <= room
      ? 0
      : tighten(
          Math.min(Math.ceil(((count - room) * period) / count), period),
          (elapsed) => inView(count, elapsed) <= room,
        );

  return {
    fill: 2 * period,

    roll(row, now) {
      const then = index(row.ts);
      const here = index(now);
      if (here > then) {
        return { spent: 0, previous: here - then > 1 ? 0 : row.spent, ts: begin(here) };
      }
      return { ...row, ts: begin(then) };
    },

    spent: (row, now) => row.spent + previousInView(row, now),

    within: (row, now, level) => previousInView(row, now) <= level - row.spent,

    when(row, level) {
      const room = level - row.spent;
      const window = index(row.ts);
      if (room < 0) {
        // Not before the next window, when this one becomes the previous one.
        return begin(window + 1, outOfView(row.spent, level));
      }
      // Later in this window, when less of the previous one is in view.
      return row.previous <= room ? ALREADY : begin(window, outOfView(row.previous, room));
    },
  };
}
