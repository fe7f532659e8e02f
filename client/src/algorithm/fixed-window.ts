// The fixed window algorithm.
import type { RateLimitConfig } from '../snapshot.js';
import { ALREADY, LAST, type Algebra } from './algebra.js';
import { windowsOf } from './windows.js';

/** The fixed window, in which `rate` tokens are repaid at each boundary. `spent` reflects repayments up to `ts`. */
export function fixedWindow(config: RateLimitConfig): Algebra {
  const { rate, period, capacity } = config;
  const { index, begin } = windowsOf(config);

  return {
    // Below 10^15, a fractional quotient is never rounded down to an integer.
    fill: Math.ceil((capacity || 1) / rate) * period,

    roll(row, now) {
      const rowWindow = index(row.ts);
      const window = index(now);
      return window <= rowWindow
        ? row
        : { ...row, spent: Math.max(row.spent - rate * (window - rowWindow), 0), ts: begin(window) };
    },

    spent: (row) => row.spent,

    within: (row, _now, level) => row.spent <= level,

    when(row, level) {
      const debt = row.spent - level;
      const windows = Math.ceil(debt / rate);
      if (debt <= 0) {
        return ALREADY;
      }
      return windows * period > LAST ? Infinity : begin(index(row.ts) + windows);
    },
  };
}
