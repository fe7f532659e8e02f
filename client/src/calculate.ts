// Computes from a snapshot how the server would decide on a request.
import type { Row } from './algorithm/algebra.js';
import { reservationsOf } from './algorithm/reservations.js';
import { acrossShards, project, type Projected } from './project.js';
import type { Snapshot } from './snapshot.js';

/** Whether the request may reserve tokens, provided that the quota allows reservations. By default, it may not. */
export interface CalculateOptions {
  /** Accepts a reservation, no matter how long the wait is. */
  readonly reserve?: boolean;
  /** Accepts a reservation that is due within this time. */
  readonly maxWaitMicros?: number;
}

/** The server's decision. Times are in whole microseconds, as in the snapshot. */
export interface RateLimitResult {
  /** Whether the request would be granted, either now or as a reservation. */
  readonly ok: boolean;
  /** The number of whole tokens available before the request. */
  readonly available: number;
  /** The number of whole tokens available after the request. If the request is denied, this is equal to `available`. */
  readonly remaining: number;
  /** The time until the reservation is due, or 0 without a reservation. */
  readonly wait: number;
  /** The shortest wait after which the same request is allowed. `null` if it is never allowed or if `ok` is true. */
  readonly retryAfter: number | null;
  /**
   * The row after the request. A denied request does not change the row. If the quota has shards, this is the row of
   * the shard that can grant the request first.
   */
  readonly row: Row;
}

/**
 * Computes the server's decision on a request that costs `count` tokens at `now` (microseconds since the Unix epoch, by
 * the server's clock). Assumes that no other request spends tokens after the snapshot. A `count` of 0 spends nothing.
 *
 * The result is identical to the server's.
 *
 * @throws RangeError if `count` is not a whole number from 0 to 2^53 - 1.
 */
export function calculateRateLimit(
  snapshot: Snapshot,
  now: number,
  count: number,
  options: CalculateOptions = {},
): RateLimitResult {
  const rows = project(snapshot, now, count);
  const outcomes = rows.map((row) => decide(row, count, options));
  // Like the server, choose the first of several equal outcomes.
  const best = outcomes.reduce((best, next) => (isEarlier(next, best) ? next : best));
  const { ok, wait, retryAfter, row } = best;
  return {
    ok,
    available: acrossShards(snapshot, rows.map(({ available }) => available)),
    remaining: acrossShards(snapshot, outcomes.map((each, i) => (each === best ? each.remaining : rows[i]!.available))),
    wait,
    retryAfter,
    row,
  };
}

/** Computes the decision for one row. In the result, `remaining` is the number of tokens left in this row. */
function decide(projected: Projected, count: number, options: CalculateOptions): Omit<RateLimitResult, 'available'> {
  const { config, quota, at, row: before, state, available, retryAt: fitsAt, blocked } = projected;
  const maxWait = options.reserve ? Infinity : options.maxWaitMicros;
  const waits = maxWait !== undefined && config.max_reserved !== 0 && !blocked;
  const reservations = waits ? reservationsOf(config, quota, maxWait) : null;

  const due = fitsAt > at && reservations ? reservations.due(before, at, count) : fitsAt;
  const ok = reservations ? due < Infinity : due === at;
  const retryAt = ok ? Infinity : reservations ? reservations.retryAt(state, at, count) : fitsAt;
  // A row that another quota wrote changes only when tokens are spent or reserved.
  const row = ok && (count || due > at) ? { ...before, spent: before.spent + count } : state;
  return {
    ok,
    remaining: ok && count ? quota.available(row, at) : available,
    wait: ok ? due - at : 0,
    retryAfter: retryAt === Infinity ? null : retryAt - at,
    row,
  };
}

type Outcome = Pick<RateLimitResult, 'ok' | 'wait' | 'retryAfter'>;

/** Returns whether `a` grants the request, or allows a retry, before `b` does. Any grant is better than a denial. */
function isEarlier(a: Outcome, b: Outcome): boolean {
  const delay = ({ ok, wait, retryAfter }: Outcome): number => (ok ? wait : (retryAfter ?? Infinity));
  return a.ok === b.ok ? delay(a) < delay(b) : a.ok;
}
