/**
 * Tests two pages in a real browser. On the first page, users sign in and out, a React hook and a plain button show
 * the same limit, and some responses concern another limit. The second page runs the README's example without React.
 *
 * `scripts/on-real-server.sh` starts the servers. The server at `TOLLGATE_URL` has the first limit; if this variable is
 * not set, a stand-in is used. The server at `STATUS_UI_URL` has the other limit.
 */

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { build, type BuildOptions } from 'esbuild';
import { chromium, type Browser, type Page } from 'playwright-core';
import { calculateRateLimit, parseSnapshots } from '../src/index.js';
import { listen, site } from './site.js';
import { standIn } from './stand-in.js';

/** The tolerance for times, in milliseconds. */
const PRECISION = 100;
const CLIENT = fileURLToPath(new URL('../../', import.meta.url));

const servers = [standIn()];
let browser: Browser;
let server: string;
let url: string;

before(async () => {
  const other = process.env['STATUS_UI_URL'];
  assert.ok(other, 'STATUS_UI_URL is not set: run scripts/on-real-server.sh, or set it to the address of `status_ui`');
  server = process.env['TOLLGATE_URL'] ?? (await listen(servers[0] ?? standIn()));
  servers.push(site(server, other));
  url = await listen(servers[1] ?? site(server, other));
  browser = await chromium.launch({
    executablePath: process.env['CHROMIUM'] ?? '/usr/bin/chromium',
    args: ['--no-sandbox'],
  });
});

after(async () => {
  await browser?.close();
  servers.forEach((each) => each.close());
});

test('a React hook and a plain button show the limit of the current user', async () => {
  const [ada, grace] = ['ada', 'grace'].map((name) => `${name}.${Math.random().toString(36).slice(2)}`);
  assert.ok(ada && grace);
  const { page, requests } = await open({ entryPoints: [`${CLIENT}build/browser/together.js`] }, `user=${ada}&user=${grace}`);
  const snapshotRequests = (): number => requests.filter((path) => path === '/limits/chat').length;
  const labels = (): Promise<(string | null)[]> =>
    Promise.all(['#hooked', '#plain'].map((each) => page.textContent(each)));
  await page.waitForSelector('#hooked[data-known=true]');
  assert.deepEqual(await labels(), ['Send', 'Send']);
  assert.equal(snapshotRequests(), 1, 'expected one request for both buttons');

  // The app observes all responses. Responses under another policy, even refusals, do not change this limit.
  for (let status = 200; status !== 429; ) {
    const arrival = page.waitForResponse((response) => response.url().endsWith('/send/fixed'));
    await page.click('#search');
    const response = await arrival;
    status = response.status();
    assert.match(response.headers()['ratelimit'] ?? '', /^"fixed";r=\d;t=\d+$/);
    assert.deepEqual(await labels(), ['Send', 'Send'], `after a ${status} under another policy`);
  }
  await page.waitForFunction(() => document.querySelector('#found')?.textContent?.startsWith('429'));
  await page.waitForTimeout(100);
  assert.equal(await page.isEnabled('#hooked'), true);
  assert.equal(await page.isEnabled('#plain'), true);
  assert.equal(snapshotRequests(), 1, 'responses under another policy cause no request for a snapshot');
  await page.screenshot(shot('together-1-another-policy-refused'));

  // Both buttons reflect the tokens spent by either button.
  for (const [i, button] of ['#hooked', '#plain', '#plain'].entries()) {
    assert.deepEqual(await labels(), ['Send', 'Send']);
    await page.click(button);
    await page.waitForSelector(`body[data-sent="${i + 1}"]`);
  }
  await page.waitForSelector('#hooked:disabled');
  await page.waitForSelector('#plain:disabled');
  const [hooked, plain] = await labels();
  assert.match(hooked ?? '', /^Send again in \d s$/);
  assert.equal(plain, hooked);
  assert.equal(snapshotRequests(), 1);
  await page.screenshot(shot('together-2-ada-waits'));

  // Another user signs in, and no state of the first user remains.
  await page.click('#as-grace');
  assert.deepEqual(await labels(), ['Send', 'Send']);
  await page.waitForSelector('#hooked[data-known=true]');
  assert.equal(await page.isEnabled('#plain'), true);
  assert.equal(snapshotRequests(), 2);
  await page.screenshot(shot('together-3-grace-can-send'));

  // The user signs out. The first user signs in again and waits until the server allows a request.
  await page.click('#as-');
  assert.equal(await page.locator('#hooked').count(), 0);
  await page.screenshot(shot('together-4-signed-out'));
  // Another device spends the refilled tokens.
  while ((await fetch(`${server}/chat`, { method: 'POST', headers: { 'x-user': ada } })).ok);
  await page.click('#as-ada');
  await page.waitForSelector('#hooked[data-known=true]');
  await page.waitForSelector('#plain:disabled');
  assert.equal(snapshotRequests(), 3);
  const allowedAt = await allowedAtOf(ada);
  const shown = await page.evaluate(() => Number(document.querySelector('#hooked')?.getAttribute('data-retry-at')));
  assert.ok(Math.abs(shown - allowedAt) <= PRECISION, `the displayed time is ${shown - allowedAt} ms late`);
  await page.screenshot(shot('together-5-ada-again'));
  await page.waitForSelector('#hooked:enabled');
  await page.waitForSelector('#plain:enabled');
  assert.deepEqual(await labels(), ['Send', 'Send']);
  for (const id of ['hooked', 'plain']) {
    const late = ((await labelsOf(page, id)).at(-1)?.at ?? NaN) - allowedAt;
    assert.ok(Math.abs(late) <= PRECISION, `${id} was enabled ${late} ms late`);
  }
  assert.equal(snapshotRequests(), 3, 'expected no request while waiting');
  await page.context().close();
});

test("the README's example without React counts down", async () => {
  const readme = await readFile(`${CLIENT}README.md`, 'utf8');
  const code = /^## Without React$.*?^```ts\n(.*?)^```$/ms.exec(readme)?.[1];
  assert.ok(code);
  const user = `readme.${Math.random().toString(36).slice(2)}`;
  const { page, requests } = await open({ stdin: { contents: code, loader: 'ts', resolveDir: CLIENT } }, '', user);
  await page.waitForFunction(() => performance.getEntriesByName(`${location.origin}/limits/chat`).length > 0);
  const button = page.getByRole('button');
  assert.equal(await button.textContent(), 'Send');
  for (let sent = 0; sent < 3; sent++) {
    const arrival = page.waitForResponse((response) => response.url().endsWith('/chat') && response.ok());
    await button.click();
    await arrival;
  }
  await page.waitForSelector('button:disabled');
  const allowedAt = await allowedAtOf(user);
  await page.screenshot(shot('readme-counts-down'));
  await page.waitForSelector('button:enabled');
  const counted = (await labelsOf(page, '')).slice(-3);
  assert.deepEqual(
    counted.map(({ text }) => text),
    ['Send again in 2 s', 'Send again in 1 s', 'Send'],
  );
  for (const { text, at } of counted) {
    const late = at + 1000 * Number(/\d+/.exec(text)?.[0] ?? 0) - allowedAt;
    assert.ok(Math.abs(late) <= PRECISION, `${text}: ${late} ms late`);
  }
  assert.equal(await button.isEnabled(), true);
  assert.equal(requests.filter((path) => path === '/limits/chat').length, 1);
  const arrival = page.waitForResponse((response) => response.url().endsWith('/chat'));
  await button.click();
  assert.equal((await arrival).status(), 200, 'expected the next click to succeed');
  await page.context().close();
});

/** Opens a page that runs one script. If `user` is given, a cookie identifies that user. */
async function open(script: BuildOptions, query: string, user?: string): Promise<{ page: Page; requests: string[] }> {
  const bundled = await build({
    ...script,
    absWorkingDir: CLIENT,
    bundle: true,
    write: false,
    format: 'esm',
    define: { 'process.env.NODE_ENV': '"development"' },
  });
  const context = await browser.newContext({ viewport: { width: 480, height: 560 } });
  if (user !== undefined) {
    await context.addCookies([{ name: 'user', value: user, url }]);
  }
  const page = await context.newPage();
  await page.addInitScript(record);
  const requests: string[] = [];
  page.on('request', (request) => requests.push(new URL(request.url()).pathname));
  const lead = '<!doctype html><html lang="en"><meta charset="utf-8"><link rel="icon" href="data:,">';
  const body = `<link rel="stylesheet" href="/style.css"><main id="root">${user ? '<button>Send</button>' : ''}</main>`;
  await page.route('**/together*', (route) =>
    route.fulfill({ contentType: 'text/html', body: `${lead}${body}<script type="module" src="/script.js"></script>` }),
  );
  await page.route('**/style.css', (route) => route.fulfill({ path: `${CLIENT}demo/style.css` }));
  await page.route('**/script.js', (route) =>
    route.fulfill({ contentType: 'text/javascript', body: bundled.outputFiles?.[0]?.text ?? '' }),
  );
  await page.goto(`${url}/together?${query}`);
  return { page, requests };
}

/** Runs in the page before the page's scripts. */
function record(): void {
  window.changes = [];
  new MutationObserver(() => {
    const at = performance.timeOrigin + performance.now();
    for (const { id, textContent: text } of document.querySelectorAll('button')) {
      if (text && text !== window.changes.filter((change) => change.id === id).at(-1)?.text) {
        window.changes.push({ at, id, text });
      }
    }
  }).observe(document, { subtree: true, childList: true, characterData: true });
}

declare global {
  interface Window {
    /** The buttons' labels, each with the time at which it appeared, in milliseconds since the epoch. */
    changes: { at: number; id: string; text: string }[];
  }
}

async function labelsOf(page: Page, id: string): Promise<{ at: number; text: string }[]> {
  return (await page.evaluate(() => window.changes)).filter((change) => change.id === id);
}

/** Returns the time at which the server allows the next request, in milliseconds since the epoch. */
async function allowedAtOf(user: string): Promise<number> {
  const response = await fetch(`${server}/limits/chat`, { headers: { 'x-user': user } });
  const [limit] = parseSnapshots(await response.json());
  assert.ok(limit);
  return (limit.now + (calculateRateLimit(limit, limit.now, 1).retryAfter ?? 0)) / 1000;
}

function shot(name: string): { path?: string } {
  const folder = process.env['SHOTS'];
  return folder === undefined ? {} : { path: `${folder}/${name}.png` };
}
