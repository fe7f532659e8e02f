// Checks the claims of `docs::migrating::upstash` about the peer, on a separate Redis server.

import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import { Ratelimit } from "@upstash/ratelimit";
import type { Redis } from "@upstash/redis";
import { createClient } from "redis";
import { searching } from "../src/upstash.js";

const folder = mkdtempSync(join(tmpdir(), "upstash-"));
const path = join(folder, "socket");
const client = createClient({ socket: { path, tls: false } });
let server: ChildProcess;

/**
 * Adapts a socket client to the interface of Upstash's HTTP client. Removes the first line of each script, which has a flag
 * that only Upstash's servers support.
 */
const redis = {
  evalsha: (hash: string, keys: string[], values: unknown[]) =>
    client.evalSha(hash, { keys, arguments: values.map(String) }),
  eval: (script: string, keys: string[], values: unknown[]) =>
    client.eval(script.replace(/^#!.*/, ""), { keys, arguments: values.map(String) }),
} as unknown as Redis;

before(async () => {
  const program = process.env.TOLLGATE_REDIS_SERVER ?? "redis-server";
  server = spawn(program, ["--port", "0", "--unixsocket", path, "--save", ""], { stdio: "ignore" });
  client.on("error", () => {}); // while it starts
  await client.connect();
});

after(async () => {
  client.destroy();
  server.kill();
  await new Promise((resolve) => server.once("exit", resolve));
  rmSync(folder, { recursive: true });
});

/** Waits until this part of a window, given its length in milliseconds. Windows start at multiples of their length. */
async function at(part: number, window: number) {
  const now = Date.now() % window;
  await sleep((part * window - now + window) % window);
}

async function granted(limits: Ratelimit, user: string, tries: number, rate = 1): Promise<number> {
  let granted = 0;
  for (let i = 0; i < tries; i++) {
    granted += Number((await limits.limit(user, { rate })).success);
  }
  return granted;
}

test("the_eleventh_request_is_refused", async () => {
  const search = searching(redis);
  await at(0.1, 10_000);
  for (let i = 0; i < 10; i++) {
    assert.equal((await search("ada")).status, 200);
  }
  const denied = await search("ada");
  assert.equal(denied.status, 429);
  assert.ok(Number(denied.headers.get("retry-after")) <= 9);
});

test("a_denied_caller_waits_for_the_window_end_although_tokens_are_available", async () => {
  const options = { redis, limiter: Ratelimit.slidingWindow(10, "3 s") };
  const cached = new Ratelimit({ ...options, prefix: "cached" });
  const uncached = new Ratelimit({ ...options, prefix: "uncached", ephemeralCache: false });
  const second = async (limits: Ratelimit) => {
    await granted(limits, "ada", 10);
    await at(0.02, 3000);
    assert.ok((await granted(limits, "ada", 5)) < 5, "nearly all of the previous window still counts");
    await at(0.8, 3000); // a fifth of the previous window still counts: 2 of 10
    return granted(limits, "ada", 20);
  };
  await at(0.7, 3000);
  const [withCache, without] = await Promise.all([second(cached), second(uncached)]);
  assert.equal(withCache, 0);
  assert.ok(without >= 5, `${without}`);
});

test("a_refused_request_is_charged", async () => {
  const limiter = Ratelimit.slidingWindow(10, "10 s");
  const limits = new Ratelimit({ redis, prefix: "cost", limiter, ephemeralCache: false });
  await at(0.1, 10_000);
  assert.equal(await granted(limits, "ada", 8), 8);
  assert.equal((await limits.limit("ada", { rate: 5 })).success, false);
  assert.equal((await limits.limit("ada", { rate: 2 })).success, false, "two of ten were left");
});

test("the_count_of_the_previous_window_is_rounded_down", async () => {
  const limiter = Ratelimit.slidingWindow(10, "3 s");
  const limits = new Ratelimit({ redis, prefix: "rounded", limiter, ephemeralCache: false });
  await at(0.8, 3000);
  assert.equal(await granted(limits, "ada", 10), 10);
  await at(0.01, 3000);
  assert.equal(await granted(limits, "ada", 5), 1, "more than nine of the ten still count");
});

test("the_time_comes_from_the_calling_process", async (context) => {
  const limiter = Ratelimit.fixedWindow(10, "1 h");
  const limits = new Ratelimit({ redis, prefix: "clock", limiter, ephemeralCache: false });
  assert.equal(await granted(limits, "ada", 20), 10);
  const ahead = Date.now() + 3_600_000;
  context.mock.method(Date, "now", () => ahead);
  assert.equal(await granted(limits, "ada", 20), 10);
});

test("a_token_bucket_refills_in_steps", async () => {
  const limiter = Ratelimit.tokenBucket(10, "2 s", 10);
  const limits = new Ratelimit({ redis, prefix: "steps", limiter, ephemeralCache: false });
  assert.equal(await granted(limits, "ada", 10), 10);
  await sleep(1500);
  assert.equal(await granted(limits, "ada", 1), 0, "no tokens after three quarters of the interval");
  await sleep(700);
  assert.equal(await granted(limits, "ada", 20), 10, "all tokens at the end of the interval");
});

test("an_unresponsive_server_allows_all_requests", async () => {
  const silent = { evalsha: () => new Promise(() => {}) } as unknown as Redis;
  const limits = new Ratelimit({ redis: silent, timeout: 100, limiter: Ratelimit.slidingWindow(1, "1 h") });
  for (let i = 0; i < 3; i++) {
    const { success, reason } = await limits.limit("ada");
    assert.deepEqual([success, reason], [true, "timeout"]);
  }
});

test("a_server_error_throws_an_exception", async () => {
  const down = { evalsha: () => Promise.reject(new Error("down")) } as unknown as Redis;
  const limits = new Ratelimit({ redis: down, limiter: Ratelimit.slidingWindow(1, "1 h") });
  await assert.rejects(limits.limit("ada"), /down/);
});
