import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createServerClock } from '../src/clock.js';

/** The server's time, in microseconds since the epoch. */
const NOW = 1_700_000_000_000_000;

test('the browser clock is used until the first sample', () => {
  assert.equal(createServerClock(NOW / 1000).at(5), NOW + 5000);
});

test('the clock is never ahead of the server, and at most one response delay behind it', () => {
  for (const [there, back] of [
    [0, 40],
    [20, 20],
    [40, 0],
  ] as const) {
    const clock = createServerClock(0);
    // The server reads its clock at `100 + there`.
    clock.sample(NOW, 100, 100 + there + back);
    const server = NOW + 1000 * (1000 - (100 + there));
    assert.equal(server - clock.at(1000), back * 1000);
  }
});

test('the sample with the shortest round trip is used until clock drift could outweigh its advantage', () => {
  const clock = createServerClock(0);
  clock.sample(NOW, 0, 20);
  clock.sample(NOW + 999_000_000, 100, 200);
  assert.equal(clock.at(20), NOW, 'a sample with a longer round trip is ignored');
  const hour = 3_600_000;
  clock.sample(NOW + hour * 1000, hour, hour + 200);
  assert.equal(clock.at(hour + 200), NOW + hour * 1000, 'after an hour, a sample with a longer round trip is used');
});

test('after `distrust`, the next sample is used even if its round trip is longer', () => {
  const clock = createServerClock(0);
  clock.sample(NOW, 0, 20);
  clock.distrust();
  clock.sample(NOW + 5_000_000, 100, 200);
  assert.equal(clock.at(200), NOW + 5_000_000);
});
