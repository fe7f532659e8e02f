/** Tests that a store observes all responses on a page but applies only those that concern its own policies. */

import assert from 'node:assert/strict';
import { mock, test } from 'node:test';
import { createRateLimit } from '../src/index.js';
import { NOW, snapshot } from './support.js';
import { settle, world } from './world.js';

/** The time at which each test begins, in milliseconds since the epoch. */
const BEGIN = NOW / 1000;

function refusal(fields: Record<string, string>): Response {
  return new Response(null, { status: 429, headers: fields });
}

test('headers about another policy are ignored', async (t) => {
  const w = world(t);
  w.store.subscribe(() => {});
  await w.pass(10);
  w.store.observe(new Response(null, { headers: { ratelimit: '"other";r=0;t=20' } }));
  assert.deepEqual(w.store.getStatus(1), { ok: true, retryAt: null, known: true, error: null });
  w.store.observe(new Response(null, { headers: { ratelimit: '"other";r=0;t=20, "chat";r=3;t=18' } }));
  assert.equal(w.store.getStatus(3).ok, true);
  assert.equal(w.store.getStatus(4).ok, false, "the item for the store's own policy applies");
});

test('a refusal under another policy is ignored and causes no request for a snapshot', async (t) => {
  const w = world(t);
  w.store.subscribe(() => {});
  await w.pass(10);
  w.store.observe(refusal({ ratelimit: '"other";r=0;t=20', 'retry-after': '20' }));
  await w.pass(10);
  assert.equal(w.store.getStatus(1).ok, true);
  assert.equal(w.urls.length, 1);
});

test('a refusal under another policy does not replace an earlier refusal', async (t) => {
  const w = world(t);
  w.store.subscribe(() => {});
  await w.pass(10);
  w.answer = new Response(null, { status: 404 });
  w.store.observe(refusal({ ratelimit: '"chat";r=4;t=9', 'retry-after': '9' }));
  w.store.observe(refusal({ ratelimit: '"other";r=0;t=20', 'retry-after': '20' }));
  await w.pass(10);
  assert.equal(w.store.getStatus(1).retryAt, BEGIN + 10 + 9000);
});

test('header items received before the first snapshot apply once the snapshot arrives', async (t) => {
  const w = world(t);
  w.latency = [50, 50];
  w.store.subscribe(() => {});
  await w.pass(60);
  w.store.observe(new Response(null, { headers: { ratelimit: '"chat";r=1;t=40, "other";r=0;t=900' } }));
  w.store.observe(refusal({ ratelimit: '"other";r=0;t=20', 'retry-after': '20' }));
  assert.equal(w.store.getStatus(2).ok, true, 'before the first snapshot, the server decides');
  await w.pass(100);
  assert.equal(w.store.getStatus(1).ok, true);
  assert.equal(w.store.getStatus(2).retryAt, BEGIN + 60 + 40_000);
});

test('without a snapshot, the `policies` option determines which refusals apply', async (t) => {
  const w = world(t, { policies: ['chat'] });
  w.answer = new Response(null, { status: 404 });
  w.store.subscribe(() => {});
  await w.pass(10);
  w.store.observe(refusal({ ratelimit: '"other";r=0;t=20', 'retry-after': '20' }));
  assert.equal(w.store.getStatus(1).ok, true);
  w.store.observe(refusal({ ratelimit: '"chat";r=0;t=6', 'retry-after': '6' }));
  assert.equal(w.store.getStatus(1).retryAt, Date.now() + 6000);
});

test('a store that observes the responses to its own requests does not retry more often', async (t) => {
  mock.timers.enable({ apis: ['setTimeout', 'Date'] });
  t.after(() => mock.timers.reset());
  let requests = 0;
  const store = createRateLimit({
    url: '/limits/chat',
    monotonic: () => Date.now(),
    fetch: async () => {
      requests += 1;
      const response = await Promise.resolve(refusal({}));
      store.observe(response);
      return response;
    },
  });
  const stop = store.subscribe(() => {});
  for (let i = 0; i < 900; i++) {
    mock.timers.tick(100);
    await settle();
  }
  assert.equal(requests, 6);
  stop();
});

for (const [family, fields] of Object.entries({
  none: {},
  'X-RateLimit': { 'x-ratelimit-limit': '10', 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': '20' },
  'draft 6': { 'ratelimit-limit': '10', 'ratelimit-remaining': '0', 'ratelimit-policy': '10;w=60' },
  'RateLimit-Policy alone': { 'ratelimit-policy': '"other";q=5;w=60' },
  'draft 7': { ratelimit: 'limit=10, remaining=0, reset=20' },
})) {
  test(`a refusal without RateLimit items (headers: ${family}) applies until the next snapshot`, async (t) => {
    const w = world(t);
    w.store.subscribe(() => {});
    await w.pass(10);
    w.store.observe(new Response(null, { headers: fields }));
    assert.equal(w.store.getStatus(1).ok, true, 'the response is not a refusal');

    w.latency = [50, 50];
    w.store.observe(refusal({ ...fields, 'retry-after': '20' }));
    assert.equal(w.store.getStatus(1).retryAt, BEGIN + 10 + 20_000);
    await w.pass(110);
    assert.equal(w.urls.length, 2, 'the snapshot is fetched, because this limit may have refused the request');
    assert.equal(w.store.getStatus(1).ok, true, 'the snapshot shows that another limit refused the request');

    w.answer = snapshot({ spent: 10, ts: Date.now() * 1000 });
    const refusedAt = Date.now();
    w.store.observe(refusal({ ...fields, 'retry-after': '20' }));
    await w.pass(110);
    const { retryAt } = w.store.getStatus(1);
    assert.ok(retryAt !== null && retryAt - refusedAt <= 6050, 'this limit refused the request, so the time is exact');
  });
}
