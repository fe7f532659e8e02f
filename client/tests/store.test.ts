// Tests of the store: snapshots, listeners, spent tokens and errors.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { RateLimitError, createRateLimit } from '../src/index.js';
import { NOW, snapshot } from './support.js';
import { serverNow, settle, world } from './world.js';

const EMPTY = snapshot({ spent: 10 });
/** The time at which each test begins, in milliseconds since the epoch. */
const BEGIN = NOW / 1000;

test('the snapshot is fetched once, when the first listener is added', async (t) => {
  const w = world(t, {});
  w.latency = [20, 20];
  await w.pass(100);
  assert.equal(w.urls.length, 0);
  w.store.subscribe(() => {});
  w.store.subscribe(() => {});
  const [a, b] = [w.store.refresh(), w.store.refresh()];
  assert.equal(a, b);
  await w.pass(100);
  await Promise.all([a, b]);
  w.store.subscribe(() => {});
  await w.pass(100);
  assert.deepEqual(w.urls, ['/limits/chat']);
});

test('requests are allowed before the first snapshot', (t) => {
  const w = world(t);
  assert.deepEqual(w.store.getStatus(5), { ok: true, retryAt: null, known: false, error: null });
  assert.equal(w.store.check(), null);
});

for (const clockError of [0, 90_000, -90_000]) {
  test(`retry times are late by exactly the response delay, with a clock off by ${clockError / 1000} s`, async (t) => {
    const w = world(t, {}, clockError);
    w.answer = EMPTY;
    w.latency = [10, 30];
    w.store.subscribe(() => {});
    await w.pass(50);
    const { ok, retryAt } = w.store.getStatus(1);
    assert.equal(ok, false);
    assert.equal(retryAt, BEGIN + 6000 + clockError + 30, 'too late by exactly the response delay');
  });
}

test('a listener is called exactly at the retry time, without another request', async (t) => {
  const w = world(t);
  w.answer = EMPTY;
  const calls: number[] = [];
  w.store.subscribe(() => calls.push(Date.now() - BEGIN, w.store.getStatus(1).ok ? 1 : 0));
  await w.pass(50);
  const before = w.store.getStatus(1);
  await w.pass(5940);
  assert.equal(w.store.getStatus(1), before, 'the object stays the same until the status changes');
  calls.length = 0;
  await w.pass(100);
  assert.deepEqual(calls, [6000, 1]);
  assert.equal(w.urls.length, 1);
});

test('each count has its own retry time, but all counts share one timer', async (t) => {
  const w = world(t);
  w.answer = EMPTY;
  const passed = new Map<number, number>();
  w.store.subscribe(() => {
    for (const count of [1, 2, 3]) {
      if (w.store.getStatus(count).ok && w.store.getStatus(count).known && !passed.has(count)) {
        passed.set(count, Date.now() - BEGIN);
      }
    }
    assert.ok(w.timers() <= 1);
  });
  await w.pass(30_000);
  assert.deepEqual(
    [...passed],
    [
      [1, 6000],
      [2, 12_000],
      [3, 18_000],
    ],
  );
});

test('there is no timer without listeners', async (t) => {
  const w = world(t);
  w.answer = EMPTY;
  const stop = w.store.subscribe(() => void w.store.getStatus(1));
  await w.pass(50);
  assert.equal(w.timers(), 1);
  stop();
  assert.equal(w.timers(), 0);
  assert.equal(w.store.getStatus(2).ok, false);
  assert.equal(w.timers(), 0);
  await w.pass(6000);
  assert.equal(w.store.getStatus(1).ok, true, '`getStatus` reads the clock');
});

test('the timer also covers statuses that were read before the first listener was added', async (t) => {
  const w = world(t);
  w.answer = EMPTY;
  await Promise.all([w.store.refresh(), w.pass(10)]);
  assert.equal(w.store.getStatus(1).ok, false);
  w.answer = new Error('offline');
  let calls = 0;
  w.store.subscribe(() => (calls += 1));
  assert.equal(w.timers(), 1);
});

test('a listener that is added twice is called twice', async (t) => {
  const w = world(t);
  let calls = 0;
  const listener = () => (calls += 1);
  const stop = w.store.subscribe(listener);
  w.store.subscribe(listener);
  await w.pass(10);
  assert.equal(calls, 2);
  stop();
  stop();
  w.store.spend();
  assert.equal(calls, 3);
});

test('a wait of a hundred days does not end early', async (t) => {
  const w = world(t);
  const days = 100 * 86_400_000;
  w.answer = snapshot({ algorithm: 'fixed_window', spent: 10, period: days * 1000, start: NOW % (days * 1000) });
  let allowedAt = 0;
  w.store.subscribe(() => (allowedAt ||= w.store.getStatus(1).ok && w.store.getStatus(1).known ? Date.now() : 0));
  await w.pass(50);
  assert.equal(w.store.getStatus(1).retryAt, BEGIN + days);
  await w.pass(days - 50);
  assert.equal(allowedAt, BEGIN + days);
});

test('spent tokens are subtracted immediately, without a request', async (t) => {
  const w = world(t);
  w.answer = snapshot({ spent: 8 });
  w.store.subscribe(() => {});
  await w.pass(10);
  w.store.spend(1);
  assert.equal(w.store.getStatus(1).ok, true);
  w.store.spend(1);
  assert.deepEqual(w.store.getStatus(1), { ok: false, retryAt: BEGIN + 6000, known: true, error: null });
  assert.equal(w.urls.length, 1);
});

test('spent tokens start to refill at the time that is passed to `spend`', async (t) => {
  const w = world(t);
  w.store.subscribe(() => {});
  await w.pass(10);
  const sent = Date.now();
  await w.pass(5000);
  w.store.spend(10, sent);
  assert.equal(w.store.getStatus(1).retryAt, sent + 6000);
});

test('tokens spent while a snapshot is pending are counted', async (t) => {
  const w = world(t);
  w.answer = snapshot({ spent: 9 });
  w.latency = [0, 50];
  w.store.subscribe(() => {});
  await w.pass(10);
  w.store.spend(1);
  await w.pass(100);
  assert.equal(w.store.getStatus(1).known, true);
  assert.equal(w.store.getStatus(1).ok, false);
});

test('`check` returns the outcome that a request would have at a given time', async (t) => {
  const w = world(t, {}, -90_000);
  w.answer = EMPTY;
  await Promise.all([w.store.refresh(), w.pass(10)]);
  const now = BEGIN - 90_000;
  const { config, ...current } = w.store.check(now, 2) ?? assert.fail();
  assert.deepEqual(current, { value: 0, ts: now, ok: false, retryAt: now + 12_000 });
  assert.equal(config.policy, 'chat');
  const later = w.store.check(now + 13_000, 2);
  assert.deepEqual([later?.value, later?.ok, later?.retryAt], [2, true, null]);
  const never = w.store.check(now, 11);
  assert.deepEqual([never?.ok, never?.retryAt], [false, null]);
});

test('a request must be allowed by all policies', async (t) => {
  const w = world(t);
  const day = snapshot({ policy: 'day', rate: 100, capacity: 100, period: 86_400_000_000, spent: 100 });
  w.answer = { limits: [EMPTY, day], now: NOW };
  await Promise.all([w.store.refresh(), w.pass(10)]);
  assert.equal(w.store.getStatus(1).retryAt, BEGIN + 864_000);
  assert.equal(w.store.check(BEGIN, 1)?.config.policy, 'day');
  w.answer = { limits: [snapshot({ spent: 9 }), snapshot({ policy: 'day', spent: 4 })], now: NOW };
  await Promise.all([w.store.refresh(), w.pass(10)]);
  const check = w.store.check(BEGIN, 1);
  assert.deepEqual([check?.ok, check?.value, check?.config.policy], [true, 1, 'chat'], 'the policy with fewer tokens');
});

test('an invalid count throws an error immediately', (t) => {
  const { store } = world(t);
  for (const call of [() => store.getStatus(-1), () => store.check(0, 0.5), () => store.spend(NaN)]) {
    assert.throws(call, RangeError);
  }
});

// Failures

test('failed requests throw no errors and are retried five times with exponential backoff', async (t) => {
  const w = world(t);
  w.answer = new Error('offline');
  const requestTimes: number[] = [];
  let calls = 0;
  w.store.subscribe(() => {
    calls += 1;
    if (w.urls.length > requestTimes.length) {
      requestTimes.push(Date.now() - BEGIN);
    }
    assert.ok(w.timers() <= 1);
  });
  await w.pass(90_000);
  assert.equal(w.urls.length, 6);
  const waits = requestTimes.slice(1).map((at, i) => at - (requestTimes[i] ?? NaN));
  for (const [i, wait] of waits.entries()) {
    assert.ok(wait >= 500 * 2 ** i && wait <= 1000 * 2 ** i + 20, `${waits}`);
  }
  const { ok, known, error } = w.store.getStatus(1);
  assert.deepEqual({ ok, known }, { ok: true, known: false });
  assert.ok(error instanceof RateLimitError);
  assert.match(error.message, /could not be fetched/);
  assert.equal((error.cause as Error).message, 'offline');

  void w.store.refresh();
  await w.pass(90_000);
  assert.equal(w.urls.length, 12, 'a later refresh is also retried five times');

  w.answer = { ...EMPTY, ts: serverNow() };
  await Promise.all([w.store.refresh(), w.pass(10)]);
  assert.deepEqual([w.store.getStatus(1).ok, w.store.getStatus(1).error], [false, null]);
});

test('a failed request does not discard the snapshot', async (t) => {
  const w = world(t);
  w.answer = EMPTY;
  w.store.subscribe(() => {});
  await w.pass(10);
  w.answer = new Response(null, { status: 500 });
  await Promise.all([w.store.refresh(), w.pass(10)]);
  const { ok, known, error } = w.store.getStatus(1);
  assert.deepEqual({ ok, known }, { ok: false, known: true });
  assert.match(`${error}`, /\/limits\/chat returned 500/);
});

test('a retry waits until `Retry-After` from the status endpoint has passed', async (t) => {
  const w = world(t);
  w.answer = new Response(null, { status: 429, headers: { 'retry-after': '30' } });
  w.store.subscribe(() => {});
  await w.pass(20_000);
  w.store.observe(new Response(null, { status: 429 }));
  await w.pass(9_900);
  assert.equal(w.urls.length, 1);
  await w.pass(200);
  assert.equal(w.urls.length, 2);
});

test('permanent errors are not retried', async (t) => {
  for (const [answer, text] of [
    [new Response(null, { status: 404 }), /returned 404/],
    [Response.json({ hello: 'world' }), /"rate" of the snapshot is undefined/],
  ] as const) {
    await t.test(`${text}`, async (t) => {
      const w = world(t);
      w.answer = answer;
      w.store.subscribe(() => {});
      await w.pass(90_000);
      assert.equal(w.urls.length, 1);
      assert.match(w.store.getStatus(1).error?.message ?? '', text);
    });
  }
});

test('a failed request is not retried if no listeners are left', async (t) => {
  const w = world(t);
  w.answer = new Error('offline');
  w.latency = [50, 50];
  const stop = w.store.subscribe(() => {});
  stop();
  await w.pass(200);
  assert.ok(w.store.getStatus(1).error);
  assert.equal(w.timers(), 0);
});

test('retries stop when the last listener is removed, and the next listener triggers a new request', async (t) => {
  const w = world(t);
  w.answer = new Error('offline');
  const stop = w.store.subscribe(() => {});
  await w.pass(100);
  stop();
  await w.pass(90_000);
  assert.equal(w.urls.length, 1);
  w.answer = { ...EMPTY, ts: serverNow() };
  w.store.subscribe(() => {});
  await w.pass(10);
  assert.equal(w.store.getStatus(1).ok, false);
});

test('a request times out, even if `fetch` ignores the abort signal', async () => {
  const store = createRateLimit({ url: '/limits', fetch: () => new Promise(() => {}), timeout: 20, retries: 0 });
  const keepAlive = setInterval(() => {}, 1000);
  await store.refresh();
  clearInterval(keepAlive);
  assert.match(`${store.getStatus().error}`, /did not respond within 20 ms/);
});

test('a request times out if the body never ends', async () => {
  const body = new ReadableStream({ start: (stream) => stream.enqueue(new TextEncoder().encode('{')) });
  const store = createRateLimit({ url: '/limits', fetch: async () => new Response(body), timeout: 20, retries: 0 });
  const keepAlive = setInterval(() => {}, 1000);
  await store.refresh();
  clearInterval(keepAlive);
  assert.match(`${store.getStatus().error}`, /did not respond within 20 ms/);
});

test('requests use the options in `init` and bypass the cache', async () => {
  let seen: RequestInit | undefined;
  const store = createRateLimit({
    url: '/limits',
    init: { credentials: 'include', headers: { authorization: 'Bearer x' } },
    fetch: async (_url, init) => {
      seen = init;
      return Response.json(EMPTY);
    },
  });
  await store.refresh();
  assert.equal(seen?.credentials, 'include');
  assert.equal(seen?.cache, 'no-store');
  assert.ok(seen?.signal);
});

// Clocks

test('the response with the shorter round trip sets the clock', async (t) => {
  const w = world(t);
  w.answer = EMPTY;
  w.latency = [10, 10];
  await Promise.all([w.store.refresh(), w.pass(50)]);
  assert.equal(w.store.getStatus(1).retryAt, BEGIN + 6010);
  w.latency = [10, 400];
  await Promise.all([w.store.refresh(), w.pass(500)]);
  assert.equal(w.store.check(Date.now(), 1)?.retryAt, BEGIN + 6010, 'the retry time is not 400 ms too late');
});

test('the server-time endpoint sets the clock if snapshots are cached', async (t) => {
  const time = (): Response => Response.json({ now: serverNow() });
  const stale = { ...EMPTY, now: NOW - 60_000_000 };
  const urls: string[] = [];
  const w = world(t, {
    timeUrl: '/time',
    fetch: async (url) => {
      urls.push(String(url));
      return url === '/time' ? time() : Response.json(stale);
    },
  });
  await w.store.refresh();
  assert.deepEqual(urls.sort(), ['/limits/chat', '/time']);
  assert.equal(w.store.getStatus(1).retryAt, BEGIN + 6000);
});

test('a page that becomes visible fetches the snapshot again if a clock has stopped or been set', async (t) => {
  const page = Object.assign(new EventTarget(), { visibilityState: 'hidden' });
  Object.assign(globalThis, { document: page });
  t.after(() => Reflect.deleteProperty(globalThis, 'document'));
  const show = async (): Promise<void> => {
    page.visibilityState = 'visible';
    page.dispatchEvent(new Event('visibilitychange'));
    await settle();
  };
  const w = world(t);
  w.answer = EMPTY;
  let ok = true;
  const stop = w.store.subscribe(() => ({ ok } = w.store.getStatus(1)));
  await w.pass(1000);
  assert.equal(ok, false);

  await show();
  assert.equal(w.urls.length, 1, 'no clock changed in the meantime');

  w.slept = 4000;
  await w.pass(10);
  page.visibilityState = 'hidden';
  page.dispatchEvent(new Event('visibilitychange'));
  await settle();
  assert.equal(w.urls.length, 1, 'the page is hidden');
  await show();
  await w.pass(10);
  await show();
  assert.equal(w.urls.length, 2, 'one request per clock jump');
  assert.equal(w.store.getStatus(1).retryAt, BEGIN + 6000, 'the time spent asleep counts');

  w.clockError = 90_000;
  await show();
  await w.pass(10);
  assert.equal(w.urls.length, 3);
  assert.equal(w.store.getStatus(1).retryAt, BEGIN + 6000 + 90_000, 'the retry time follows the browser clock');

  stop();
  w.clockError = 0;
  await show();
  assert.equal(w.urls.length, 3, 'there are no listeners');
});

// Responses

test('a refusal sets a retry time, even without a snapshot', async (t) => {
  const w = world(t);
  w.answer = new Response(null, { status: 404 });
  let ok = true;
  w.store.subscribe(() => ({ ok } = w.store.getStatus(1)));
  await w.pass(10);
  w.store.observe(new Response(null, { status: 429, headers: { 'retry-after': '5' } }));
  const { retryAt } = w.store.getStatus(1);
  assert.equal(retryAt, Date.now() + 5000);
  await w.pass(4900);
  assert.equal(ok, false);
  await w.pass(200);
  assert.equal(ok, true);
  assert.equal(w.urls.length, 2, 'a snapshot is fetched after an unexpected refusal');
});

test('a date in `Retry-After` is compared with the date of the response', async (t) => {
  const w = world(t, {}, 90_000);
  const dates = { date: 'Tue, 14 Nov 2023 22:13:20 GMT', 'retry-after': 'Tue, 14 Nov 2023 22:13:27 GMT' };
  w.store.observe(new Response(null, { status: 503, headers: dates }));
  assert.equal(w.store.getStatus(1).retryAt, BEGIN + 90_000 + 7000);
});

test('after an observed response, only requests that cost more than the remaining tokens are denied', (t) => {
  const { store } = world(t, { policies: ['api'] });
  store.observe(new Response(null, { headers: { ratelimit: '"api";r=2;t=18', 'ratelimit-policy': '"api";q=5;w=60' } }));
  assert.equal(store.getStatus(2).ok, true);
  assert.deepEqual(store.getStatus(3), { ok: false, retryAt: BEGIN + 18_000, known: false, error: null });
  assert.deepEqual(
    store.getStatus(6),
    { ok: false, retryAt: null, known: false, error: null },
    'a cost above the capacity has no retry time',
  );
});

test('`check` takes observed responses into account', async (t) => {
  const w = world(t, { policies: ['api'] });
  await Promise.all([w.store.refresh(), w.pass(10)]);
  w.store.observe(new Response(null, { headers: { ratelimit: '"api";r=2;t=18' } }));
  const at = Date.now();
  const check = w.store.check(at, 3);
  assert.deepEqual([check?.ok, check?.value, check?.retryAt], [false, 2, at + 18_000]);
  assert.equal(w.store.check(at, 2)?.ok, true);
  const later = w.store.check(at + 18_000, 3);
  assert.deepEqual([later?.ok, later?.value], [true, 10]);
  assert.equal(w.urls.length, 1, 'no snapshot is fetched after a successful response');
});

test('a header item without a reset time applies for the whole window', (t) => {
  const { store } = world(t, { policies: ['api'] });
  store.observe(new Response(null, { headers: { ratelimit: '"api";r=0', 'ratelimit-policy': '"api";q=5;w=60' } }));
  assert.equal(store.getStatus(1).retryAt, BEGIN + 60_000);
});

test('a retry time millions of years away is still a valid date', (t) => {
  const { store } = world(t);
  store.observe(new Response(null, { status: 429, headers: { 'retry-after': '999999999999999' } }));
  assert.doesNotThrow(() => new Date(store.getStatus(1).retryAt ?? NaN).toISOString());
});

test('a later response replaces earlier responses only for the policies that it names', (t) => {
  const { store } = world(t, { policies: ['api', 'day'] });
  store.observe(new Response(null, { headers: { ratelimit: '"api";r=0;t=18, "day";r=1;t=900' } }));
  store.observe(new Response(null, { headers: { ratelimit: '"api";r=4;t=12' } }));
  assert.equal(store.getStatus(1).ok, true);
  assert.equal(store.getStatus(2).retryAt, BEGIN + 900_000);
});

test('the exact retry time of the snapshot takes precedence over whole seconds in headers', async (t) => {
  const w = world(t);
  w.answer = snapshot({ spent: 9, ts: NOW - 700_000 });
  w.store.subscribe(() => {});
  await w.pass(10);
  w.store.spend(1);
  const exact = BEGIN + 5300;
  w.store.observe(new Response(null, { headers: { ratelimit: '"chat";r=0;t=6' } }));
  assert.equal(w.store.getStatus(1).retryAt, exact);
  w.store.observe(new Response(null, { status: 429, headers: { ratelimit: '"chat";r=0;t=6', 'retry-after': '6' } }));
  assert.equal(w.store.getStatus(1).retryAt, exact);
  assert.equal(w.urls.length, 1, 'no snapshot is fetched after an expected refusal');
});

test('the exact retry time applies even if `observe` is called before `spend`', async (t) => {
  const w = world(t);
  w.answer = snapshot({ spent: 9 });
  w.store.subscribe(() => {});
  await w.pass(10);
  w.store.observe(new Response(null, { headers: { ratelimit: '"chat";r=0;t=7' } }));
  assert.equal(w.store.getStatus(1).retryAt, Date.now() + 7000);
  w.store.spend(1);
  assert.equal(w.store.getStatus(1).retryAt, BEGIN + 6000);
});

test('an unexpected refusal applies until the snapshot has been fetched again', async (t) => {
  const w = world(t);
  w.store.subscribe(() => {});
  await w.pass(10);
  w.answer = snapshot({ spent: 10, ts: NOW - 500_000 });
  w.store.observe(new Response(null, { status: 429, headers: { ratelimit: '"chat";r=0;t=6', 'retry-after': '6' } }));
  assert.equal(w.store.getStatus(1).retryAt, Date.now() + 6000);
  await w.pass(10);
  assert.equal(w.urls.length, 2);
  assert.equal(w.store.getStatus(1).retryAt, BEGIN + 5500);
});

test('`Retry-After` in a successful response is ignored', (t) => {
  const { store } = world(t);
  store.observe(new Response(null, { status: 200, headers: { 'retry-after': '5' } }));
  assert.equal(store.getStatus(1).ok, true);
});

test('a snapshot replaces responses observed before the snapshot was requested', async (t) => {
  const w = world(t, { policies: ['day'] });
  w.latency = [50, 50];
  const refreshed = w.store.refresh();
  await w.pass(200);
  await refreshed;
  w.store.observe(new Response(null, { headers: { ratelimit: '"chat";r=1;t=40, "day";r=5;t=900' } }));
  assert.equal(w.store.getStatus(2).ok, false);
  const again = w.store.refresh();
  await w.pass(200);
  await again;
  assert.equal(w.store.getStatus(10).ok, true, 'the snapshot replaced the response');
});

test('a refusal observed during a snapshot request is dropped if the snapshot reflects it', async (t) => {
  const w = world(t);
  w.answer = snapshot({ spent: 10, ts: NOW - 500_000 });
  w.latency = [50, 50];
  const refreshed = w.store.refresh();
  await w.pass(10);
  w.store.observe(new Response(null, { status: 429, headers: { ratelimit: '"chat";r=0;t=6', 'retry-after': '6' } }));
  await w.pass(190);
  await refreshed;
  assert.equal(w.store.getStatus(1).retryAt, BEGIN + 5500 + 50);
  assert.equal(w.urls.length, 1);
});

test('a snapshot does not replace responses observed after the snapshot was requested', async (t) => {
  const w = world(t);
  w.latency = [50, 50];
  const refreshed = w.store.refresh();
  await w.pass(80);
  w.store.observe(new Response(null, { headers: { ratelimit: '"chat";r=1;t=40' } }));
  await w.pass(100);
  await refreshed;
  assert.equal(w.store.getStatus(2).ok, false);
});

test('the number of remembered policies is bounded', (t) => {
  const { store } = world(t, { policies: ['p0', 'p999'] });
  for (let i = 0; i < 1000; i++) {
    const seconds = i === 0 ? 100_000 : 1;
    store.observe(new Response(null, { headers: { ratelimit: `"p${i}";r=0;t=${seconds}` } }));
  }
  assert.equal(store.getStatus(1).retryAt, BEGIN + 1000, 'the oldest policy is discarded');
});

test('the number of remembered counts is bounded', (t) => {
  const { store } = world(t);
  store.observe(new Response(null, { status: 429, headers: { 'retry-after': '5' } }));
  const began = store.getStatus(1);
  assert.equal(store.getStatus(1), began);
  for (let count = 2; count < 2000; count++) {
    store.getStatus(count);
  }
  assert.notEqual(store.getStatus(1), began);
  assert.deepEqual(store.getStatus(1), began);
});
