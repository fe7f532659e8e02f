// The rows of a snapshot, projected to an instant.
import { LAST, type Row } from './algorithm/algebra.js';
import { isForeign } from './algorithm/changed.js';
import { quotaOf, type Quota } from './algorithm/quota.js';
import type { RateLimitConfig, Snapshot } from './snapshot.js';

/** A row at an instant, and when it allows a request without a reservation. Times are in microseconds. */
export interface Projected {
  /** The row's quota. If the limit has shards, this is the shard's share of the limit's quota. */
  readonly config: RateLimitConfig;
  readonly quota: Quota;
  readonly at: number;
  /** The row, rolled to `at`. */
  readonly row: Row;
  /** The row, rolled to `at` unless another quota wrote it. A foreign row changes only when tokens are spent. */
  readonly state: Row;
  /** The number of whole tokens that can be spent at `at`. */
  readonly available: number;
  /** The first instant at which the request is allowed: `at`, a later instant, or `Infinity`. */
  readonly retryAt: number;
  /** Whether the user is blocked, regardless of the row. */
  readonly blocked: boolean;
}

/**
 * Projects each row of `snapshot` to `now` (microseconds since the epoch), for a request that costs `count` tokens.
 *
 * @throws RangeError if `count` is not a whole number from 0 to 2^53 - 1.
 */
export function project(snapshot: Snapshot, now: number, count: number): readonly Projected[] {
  checkCount(count);
  const at = Math.min(Math.max(Math.floor(now), 0), LAST);
  const { policy, algorithm, period, start, not_before = 0 } = snapshot;
  if (snapshot.shards === undefined) {
    return [projectRow(snapshot, snapshot, not_before, at, count)];
  }
  return snapshot.rows.map((row) => {
    const { rate, capacity, max_reserved } = row;
    const config = { policy, algorithm, rate, period, capacity, start, max_reserved };
    return projectRow(config, row, not_before, at, count);
  });
}

function projectRow(config: RateLimitConfig, from: Row, notBefore: number, at: number, count: number): Projected {
  const quota = quotaOf(config);
  const { spent, ts, previous, clear, written_by } = from;
  const stored: Row = { spent, ts, previous, ...(clear !== undefined && written_by && { clear, written_by }) };
  const row = quota.roll(stored, at);
  const state = isForeign(stored, at) ? stored : row;
  const fitsAt = quota.fits(row, at, count) ? at : quota.when(state, at, config.capacity - count);
  const blocked = notBefore > at;
  const retryAt = Math.max(fitsAt, notBefore === LAST ? Infinity : notBefore);
  return { config, quota, at, row, state, retryAt, blocked, available: blocked ? 0 : quota.available(row, at) };
}

/**
 * Returns the total number of tokens in a limit's shards. This is an estimate if `tokens` covers only a sample of the
 * shards.
 */
export function acrossShards({ capacity, shards = 1 }: Snapshot, tokens: readonly number[]): number {
  const [sum, read] = [tokens.reduce((sum, next) => sum + next), tokens.length];
  const rest = sum % read;
  // Divide first, because the product of `sum` and `shards` can exceed 2^53.
  return Math.min(((sum - rest) / read) * shards + Math.floor((rest * shards) / read), capacity);
}

export function checkCount(count: number): void {
  if (!Number.isSafeInteger(count) || count < 0) {
    throw new RangeError(`tollgate: count is ${count}; it must be a whole number of tokens from 0 to 2^53 - 1`);
  }
}
