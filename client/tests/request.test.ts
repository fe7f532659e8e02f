// Tests of the time at which a response arrived.
import assert from 'node:assert/strict';
import { mock, test } from 'node:test';
import { request } from '../src/request.js';

/** Sends a request at 100 ms. The page is notified of the response at 400 ms. Returns when the response arrived. */
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

test('a response arrives at the time in the timing entry, even if a busy page is notified later', async () => {
  assert.equal(await receivedAt(120), 120);
});

test('without a valid timing entry, a response arrives when the page is notified', async () => {
  assert.deepEqual(
    [await receivedAt(), await receivedAt(0), await receivedAt(100), await receivedAt(401)],
    [400, 400, 400, 400],
  );
});
