// Reservations of tokens that are not yet available.
import type { RateLimitConfig } from '../snapshot.js';
import { LAST, type Row } from './algebra.js';
import { FASTER_BUCKET, first, isForeign, OWN, readingOf } from './changed.js';
import type { Quota } from './quota.js';
import { windowsOf } from './windows.js';

/**
 * A quota's operations for reservations. Results are instants in microseconds, or `Infinity` if there is no such
 * instant.
 */
export interface Reservations {
  /** Returns the due time of a reservation for `cost` tokens that is made at `now`. */
  due(row: Row, now: number, cost: number): number;
  /**
   * Returns the first instant at which a reservation for `cost` tokens would be granted, if it is denied at `now`. A
   * foreign row must be passed as it was read, not rolled.
   */
  retryAt(row: Row, now: number, cost: number): number;
}

/** Returns a quota's operations for reservations that are due within `maxWait` (microseconds). */
export function reservationsOf(config: RateLimitConfig, quota: Quota, maxWait: number): Reservations {
  const { capacity, max_reserved: reservable } = config;
  const { roll, fits, within, when } = quota;
  const ceiling = reservable === null ? CEILING_WITHOUT_BOUND : capacity + reservable;

  const whenCharged = (row: Row, now: number, cost: number): number =>
    when({ ...row, spent: row.spent + cost }, now, capacity);

  function due(row: Row, now: number, cost: number): number {
    const at = cost <= ceiling && within(row, now, ceiling - cost) ? whenCharged(row, now, cost) : Infinity;
    return at - now <= maxWait ? at : Infinity;
  }

  /** Returns `at` if a reservation would be granted at that time, and `Infinity` otherwise. */
  function ifGranted(row: Row, at: number, cost: number): number {
    const then = roll(row, at);
    return fits(then, at, cost) || due(then, at, cost) < Infinity ? at : Infinity;
  }

  function retryAt(state: Row, now: number, cost: number): number {
    if (!isForeign(state, now)) {
      return retryOwn(state, now, cost);
    }
    const { clear } = state;
    const reading = readingOf(config, state);
    const holds = (at: number): boolean => ifGranted(state, at, cost) < Infinity;
    let before = Infinity;
    if (reading === OWN) {
      before = retryOwn(roll(state, now), now, cost);
    } else if (reading === FASTER_BUCKET) {
      before = first(now, clear, holds);
    } else {
      // The counts stay the same, but the wait gets shorter until the window ends or, for a bucket, until `state.ts`.
      const { index, begin } = windowsOf(config);
      before = first(now, Math.min(begin(index(Math.max(now, state.ts)) + 1), clear), holds);
    }
    if (before < clear || clear === LAST) {
      return before < clear ? before : Infinity;
    }
    return holds(clear) ? clear : retryOwn(roll(state, clear), clear, cost);
  }

  function retryOwn(row: Row, now: number, cost: number): number {
    const fitsCeiling = when(row, now, ceiling - cost);
    const dueNow = whenCharged(row, now, cost);
    if (fitsCeiling + dueNow === Infinity) {
      return Infinity;
    }
    const at = ifGranted(row, Math.max(fitsCeiling, dueNow - maxWait, now), cost);
    // At `clear`, all debt is repaid. Even so, a request that costs more than the capacity may have to wait longer than
    // `maxWait`. For a bucket, this wait never changes. For a window, it becomes shorter toward the end of the window.
    const clear = when(row, now, 0);
    if (at < Infinity || config.algorithm !== 'fixed_window' || clear === Infinity) {
      return at;
    }
    const { index, begin } = windowsOf(config);
    const dueThen = whenCharged({ ...row, spent: 0, ts: begin(index(clear)) }, clear, cost);
    return dueThen < Infinity ? ifGranted(row, Math.max(dueThen - maxWait, clear), cost) : Infinity;
  }

  return { due, retryAt };
}

/** The largest number of tokens that can be spent with unlimited reservations: `LAST` minus the largest cost. */
const CEILING_WITHOUT_BOUND = LAST - 999_999_999_999_999;
