import type { Algorithm } from '../snapshot.js';
import { boundary, fixedWindow, index } from './fixed-window.js';
import { instant } from './instant.js';
import type { Quota } from './quota.js';
import type { Algebra, Row } from './row.js';
import { aligned, slidingWindow } from './sliding-window.js';
import { tokenBucket } from './token-bucket.js';

/** The answer to an ask, and the row that it leaves. Microseconds. */
export interface Step {
  readonly ok: boolean;
  /** If `ok`: until the caller's turn, 0 if it is now. */
  readonly wait: number;
  /** If not `ok`: when the same ask succeeds if nobody spends meanwhile, `null` if never. */
  readonly retryAt: number | null;
  /** The row after it; of a denial as it stands, unchanged but for what has been paid back. */
  readonly row: Row;
}

/**
 * Decides about `cost` tokens under `quota`, of a key whose row is `state`, at `now`; ready to wait for its turn up to
 * `maxWait` microseconds if that is not `null`.
 */
export function step(quota: Quota, state: Row, now: number, cost: number, maxWait: number | null): Step {
  const row = roll(quota, state, now);
  const charged = { ...row, spent: row.spent + cost };
  if (fits(quota, row, now, cost)) {
    return { ok: true, wait: 0, retryAt: null, row: charged };
  }
  if (maxWait === null || !quota.reserves) {
    return { ok: false, wait: 0, retryAt: when(quota, row, now, quota.limit - cost), row };
  }
  const due = turn(quota, row, now, cost, maxWait);
  if (due !== null) {
    return { ok: true, wait: due - now, retryAt: null, row: charged };
  }
  return { ok: false, wait: 0, retryAt: retryTurn(quota, row, now, cost, maxWait), row };
}

/** The row brought to `now`: what has been paid back is off it. */
export function roll(quota: Quota, state: Row, now: number): Row {
  let row = state;
  const sliding = quota.algorithm === 'sliding_window';
  if (sliding && !aligned(quota, row)) {
    row = { ...row, spent: 0, previous: 0 };
  }
  if (row.ts - now > quota.fill) {
    // The clock was far ahead: forgiven, unless so much is owed that it would not be paid back by then either.
    const clear = when(quota, { ...row, ts: now }, now, 0);
    if (clear !== null && clear < row.ts) {
      row = { spent: 0, ts: now, previous: sliding ? 0 : row.previous };
    }
  }
  return ALGEBRAS[quota.algorithm].roll(quota, row, now);
}

/** Whole tokens that could be spent at once at `now`, of a row that was rolled there. */
export function available(quota: Quota, row: Row, now: number): number {
  const { limit } = quota;
  const left = limit - ALGEBRAS[quota.algorithm].spent(quota, row, now) + 1e-6;
  // Whatever `step` would allow, and not one more: so let its own test have the last word.
  const guess = Math.floor(Math.min(Math.max(left, 0), limit));
  return guess > 0 && !fits(quota, row, now, guess) ? guess - 1 : guess;
}

function fits(quota: Quota, row: Row, now: number, cost: number): boolean {
  return cost <= quota.limit && ALGEBRAS[quota.algorithm].within(quota, row, now, quota.limit - cost);
}

/** The first instant at which no more than `level` stands as spent; a level below nothing is never reached. */
function when(quota: Quota, row: Row, now: number, level: number): number | null {
  return level < 0 ? null : ALGEBRAS[quota.algorithm].when(quota, row, now, level);
}

/** The turn that a reservation of `cost` made at `now` would get, if one is to be had within `maxWait`. */
function turn(quota: Quota, row: Row, now: number, cost: number, maxWait: number): number | null {
  const level = quota.ceiling - cost;
  if (level < 0 || !ALGEBRAS[quota.algorithm].within(quota, row, now, level)) {
    return null;
  }
  const due = when(quota, { ...row, spent: row.spent + cost }, now, quota.limit);
  return due !== null && Math.max(due - now, 0) <= maxWait ? due : null;
}

/** When a reservation of `cost` would be granted, a turn within `maxWait` of then. */
function retryTurn(quota: Quota, row: Row, now: number, cost: number, maxWait: number): number | null {
  const granted = (at: number): boolean => {
    const then = roll(quota, row, at);
    return fits(quota, then, at, cost) || turn(quota, then, at, cost, maxWait) !== null;
  };
  const room = when(quota, row, now, quota.ceiling - cost);
  const due = when(quota, { ...row, spent: row.spent + cost }, now, quota.limit);
  if (room === null || due === null) {
    return null;
  }
  const at = Math.max(room, instant(due - maxWait), now);
  if (granted(at)) {
    return at;
  }
  // What is owed is all paid back by then, and still the cost, larger than the capacity, waits too long. A bucket's
  // wait stays as it is; a window's shrinks towards its end.
  if (quota.algorithm !== 'fixed_window') {
    return null;
  }
  const clear = when(quota, row, now, 0);
  if (clear === null) {
    return null;
  }
  const begin = boundary(quota, index(quota, clear));
  const dueThen = when(quota, { ...row, spent: cost, ts: begin }, clear, quota.limit);
  if (dueThen === null) {
    return null;
  }
  const later = Math.max(instant(dueThen - maxWait), clear);
  return granted(later) ? later : null;
}

const ALGEBRAS: Record<Algorithm, Algebra> = {
  token_bucket: tokenBucket,
  fixed_window: fixedWindow,
  sliding_window: slidingWindow,
};
