/**
 * Tests the crate's `status_ui` example, a page without React, in a real browser whose clock is off by up to 90 s.
 * `scripts/on-real-server.sh` starts the example and sets `STATUS_UI_URL` to its address. `CHROMIUM` is the browser's
 * executable.
 */

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { chromium, type Browser, type Page } from 'playwright-core';
import { calculateRateLimit, parseSnapshots } from '../src/index.js';

/** The tolerance for times, in milliseconds. */
const PRECISION = 100;

const url = process.env['STATUS_UI_URL'];
let browser: Browser;

before(async () => {
  assert.ok(url, 'STATUS_UI_URL is not set: run scripts/on-real-server.sh, or set it to the address of `status_ui`');
  const executablePath = process.env['CHROMIUM'] ?? '/usr/bin/chromium';
  browser = await chromium.launch({ executablePath, args: ['--no-sandbox'] });
});

after(() => browser?.close());

for (const clockError of [0, 90_000, -90_000]) {
  test(`the button is enabled when a message is allowed, with a clock off by ${clockError / 1000} s`, async () => {
    const { page, requests } = await open(clockError);
    const isDisabled = async (): Promise<boolean> => (await page.getAttribute('#send', 'aria-disabled')) === 'true';

    // The last message disables the button, but the button keeps the focus.
    await page.focus('#send');
    for (let { available } = await fetchLimit(); available > 0; available--) {
      assert.equal(await isDisabled(), false, `the button is disabled despite ${available} messages left`);
      await press(page);
    }
    assert.equal(await isDisabled(), true);
    assert.match((await page.textContent('#send')) ?? '', /^\s*Send again in \d s\s*$/);
    assert.match((await page.textContent('#news')) ?? '', /^No messages left. You can send again in \d seconds.$/);
    assert.equal(await page.evaluate(() => document.activeElement?.id), 'send');

    // The button is enabled when the server allows the next message, without a request in the meantime.
    const { allowedAt } = await fetchLimit();
    const requestsBefore = requests.length;
    const enabled = await page.waitForFunction(() => document.querySelector('#send[aria-disabled=false]'), null, {
      polling: 5,
      timeout: 30_000,
    });
    const late = performance.now() - allowedAt;
    await enabled.dispose();
    console.log(`clock off by ${clockError / 1000} s: the example enabled its button ${Math.round(late)} ms late`);
    assert.ok(late > -PRECISION && late < PRECISION, `the button was enabled ${late} ms late`);
    assert.equal(requests.length, requestsBefore, 'expected no request while waiting');
    assert.equal(await page.textContent('#news'), 'You can send again.');

    // The next click succeeds.
    await press(page);
    const sent = requests.slice(requestsBefore).filter((request) => request.endsWith('bucket'));
    assert.deepEqual(sent, ['200 /send/bucket']);
    await page.context().close();
  });
}

/** Sends a message under each of the three limits by pressing Enter, and waits for the responses. */
async function press(page: Page): Promise<void> {
  const responses = ['bucket', 'fixed', 'sliding'].map((name) =>
    page.waitForResponse((response) => response.url().endsWith(`/send/${name}`)),
  );
  await page.keyboard.press('Enter');
  await Promise.all(responses);
  await page.waitForTimeout(50);
}

/**
 * Fetches the number of messages left in the bucket, and the time at which the next message is allowed (in milliseconds
 * on this process's monotonic clock).
 */
async function fetchLimit(): Promise<{ available: number; allowedAt: number }> {
  const sent = performance.now();
  const body: unknown = await (await fetch(`${url}/limits/bucket`)).json();
  const received = performance.now();
  const [snapshot] = parseSnapshots(body);
  assert.ok(snapshot);
  const { available, retryAfter } = calculateRateLimit(snapshot, snapshot.now, 1);
  return { available, allowedAt: (sent + received) / 2 + (retryAfter ?? 0) / 1000 };
}

/** Opens the page and waits until the page has received its limits. */
async function open(clockError: number): Promise<{ page: Page; requests: string[] }> {
  const page = await (await browser.newContext()).newPage();
  await page.addInitScript((shift) => {
    const correct = Date.now;
    Date.now = () => correct() + shift;
  }, clockError);
  const requests: string[] = [];
  page.on('response', (response) => requests.push(`${response.status()} ${new URL(response.url()).pathname}`));
  await page.goto(`${url}/`);
  await page.waitForFunction(() => document.querySelectorAll('#gauge > *').length > 0);
  return { page, requests };
}
