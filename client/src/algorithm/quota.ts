import type { RateLimitConfig } from '../snapshot.js';
import { LAST, type Row } from './algebra.js';
import { fixedWindow } from './fixed-window.js';
import { slidingWindow } from './sliding-window.js';
import { tokenBucket } from './token-bucket.js';
import { windowsOf } from './windows.js';

/** What a quota says of rows. Instants in microseconds; tokens. */
export interface Quota {
  /** The row brought to `now`. The other functions take rows that were. */
  roll(row: Row, now: number): Row;
  /** Whole tokens that could be spent at once. */
  available(row: Row, now: number): number;
  /** Whether `cost` fits without waiting. */
  fits(row: Row, now: number, cost: number): boolean;
  /** Whether no more than `level` stands as spent. */
  within(row: Row, now: number, level: number): boolean;
  /** The first instant from `now` on at which that is so if nobody spends meanwhile, `Infinity` if there is none. */
  when(row: Row, now: number, level: number): number;
}

/** The algebra of `config`, with what all algorithms have in common. */
export function quotaOf(config: RateLimitConfig): Quota {
  const limit = config.capacity;
  const algebra = ALGEBRAS[config.algorithm](config);
  const { within } = algebra;

  function when(row: Row, now: number, level: number): number {
    const then = algebra.when(row, level);
    const from = Math.max(then, now);
    return then < 0 ? now : level < 0 || from >= LAST ? Infinity : from;
  }

  function fits(row: Row, now: number, cost: number): boolean {
    return cost <= limit && within(row, now, limit - cost);
  }

  return {
    within,
    when,
    fits,

    roll(state, now) {
      let row = state;
      if (config.algorithm === 'sliding_window' && !isBoundary(config, row.ts)) {
        // Not written under this quota.
        row = { ...row, spent: 0, previous: 0 };
      }
      // The clock was far ahead: forgiven, unless so much is owed that it would not be paid back by then either.
      if (row.ts - now > algebra.fill && when({ ...row, ts: now }, now, 0) < row.ts) {
        row = { spent: 0, ts: now, previous: 0 };
      }
      return algebra.roll(row, now);
    },

    available(row, now) {
      const left = limit - algebra.spent(row, now) + 1e-6;
      // Whatever would be allowed, and not one more: so let that test have the last word.
      const guess = Math.floor(Math.min(Math.max(left, 0), limit));
      return guess > 0 && !fits(row, now, guess) ? guess - 1 : guess;
    },
  };
}

function isBoundary(config: RateLimitConfig, ts: number): boolean {
  const { index, begin } = windowsOf(config);
  return begin(index(ts)) === ts;
}

const ALGEBRAS = { token_bucket: tokenBucket, fixed_window: fixedWindow, sliding_window: slidingWindow };
