/** Tests limits whose quota is divided into shards. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { calculateRateLimit } from '../src/index.js';
import { headers, NOW, sharded, snapshot } from './support.js';
import { settle, world } from './world.js';

const SECOND = 1_000_000;
const EMPTY = { spent: 10 };

test('a request is decided by the shard that can grant it soonest', () => {
  const limit = sharded([EMPTY, { spent: 8 }, EMPTY]);
  const { ok, available, remaining, row } = calculateRateLimit(limit, NOW, 2);
  assert.deepEqual({ ok, available, remaining }, { ok: true, available: 2, remaining: 0 });
  assert.deepEqual(row, { spent: 10, ts: NOW, previous: 0 });
  const denied = calculateRateLimit(limit, NOW, 3);
  assert.deepEqual([denied.ok, denied.retryAfter, denied.row.spent], [false, 6 * SECOND, 8]);
  assert.equal(calculateRateLimit(limit, NOW + 6 * SECOND - 1, 3).ok, false);
  assert.equal(calculateRateLimit(limit, NOW + 6 * SECOND, 3).ok, true);
});

test("a request that costs more than any single shard's capacity has no retry time", () => {
  const { ok, available, retryAfter } = calculateRateLimit(sharded([{}, {}]), NOW, 11);
  assert.deepEqual({ ok, available, retryAfter }, { ok: false, available: 20, retryAfter: null });
});

test('a shard that can grant a reservation is preferred over one with an earlier retry time', () => {
  const rows = [{ spent: 10 }, { spent: 14, max_reserved: 10 }];
  const { ok, wait, row } = calculateRateLimit(sharded(rows, { max_reserved: 10 }), NOW, 1, { reserve: true });
  assert.deepEqual({ ok, wait, spent: row.spent }, { ok: true, wait: 30 * SECOND, spent: 15 });
});

test('a blocked user cannot spend tokens from any shard', () => {
  const { ok, available, retryAfter } = calculateRateLimit(
    sharded([EMPTY, {}], { not_before: NOW + 20 * SECOND }),
    NOW,
    1,
  );
  assert.deepEqual({ ok, available, retryAfter }, { ok: false, available: 0, retryAfter: 20 * SECOND });
});

test('an estimate from a sample of the shards never exceeds the capacity', () => {
  const sample = sharded([{ spent: 5 }, { spent: 6 }, {}], { shards: 7 });
  assert.equal(calculateRateLimit(sample, NOW, 0).available, 44); // 19 * 7 / 3, rounded down
  assert.equal(calculateRateLimit(sharded([{}], { shards: 7, capacity: 69 }), NOW, 0).available, 69);
});

test('the total number of tokens is exact even if an intermediate product exceeds 2^53', () => {
  // Of the 64 shards, 63 are read. The first has 15,625,000,000,000 tokens, and each of the others has one token fewer.
  const rows = Array.from({ length: 63 }, (_, i) => ({ capacity: 15_624_999_999_999 + (i === 0 ? 1 : 0), rate: 1 }));
  const { available } = calculateRateLimit(sharded(rows, { shards: 64, capacity: 999_999_999_999_999 }), NOW, 0);
  assert.equal(BigInt(available), ((15_624_999_999_999n * 63n + 1n) * 64n) / 63n);
});

test('a store spends tokens from the shard with the most tokens', async (t) => {
  const w = world(t);
  w.answer = sharded([{ spent: 4 }, { spent: 2, clear: NOW + 60 * SECOND, written_by: 'fixed_window' }]);
  w.store.subscribe(() => {});
  await settle();
  const values = [8, 4, 1, 1].map((count) => {
    const value = w.store.check()?.value;
    w.store.spend(count);
    return value;
  });
  assert.deepEqual(values, [14, 6, 2, 1]);
});

test('a request is allowed only if one shard can grant it under all quotas of its policy', async (t) => {
  const w = world(t);
  const minute = sharded([EMPTY, {}], { policy: 'api;1min' });
  const day = sharded([{}, EMPTY], { policy: 'api;1d', period: 86_400 * SECOND });
  w.answer = { limits: [minute, day], now: NOW };
  w.store.subscribe(() => {});
  await settle();
  const { ok, value, config } = w.store.check()!;
  assert.deepEqual([ok, value, config.policy], [false, 10, 'api;1min']);
  assert.equal(w.store.getStatus().retryAt, NOW / 1000 + 6000);

  w.answer = { limits: [minute, { ...day, policy: 'other' }], now: NOW };
  await w.store.refresh();
  assert.equal(w.store.getStatus().ok, true, 'under different policies, tokens can be spent from different shards');
});

test('tokens are spent from the same shard for all quotas of a policy', async (t) => {
  const w = world(t);
  const minute = sharded([{ spent: 1 }, { spent: 2 }, {}], { policy: 'api;1min' });
  const day = sharded([{ spent: 1 }, {}, { spent: 3 }], { policy: 'api;1d', period: 86_400 * SECOND });
  w.answer = { limits: [minute, day, snapshot({ policy: 'user', capacity: 100 })], now: NOW };
  w.store.subscribe(() => {});
  await settle();
  w.store.spend(9); // the first shard has 9 tokens under both quotas
  assert.deepEqual([w.store.getStatus(8).ok, w.store.getStatus(9).ok], [true, false]);
  w.store.spend(8); // the second shard has 8 tokens
  assert.deepEqual([w.store.getStatus(7).ok, w.store.getStatus(8).ok], [true, false]);
});

test('headers about one shard are ignored, but a refusal applies until the next snapshot', async (t) => {
  const w = world(t);
  w.answer = sharded([{ spent: 9 }, {}]);
  w.store.subscribe(() => {});
  await settle();
  const fields = { ratelimit: '"chat";r=0;t=20' };
  w.store.observe({ status: 200, headers: headers(fields) });
  assert.equal(w.store.getStatus().ok, true);

  w.latency = [50, 50];
  w.store.observe({ status: 429, headers: headers({ ...fields, 'retry-after': '20' }) });
  assert.equal(w.store.getStatus().ok, false);
  await w.pass(110);
  assert.deepEqual([w.store.getStatus().ok, w.urls.length], [true, 2]);
});
