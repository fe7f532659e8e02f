import type { RateLimitConfig } from '../snapshot.js';
import { ALREADY, tighten, type Algebra } from './algebra.js';

/**
 * Token bucket: spending is repaid smoothly. `ts` moves in whole grains, `rate / period` in lowest terms, so that whole
 * tokens stay whole; only the rest of a grain is computed in floating point.
 */
export function tokenBucket({ rate, period, capacity }: RateLimitConfig): Algebra {
  const common = greatestCommonDivisor(rate, period);
  const tokens = rate / common;
  const micros = period / common;

  const since = (ts: number, now: number): number => Math.max(now - ts, 0);
  // Multiplies before dividing, as the server does.
  const repaid = (elapsed: number): number => (elapsed * tokens) / micros;

  return {
    // The only product that must be exact beyond 2^53.
    fill: Number((BigInt(capacity || 1) * BigInt(micros) + BigInt(tokens - 1)) / BigInt(tokens)),

    roll(row, now) {
      const elapsed = since(row.ts, now);
      const rest = elapsed % micros;
      const grains = (elapsed - rest) / micros;
      const spent = row.spent - grains * tokens;
      const ts = row.ts + grains * micros;
      return repaid(since(ts, now)) >= spent ? { ...row, spent: 0, ts: Math.max(row.ts, now) } : { ...row, spent, ts };
    },

    spent: (row, now) => Math.max(row.spent - repaid(since(row.ts, now)), 0),

    // Not `spent() <= level`: subtracting first would round once more.
    within: (row, now, level) => row.spent - level <= repaid(since(row.ts, now)),

    when(row, level) {
      const debt = row.spent - level;
      if (debt <= 0) {
        return ALREADY;
      }
      const grains = Math.floor(debt / tokens);
      const rest = debt - grains * tokens;
      // For a debt beyond 2^53, the quotient may be rounded up, and the rest negative.
      const elapsed = Math.max(Math.ceil((rest * micros) / tokens), 0);
      return row.ts + (grains * micros + tighten(elapsed, (elapsed) => repaid(elapsed) >= rest));
    },
  };
}

function greatestCommonDivisor(a: number, b: number): number {
  return b ? greatestCommonDivisor(b, a % b) : a;
}
