// Tests of decisions computed from a snapshot.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { calculateRateLimit } from '../src/index.js';
import { NOW, snapshot } from './support.js';

const SECOND = 1_000_000;

test('an empty bucket that refills ten tokens per minute requires a wait of six seconds', () => {
  const empty = snapshot({ spent: 10 });
  const result = calculateRateLimit(empty, NOW, 1);
  assert.deepEqual(result, {
    ok: false,
    available: 0,
    remaining: 0,
    wait: 0,
    retryAfter: 6 * SECOND,
    row: { spent: 10, ts: NOW, previous: 0 },
  });
  assert.equal(calculateRateLimit(empty, NOW + 6 * SECOND - 1, 1).ok, false);
  assert.equal(calculateRateLimit(empty, NOW + 6 * SECOND, 1).ok, true);
});

test('an allowed request spends its tokens', () => {
  const { ok, available, remaining, row } = calculateRateLimit(snapshot({ spent: 3 }), NOW, 2);
  assert.deepEqual({ ok, available, remaining, spent: row.spent }, { ok: true, available: 7, remaining: 5, spent: 5 });
});

test('a request that costs more than the capacity has no retry time', () => {
  for (const options of [{}, { reserve: true }, { maxWaitMicros: 5 * SECOND }]) {
    const { ok, retryAfter } = calculateRateLimit(snapshot({}), NOW, 11, options);
    assert.deepEqual({ ok, retryAfter }, { ok: false, retryAfter: null });
  }
});

test('a reservation is granted with a wait, or denied with a retry time if the wait is too long', () => {
  const empty = snapshot({ spent: 10, max_reserved: 5 });
  assert.equal(calculateRateLimit(empty, NOW, 1, { reserve: true }).wait, 6 * SECOND);
  assert.equal(calculateRateLimit(empty, NOW, 1, { maxWaitMicros: 6 * SECOND }).ok, true);
  const { ok, retryAfter } = calculateRateLimit(empty, NOW, 1, { maxWaitMicros: 4 * SECOND });
  assert.deepEqual({ ok, retryAfter }, { ok: false, retryAfter: 2 * SECOND });
});

test('a blocked user waits until the block ends and a token is available', () => {
  const blocked = snapshot({ spent: 10, max_reserved: null, not_before: NOW + 20 * SECOND });
  for (const options of [{}, { reserve: true }]) {
    const { ok, available, remaining, retryAfter } = calculateRateLimit(blocked, NOW, 1, options);
    const expected = { ok: false, available: 0, remaining: 0, retryAfter: 20 * SECOND };
    assert.deepEqual({ ok, available, remaining, retryAfter }, expected);
  }
  assert.equal(calculateRateLimit(blocked, NOW, 5).retryAfter, 30 * SECOND);
  assert.equal(calculateRateLimit(blocked, NOW + 20 * SECOND - 1, 1).ok, false);
  assert.equal(calculateRateLimit(blocked, NOW + 20 * SECOND, 1).ok, true);
  const { ok, retryAfter } = calculateRateLimit({ ...blocked, not_before: 2 ** 53 - 1 }, NOW, 1);
  assert.deepEqual({ ok, retryAfter }, { ok: false, retryAfter: null });
});

test('a foreign row whose debt lasts beyond the last instant has no retry time', () => {
  const century = snapshot({
    algorithm: 'fixed_window',
    rate: 100,
    period: 3_155_760_000_000_000,
    capacity: 100,
    start: 650_854_037_116_476,
    spent: 201,
    ts: 247_441_470_603_098,
    clear: 2 ** 53 - 1,
    written_by: 'fixed_window',
  });
  const { ok, retryAfter } = calculateRateLimit(century, century.ts, 100);
  assert.deepEqual({ ok, retryAfter }, { ok: false, retryAfter: null });
});

test('instants are rounded down and clamped to the valid range', () => {
  const empty = snapshot({ spent: 10 });
  assert.deepEqual(calculateRateLimit(empty, NOW + 0.5, 1), calculateRateLimit(empty, NOW, 1));
  assert.equal(calculateRateLimit(empty, Infinity, 1).ok, true);
  assert.equal(calculateRateLimit(empty, -Infinity, 1).row.ts, 0, 'a row far ahead of the clock is reset');
});

test('an invalid count is an error', () => {
  for (const count of [NaN, -1, 0.5, Infinity, 2 ** 53]) {
    assert.throws(
      () => calculateRateLimit(snapshot({}), NOW, count),
      /count is .*; it must be a whole number of tokens/,
    );
  }
});
