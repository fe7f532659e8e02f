import type { RateLimitConfig } from '../snapshot.js';
import { LAST, type Row } from './algebra.js';
import { windowsOf } from './windows.js';

/** A row that another quota wrote and that has not expired. */
export type ForeignRow = Row & Required<Pick<Row, 'clear' | 'written_by'>>;

/** Whether another quota wrote `row`, and the row has not expired at `now`. */
export function isForeign(row: Row, now: number): row is ForeignRow {
  return row.written_by !== undefined && row.spent + row.previous > 0 && now < (row.clear ?? 0);
}

/** The debt is repaid by the faster of two token buckets. */
export const FASTER_BUCKET = 1;
/** The row is read like the quota's own row. */
export const OWN = 2;
/** Counts stay whole until the row expires. */
export const WHOLE = 3;

/** How a quota reads a foreign row. */
export function readingOf(config: RateLimitConfig, { written_by, ts, clear }: ForeignRow): number {
  const { algorithm, period } = config;
  if (written_by !== algorithm) {
    return WHOLE;
  }
  if (algorithm !== 'sliding_window') {
    return algorithm === 'token_bucket' ? FASTER_BUCKET : OWN;
  }
  // A sliding window expires two periods after `ts`, rounded up to seconds.
  const seconds = Math.ceil((ts + 2 * period) / 1e6);
  const expected = seconds < NEVER ? seconds * 1e6 : LAST;
  return period % 1e6 === 0 && expected === clear && isBoundary(config, ts) ? OWN : WHOLE;
}

/** Rows store seconds in 32 bits; the largest value means never. */
const NEVER = 2 ** 32 - 1;

/** Whether a window of `config` begins at `ts`. */
export function isBoundary(config: RateLimitConfig, ts: number): boolean {
  const { index, begin } = windowsOf(config);
  return begin(index(ts)) === ts;
}

/** Converts a foreign row whose counts stay whole to an own row that is repaid from `now` on. */
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

/** The row with less debt: `rolled`, with a debt of `spent`, or `row` at the rate of the bucket that wrote it. */
export function rollFaster(row: Row, rolled: Row, spent: number, now: number, clear: number): Row {
  const left = Math.ceil((row.spent * (clear - now)) / (clear - row.ts));
  return now > row.ts && clear < LAST && left < spent ? { ...rolled, spent: left, ts: now } : rolled;
}

/** The first instant in `from..end` at which `holds` is true and stays true; `Infinity` if there is none. */
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
