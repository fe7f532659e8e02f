import type { RateLimitConfig } from '../snapshot.js';
import { LAST, type Row } from './algebra.js';
import { windowsOf } from './windows.js';

/** A row that another quota wrote, and of which something still stands. */
export type ForeignRow = Row & Required<Pick<Row, 'clear' | 'written_by'>>;

/** Whether another quota wrote `row`, and something of it stands at `now`. */
export function isForeign(row: Row, now: number): row is ForeignRow {
  return row.written_by !== undefined && row.spent + row.previous > 0 && now < (row.clear ?? 0);
}

/** Between token buckets: what either of them has repaid. */
export const FASTER = 1;
/** As an own row. */
export const OWN = 2;
/** The counts stand until the row is clear. */
export const WHOLE = 3;

/** How a quota reads a foreign row. */
export function readingOf(config: RateLimitConfig, { written_by, ts, clear }: ForeignRow): number {
  const { algorithm, period } = config;
  if (written_by !== algorithm) {
    return WHOLE;
  }
  if (algorithm !== 'sliding_window') {
    return algorithm === 'token_bucket' ? FASTER : OWN;
  }
  // Of a sliding window, `clear` tells the period.
  const seconds = Math.ceil((ts + 2 * period) / 1e6);
  const ends = seconds < NEVER ? seconds * 1e6 : LAST;
  return period % 1e6 === 0 && ends === clear && isBoundary(config, ts) ? OWN : WHOLE;
}

/** Rows count seconds in 32 bits, of which the last stands for the last instant. */
const NEVER = 2 ** 32 - 1;

/** Whether a window of `config` begins at `ts`. */
export function isBoundary(config: RateLimitConfig, ts: number): boolean {
  const { index, begin } = windowsOf(config);
  return begin(index(ts)) === ts;
}

/** A row whose counts stand, as an own row that is repaid from `now` on. */
export function whole(config: RateLimitConfig, row: Row, now: number): Row {
  const { index, begin } = windowsOf(config);
  const latest = Math.max(row.ts, now);
  const start = (instant: number): number => begin(index(instant));
  const { algorithm } = config;
  const ts =
    algorithm === 'token_bucket'
      ? latest
      : algorithm === 'fixed_window'
        ? Math.max(row.ts, start(now))
        : start(latest);
  return { ...row, ts };
}

/** The lesser of `rolled`, where `stands` tokens are left, and of what the bucket that wrote `row` has left. */
export function faster(row: Row, rolled: Row, stands: number, now: number, clear: number): Row {
  const left = Math.ceil((row.spent * (clear - now)) / (clear - row.ts));
  return now > row.ts && clear < LAST && left < stands ? { ...rolled, spent: left, ts: now } : rolled;
}

/** The first instant from `from` on, and before `end`, at which `holds`, which once true stays so; else `Infinity`. */
export function first(from: number, end: number, holds: (instant: number) => boolean): number {
  if (from >= end || !holds(end - 1)) {
    return Infinity;
  }
  let [low, high] = [from, end - 1];
  while (low < high) {
    const middle = low + Math.floor((high - low) / 2);
    if (holds(middle)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return high;
}
