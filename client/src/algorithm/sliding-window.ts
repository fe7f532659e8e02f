// The sliding window algorithm.
import type { RateLimitConfig } from '../snapshot.js';
import { ALREADY, tighten, type Algebra, type Row } from './algebra.js';
import { windowsOf } from './windows.js';

/**
 * The sliding window, which adds a part of the previous window's count to the current window's count. During the
 * current window, this part shrinks linearly from the whole count to 0.
 *
 * In a row, `spent` is the current window's count, `ts` is the boundary at which this window began, and `previous` is
 * the previous window's count.
 */
export function slidingWindow(config: RateLimitConfig): Algebra {
  const { period } = config;
  const { index, begin, offset } = windowsOf(config);

  /** Returns what the previous window's `count` contributes, `elapsed` microseconds into this window. */
  // Without `Math.min`, the quotient could exceed `count` at the start of a window, because it is rounded twice.
  const weighted = (count: number, elapsed: number): number => Math.min((count * (period - elapsed)) / period, count);
  /**
   * Returns what the previous window's count contributes at `now`. If the row is ahead of the clock, `now` is treated
   * as the start of the row's window.
   */
  const previousAt = (row: Row, now: number): number => weighted(row.previous, now < row.ts ? 0 : offset(now));
  /**
   * Returns the earliest offset into a window (in microseconds) at which the previous window's `count` contributes at
   * most `level`.
   */
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
        // The level is reached in the next window, when this window's count has become the previous count.
        return begin(window + 1, elapsedUntil(row.spent, level));
      }
      // The level is reached later in this window, when the previous window contributes less.
      return row.previous <= room ? ALREADY : begin(window, elapsedUntil(row.previous, room));
    },
  };
}
