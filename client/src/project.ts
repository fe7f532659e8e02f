import { LAST, type Row } from './algorithm/algebra.js';
import { isForeign } from './algorithm/changed.js';
import { quotaOf, type Quota } from './algorithm/quota.js';
import type { Snapshot } from './snapshot.js';

/** The state of a limit at an instant, for a request without a reservation. Times are in microseconds. */
export interface Projected {
  readonly quota: Quota;
  readonly at: number;
  /** The row, rolled to `at`. */
  readonly row: Row;
  /** The row, rolled to `at` unless another quota wrote it. Such a foreign row changes only when tokens are spent. */
  readonly state: Row;
  /** The number of whole tokens that can be spent at `at`. */
  readonly available: number;
  /** The instant at which the request is allowed: `at`, a later instant, or `Infinity`. */
  readonly retryAt: number;
  /** Whether the user is blocked, regardless of the row. */
  readonly blocked: boolean;
}

/**
 * Projects `snapshot` to `now` (microseconds since the epoch), for a request of `count` tokens.
 *
 * @throws RangeError if `count` is not a whole number from 0 to 2^53 - 1.
 */
export function project(snapshot: Snapshot, now: number, count: number): Projected {
  checkCount(count);
  const quota = quotaOf(snapshot);
  const { spent, ts, previous, clear, written_by, capacity, not_before = 0 } = snapshot;
  const at = Math.min(Math.max(Math.floor(now), 0), LAST);
  const stored: Row = { spent, ts, previous, ...(clear !== undefined && written_by && { clear, written_by }) };
  const row = quota.roll(stored, at);
  const state = isForeign(stored, at) ? stored : row;
  const fitsAt = quota.fits(row, at, count) ? at : quota.when(state, at, capacity - count);
  const blocked = not_before > at;
  const retryAt = Math.max(fitsAt, not_before === LAST ? Infinity : not_before);
  return { quota, at, row, state, retryAt, blocked, available: blocked ? 0 : quota.available(row, at) };
}

export function checkCount(count: number): void {
  if (!Number.isSafeInteger(count) || count < 0) {
    throw new RangeError(`tollgate: count is ${count}; it must be a whole number of tokens from 0 to 2^53 - 1`);
  }
}
