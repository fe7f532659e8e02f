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
  /** The server's time at which it was read. */
  readonly now: number;
}

/**
 * Reads what a status endpoint answered: one snapshot, or `{ limits: [snapshot, ...], now }` of several policies.
 *
 * @throws TypeError that names the field which is missing or out of range.
 */
export function parseSnapshots(body: unknown): readonly Snapshot[] {
  const limits = fieldsOf(body)['limits'];
  return (Array.isArray(limits) ? limits.slice(0, MOST_LIMITS) : [body]).map(parseSnapshot);
}

/**
 * Reads what a server-time endpoint answered, `{ now }`: microseconds since the epoch.
 *
 * @throws TypeError if it is no such answer.
 */
export function parseNow(body: unknown): number {
  return integer(fieldsOf(body), 'now', 0, Number.MAX_SAFE_INTEGER);
}

function parseSnapshot(value: unknown): Snapshot {
  const fields = fieldsOf(value);
  const { policy, algorithm } = fields;
  if (typeof policy !== 'string') {
    throw wrong('policy');
  }
  if (algorithm !== 'token_bucket' && algorithm !== 'fixed_window' && algorithm !== 'sliding_window') {
    throw wrong('algorithm');
  }
  const last = Number.MAX_SAFE_INTEGER;
  const period = integer(fields, 'period', 1, LONGEST_PERIOD);
  return {
    policy,
    algorithm,
    rate: integer(fields, 'rate', 1, MOST_TOKENS),
    period,
    capacity: integer(fields, 'capacity', 0, MOST_TOKENS),
    start: integer(fields, 'start', 0, period - 1),
    max_reserved: fields['max_reserved'] === null ? null : integer(fields, 'max_reserved', 0, MOST_TOKENS),
    spent: number(fields, 'spent', 0, last),
    previous: number(fields, 'previous', 0, last),
    ts: integer(fields, 'ts', 0, last),
    now: integer(fields, 'now', 0, last),
  };
}

function fieldsOf(value: unknown): Record<string, unknown> {
  if (typeof value !== 'object' || value === null) {
    throw new TypeError('tollgate: the endpoint did not answer a JSON object');
  }
  return value as Record<string, unknown>;
}

function integer(fields: Record<string, unknown>, name: string, least: number, most: number): number {
  const value = number(fields, name, least, most);
  if (value % 1) {
    throw wrong(name);
  }
  return value;
}

function number(fields: Record<string, unknown>, name: string, least: number, most: number): number {
  const value = fields[name];
  if (typeof value !== 'number' || !(value >= least && value <= most)) {
    throw wrong(name);
  }
  return value;
}

function wrong(field: string): TypeError {
  return new TypeError(`tollgate: "${field}" of the snapshot is missing or out of range; is the url a status endpoint?`);
}

/** The server's bounds: a quota's numbers up to 10^15 - 1, periods up to 100 years. */
const MOST_TOKENS = 999_999_999_999_999;
const LONGEST_PERIOD = 3_155_760_000_000_000;
/** More policies than any server limits one request by. */
const MOST_LIMITS = 100;
