// A quota's operations, which extend those of the quota's algorithm to rows that other quotas wrote.
import type { RateLimitConfig } from '../snapshot.js';
import { LAST, type Row } from './algebra.js';
import { first, isBoundary, isForeign, OWN, readingOf, rollFaster, rollWhole, WHOLE } from './changed.js';
import { fixedWindow } from './fixed-window.js';
import { slidingWindow } from './sliding-window.js';
import { tokenBucket } from './token-bucket.js';

/** A quota's operations on rows. Instants are in microseconds. */
export interface Quota {
  /** Returns the row at `now`. Unless noted otherwise, the other functions take rows that `roll` has returned. */
  roll(row: Row, now: number): Row;
  /** Returns the number of whole tokens that can be spent. */
  available(row: Row, now: number): number;
  /** Returns whether `cost` tokens can be spent without waiting. */
  fits(row: Row, now: number, cost: number): boolean;
  /** Returns whether no more than `level` tokens have been spent. */
  within(row: Row, now: number, level: number): boolean;
  /**
   * Returns the earliest instant, `now` or later, at which `within` is true if nothing more is spent. Returns
   * `Infinity` if there is none. A foreign row must be passed as it was read, not rolled.
   */
  when(row: Row, now: number, level: number): number;
}

export function quotaOf(config: RateLimitConfig): Quota {
  const limit = config.capacity;
  const algebra = ALGEBRAS[config.algorithm](config);
  const { within } = algebra;

  function when(row: Row, now: number, level: number): number {
    if (!isForeign(row, now)) {
      return whenOwn(row, now, level);
    }
    const then =
      readingOf(config, row) === OWN
        ? whenOwn(roll(row, now), now, level)
        : first(now, row.clear, (at) => within(roll(row, at), at, level));
    const from = Math.min(then, row.clear);
    return level < 0 || from >= LAST ? Infinity : from;
  }

  function whenOwn(row: Row, now: number, level: number): number {
    const then = algebra.when(row, level);
    const from = Math.max(then, now);
    return then < 0 ? now : level < 0 || from >= LAST ? Infinity : from;
  }

  function fits(row: Row, now: number, cost: number): boolean {
    return cost <= limit && within(row, now, limit - cost);
  }

  function roll(state: Row, now: number): Row {
    let { spent, ts, previous } = state;
    let reading = OWN;
    const foreign = isForeign(state, now);
    if (foreign) {
      reading = readingOf(config, state);
      spent += reading === WHOLE ? previous : 0;
      previous = reading === OWN ? previous : 0;
    } else if (state.written_by || (config.algorithm === 'sliding_window' && !isBoundary(config, ts))) {
      // The row has expired or was not written under this quota.
      [spent, previous] = [0, 0];
    }
    let row: Row = { spent, ts, previous };
    // If the row is far ahead of the clock, its debt is dropped, unless repaying the debt takes until `ts` anyway.
    if (ts - now > algebra.fill && when({ ...row, ts: now }, now, 0) < ts) {
      row = { spent: 0, ts: now, previous: 0 };
      reading = OWN;
    }
    if (reading === WHOLE) {
      return rollWhole(config, row, now);
    }
    const rolled = algebra.roll(row, now);
    return foreign && reading !== OWN ? rollFaster(row, rolled, algebra.spent(rolled, now), now, state.clear) : rolled;
  }

  return {
    within,
    when,
    fits,
    roll,

    available(row, now) {
      const left = limit - algebra.spent(row, now) + 1e-6;
      // `fits` must allow the reported number of tokens, despite rounding.
      const guess = Math.floor(Math.min(Math.max(left, 0), limit));
      return guess > 0 && !fits(row, now, guess) ? guess - 1 : guess;
    },
  };
}

const ALGEBRAS = { token_bucket: tokenBucket, fixed_window: fixedWindow, sliding_window: slidingWindow };
