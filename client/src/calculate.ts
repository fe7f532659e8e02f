import type { Row } from './algorithm/algebra.js';
import { turnsOf } from './algorithm/turns.js';
import { project } from './project.js';
import type { Snapshot } from './snapshot.js';

/** Whether the caller would wait for its turn, where the quota allows reservations. By default it would not. */
export interface CalculateOptions {
  /** However long. */
  readonly reserve?: boolean;
  /** Up to so many microseconds. */
  readonly maxWaitMicros?: number;
}

/** What the server would answer. Times are in whole microseconds, as in the snapshot. */
export interface RateLimitResult {
  /** Whether the tokens would be spent, now or for a later turn. */
  readonly ok: boolean;
  /** Whole tokens that could be spent at once before this. */
  readonly available: number;
  /** Whole tokens that could be spent at once after it; of a denial as many as before. */
  readonly remaining: number;
  /** Until the turn of a reservation; 0 if it is now, or there is none. */
  readonly wait: number;
  /** Of a denial: the shortest wait after which the same ask succeeds; `null` if it never does, or is `ok`. */
  readonly retryAfter: number | null;
  /** The row that it leaves; of a denial as it stands. */
  readonly row: Row;
}

/**
 * What the server that answered `snapshot` would say at `now` (microseconds since the Unix epoch, by the server's
 * clock) to a request that costs `count` tokens, if nobody else spends until then.
 *
 * The same operations on the same doubles as the server's, so that both decide alike to the last bit. A `count` of 0
 * asks whether the key is out of debt.
 *
 * @throws RangeError if `count` is no whole number from 0 to 2^53 - 1.
 */
export function calculateRateLimit(
  snapshot: Snapshot,
  now: number,
  count: number,
  options: CalculateOptions = {},
): RateLimitResult {
  const { quota, at, row: before, state, available, retryAt: fitsAt, barred } = project(snapshot, now, count);
  const maxWait = options.reserve ? Infinity : options.maxWaitMicros;
  const waits = maxWait !== undefined && snapshot.max_reserved !== 0 && !barred;
  const turns = waits ? turnsOf(snapshot, quota, maxWait) : null;

  const due = fitsAt > at && turns ? turns.turn(before, at, count) : fitsAt;
  const ok = turns ? due < Infinity : due === at;
  const retryAt = ok ? Infinity : turns ? turns.retryAt(state, at, count) : fitsAt;
  // A foreign row stays as it is until something is spent, or promised.
  const row = ok && (count || due > at) ? { ...before, spent: before.spent + count } : state;
  return {
    ok,
    available,
    remaining: ok && count ? quota.available(row, at) : available,
    wait: ok ? due - at : 0,
    retryAfter: retryAt === Infinity ? null : retryAt - at,
    row,
  };
}
