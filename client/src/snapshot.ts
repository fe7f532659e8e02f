// Snapshots of limits, as sent by the status endpoint, and their validation.
import { LAST, type Row } from './algorithm/algebra.js';

/** How a limit refills: smoothly, at window boundaries, or over a sliding window. */
export type Algorithm = 'token_bucket' | 'fixed_window' | 'sliding_window';

/** A policy and its quota. Tokens are whole numbers, and times are whole microseconds. */
export interface RateLimitConfig {
  readonly policy: string;
  readonly algorithm: Algorithm;
  /** The number of tokens that are refilled in each `period`. */
  readonly rate: number;
  /** The period in microseconds. */
  readonly period: number;
  /** The maximum number of tokens that can be spent at once. */
  readonly capacity: number;
  /** The offset of window boundaries from the epoch, in microseconds. Less than `period`, and 0 for a bucket. */
  readonly start: number;
  /** The number of tokens that may be reserved beyond the capacity. `null` means unlimited. */
  readonly max_reserved: number | null;
}

/** The fields that every snapshot has. Instants are in microseconds since the Unix epoch. */
interface CommonFields extends RateLimitConfig {
  /** The time of the snapshot by the server's clock. */
  readonly now: number;
  /** If present, the instant until which all requests are denied. 2^53 - 1 means forever. */
  readonly not_before?: number;
}

/** The snapshot of a limit that has one row for each key. */
export interface RowSnapshot extends CommonFields, Row {
  readonly shards?: undefined;
}

/** The snapshot of a limit whose quota is divided into shards. A request spends tokens from one shard. */
export interface ShardedSnapshot extends CommonFields {
  /** The number of shards. */
  readonly shards: number;
  /** The shards that the server has read: either all of them or a sample. */
  readonly rows: readonly Shard[];
}

/** The row of one shard, and the shard's share of the quota. */
export interface Shard extends Row, Pick<RateLimitConfig, 'rate' | 'capacity' | 'max_reserved'> {}

/** The state of a limit for one key, as sent by the status endpoint. */
export type Snapshot = RowSnapshot | ShardedSnapshot;

/**
 * Parses the response of a status endpoint, which is one snapshot or, for several policies,
 * `{ limits: [snapshot, ...] }`.
 *
 * @throws TypeError if a field is missing or out of range; the message names the field.
 */
export function parseSnapshots(body: unknown): readonly Snapshot[] {
  const limits = fieldsOf(body)['limits'];
  return (Array.isArray(limits) ? limits : [body]).map((limit) => {
    const fields = fieldsOf(limit);
    checkQuota(fields);
    check(fields, 'period', 1, MAX_PERIOD);
    check(fields, 'start', 0, MAX_PERIOD);
    check(fields, 'now', 0, LAST);
    if (fields['not_before'] !== undefined) {
      check(fields, 'not_before', 0, LAST);
    }
    const { policy, algorithm, rows } = fields;
    if (typeof policy !== 'string' || !isAlgorithm(algorithm)) {
      throw new TypeError(`tollgate: policy "${policy}" has the unknown algorithm "${algorithm}"`);
    }
    if (fields['shards'] === undefined) {
      checkState(fields);
    } else {
      const shards = check(fields, 'shards', 1, MAX_SHARDS);
      if (!Array.isArray(rows) || rows.length < 1 || rows.length > shards) {
        throw new TypeError(`tollgate: "rows" of the snapshot is not a list of 1 to ${shards} shards`);
      }
      for (const row of rows.map(fieldsOf)) {
        checkQuota(row);
        checkState(row);
      }
    }
    return fields as unknown as Snapshot;
  });
}

/**
 * Parses the response of a server-time endpoint, which is `{ now }` in microseconds since the epoch.
 *
 * @throws TypeError if `now` is missing or out of range.
 */
export function parseNow(body: unknown): number {
  return check(fieldsOf(body), 'now', 0, LAST);
}

function fieldsOf(value: unknown): Record<string, unknown> {
  // `Object()` converts a value that is not an object to an object that lacks the expected fields.
  return Object(value) as Record<string, unknown>;
}

function checkQuota(fields: Record<string, unknown>): void {
  check(fields, 'rate', 1, MAX_TOKENS);
  check(fields, 'capacity', 0, MAX_TOKENS);
  if (fields['max_reserved'] !== null) {
    check(fields, 'max_reserved', 0, MAX_TOKENS);
  }
}

function checkState(fields: Record<string, unknown>): void {
  check(fields, 'spent', 0, LAST);
  check(fields, 'previous', 0, LAST);
  check(fields, 'ts', 0, LAST);
  const { clear, written_by } = fields;
  if (clear !== undefined || written_by !== undefined) {
    check(fields, 'clear', 0, LAST);
    if (!isAlgorithm(written_by)) {
      throw new TypeError(`tollgate: the field "written_by" of the snapshot names an unknown algorithm, "${written_by}"`);
    }
  }
}

const isAlgorithm = (name: unknown): boolean => ALGORITHMS.includes(name as Algorithm);

/** Checks that a number is within the server's bounds. Within these bounds, doubles are exact. */
function check(fields: Record<string, unknown>, name: string, min: number, max: number): number {
  const value = fields[name];
  if (typeof value !== 'number' || !(value >= min && value <= max) || (value % 1 && !FRACTIONS.includes(name))) {
    throw new TypeError(`tollgate: the field "${name}" of the snapshot is ${value}; does the URL point to a status endpoint?`);
  }
  return value;
}

const ALGORITHMS: readonly Algorithm[] = ['token_bucket', 'fixed_window', 'sliding_window'];
const FRACTIONS = ['spent', 'previous'];
const MAX_TOKENS = 999_999_999_999_999;
const MAX_SHARDS = 64;
/** 100 years in microseconds. */
const MAX_PERIOD = 3_155_760_000_000_000;
