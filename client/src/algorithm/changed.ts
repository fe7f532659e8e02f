import type { RateLimitConfig } from '../snapshot.js';
import { LAST, type Row } from './algebra.js';
import { windowsOf } from './windows.js';

/** A row that another quota wrote and that is not fully repaid. */
export type ForeignRow = Row & Required<Pick<Row, 'clear' | 'written_by'>>;

/** Whether another quota wrote `row` and it is not fully repaid at `now`. */
export function isForeign(row: Row, now: number): row is ForeignRow {
  return row.written_by !== undefined && row.spent + row.previous > 0 && now < (row.clear ?? 0);
}

/** Between token buckets: the larger of both repayments applies. */
export const FASTER = 1;
/** Read like the quota's own row. */
export const OWN = 2;
/** The counts remain in full until `clear`. */
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
  // A sliding window's `clear` reveals its period.
  const seconds = Math.ceil((ts + 2 * period) / 1e6);
  const ends = seconds < NEVER ? seconds * 1e6 : LAST;
  return period % 1e6 === 0 && ends === clear && isBoundary(config, ts) ? OWN : WHOLE;
}

/** Rows store seconds in 32 bits; the largest value means never. */
const NEVER = 2 ** 32 - 1;

/** Whether a window of `config` begins at `ts`. */
export function isBoundary(config: RateLimitConfig, ts: number): boolean {
  const { index, begin } = windowsOf(config);
  return begin(index(ts)) === ts;
}

/** A foreign row whose counts remain, as an own row that is repaid from `now` on. */
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

/** `rolled`, which has `spent` tokens left to repay, or the row by the writer's rate, if less is left by that. */
export function faster(row: Row, rolled: Row, spent: number, now: number, clear: number): Row {
  const byWriter = Math.ceil((row.spent * (clear - now)) / (clear - row.ts));
  return now > row.ts && clear < LAST && byWriter < spent ? { ...rolled, spent: byWriter, ts: now } : rolled;
}

/** The first instant in `from..end` at which `holds`, which never turns false again; otherwise `Infinity`. */
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
