/**
 * Tests the demo page in a real browser whose clock is off by up to 90 s. The server is a real server on this machine
 * (`TOLLGATE_URL`) or a stand-in. For the user in `x-user`, it responds to `GET /limits/chat` with the snapshot and to
 * `POST /chat` with 200 or 429. The capacity is a few tokens, and each token is refilled within about ten seconds.
 *
 * `CHROMIUM` is the browser's executable. `SHOTS` is a folder for screenshots.
 */

import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { chromium, type Browser, type BrowserContextOptions, type Page } from 'playwright-core';
import { calculateRateLimit, parseSnapshots } from '../src/index.js';
import { listen, site } from './site.js';
import { standIn } from './stand-in.js';

/** The tolerance for times, in milliseconds. */
const PRECISION = 100;

const executablePath = process.env['CHROMIUM'] ?? '/usr/bin/chromium';
const servers = [standIn()];
let browser: Browser;
let server: string;
let url: string;

before(async () => {
  if (!existsSync(executablePath)) {
    throw new Error(
      `${executablePath} does not exist: run apt-get install --no-install-recommends chromium, or set CHROMIUM`,
    );
  }
  server = process.env['TOLLGATE_URL'] ?? (await listen(servers[0] ?? standIn()));
  servers.push(site(server));
  url = await listen(servers[1] ?? site(server));
  browser = await chromium.launch({ executablePath, args: ['--no-sandbox'] });
});

after(async () => {
  await browser?.close();
  servers.forEach((each) => each.close());
});

for (const clockError of [0, 90_000, -90_000]) {
  test(`the button is disabled while requests are denied, with a clock off by ${clockError / 1000} s`, async () => {
    const user = `browser-${clockError}-${Math.random()}`;
    const { page, requests } = await open(user, clockError);
    const button = page.getByRole('button');
    const { available } = await fetchLimit(user);
    assert.ok(available >= 1, 'expected a new user to have tokens');

    // The button is disabled only when the last token is spent.
    for (let left = available; left > 0; left--) {
      assert.equal(await button.textContent(), 'Send');
      await button.click();
      await page.waitForFunction((sent) => document.querySelectorAll('li').length === sent, available - left + 1);
    }
    assert.match((await button.textContent()) ?? '', /^Send again in \d+ s$/);
    assert.equal(await button.isDisabled(), true);

    // The page shows the server's retry time.
    const { retryAt: allowedAt } = await fetchLimit(user);
    const serverWait = allowedAt - Date.now();
    const late = await assertShown(page, allowedAt, clockError);
    await page.screenshot(shot(`waiting-${clockError / 1000}`));

    // The button is enabled once the server would allow a request. Until then, the page sends nothing.
    const requestsBefore = requests.length;
    await page.waitForFunction(() => document.querySelector('button')?.textContent === 'Send', null, {
      timeout: 60_000,
    });
    assert.equal(requests.length, requestsBefore, 'expected no request while waiting');
    await button.click();
    await page.waitForFunction((sent) => document.querySelectorAll('li').length === sent, available + 1);
    assert.equal(await page.getAttribute('form', 'data-refused'), '0', 'expected the next click to succeed');

    const labels = await page.evaluate(() => window.labels);
    const errors = labels
      .slice(labels.findIndex(({ text }) => text.startsWith('Send again')) + 1)
      .map(({ at, text }) => ({ text, at: Math.round(at - allowedAt) }))
      .slice(0, Math.ceil(serverWait / 1000))
      .map(({ text, at }) => at + 1000 * Number(/\d+/.exec(text)?.[0] ?? 0));
    assert.equal(errors.length, Math.ceil(serverWait / 1000), 'expected one label per second and then `Send`');
    console.log(
      `clock off by ${clockError / 1000} s: shown ${Math.round(late)} ms late; labels late by ${errors.join(', ')} ms`,
    );
    for (const error of errors) {
      assert.ok(Math.abs(error) <= PRECISION, `labels late by ${errors.join(', ')} ms`);
    }
    assert.deepEqual(count(requests), { '/limits/chat': 1, '/chat': available + 1 });
    await page.context().close();
  });
}

test('a user without tokens sees the wait as soon as the page opens', async () => {
  const user = `browser-limited-${Math.random()}`;
  let { available } = await fetchLimit(user);
  for (; available > 0; available--) {
    await fetch(`${server}/chat`, { method: 'POST', headers: { 'x-user': user } });
  }
  const { page } = await open(user, 90_000);
  const { retryAt } = await fetchLimit(user);
  await assertShown(page, retryAt, 90_000);
  await page.context().close();
});

test('an unexpected refusal disables the button until the server allows a request', async () => {
  const user = `browser-two-tabs-${Math.random()}`;
  const { page, requests } = await open(user, -90_000);
  for (let { available } = await fetchLimit(user); available > 0; available--) {
    await fetch(`${server}/chat`, { method: 'POST', headers: { 'x-user': user } });
  }
  await page.getByRole('button').click();
  await page.waitForFunction(() => document.querySelector('form')?.dataset['refused'] === '1');
  await page.waitForFunction(() => document.querySelector('button')?.textContent?.startsWith('Send again'));
  // After the refusal, the page fetches the snapshot, which makes the countdown exact.
  await page.waitForTimeout(500);
  const { retryAt } = await fetchLimit(user);
  await assertShown(page, retryAt, -90_000);
  assert.deepEqual(count(requests), { '/limits/chat': 2, '/chat': 1 });
  await page.context().close();
});

test('the page fits any width in light and dark mode', async () => {
  for (const colorScheme of ['light', 'dark'] as const) {
    for (const [name, width] of [
      ['desktop', 1280],
      ['phone', 360],
    ] as const) {
      const { page } = await open(`browser-shots-${Math.random()}`, 0, {
        colorScheme,
        viewport: { width, height: 640 },
      });
      await page.screenshot(shot(`${name}-${colorScheme}-ready`));
      const button = page.getByRole('button');
      while (await button.isEnabled()) {
        await button.click();
        await page.waitForTimeout(100);
      }
      await page.screenshot(shot(`${name}-${colorScheme}-waiting`));
      assert.ok(
        await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth),
        `${name}, ${colorScheme}`,
      );
      await page.context().close();
    }
  }
});

declare global {
  interface Window {
    /** The button's labels, each with the real time at which it appeared, in milliseconds since the epoch. */
    labels: { at: number; text: string }[];
  }
}

/** Opens the demo page with a clock that is `clockError` milliseconds ahead, and waits for the first snapshot. */
async function open(
  user: string,
  clockError: number,
  options: BrowserContextOptions = {},
): Promise<{ page: Page; requests: string[] }> {
  const context = await browser.newContext(options);
  await context.addInitScript(setClock, clockError);
  const page = await context.newPage();
  const requests: string[] = [];
  page.on('request', (request) => requests.push(new URL(request.url()).pathname));
  await page.goto(`${url}/?user=${user}`);
  await page.waitForSelector('form[data-known=true]');
  return { page, requests };
}

/** Runs in the page before the page's scripts. */
function setClock(clockError: number): void {
  const Correct = Date;
  class Wrong extends Correct {
    constructor(...given: []) {
      super(...(given.length ? given : ([Correct.now() + clockError] as unknown as [])));
    }
    static override now(): number {
      return Correct.now() + clockError;
    }
  }
  globalThis.Date = Wrong as DateConstructor;

  window.labels = [];
  new MutationObserver(() => {
    const text = document.querySelector('button')?.textContent ?? '';
    if (text !== window.labels.at(-1)?.text) {
      window.labels.push({ at: performance.timeOrigin + performance.now(), text });
    }
  }).observe(document, { subtree: true, childList: true, characterData: true });
}

/**
 * Checks the time at which the page, whose clock is `clockError` milliseconds ahead, allows the next request. Compares
 * times instead of waits, so the duration of the check does not matter. Returns how many milliseconds the page is late.
 */
async function assertShown(page: Page, retryAt: number, clockError: number): Promise<number> {
  const shown = await page.evaluate(() => Number(document.querySelector('form')?.dataset['retryAt']));
  const late = shown - clockError - retryAt;
  assert.ok(Math.abs(late) <= PRECISION, `the displayed retry time is ${late} ms late`);
  return late;
}

/**
 * Fetches the number of tokens left, and the time at which the server allows the next request (milliseconds since the
 * epoch).
 */
async function fetchLimit(user: string): Promise<{ available: number; retryAt: number }> {
  const response = await fetch(`${server}/limits/chat`, { headers: { 'x-user': user } });
  const [limit] = parseSnapshots(await response.json());
  assert.ok(limit);
  const { available, retryAfter } = calculateRateLimit(limit, limit.now, 1);
  return { available, retryAt: (limit.now + (retryAfter ?? 0)) / 1000 };
}

function count(requests: readonly string[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const path of requests.filter((each) => each === '/chat' || each.startsWith('/limits'))) {
    counts[path] = (counts[path] ?? 0) + 1;
  }
  return counts;
}

function shot(name: string): { path?: string } {
  const folder = process.env['SHOTS'];
  return folder === undefined ? {} : { path: `${folder}/${name}.png` };
}
