import type { Snapshot } from '../src/index.js';

/** Microseconds since the epoch. */
export const NOW = 1_700_000_000_000_000;

/** A full bucket of ten tokens per minute, with these fields replaced. */
export function snapshot(fields: Partial<Snapshot>): Snapshot {
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

/** Headers from an object. */
export function headers(fields: Record<string, string>): Headers {
  return new Headers(fields);
}
