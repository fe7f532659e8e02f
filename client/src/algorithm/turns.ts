import type { RateLimitConfig } from '../snapshot.js';
import { LAST, type Row } from './algebra.js';
import { FASTER, first, isForeign, OWN, readingOf } from './changed.js';
import type { Quota } from './quota.js';
import { windowsOf } from './windows.js';

/** What a quota says to somebody who would wait for a turn. Instants in microseconds, `Infinity` if there is none. */
export interface Turns {
  /** The turn that a reservation of `cost` made at `now` would get. */
  turn(row: Row, now: number, cost: number): number;
  /** When a reservation of `cost` would be granted that is not granted at `now`. Takes a foreign row as it is. */
  retryAt(row: Row, now: number, cost: number): number;
}

/** The turns of a quota that allows reservations, each within `maxWait` (microseconds) of when it is reserved. */
export function turnsOf(config: RateLimitConfig, quota: Quota, maxWait: number): Turns {
  const { capacity, max_reserved: reservable } = config;
  const { roll, fits, within, when } = quota;
  const ceiling = reservable === null ? CEILING_WITHOUT_BOUND : capacity + reservable;

  const whenCharged = (row: Row, now: number, cost: number): number =>
    when({ ...row, spent: row.spent + cost }, now, capacity);

  function turn(row: Row, now: number, cost: number): number {
    const due = cost <= ceiling && within(row, now, ceiling - cost) ? whenCharged(row, now, cost) : Infinity;
    return due - now <= maxWait ? due : Infinity;
  }

  /** `at`, if a reservation would be granted then. */
  function ifGranted(row: Row, at: number, cost: number): number {
    const then = roll(row, at);
    return fits(then, at, cost) || turn(then, at, cost) < Infinity ? at : Infinity;
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
    } else if (reading === FASTER) {
      before = first(now, clear, holds);
    } else if (config.algorithm === 'fixed_window') {
      // Counts that stand leave only the wait for a turn to change, which shrinks to the end of a window.
      const { index, begin } = windowsOf(config);
      before = first(now, Math.min(begin(index(Math.max(now, state.ts)) + 1), clear), holds);
    }
    if (before < clear || clear === LAST) {
      return before < clear ? before : Infinity;
    }
    return holds(clear) ? clear : retryOwn(roll(state, clear), clear, cost);
  }

  function retryOwn(row: Row, now: number, cost: number): number {
    const room = when(row, now, ceiling - cost);
    const due = whenCharged(row, now, cost);
    if (room + due === Infinity) {
      return Infinity;
    }
    const at = ifGranted(row, Math.max(room, due - maxWait, now), cost);
    // What is owed is all paid back by then, and still the cost, larger than the capacity, waits too long. A bucket's
    // wait stays as it is; a window's shrinks towards its end.
    const clear = when(row, now, 0);
    if (at < Infinity || config.algorithm !== 'fixed_window' || clear === Infinity) {
      return at;
    }
    const { index, begin } = windowsOf(config);
    const dueThen = whenCharged({ ...row, spent: 0, ts: begin(index(clear)) }, clear, cost);
    return dueThen < Infinity ? ifGranted(row, Math.max(dueThen - maxWait, clear), cost) : Infinity;
  }

  return { turn, retryAt };
}

/** Nothing spends more than a double counts exactly; less the most tokens that a cost can be. */
const CEILING_WITHOUT_BOUND = LAST - 999_999_999_999_999;
