// Rows that another quota wrote, and how they are read after a quota has changed.
import type { RateLimitConfig } from '../snapshot.js';
import { LAST, type Row } from './algebra.js';
import { windowsOf } from './windows.js';

/** A row that another quota wrote and that has not expired. */
export type ForeignRow = Row & Required<Pick<Row, 'clear' | 'written_by'>>;

/** Returns whether `row` was written by another quota and has not yet expired at `now`. */
export function isForeign(row: Row, now: number): row is ForeignRow {
  return row.written_by !== undefined && row.spent + row.previous > 0 && now < (row.clear ?? 0);
}

/** The debt is repaid at the rate of the reader's or the writer's token bucket, whichever is faster. */
export const FASTER_BUCKET = 1;
/** The row is read as if the reader's quota had written it. */
export const OWN = 2;
/** The counts are not reduced until the row expires. */
export const WHOLE = 3;

/** Returns how a quota reads a foreign row. */
export function readingOf(config: RateLimitConfig, { written_by, ts, clear }: ForeignRow): number {
  const { algorithm, period } = config;
  if (written_by !== algorithm) {
    return WHOLE;
  }
  if (algorithm !== 'sliding_window') {
    return algorithm === 'token_bucket' ? FASTER_BUCKET : OWN;
  }
  // A sliding window's row expires two periods after `ts`, rounded up to whole seconds.
  const seconds = Math.ceil((ts + 2 * period) / 1e6);
  const expected = seconds < NEVER ? seconds * 1e6 : LAST;
  return period % 1e6 === 0 && expected === clear && isBoundary(config, ts) ? OWN : WHOLE;
}

/** An expiry of 2^32 - 1 seconds, the largest that rows can store, means "never". */
const NEVER = 2 ** 32 - 1;

/** Returns whether a window of `config` begins at `ts`. */
export function isBoundary(config: RateLimitConfig, ts: number): boolean {
  const { index, begin } = windowsOf(config);
  return begin(index(ts)) === ts;
}

/** Converts a foreign row to a row of the reader's quota as of `now`, without reducing the counts. */
export function rollWhole(config: RateLimitConfig, row: Row, now: number): Row {
  const { index, begin } = windowsOf(config);
  const latest = Math.max(row.ts, now);
  const boundary = (instant: number): number => begin(index(instant));
  const { algorithm } = config;
  const ts =
    algorithm === 'token_bucket'
      ? latest
      : algorithm === 'fixed_window'
        ? Math.max(row.ts, boundary(now))
        : boundary(latest);
  return { ...row, ts };
}

/**
 * Returns the row with less debt: either `rolled`, whose debt is `spent`, or `row` after repayment until `now` at the
 * rate of the bucket that wrote it.
 */
export function rollFaster(row: Row, rolled: Row, spent: number, now: number, clear: number): Row {
  const left = Math.ceil((row.spent * (clear - now)) / (clear - row.ts));
  return now > row.ts && clear < LAST && left < spent ? { ...rolled, spent: left, ts: now } : rolled;
}

/** Returns the first instant in `from..end` from which `holds` remains true, or `Infinity` if there is none. */
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
