/** Tests that stores on a page share their state if they send identical requests. */

import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { createRateLimit, type RateLimitOptions, type RateLimitStore } from '../src/index.js';
import { snapshot } from './support.js';
import { settle } from './world.js';

/** Creates a page, and a server with a limit for each URL and user. `requests` lists the requests so far. */
function page(test: TestContext, spent: (user: string | null) => number = () => 0) {
  Object.assign(globalThis, { document: Object.assign(new EventTarget(), { visibilityState: 'visible' }) });
  const stops: (() => void)[] = [];
  test.after(() => {
    stops.forEach((stop) => stop());
    Reflect.deleteProperty(globalThis, 'document');
  });
  const requests: string[] = [];
  const fetch = async (url: unknown, init?: RequestInit): Promise<Response> => {
    const user = new Headers(init?.headers).get('x-user');
    requests.push(`${url} ${user}`);
    const now = Date.now() * 1000;
    return Response.json(snapshot({ spent: spent(user), ts: now, now }));
  };
  return {
    requests,
    create: (options: Partial<RateLimitOptions> = {}) => createRateLimit({ url: '/limits/chat', fetch, ...options }),
    use(store: RateLimitStore, listener = () => {}) {
      const stop = store.subscribe(listener);
      stops.push(stop);
      return stop;
    },
  };
}

test('stores with the same URL share their state and one request', async (t) => {
  const { requests, create, use } = page(t);
  const [a, b] = [create(), create()];
  let calls = 0;
  use(a);
  use(b, () => (calls += 1));
  await settle();
  assert.deepEqual(requests, ['/limits/chat null']);
  calls = 0;
  a.spend(10);
  assert.equal(calls, 1);
  assert.equal(b.getStatus().ok, false);
  assert.equal(b.getStatus(), a.getStatus());

  const third = create();
  assert.equal(third.getStatus().ok, false, 'a store without listeners uses the shared state');
  third.observe(new Response(null, { status: 429, headers: { 'retry-after': '900' } }));
  assert.ok((a.getStatus().retryAt ?? 0) > Date.now() + 800_000);
});

test('the shared state is released when its last listener is removed', async (t) => {
  const { requests, create, use } = page(t);
  const [a, b] = [create(), create()];
  const stops = [use(a), use(b)];
  await settle();
  a.spend(10);
  stops[0]?.();
  stops[0]?.();
  assert.equal(create().getStatus().known, true, 'another store still uses the state');
  stops[1]?.();
  assert.equal(a.getStatus().ok, false, 'a released store keeps its state');
  const fresh = create();
  assert.deepEqual(fresh.getStatus(), { ok: true, retryAt: null, known: false, error: null });
  use(fresh);
  await settle();
  assert.equal(requests.length, 2);
  assert.equal(fresh.getStatus().ok, true);

  use(a);
  await settle();
  assert.equal(requests.length, 2, 'a released store that gets another listener joins the shared store');
  assert.equal(a.getStatus(), fresh.getStatus());
});

test('stores with different URLs, requests or keys share nothing', async (t) => {
  const { requests, create, use } = page(t, (user) => (user === 'ada' ? 10 : 0));
  const init = (user: string): RequestInit => ({ headers: { 'x-user': user } });
  const ada = create({ init: init('ada') });
  const others = [
    create(),
    create({ url: '/limits/search' }),
    create({ init: init('grace') }),
    create({ init: { credentials: 'include' } }),
    create({ init: { ...init('ada'), method: 'POST' } }),
    create({ init: init('ada'), timeUrl: '/limits/other' }),
    create({ init: init('ada'), key: 'Ada' }),
    create({ init: init('ada'), key: 1 }),
  ];
  [ada, ...others].forEach((store) => use(store));
  await settle();
  assert.equal(ada.getStatus().ok, false);
  assert.equal(new Set([ada, ...others].map((store) => store.check()?.value)).size, 2);
  ada.spend(7);
  ada.observe(new Response(null, { status: 429, headers: { 'retry-after': '900' } }));
  for (const [i, other] of others.entries()) {
    assert.ok((other.getStatus().retryAt ?? 0) < Date.now() + 100_000, `${i}`);
  }
  assert.ok(requests.length >= 9);
});

test('equal requests share a store, even if they are written differently', async (t) => {
  const { requests, create, use } = page(t);
  use(create({ key: undefined, init: { mode: 'cors', headers: { 'X-User': 'ada', Accept: '*/*' } } }));
  use(create({ key: null, init: { mode: 'cors', headers: new Headers([['accept', '*/*'], ['x-user', 'ada']]) } }));
  use(create({ timeout: 5000, init: { mode: 'cors', headers: [['accept', '*/*'], ['x-user', 'ada']] } }));
  await settle();
  assert.deepEqual(requests, ['/limits/chat ada']);
});

test('without a document, nothing is shared', async (t) => {
  const { requests, create, use } = page(t);
  Reflect.deleteProperty(globalThis, 'document');
  const [a, b] = [create(), create()];
  use(a);
  use(b);
  await settle();
  assert.equal(requests.length, 2);
  a.spend(10);
  assert.equal(b.getStatus().ok, true);
});
