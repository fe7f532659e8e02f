// Checks the claims of `docs::migrating::convex` about the peer's exported arithmetic.

import assert from "node:assert/strict";
import { test } from "node:test";

import { MINUTE, calculateRateLimit } from "@convex-dev/rate-limiter";

const bucket = { kind: "token bucket", rate: 10, period: MINUTE, capacity: 3 } as const;
const window = { kind: "fixed window", rate: 10, period: MINUTE } as const;

test("three_pass_together_and_then_one_every_six_seconds", () => {
  let row: { value: number; ts: number } | null = null;
  for (let i = 0; i < 3; i++) {
    row = calculateRateLimit(row, bucket, 1000, 1);
    assert.ok(row.value >= 0);
  }
  const denied = calculateRateLimit(row, bucket, 1000, 1);
  assert.ok(denied.value < 0);
  assert.equal(denied.retryAfter, 6000);
});

test("a_larger_capacity_adds_no_tokens_until_they_are_refilled", () => {
  const full = calculateRateLimit(null, bucket, 1000, 0);
  assert.equal(calculateRateLimit(full, { ...bucket, capacity: 20 }, 1000, 0).value, 3);
});

test("windows_of_convex_begin_at_random_times", () => {
  const begins = new Set<number>();
  for (let i = 0; i < 50; i++) {
    begins.add(calculateRateLimit(null, window, 1_000_000, 1).ts % MINUTE);
  }
  assert.ok(begins.size > 10);
});

test("unused_tokens_of_a_window_roll_over_up_to_the_capacity", () => {
  const row = calculateRateLimit({ value: 0, ts: 0 }, { ...window, capacity: 25 }, 2 * MINUTE, 0);
  assert.equal(row.value, 20);
  assert.equal(calculateRateLimit({ value: 0, ts: 0 }, { ...window, capacity: 25 }, 9 * MINUTE, 0).value, 25);
});
