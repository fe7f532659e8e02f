/** Tests the hook in strict mode with each supported version of React (see `scripts/bundle-react-tests.mjs`). */

import assert from 'node:assert/strict';
import { mock, test, type TestContext } from 'node:test';
import { MessageChannel } from 'node:worker_threads';
import { Window } from 'happy-dom';
import { act, StrictMode, version, type ReactNode } from 'react';
import { createRoot, hydrateRoot, type Root } from 'react-dom/client';
import { renderToString } from 'react-dom/server';
import { useCountdown, useRateLimit, type UseRateLimitOptions } from '../../src/react.js';
import { createRateLimit } from '../../src/shared.js';
import type { RateLimitStore } from '../../src/store.js';
import { NOW, snapshot } from '../support.js';
import { settle, world, type World } from '../world.js';

const EMPTY = snapshot({ spent: 10 });
const BEGIN = NOW / 1000;

/**
 * A channel that is closed after one message. The bundled React leaves its channels open, which would keep Node
 * running.
 */
class Channel extends MessageChannel {
  constructor() {
    super();
    this.port1.once('message', () => this.port1.close());
  }
}

Object.assign(globalThis, { IS_REACT_ACT_ENVIRONMENT: true, MessageChannel: Channel });

test(`React ${version}`, async (t) => {
  await t.test('components with the same URL share one request, even in strict mode', async (t) => {
    const { page, urls, options } = await pageOf(t);
    await page.show(
      <>
        <Send source="/shared" options={options} />
        <Send source="/shared" options={options} count={2} />
      </>,
    );
    await page.pass(10);
    assert.deepEqual(urls, ['/shared']);
    assert.deepEqual(page.buttons(), ['again in 6 s', 'again in 12 s']);
  });

  await t.test('spending the last token disables the button until the wait ends, and sends no request', async (t) => {
    const { page, w } = await pageOf(t);
    w.answer = snapshot({ spent: 9 });
    await page.show(<Send source={w.store} />);
    assert.deepEqual(page.buttons(), ['send'], 'the button is enabled before the first snapshot');
    await page.pass(10);
    assert.deepEqual(page.buttons(), ['send']);
    await act(() => w.store.spend());
    assert.deepEqual(page.buttons(), ['again in 6 s']);
    await page.pass(989);
    assert.deepEqual(page.buttons(), ['again in 6 s']);
    await page.pass(1);
    assert.deepEqual(page.buttons(), ['again in 5 s']);
    await page.pass(4999);
    assert.deepEqual(page.buttons(), ['again in 1 s']);
    await page.pass(1);
    assert.deepEqual(page.buttons(), ['send']);
    assert.equal(w.urls.length, 1);
  });

  await t.test('a component re-renders only when its own status changes', async (t) => {
    const { page, w } = await pageOf(t);
    let renders = 0;
    function Plain(): ReactNode {
      renders += 1;
      return String(useRateLimit(w.store).status.ok);
    }
    await page.show(<Plain />);
    await page.pass(10);
    renders = 0;
    await act(() => w.store.spend(1));
    await act(() => w.store.spend(1));
    await act(() => w.store.observe(new Response(null, { headers: { ratelimit: '"other";r=5;t=9' } })));
    assert.equal(renders, 0);
  });

  await t.test('changing `count` updates the status', async (t) => {
    const { page, w } = await pageOf(t);
    w.answer = snapshot({ spent: 8 });
    await page.show(<Send source={w.store} count={1} />);
    await page.pass(10);
    await page.show(<Send source={w.store} count={3} />);
    assert.deepEqual(page.buttons(), ['again in 6 s']);
  });

  await t.test('a component renders despite a failed request', async (t) => {
    const { page, w } = await pageOf(t);
    w.answer = new Response(null, { status: 404 });
    await page.show(<Send source={w.store} />);
    await page.pass(10);
    assert.deepEqual(page.buttons(), ['send']);
    assert.match(`${w.store.getStatus().error}`, /returned 404/);
  });

  await t.test('an observed refusal disables the button', async (t) => {
    const { page, w } = await pageOf(t);
    w.answer = new Response(null, { status: 404 });
    await page.show(<Send source={w.store} />);
    await page.pass(10);
    await act(() => w.store.observe(new Response(null, { status: 429, headers: { 'retry-after': '3' } })));
    assert.deepEqual(page.buttons(), ['again in 3 s']);
    await page.pass(3000);
    assert.deepEqual(page.buttons(), ['send']);
  });

  await t.test('no timer remains after the last component is unmounted', async (t) => {
    const { page, w } = await pageOf(t);
    w.answer = EMPTY;
    await page.show(<Send source={w.store} />);
    await page.pass(10);
    assert.ok(w.timers() > 0);
    await page.show(null);
    assert.equal(w.timers(), 0);
  });

  await t.test('the returned functions never change, so effects can depend on them', async (t) => {
    const { page, w } = await pageOf(t);
    const seen = new Set<unknown>();
    function Plain(): ReactNode {
      const { check, spend, observe, refresh } = useRateLimit(w.store);
      [check, spend, observe, refresh].forEach((each) => seen.add(each));
      return null;
    }
    w.answer = EMPTY;
    await page.show(<Plain />);
    await page.pass(7000);
    assert.equal(seen.size, 4);
  });

  await t.test('a component keeps its store between renders even if stores are not shared', async (t) => {
    const { page, urls, options } = await pageOf(t);
    Reflect.deleteProperty(globalThis, 'document');
    await page.show(<Send source="/own" options={options} />);
    await page.pass(10);
    await page.pass(6000);
    assert.deepEqual(page.buttons(), ['send']);
    assert.deepEqual(urls, ['/own']);
  });

  await t.test('signing in or out replaces the state of the previous user', async (t) => {
    const { page, w } = await pageOf(t);
    const users: (string | null)[] = [];
    const fetch = async (_url: unknown, init?: RequestInit): Promise<Response> => {
      const user = new Headers(init?.headers).get('x-user');
      users.push(user);
      return Response.json(user === 'ada' ? EMPTY : snapshot({}));
    };
    const as = (user: string): UseRateLimitOptions => ({ fetch, init: { headers: { 'x-user': user } } });
    await page.show(<Send source="/login" options={as('ada')} />);
    await page.pass(10);
    assert.deepEqual(page.buttons(), ['again in 6 s']);
    await page.show(<Send source="/login" options={as('ada')} />);
    assert.deepEqual(users, ['ada'], 're-rendering sends no request');

    await page.show(<Send source="/login" options={as('grace')} />);
    assert.deepEqual(page.buttons(), ['send'], 'no state of the previous user remains');
    await page.pass(10);
    assert.deepEqual(page.buttons(), ['send']);
    await page.show(<Send source="/login" options={{ fetch }} />);
    await page.pass(10);
    assert.deepEqual(page.buttons(), ['send']);
    await page.show(<Send source="/login" options={as('ada')} />);
    await page.pass(10);
    assert.deepEqual(page.buttons(), ['again in 6 s']);
    assert.deepEqual(users, ['ada', 'grace', null, 'ada']);
    await page.show(null);
    assert.equal(w.timers(), 0);
  });

  await t.test('`key` distinguishes users who are identified by a cookie', async (t) => {
    const { page } = await pageOf(t);
    let cookie = 'ada';
    const fetch = async (): Promise<Response> => Response.json(cookie === 'ada' ? EMPTY : snapshot({}));
    await page.show(<Send source="/cookie" options={{ fetch, key: 'ada' }} />);
    await page.pass(10);
    assert.deepEqual(page.buttons(), ['again in 6 s']);
    cookie = 'grace';
    await page.show(<Send source="/cookie" options={{ fetch, key: 'grace' }} />);
    await page.pass(10);
    assert.deepEqual(page.buttons(), ['send']);
  });

  await t.test('a hook and a store without React share one state until both are released', async (t) => {
    const { page, urls, options, w } = await pageOf(t);
    const vanilla = createRateLimit({ ...options, url: '/both' });
    let calls = 0;
    const stop = vanilla.subscribe(() => (calls += 1));
    await page.show(<Send source="/both" options={options} />);
    await page.pass(10);
    assert.deepEqual(urls, ['/both']);
    assert.deepEqual(page.buttons(), ['again in 6 s']);
    await page.pass(6000);
    assert.deepEqual(page.buttons(), ['send']);
    calls = 0;
    await act(() => vanilla.spend());
    assert.deepEqual(page.buttons(), ['again in 6 s']);
    assert.equal(calls, 1);

    await page.show(null);
    assert.equal(vanilla.getStatus().ok, false, 'the store without React still uses the state');
    stop();
    assert.equal(w.timers(), 0);
    assert.equal(createRateLimit({ ...options, url: '/both' }).getStatus().known, false);
  });

  await t.test('the server renders the button without a request, and the page hydrates the button', async (t) => {
    const urls: string[] = [];
    const fetch = async (url: unknown): Promise<Response> => {
      urls.push(String(url));
      return Response.json(EMPTY);
    };
    const html = renderToString(<Send source="/hydrated" options={{ fetch }} />);
    assert.match(html, /<button>send<\/button>/);
    assert.equal(urls.length, 0);

    const { page, options } = await pageOf(t, html);
    await page.show(<Send source="/hydrated" options={options} />);
    await page.pass(10);
    assert.deepEqual(page.buttons(), ['again in 6 s']);
    assert.equal(urls.length, 0, 'the store from server rendering never sends a request');
  });
});

function Send({ source, count = 1, options }: SendProps): ReactNode {
  const { status } = useRateLimit(source, { ...options, count });
  const seconds = useCountdown(status.retryAt);
  return <button disabled={!status.ok}>{status.ok ? 'send' : `again in ${seconds} s`}</button>;
}

interface SendProps {
  source: string | RateLimitStore;
  count?: number;
  options?: UseRateLimitOptions;
}

interface Page {
  /** Returns the buttons' labels. Checks that exactly the buttons labeled `send` are enabled. */
  buttons(): string[];
  show(node: ReactNode): Promise<void>;
  pass(milliseconds: number): Promise<void>;
}

/** Creates a page in a new world. If `html` is given, the page hydrates it. Any warning from React fails the test. */
async function pageOf(
  test: TestContext,
  html?: string,
): Promise<{ page: Page; w: World; urls: string[]; options: UseRateLimitOptions }> {
  const errors = mock.method(console, 'error');
  const window = new Window();
  Object.assign(globalThis, { window, document: window.document });
  const w = world(test);
  const container = window.document.createElement('div') as unknown as HTMLElement;
  window.document.body.append(container as never);
  let root: Root | undefined;

  const page: Page = {
    buttons: () =>
      [...container.querySelectorAll('button')].map((button) => {
        const text = button.textContent ?? '';
        assert.equal(button.disabled, text !== 'send');
        return text;
      }),
    async show(node) {
      await act(async () => {
        const strict = <StrictMode>{node}</StrictMode>;
        if (root) {
          root.render(strict);
        } else if (html === undefined) {
          root = createRoot(container);
          root.render(strict);
        } else {
          container.innerHTML = html;
          root = hydrateRoot(container, strict);
        }
      });
    },
    async pass(milliseconds) {
      await act(() => w.pass(milliseconds));
    },
  };

  test.after(async () => {
    await act(async () => root?.unmount());
    await settle();
    Reflect.deleteProperty(globalThis, 'document');
    Reflect.deleteProperty(globalThis, 'window');
    await window.happyDOM.close();
    errors.mock.restore();
    const texts = errors.mock.calls.map((call) => String(call.arguments[0]));
    // Node warns that mock timers are experimental.
    assert.deepEqual(
      texts.filter((text) => !text.startsWith('(node:')),
      [],
    );
  });

  const urls: string[] = [];
  const options: UseRateLimitOptions = {
    fetch: async (url) => {
      urls.push(String(url));
      return Response.json(EMPTY);
    },
    monotonic: () => Date.now() - BEGIN,
  };
  return { page, w, urls, options };
}
