/**
 * Checks that the client makes exactly the same decisions as the crate's algebra (`differential/`).
 *
 * `TOLLGATE_CASES` is the number of random cases (default 200,000), and `TOLLGATE_SEED` is their seed.
 */

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { calculateRateLimit, type Algorithm, type CalculateOptions, type Snapshot } from '../src/index.js';

interface Case {
  algorithm: Algorithm;
  rate: number;
  period: number;
  capacity: number;
  start: number;
  max_reserved: number | null;
  spent: number;
  at: number;
  carry: number;
  clear: number | null;
  written_by: Algorithm | null;
  now: number;
  cost: number;
  max_wait: number | null;
  verdict: 'allow' | 'reserve' | 'deny';
  time: number | null;
  spent_after: number;
  at_after: number;
  carry_after: number;
  clear_after: number | null;
  written_by_after: Algorithm | null;
  available: number;
  remaining: number;
}

/** The value that the generator prints for an unlimited wait. */
const UNLIMITED_WAIT = 2 ** 53;

const count = Number(process.env['TOLLGATE_CASES'] ?? 200_000);
const seed = Number(process.env['TOLLGATE_SEED'] ?? 1);

test(`the client decides ${count} random requests exactly like the crate`, () => {
  const seen = new Map<string, number>();
  for (const line of generate().split('\n').filter(Boolean)) {
    const expected = JSON.parse(line) as Case;
    const denied = expected.verdict === 'deny';
    const actual = calculateRateLimit(snapshotOf(expected), expected.now, expected.cost, optionsOf(expected));
    assert.deepEqual(
      actual,
      {
        ok: !denied,
        available: expected.available,
        remaining: expected.remaining,
        wait: denied ? 0 : expected.time,
        retryAfter: denied ? expected.time : null,
        row: {
          spent: expected.spent_after,
          ts: expected.at_after,
          previous: expected.carry_after,
          ...changed(expected.clear_after, expected.written_by_after),
        },
      },
      line,
    );
    const kind = `${expected.algorithm} ${expected.verdict}`;
    seen.set(kind, (seen.get(kind) ?? 0) + 1);
    if (expected.written_by) {
      const foreign = `${expected.written_by} -> ${expected.algorithm}`;
      seen.set(foreign, (seen.get(foreign) ?? 0) + 1);
    }
  }
  console.log(Object.fromEntries(seen));
  // Every kind of decision is frequent with any seed.
  for (const algorithm of ['token_bucket', 'fixed_window', 'sliding_window']) {
    for (const writer of ['token_bucket', 'fixed_window', 'sliding_window']) {
      const kind = `${writer} -> ${algorithm}`;
      assert.ok((seen.get(kind) ?? 0) > count / 200, `${kind}: only ${seen.get(kind)} cases`);
    }
    for (const verdict of algorithm === 'sliding_window' ? ['allow', 'deny'] : ['allow', 'reserve', 'deny']) {
      const kind = `${algorithm} ${verdict}`;
      assert.ok((seen.get(kind) ?? 0) > count / 50, `${kind}: only ${seen.get(kind)} cases`);
    }
  }
});

function generate(): string {
  const manifest = fileURLToPath(new URL('../../differential/Cargo.toml', import.meta.url));
  const command = ['run', '--quiet', '--release', '--locked', '--manifest-path', manifest, '--', `${count}`, `${seed}`];
  const { error, status, stdout, stderr } = spawnSync('cargo', command, { encoding: 'utf8', maxBuffer: 2 ** 30 });
  if (error) {
    throw new Error('cargo could not be started; this test needs Rust, see https://rustup.rs', { cause: error });
  }
  assert.equal(status, 0, `the generator failed: ${stderr}`);
  return stdout;
}

function snapshotOf({
  spent,
  carry: previous,
  clear,
  written_by,
  at: ts,
  algorithm,
  rate,
  period,
  capacity,
  start,
  max_reserved,
}: Case): Snapshot {
  const own = { policy: 'case', algorithm, rate, period, capacity, start, max_reserved, spent, previous, ts, now: ts };
  return { ...own, ...changed(clear, written_by) };
}

/** The additional fields of a row that another quota wrote. */
function changed(clear: number | null, written_by: Algorithm | null): { clear?: number; written_by?: Algorithm } {
  return clear !== null && written_by !== null ? { clear, written_by } : {};
}

function optionsOf({ max_wait }: Case): CalculateOptions {
  if (max_wait === null) {
    return {};
  }
  return max_wait === UNLIMITED_WAIT ? { reserve: true } : { maxWaitMicros: max_wait };
}
