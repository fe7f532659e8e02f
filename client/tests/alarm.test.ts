// Tests of the timer for several due times.
import assert from 'node:assert/strict';
import { mock, test } from 'node:test';
import { createAlarm } from '../src/alarm.js';

test('the alarm rings once, at the earliest due time', (t) => {
  mock.timers.enable({ apis: ['setTimeout', 'Date'], now: 0 });
  t.after(() => mock.timers.reset());
  const rings: number[] = [];
  const alarm = createAlarm(Date.now, () => rings.push(Date.now()));
  alarm.set(500);
  alarm.set(300.2);
  alarm.set(400);
  alarm.set(Infinity);
  for (let i = 0; i < 1000; i++) {
    mock.timers.tick(1);
  }
  assert.deepEqual(rings, [301], 'the alarm never rings early');
  alarm.set(900);
  mock.timers.tick(0);
  assert.deepEqual(rings, [301, 1000], 'the alarm rings immediately if the due time has passed');
  alarm.set(2000);
  alarm.clear();
  mock.timers.tick(2000);
  assert.equal(rings.length, 2);
});

test('no wait exceeds the longest timeout that browsers support', (t) => {
  const waits: unknown[] = [];
  const timers = mock.method(globalThis, 'setTimeout', (_ring: unknown, wait: unknown) => waits.push(wait));
  t.after(() => timers.mock.restore());
  createAlarm(
    () => 0,
    () => {},
  ).set(2 ** 40);
  assert.deepEqual(waits, [2 ** 31 - 1]);
});
