/**
 * Checks the client against the exact vectors that `tests/vectors.rs` uses to check the crate. The vectors were
 * computed in rational arithmetic, independently of the client and the crate. Their times are in milliseconds.
 */

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { calculateRateLimit, type Algorithm, type RateLimitResult, type RowSnapshot } from '../src/index.js';

interface Line {
  type: 'single' | 'sequence';
  id: string;
  algorithm: Algorithm;
  config: { rate: number; period: number; capacity?: number; maxReserved?: number; start?: number };
  rand?: number;
  state_before?: { value: number; ts: number; aux_value?: number; aux_ts?: number } | null;
  now_ms?: number;
  count?: number;
  reserve?: boolean;
  expect?: Expect;
  steps?: { op: string; now_ms: number; count?: number; reserve?: boolean; expect?: Expect }[];
}

interface Expect {
  ok?: boolean;
  retry_after_ceil_ms?: number | 'Infinity' | null;
  retry_after_tight_ms?: number | 'Infinity' | null;
  retry_after_exact?: string | null;
  value_after?: string;
  ts_after?: string;
  remaining_exact?: string;
  window_start?: number;
}

interface Row {
  readonly spent: number;
  readonly ts: number;
  readonly previous: number;
}

const LAST = Number.MAX_SAFE_INTEGER;
const NEW: Row = { spent: 0, ts: 0, previous: 0 };

test('the client agrees with all exact test vectors of the crate', () => {
  const file = new URL('../../../tests/vectors/exact.jsonl', import.meta.url);
  const lines = readFileSync(file, 'utf8')
    .split('\n')
    .filter((line) => line.trim());
  const counts = { single: 0, sequence: 0 };
  for (const line of lines.map((text) => JSON.parse(text) as Line)) {
    (line.type === 'single' ? single : sequence)(line);
    counts[line.type] += 1;
  }
  assert.deepEqual(counts, { single: 492, sequence: 38 });
});

function single(line: Line): void {
  const { id, now_ms = 0, count = 0, reserve = false, expect = {}, state_before: before } = line;
  const quota = quotaOf(line, before?.ts ?? firstWindow(line, now_ms));
  const instant = clockOf(line);
  const now = instant(now_ms);
  const state = rowBefore(line, quota, instant);
  const result = calculateRateLimit({ ...quota, ...state }, now, count, { reserve });
  checkVerdict(id, result, expect);
  if (result.ok) {
    checkTight(id, quota, state, now, count, reserve, result);
  }

  // The expected row includes the cost even after a denial.
  const after = { ...result.row, spent: result.row.spent + (result.ok ? 0 : count) };
  if (expect.value_after !== undefined) {
    const ts = instant(Number(expect.ts_after));
    if (quota.algorithm === 'token_bucket') {
      assert.equal(ts, now, `${id}: ts_after`);
    } else if (ts === LAST) {
      assert.ok(after.ts + quota.period >= LAST, `${id}: ts_after`);
    } else {
      assert.equal(after.ts, ts, `${id}: ts_after`);
    }
    checkClose(id, quota.capacity - spentAt(quota, after, now), expect.value_after);
  }
  if (expect.remaining_exact !== undefined) {
    checkClose(id, quota.capacity - spentAt(quota, after, now), expect.remaining_exact);
    assert.equal(after.ts, instant(expect.window_start ?? NaN), `${id}: window_start`);
  }
}

function sequence(line: Line): void {
  const steps = line.steps ?? [];
  const quota = quotaOf(line, firstWindow(line, steps[0]?.now_ms ?? NaN));
  const instant = clockOf(line);
  let state = NEW;
  for (const [i, { op, now_ms, count = 0, reserve = false, expect = {} }] of steps.entries()) {
    const id = `${line.id} step ${i}`;
    if (op === 'reset') {
      state = NEW;
      continue;
    }
    const now = instant(now_ms);
    const result = calculateRateLimit({ ...quota, ...state }, now, count, { reserve });
    checkVerdict(id, result, expect);
    checkTight(id, quota, state, now, count, reserve, result);
    if (op === 'limit' && result.ok) {
      state = result.row;
    }
  }
}

/** Returns the start of the first window, which is `rand` periods before `first`. */
function firstWindow({ rand = 0, config }: Line, first: number): number {
  return first - Math.floor(rand * config.period);
}

function quotaOf({ algorithm, config }: Line, anchor: number): Omit<RowSnapshot, keyof Row> {
  const { rate, period, capacity = rate, maxReserved = null, start = anchor } = config;
  const sliding = algorithm === 'sliding_window';
  return {
    policy: 'vector',
    algorithm,
    rate,
    period: period * 1000,
    capacity,
    // In the vectors, sliding windows are aligned to the epoch.
    start: algorithm === 'fixed_window' ? (((start % period) + period) % period) * 1000 : 0,
    max_reserved: sliding ? 0 : maxReserved,
    now: 0,
  };
}

function rowBefore(
  { state_before: before, config }: Line,
  quota: { algorithm: Algorithm; capacity: number },
  instant: Clock,
): Row {
  if (!before) {
    return NEW;
  }
  const ts = instant(before.ts);
  if (quota.algorithm === 'sliding_window') {
    const stale = before.aux_ts != null && before.aux_ts + config.period !== before.ts;
    return { spent: before.value, ts, previous: stale ? 0 : (before.aux_value ?? 0) };
  }
  return { spent: quota.capacity - before.value, ts, previous: 0 };
}

function checkVerdict(id: string, { ok, wait, retryAfter }: RateLimitResult, expect: Expect): void {
  assert.equal(ok, expect.ok, `${id}: ok`);
  const ms = expect.retry_after_ceil_ms ?? expect.retry_after_tight_ms ?? null;
  const micros = ok ? wait || null : retryAfter;
  if (ms === null || ms === 'Infinity') {
    assert.equal(micros, null, `${id}: retry`);
    assert.equal(ms === 'Infinity', !ok, `${id}: only a request that can never be allowed may lack a retry time`);
    return;
  }
  assert.ok(micros !== null, `${id}: no retry time`);
  assert.equal(Math.ceil(micros / 1000), ms, `${id}: retry`);
  if (expect.retry_after_exact != null) {
    // The retry time must not be early, and may be at most one microsecond late.
    const exact = rational(expect.retry_after_exact);
    assert.ok(
      micros / 1000 >= exact - 1e-9 && micros / 1000 <= exact + 0.001 + 1e-9,
      `${id}: expected ${exact} ms, found ${micros} us`,
    );
  }
}

/** Checks that the same request is allowed at the reported microsecond, but not one microsecond earlier. */
function checkTight(
  id: string,
  quota: Omit<RowSnapshot, keyof Row>,
  state: Row,
  now: number,
  count: number,
  reserve: boolean,
  { ok, wait, retryAfter }: RateLimitResult,
): void {
  const at = (micros: number, reserve: boolean): boolean =>
    calculateRateLimit({ ...quota, ...state }, now + micros, count, { reserve }).ok;
  if (!ok && retryAfter !== null) {
    assert.ok(at(retryAfter, reserve), `${id}: still denied after ${retryAfter} us`);
    assert.ok(!at(retryAfter - 1, reserve), `${id}: already allowed one microsecond before ${retryAfter} us`);
  } else if (wait > 0 && count <= quota.capacity) {
    assert.ok(at(wait, false), `${id}: the due time, in ${wait} us, is too early`);
    assert.ok(!at(wait - 1, false), `${id}: the due time, in ${wait} us, is too late`);
  }
}

/** Computes the number of tokens spent as of `now`, independently of the client. */
function spentAt(
  { algorithm, rate, period }: Omit<RowSnapshot, keyof Row>,
  { spent, ts, previous }: Row,
  now: number,
): number {
  const elapsed = Math.max(now - ts, 0);
  if (algorithm === 'token_bucket') {
    return Math.max(spent - (elapsed * rate) / period, 0);
  }
  return algorithm === 'sliding_window' ? spent + (previous * (period - elapsed)) / period : spent;
}

function checkClose(id: string, value: number, text: string): void {
  const exact = rational(text);
  assert.ok(Math.abs(value - exact) <= 1e-9 * Math.max(Math.abs(exact), 1), `${id}: expected ${text}, found ${value}`);
}

function rational(text: string): number {
  const [numerator, denominator = 1] = text.split('/').map(Number);
  return (numerator ?? NaN) / denominator;
}

type Clock = (ms: number) => number;

/** Returns a conversion to microseconds. A vector that begins before the epoch is shifted forward by whole periods. */
function clockOf({ steps = [], now_ms, state_before: before, config: { period } }: Line): Clock {
  const times = steps.map((step) => step.now_ms);
  const earliest = Math.min(...times, now_ms ?? Infinity, before ? before.ts - period : Infinity);
  const moved = Math.ceil(Math.max(-earliest, 0) / period) * period;
  return (ms) => Math.min((ms + moved) * 1000, LAST);
}
