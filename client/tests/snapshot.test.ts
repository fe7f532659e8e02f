// Tests of snapshot validation.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseSnapshots } from '../src/index.js';
import { sharded, snapshot } from './support.js';

test('a response contains one snapshot or a list of snapshots', () => {
  const one = snapshot({ spent: 3.5, max_reserved: null });
  assert.deepEqual(parseSnapshots(one), [one]);
  assert.deepEqual(parseSnapshots({ limits: [one, snapshot({ policy: 'day' })], now: one.now }), [
    one,
    snapshot({ policy: 'day' }),
  ]);
  assert.deepEqual(parseSnapshots({ limits: [], now: one.now }), []);
  const divided = sharded([{ spent: 3 }, { clear: one.now + 60_000_000, written_by: 'fixed_window' }], { shards: 7 });
  assert.deepEqual(parseSnapshots(divided), [divided]);
  const foreign = snapshot({ spent: 3, clear: one.now + 60_000_000, written_by: 'sliding_window' });
  assert.deepEqual(parseSnapshots(foreign), [foreign]);
});

test('the error names the field that is missing or out of range', () => {
  const bad: Record<string, unknown[]> = {
    policy: [undefined, 1],
    algorithm: [undefined, 'leaky_bucket', 'toString'],
    rate: [undefined, 0, 1.5, 1e15, '10'],
    period: [0, 3_155_760_000_000_001],
    capacity: [-1, NaN, Infinity],
    start: [-1, null],
    max_reserved: [undefined, -1, 1e15],
    spent: [-0.5, 2 ** 53],
    previous: [null],
    ts: [0.5, 2 ** 53],
    now: [undefined, -1],
    not_before: [null, -1, 0.5, 2 ** 53],
    clear: [null, -1, 0.5, 2 ** 53, 'never'],
    written_by: [null, 'leaky_bucket', 1],
  };
  for (const [name, values] of Object.entries(bad)) {
    for (const value of values) {
      assert.throws(
        () => parseSnapshots({ ...snapshot({}), ...(name === 'written_by' && { clear: 1e15 }), [name]: value }),
        (error: Error) => error instanceof TypeError && error.message.includes(name),
        `${name}: ${value}`,
      );
    }
  }
  for (const [name, values] of Object.entries(bad)) {
    const inRow = !['policy', 'algorithm', 'period', 'start', 'now', 'not_before'].includes(name);
    for (const value of inRow ? values : []) {
      const fields = { ...(name === 'written_by' && { clear: 1e15 }), [name]: value };
      const divided = { ...sharded([{}, {}]), rows: [sharded([{}]).rows[0], { ...sharded([{}]).rows[0], ...fields }] };
      assert.throws(
        () => parseSnapshots(divided),
        (error: Error) => error instanceof TypeError && error.message.includes(name),
        `${name} of a shard: ${value}`,
      );
    }
  }
  const divided = sharded([{}, {}]);
  for (const shards of [null, 0, 1.5, 65, '2']) {
    assert.throws(() => parseSnapshots({ ...divided, shards }), /"shards" of the snapshot is/);
  }
  for (const rows of [undefined, null, [], {}, [...divided.rows, ...divided.rows]]) {
    assert.throws(() => parseSnapshots({ ...divided, rows }), /"rows" of the snapshot is not a list of 1 to 2 shards/);
  }
  for (const body of [undefined, null, 'no', 1, []]) {
    assert.throws(() => parseSnapshots(body), /does the URL point to a status endpoint/);
  }
});
