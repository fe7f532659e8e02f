// Tests of response arrival times.
import assert from 'node:assert/strict';
import { mock, test } from 'node:test';
import { request } from '../src/request.js';

/** Returns a response's arrival time. The request is sent at 100 ms, and the page is notified at 400 ms. */
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

test('the arrival time is taken from the timing entry, even if a busy page is notified later', async () => {
  assert.equal(await receivedAt(120), 120);
});

test('without a valid timing entry, the time of the notification is the arrival time', async () => {
  assert.deepEqual(
    [await receivedAt(), await receivedAt(0), await receivedAt(100), await receivedAt(401)],
    [400, 400, 400, 400],
  );
});
