import type { Row } from './algorithm/algebra.js';
import { reservationsOf } from './algorithm/reservations.js';
import { project } from './project.js';
import type { Snapshot } from './snapshot.js';

/** Whether the request may make a reservation, provided that the quota allows reservations. By default, it may not. */
export interface CalculateOptions {
  /** Accepts a reservation regardless of the wait. */
  readonly reserve?: boolean;
  /** Accepts a reservation that is due within this time. */
  readonly maxWaitMicros?: number;
}

/** The server's decision. Times are in whole microseconds, as in the snapshot. */
export interface RateLimitResult {
  /** Whether the tokens would be spent, either now or by a reservation. */
  readonly ok: boolean;
  /** The whole tokens that are available before the request. */
  readonly available: number;
  /** The whole tokens that are available after the request, which are the same as before if it is denied. */
  readonly remaining: number;
  /** The time until the reservation is due, or 0 without a reservation. */
  readonly wait: number;
  /** The shortest wait after which the same request is allowed. `null` if it is never allowed or if `ok` is true. */
  readonly retryAfter: number | null;
  /** The resulting row, which does not change if the request is denied. */
  readonly row: Row;
}

/**
 * Computes the server's decision on a request of `count` tokens at `now` (microseconds since the Unix epoch, by the
 * server's clock). Assumes that no other request spends tokens in the meantime. A `count` of 0 checks that the key is
 * not in debt.
 *
 * Uses the same operations on the same doubles as the server, so the results are identical.
 *
 * @throws RangeError if `count` is not a whole number from 0 to 2^53 - 1.
 */
export function calculateRateLimit(
  snapshot: Snapshot,
  now: number,
  count: number,
  options: CalculateOptions = {},
): RateLimitResult {
  const { quota, at, row: before, state, available, retryAt: fitsAt, blocked } = project(snapshot, now, count);
  const maxWait = options.reserve ? Infinity : options.maxWaitMicros;
  const waits = maxWait !== undefined && snapshot.max_reserved !== 0 && !blocked;
  const reservations = waits ? reservationsOf(snapshot, quota, maxWait) : null;

  const due = fitsAt > at && reservations ? reservations.due(before, at, count) : fitsAt;
  const ok = reservations ? due < Infinity : due === at;
  const retryAt = ok ? Infinity : reservations ? reservations.retryAt(state, at, count) : fitsAt;
  // A row that another quota wrote changes only when tokens are spent or reserved.
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
