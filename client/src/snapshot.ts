import { LAST } from './algorithm/algebra.js';

/** How spending is paid back: smoothly, at boundaries, or as the window before slides out of view. */
export type Algorithm = 'token_bucket' | 'fixed_window' | 'sliding_window';

/** A policy and its quota, as a server tells them. Tokens are whole; times are whole microseconds. */
export interface RateLimitConfig {
  /** The policy's name. */
  readonly policy: string;
  readonly algorithm: Algorithm;
  /** Tokens paid back every `period`. */
  readonly rate: number;
  /** Microseconds. */
  readonly period: number;
  /** The most tokens that can be spent at once. */
  readonly capacity: number;
  /** Where window boundaries lie: microseconds after the epoch, from 0 to less than `period`. Of a bucket 0. */
  readonly start: number;
  /** Tokens that may be reserved over the capacity; `null` is without bound. */
  readonly max_reserved: number | null;
}

/** A limit as it stands for one key: what the status endpoint answers. Instants in microseconds since the epoch. */
export interface Snapshot extends RateLimitConfig {
  /** Tokens spent and, at `ts`, not yet paid back. */
  readonly spent: number;
  /** Sliding window: tokens of the window before. Else 0. */
  readonly previous: number;
  /** The instant from which `spent` is paid back. */
  readonly ts: number;
  /** If another quota wrote the row: the instant from which nothing of it counts any more; 2^53 - 1 is never. */
  readonly clear?: number;
  /** If another quota wrote the row: the algorithm of that one. */
  readonly written_by?: Algorithm;
  /** The server's time at which it was read. */
  readonly now: number;
  /** Nothing is allowed before this instant, whatever the rest says; 2^53 - 1 is for good. Mostly absent. */
  readonly not_before?: number;
}

/**
 * Reads what a status endpoint answered: one snapshot, or `{ limits: [snapshot, ...] }` of several policies.
 *
 * @throws TypeError that names the field which is missing or out of range.
 */
export function parseSnapshots(body: unknown): readonly Snapshot[] {
  const limits = fieldsOf(body)['limits'];
  return (Array.isArray(limits) ? limits : [body]).map((limit) => {
    const fields = fieldsOf(limit);
    for (const [name, least, most] of NUMBERS) {
      check(fields, name, least, most);
    }
    if (fields['max_reserved'] !== null) {
      check(fields, 'max_reserved', 0, MOST_TOKENS);
    }
    if (fields['not_before'] !== undefined) {
      check(fields, 'not_before', 0, LAST);
    }
    const { policy, algorithm, clear, written_by } = fields;
    const known = (name: unknown): boolean => ALGORITHMS.includes(name as Algorithm);
    if (typeof policy !== 'string' || !known(algorithm)) {
      throw new TypeError(`tollgate: policy "${policy}" has the unknown algorithm "${algorithm}"`);
    }
    // Both, or neither.
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
 * Reads what a server-time endpoint answered, `{ now }`: microseconds since the epoch.
 *
 * @throws TypeError if it is no such answer.
 */
export function parseNow(body: unknown): number {
  return check(fieldsOf(body), 'now', 0, LAST);
}

function fieldsOf(value: unknown): Record<string, unknown> {
  // Whatever else it is, it has no such field.
  return Object(value) as Record<string, unknown>;
}

function check(fields: Record<string, unknown>, name: string, least: number, most: number): number {
  const value = fields[name];
  if (typeof value !== 'number' || !(value >= least && value <= most) || (value % 1 && !FRACTIONS.includes(name))) {
    throw new TypeError(`tollgate: "${name}" of the snapshot is ${value}; does the url lead to a status endpoint?`);
  }
  return value;
}

const ALGORITHMS: readonly Algorithm[] = ['token_bucket', 'fixed_window', 'sliding_window'];
const FRACTIONS = ['spent', 'previous'];
const MOST_TOKENS = 999_999_999_999_999;
/** Microseconds of 100 years. */
const LONGEST_PERIOD = 3_155_760_000_000_000;
/** The server's own bounds: within them, doubles are exact. */
const NUMBERS: readonly (readonly [keyof Snapshot, number, number])[] = [
  ['rate', 1, MOST_TOKENS],
  ['period', 1, LONGEST_PERIOD],
  ['capacity', 0, MOST_TOKENS],
  ['start', 0, LONGEST_PERIOD],
  ['spent', 0, LAST],
  ['previous', 0, LAST],
  ['ts', 0, LAST],
  ['now', 0, LAST],
];
