import assert from 'node:assert/strict';
import { mock, test } from 'node:test';
import { request } from '../src/request.js';

/** Requests at 100 and is notified of the response at 400; the browser's timing entry has its arrival. */
async function receivedAt(responseStart?: number): Promise<number> {
  const entries = responseStart === undefined ? [] : [{ responseStart: 1 }, { responseStart }];
  const timing = mock.method(performance, 'getEntriesByName', () => entries);
  const times = [100, 400];
  const { sent, received } = await request('/limits', {
    fetch: async () => Response.json({}),
    init: undefined,
    timeout: 1000,
    now: () => 0,
    monotonic: () => times.shift() ?? NaN,
  });
  timing.mock.restore();
  assert.equal(sent, 100);
  return received;
}

test('an answer came when the browser says so, not when a busy page got to it', async () => {
  assert.equal(await receivedAt(120), 120);
});

test('where the browser does not say, or of another request, it came when the page was told', async () => {
  assert.deepEqual(
    [await receivedAt(), await receivedAt(0), await receivedAt(100), await receivedAt(401)],
    [400, 400, 400, 400],
  );
});
