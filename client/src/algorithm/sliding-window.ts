import type { RateLimitConfig } from '../snapshot.js';
import { ALREADY, tighten, type Algebra, type Row } from './algebra.js';
import { windowsOf } from './windows.js';

/**
 * Sliding window: the current window's count plus the previous one's, weighted by its part of the last period.
 *
 * `spent` is the current window's count, `ts` the boundary where it began, `previous` the previous window's count.
 */
export function slidingWindow(config: RateLimitConfig): Algebra {
  const { period } = config;
  const { index, begin, offset } = windowsOf(config);

  /** The part of the previous window's `count` that still counts after `elapsed` microseconds of this window. */
  // Rounded twice: at the start of a window, the product may exceed `count`.
  const weighted = (count: number, elapsed: number): number => Math.min((count * (period - elapsed)) / period, count);
  /** The previous window's part at `now`. A row ahead of the clock is at the start of its window. */
  const previousAt = (row: Row, now: number): number => weighted(row.previous, now < row.ts ? 0 : offset(now));
  /** Microseconds into a window after which at most `level` of the previous window's `count` counts. */
  const elapsedUntil = (count: number, level: number): number =>
    count <= level
      ? 0
      : tighten(
          Math.min(Math.ceil(((count - level) * period) / count), period),
          (elapsed) => weighted(count, elapsed) <= level,
        );

  return {
    fill: 2 * period,

    roll(row, now) {
      const rowWindow = index(row.ts);
      const window = index(now);
      if (window > rowWindow) {
        return { spent: 0, previous: window - rowWindow > 1 ? 0 : row.spent, ts: begin(window) };
      }
      return { ...row, ts: begin(rowWindow) };
    },

    spent: (row, now) => row.spent + previousAt(row, now),

    within: (row, now, level) => previousAt(row, now) <= level - row.spent,

    when(row, level) {
      const room = level - row.spent;
      const window = index(row.ts);
      if (room < 0) {
        // In the next window, of which this one is the previous.
        return begin(window + 1, elapsedUntil(row.spent, level));
      }
      // Later in this window, when less of the previous one counts.
      return row.previous <= room ? ALREADY : begin(window, elapsedUntil(row.previous, room));
    },
  };
}
