/**
 * The crate's example `status_ui`, a page without React, in a real browser whose clock is 90 s wrong. `STATUS_UI_URL`
 * is its address; `scripts/on-real-server.sh` starts it. `CHROMIUM` is the browser's executable.
 */

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { chromium, type Browser, type Page } from 'playwright-core';
import { calculateRateLimit, parseSnapshots } from '../src/index.js';

/** The tolerance of times, in milliseconds. */
const PRECISION = 100;

const url = process.env['STATUS_UI_URL'];
let browser: Browser;

before(async () => {
  assert.ok(url, 'STATUS_UI_URL is not set: run scripts/on-real-server.sh, or set it to the address of `status_ui`');
  const executablePath = process.env['CHROMIUM'] ?? '/usr/bin/chromium';
  browser = await chromium.launch({ executablePath, args: ['--no-sandbox'] });
});

after(() => browser?.close());

for (const wrong of [0, 90_000, -90_000]) {
  test(`the example's button opens when the server does, in a browser whose clock is ${wrong / 1000} s wrong`, async () => {
    const { page, requests } = await open(wrong);
    const isOff = async (): Promise<boolean> => (await page.getAttribute('#send', 'aria-disabled')) === 'true';

    // The last message disables the button, which keeps the focus.
    await page.focus('#send');
    for (let { available } = await ask(); available > 0; available--) {
      assert.equal(await isOff(), false, `disabled with ${available} messages left`);
      await press(page);
    }
    assert.equal(await isOff(), true);
    assert.match((await page.textContent('#send')) ?? '', /^\s*Send again in \d s\s*$/);
    assert.match((await page.textContent('#news')) ?? '', /^No messages left. You can send again in \d seconds.$/);
    assert.equal(await page.evaluate(() => document.activeElement?.id), 'send');

    // The button is enabled at the server's instant, without requests meanwhile.
    const { opens } = await ask();
    const asked = requests.length;
    const enabled = await page.waitForFunction(() => document.querySelector('#send[aria-disabled=false]'), null, {
      polling: 5,
      timeout: 30_000,
    });
    const late = performance.now() - opens;
    await enabled.dispose();
    console.log(`clock ${wrong / 1000} s wrong: the example's button opened ${Math.round(late)} ms late`);
    assert.ok(late > -PRECISION && late < PRECISION, `${late} ms late`);
    assert.equal(requests.length, asked, 'no request while waiting');
    assert.equal(await page.textContent('#news'), 'You can send again.');

    // The next click succeeds.
    await press(page);
    assert.deepEqual(requests.slice(asked).filter((request) => request.endsWith('bucket')), ['200 /send/bucket']);
    await page.context().close();
  });
}

/** Sends a message with the keyboard, and waits for the responses under all three limits. */
async function press(page: Page): Promise<void> {
  const answers = ['bucket', 'fixed', 'sliding'].map((name) =>
    page.waitForResponse((response) => response.url().endsWith(`/send/${name}`)),
  );
  await page.keyboard.press('Enter');
  await Promise.all(answers);
  await page.waitForTimeout(50);
}

/** The bucket's messages left, and the time of the next one by this process's clock. */
async function ask(): Promise<{ available: number; opens: number }> {
  const begun = performance.now();
  const body: unknown = await (await fetch(`${url}/limits/bucket`)).json();
  const back = performance.now();
  const [snapshot] = parseSnapshots(body);
  assert.ok(snapshot);
  const { available, retryAfter } = calculateRateLimit(snapshot, snapshot.now, 1);
  return { available, opens: (begun + back) / 2 + (retryAfter ?? 0) / 1000 };
}

/** Opens the page and waits until it knows its limits. */
async function open(wrong: number): Promise<{ page: Page; requests: string[] }> {
  const page = await (await browser.newContext()).newPage();
  await page.addInitScript((shift) => {
    const right = Date.now;
    Date.now = () => right() + shift;
  }, wrong);
  const requests: string[] = [];
  page.on('response', (response) => requests.push(`${response.status()} ${new URL(response.url()).pathname}`));
  await page.goto(`${url}/`);
  await page.waitForFunction(() => document.querySelectorAll('#gauge > *').length > 0);
  return { page, requests };
}
