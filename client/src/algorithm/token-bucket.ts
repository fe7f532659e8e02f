import { instant, LAST } from './instant.js';
import type { Quota } from './quota.js';
import type { Algebra, Row } from './row.js';

/** Token bucket: spending is paid back smoothly; whole grains exactly, only the rest of one is rounded. */
export const tokenBucket: Algebra = {
  roll(quota, row, now) {
    let { spent, ts } = row;
    const elapsed = since(now, ts);
    const rest = elapsed % quota.grainMicros;
    if (elapsed > rest) {
      spent -= ((elapsed - rest) / quota.grainMicros) * quota.grainTokens;
      ts += elapsed - rest;
    }
    return repaid(quota, since(now, ts)) >= spent
      ? { ...row, spent: 0, ts: Math.max(row.ts, now) }
      : { ...row, spent, ts };
  },

  spent: (quota, row, now) => Math.max(row.spent - repaid(quota, since(now, row.ts)), 0),

  // Not `spent() <= level`: subtracting first would round once more.
  within: (quota, row, now, level) => row.spent - level <= repaid(quota, since(now, row.ts)),

  when(quota, row, now, level) {
    const debt = row.spent - level;
    if (debt <= 0) {
      return now;
    }
    const grains = Math.floor(debt / quota.grainTokens);
    const rest = debt - grains * quota.grainTokens;
    // Of a debt beyond what doubles count, the quotient may be rounded up and the rest be less than nothing.
    let elapsed = Math.max(Math.ceil((rest * quota.grainMicros) / quota.grainTokens), 0);
    // Rounded twice; step onto the very microsecond at which `within` changes its mind.
    for (let i = 0; i < 4; i++) {
      if (repaid(quota, elapsed) < rest) {
        elapsed += 1;
      } else if (elapsed > 0 && repaid(quota, elapsed - 1) >= rest) {
        elapsed -= 1;
      } else {
        break;
      }
    }
    const then = Math.max(instant(row.ts + (grains * quota.grainMicros + elapsed)), now);
    return then < LAST ? then : null;
  },
};

/** Tokens paid back in `elapsed` microseconds. Multiplied before divided, as the server does. */
function repaid(quota: Quota, elapsed: number): number {
  return (elapsed * quota.grainTokens) / quota.grainMicros;
}

function since(now: number, then: Row['ts']): number {
  return Math.max(now - then, 0);
}
