// The token bucket algorithm.
import type { RateLimitConfig } from '../snapshot.js';
import { ALREADY, tighten, type Algebra } from './algebra.js';

/**
 * The token bucket, in which spent tokens are repaid smoothly. If `rate / period` is `n / d` in lowest terms, `n`
 * tokens are repaid every `d` microseconds. These `d` microseconds are called a grain. Until the debt is repaid, `ts`
 * advances only by whole grains, so stored counts stay whole. Only repayments within the current grain are computed in
 * floating point.
 */
export function tokenBucket({ rate, period, capacity }: RateLimitConfig): Algebra {
  const common = greatestCommonDivisor(rate, period);
  const grainTokens = rate / common;
  const grainMicros = period / common;

  const since = (ts: number, now: number): number => Math.max(now - ts, 0);
  // Multiply before dividing, as the server does.
  const repaid = (elapsed: number): number => (elapsed * grainTokens) / grainMicros;

  return {
    // This product must be exact even beyond 2^53.
    fill: Number(
      (BigInt(capacity || 1) * BigInt(grainMicros) + BigInt(grainTokens - 1)) / BigInt(grainTokens),
    ),

    roll(row, now) {
      const elapsed = since(row.ts, now);
      const rest = elapsed % grainMicros;
      const grains = (elapsed - rest) / grainMicros;
      const spent = row.spent - grains * grainTokens;
      const ts = row.ts + grains * grainMicros;
      return repaid(since(ts, now)) >= spent ? { ...row, spent: 0, ts: Math.max(row.ts, now) } : { ...row, spent, ts };
    },

    spent: (row, now) => Math.max(row.spent - repaid(since(row.ts, now)), 0),

    // `spent() <= level` would add another rounding, because it subtracts first.
    within: (row, now, level) => row.spent - level <= repaid(since(row.ts, now)),

    when(row, level) {
      const debt = row.spent - level;
      if (debt <= 0) {
        return ALREADY;
      }
      const grains = Math.floor(debt / grainTokens);
      const rest = debt - grains * grainTokens;
      // For a debt beyond 2^53, the quotient may be rounded up, so the rest may be negative.
      const elapsed = Math.max(Math.ceil((rest * grainMicros) / grainTokens), 0);
      return row.ts + (grains * grainMicros + tighten(elapsed, (elapsed) => repaid(elapsed) >= rest));
    },
  };
}

function greatestCommonDivisor(a: number, b: number): number {
  return b ? greatestCommonDivisor(b, a % b) : a;
}
