/**
 * Checks that the client makes exactly the same decisions as the crate. The program in `differential/` prints the
 * decisions of the crate's algebra on single rows, and of the crate's limiter on lists of limits.
 *
 * `TOLLGATE_CASES` is the number of random cases of each kind (default 200,000). `TOLLGATE_SEED` is the random seed.
 */

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import {
  calculateRateLimit,
  parseSnapshots,
  type Algorithm,
  type CalculateOptions,
  type Snapshot,
} from '../src/index.js';
import { createProjection } from '../src/projection.js';

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

test(`the client and the crate make the same decisions for ${count} random requests`, async () => {
  const seen = new Map<string, number>();
  for await (const line of generate('rows')) {
    const expected = JSON.parse(line) as Case;
    const denied = expected.verdict === 'deny';
    const actual = calculateRateLimit(snapshotOf(expected), expected.now, expected.cost, optionsOf(expected.max_wait));
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
  // With any seed, every kind of decision must occur often.
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

/** A decision on the most recently printed list of limits. */
interface ListCase {
  now: number;
  cost: number;
  max_wait: number | null;
  allowed: boolean;
  wait: number | null;
  value: number;
  /** Whether the limiter's decision may be based on shards that are not in the snapshots. */
  sampled: boolean;
  each: {
    verdict: 'allow' | 'reserve' | 'deny';
    time: number | null;
    available: number;
    spent: number;
    ts: number;
    previous: number;
    clear: number | null;
    written_by: Algorithm | null;
  }[];
}

test(`the client and the crate make the same decisions for ${count} random requests on lists of limits`, async () => {
  const seen = new Map<string, number>();
  const countAs = (kind: string): Map<string, number> => seen.set(kind, (seen.get(kind) ?? 0) + 1);
  let now = 0;
  const projection = createProjection({ at: () => now, sample() {}, distrust() {} }, () => 0, []);
  let limits: readonly Snapshot[] = [];
  let list = '';
  for await (const line of generate('lists')) {
    const parsed: unknown = JSON.parse(line);
    if (Array.isArray(parsed)) {
      limits = parseSnapshots({ limits: parsed });
      projection.replace(limits, 0);
      list = line;
      continue;
    }
    const expected = parsed as ListCase;
    const { cost, max_wait, allowed, wait, value, sampled, each } = expected;
    now = expected.now;
    const message = `${line} on ${list}`;
    for (const [i, limit] of limits.entries()) {
      const { verdict, time, available, clear, written_by, ...row } = each[i]!;
      const denied = verdict === 'deny';
      const { remaining, ...actual } = calculateRateLimit(limit, now, cost, optionsOf(max_wait));
      const result = {
        ok: !denied,
        available,
        wait: denied ? 0 : time,
        retryAfter: denied ? time : null,
        row: { ...row, ...changed(clear, written_by) },
      };
      assert.deepEqual(actual, result, message);
      // For a reservation or a sample of the shards, `remaining` is not checked.
      const spent = !denied && verdict !== 'reserve' ? cost : 0;
      assert.ok(verdict === 'reserve' || isSample(limit) || remaining === available - spent, message);
      countAs(`${limit.shards ?? 1} shards ${verdict}`);
    }
    // Stores do not make reservations.
    if (!sampled && max_wait === null) {
      const decision = projection.decide(0, cost);
      const delay = wait === null ? Infinity : wait / 1000;
      assert.deepEqual([decision.wait, decision.value, decision.wait === 0], [delay, value, allowed], message);
      countAs(`${limits.length} limits ${allowed ? 'allow' : 'deny'}`);
    }
  }
  console.log(Object.fromEntries(seen));
  for (const kind of [1, 2, 7, 64].flatMap((shards) => [`${shards} shards allow`, `${shards} shards deny`])) {
    assert.ok((seen.get(kind) ?? 0) > count / 20, `${kind}: only ${seen.get(kind)} cases`);
  }
  for (const kind of [1, 2, 3, 4].flatMap((limits) => [`${limits} limits allow`, `${limits} limits deny`])) {
    assert.ok((seen.get(kind) ?? 0) > count / 200, `${kind}: only ${seen.get(kind)} cases`);
  }
});

function isSample(limit: Snapshot): boolean {
  return limit.shards !== undefined && limit.rows.length < limit.shards;
}

/** Yields the lines that the generator prints. */
async function* generate(kind: 'rows' | 'lists'): AsyncGenerator<string> {
  const manifest = fileURLToPath(new URL('../../differential/Cargo.toml', import.meta.url));
  const command = ['run', '--quiet', '--release', '--locked', '--manifest-path', manifest, '--'];
  const generator = spawn('cargo', [...command, kind, `${count}`, `${seed}`], { stdio: ['ignore', 'pipe', 'inherit'] });
  const closed = once(generator, 'close').catch((cause: unknown) => {
    throw new Error('cargo could not be started: this test needs Rust (see https://rustup.rs)', { cause });
  });
  yield* createInterface({ input: generator.stdout });
  const [status] = await closed;
  assert.equal(status, 0, 'the generator failed');
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

/** Returns the additional fields of a row that another quota wrote. */
function changed(clear: number | null, written_by: Algorithm | null): { clear?: number; written_by?: Algorithm } {
  return clear !== null && written_by !== null ? { clear, written_by } : {};
}

function optionsOf(max_wait: number | null): CalculateOptions {
  if (max_wait === null) {
    return {};
  }
  return max_wait === UNLIMITED_WAIT ? { reserve: true } : { maxWaitMicros: max_wait };
}
