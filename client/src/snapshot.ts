import { LAST } from './algorithm/algebra.js';

/** How a limit recovers: smoothly, at window boundaries, or over a sliding window. */
export type Algorithm = 'token_bucket' | 'fixed_window' | 'sliding_window';

/** A policy and its quota. Tokens are whole numbers, and times are whole microseconds. */
export interface RateLimitConfig {
  readonly policy: string;
  readonly algorithm: Algorithm;
  /** The number of tokens that are refilled in each `period`. */
  readonly rate: number;
  /** The period in microseconds. */
  readonly period: number;
  /** The most tokens that can be spent together. */
  readonly capacity: number;
  /** The offset of window boundaries from the epoch in microseconds, which is less than `period`. 0 for a bucket. */
  readonly start: number;
  /** The number of tokens that may be reserved beyond the capacity. `null` means unlimited. */
  readonly max_reserved: number | null;
}

/** The state of a limit for one key, from the status endpoint. Instants are in microseconds since the epoch. */
export interface Snapshot extends RateLimitConfig {
  /** The tokens that are spent and not yet refilled at `ts`. */
  readonly spent: number;
  /** For a sliding window, the count of the previous window; otherwise 0. */
  readonly previous: number;
  /** The instant from which `spent` is refilled. */
  readonly ts: number;
  /** If another quota wrote the row, the instant at which the row expires, where 2^53 - 1 means never. */
  readonly clear?: number;
  /** If another quota wrote the row, the algorithm of that quota. */
  readonly written_by?: Algorithm;
  /** The time of the snapshot by the server's clock. */
  readonly now: number;
  /** If present, no request is allowed before this instant, where 2^53 - 1 means never. */
  readonly not_before?: number;
}

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
    for (const [name, min, max] of NUMBERS) {
      check(fields, name, min, max);
    }
    if (fields['max_reserved'] !== null) {
      check(fields, 'max_reserved', 0, MAX_TOKENS);
    }
    if (fields['not_before'] !== undefined) {
      check(fields, 'not_before', 0, LAST);
    }
    const { policy, algorithm, clear, written_by } = fields;
    const known = (name: unknown): boolean => ALGORITHMS.includes(name as Algorithm);
    if (typeof policy !== 'string' || !known(algorithm)) {
      throw new TypeError(`tollgate: policy "${policy}" has the unknown algorithm "${algorithm}"`);
    }
    if (clear !== undefined || written_by !== undefined) {
      check(fields, 'clear', 0, LAST);
      if (!known(written_by)) {
        throw new TypeError(`tollgate: "written_by" of the snapshot is the unknown algorithm "${written_by}"`);
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
  // `Object()` converts any other value to an object without these fields.
  return Object(value) as Record<string, unknown>;
}

function check(fields: Record<string, unknown>, name: string, min: number, max: number): number {
  const value = fields[name];
  if (typeof value !== 'number' || !(value >= min && value <= max) || (value % 1 && !FRACTIONS.includes(name))) {
    throw new TypeError(`tollgate: "${name}" of the snapshot is ${value}; does the url lead to a status endpoint?`);
  }
  return value;
}

const ALGORITHMS: readonly Algorithm[] = ['token_bucket', 'fixed_window', 'sliding_window'];
const FRACTIONS = ['spent', 'previous'];
const MAX_TOKENS = 999_999_999_999_999;
/** 100 years in microseconds. */
const MAX_PERIOD = 3_155_760_000_000_000;
/** The server's bounds for each number, within which doubles are exact. */
const NUMBERS: readonly (readonly [keyof Snapshot, number, number])[] = [
  ['rate', 1, MAX_TOKENS],
  ['period', 1, MAX_PERIOD],
  ['capacity', 0, MAX_TOKENS],
  ['start', 0, MAX_PERIOD],
  ['spent', 0, LAST],
  ['previous', 0, LAST],
  ['ts', 0, LAST],
  ['now', 0, LAST],
];
