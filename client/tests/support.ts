// Snapshots and headers for the tests.
import type { RowSnapshot, Shard, ShardedSnapshot } from '../src/index.js';

/** The time of the snapshots, in microseconds since the epoch. */
export const NOW = 1_700_000_000_000_000;

/** Returns a snapshot of a full bucket that refills ten tokens per minute. `fields` overrides the default values. */
export function snapshot(fields: Partial<RowSnapshot>): RowSnapshot {
  return {
    policy: 'chat',
    algorithm: 'token_bucket',
    rate: 10,
    period: 60_000_000,
    capacity: 10,
    start: 0,
    max_reserved: 0,
    spent: 0,
    previous: 0,
    ts: NOW,
    now: NOW,
    ...fields,
  };
}

/**
 * Returns a snapshot of a sharded bucket. By default, each shard is full and refills ten tokens per minute. `rows` and
 * `fields` override the default values.
 */
export function sharded(rows: readonly Partial<Shard>[], fields: Partial<ShardedSnapshot> = {}): ShardedSnapshot {
  const { spent, previous, ts, rate, capacity, max_reserved, ...common } = snapshot({});
  const shards = fields.shards ?? rows.length;
  return {
    ...common,
    rate: rate * shards,
    capacity: capacity * shards,
    max_reserved,
    shards,
    rows: rows.map((row) => ({ spent, previous, ts, rate, capacity, max_reserved, ...row })),
    ...fields,
  };
}

/** Creates headers from an object. */
export function headers(fields: Record<string, string>): Headers {
  return new Headers(fields);
}
