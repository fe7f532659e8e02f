// Checks the claims of `docs::migrating::express_rate_limit` about the peer.

import assert from "node:assert/strict";
import type { AddressInfo } from "node:net";
import { test } from "node:test";

import express, { type Express } from "express";
import { MemoryStore, type Options, ipKeyGenerator, rateLimit } from "express-rate-limit";
import { server } from "../src/express_rate_limit.js";

const HOUR = 3_600_000;

type Ask = (path?: string, headers?: Record<string, string>) => Promise<Response>;

/** Serves the app on loopback while `check` runs. */
async function serving(app: Express, check: (ask: Ask) => Promise<void>) {
  const listening = app.listen(0, "127.0.0.1");
  await new Promise((resolve) => listening.once("listening", resolve));
  const { port } = listening.address() as AddressInfo;
  try {
    await check((path = "/", headers = {}) => fetch(`http://127.0.0.1:${port}${path}`, { headers }));
  } finally {
    listening.closeAllConnections();
    listening.close();
  }
}

/** One request per hour, without the peer's log messages about its settings. */
function limited(proxies: unknown, options: Partial<Options> = {}): Express {
  const app = express();
  app.set("trust proxy", proxies);
  const logger = { error: () => {}, warn: () => {} };
  app.use(rateLimit({ windowMs: HOUR, limit: 1, standardHeaders: "draft-8", logger, ...options }));
  app.get("/", (_request, response) => void response.send("hello"));
  app.get("/broken", (_request, response) => void response.sendStatus(500));
  return app;
}

async function passed(ask: Ask, forwarded: (i: number) => string): Promise<number> {
  let passed = 0;
  for (let i = 0; i < 20; i++) {
    const response = await ask("/", { "x-forwarded-for": forwarded(i) });
    passed += Number(response.status === 200);
  }
  return passed;
}

test("a_hundred_requests_pass_with_draft_8_headers", async () => {
  await serving(server(), async (ask) => {
    for (let left = 99; left >= 0; left--) {
      const response = await ask();
      assert.equal(response.status, 200);
      assert.match(response.headers.get("ratelimit-policy")!, /^"api"; q=100; w=900; pk=:\S+:$/);
      assert.match(response.headers.get("ratelimit")!, new RegExp(`^"api"; r=${left}; t=\\d+$`));
      if (left === 99) {
        assert.match(response.headers.get("ratelimit")!, /t=900$/, "the window starts with the first request");
      }
    }
    const denied = await ask();
    assert.equal(denied.status, 429);
    assert.equal(await denied.text(), "Too many requests, please try again later.");
    assert.match(denied.headers.get("content-type")!, /^text\/html/);
    assert.match(denied.headers.get("ratelimit")!, new RegExp(`t=${denied.headers.get("retry-after")}$`));
    const health = await ask("/health");
    assert.equal(health.status, 200);
    assert.equal(health.headers.get("ratelimit"), null);
  });
});

test("trust_proxy_1_reads_one_entry_from_the_right", async () => {
  await serving(limited(1), async (ask) => {
    assert.equal(await passed(ask, (i) => `198.51.100.${i}, 203.0.113.9`), 1);
  });
});

test("trust_proxy_true_lets_a_client_choose_its_key", async () => {
  await serving(limited(true), async (ask) => {
    assert.equal(await passed(ask, (i) => `198.51.100.${i}, 203.0.113.9`), 20);
  });
});

test("without_trust_proxy_all_clients_behind_a_proxy_share_a_key", async () => {
  await serving(limited(false), async (ask) => {
    assert.equal(await passed(ask, (i) => `198.51.100.${i}`), 1);
  });
});

test("an_ipv6_network_of_56_bits_is_one_client", () => {
  const keys = new Set(["2001:db8::1", "2001:db8:0:ff::1", "2001:db8:0:100::1"].map((ip) => ipKeyGenerator(ip)));
  assert.equal(keys.size, 2);
});

test("skip_failed_requests_refunds_after_the_response", async () => {
  await serving(limited(false, { skipFailedRequests: true }), async (ask) => {
    for (let i = 0; i < 5; i++) {
      assert.equal((await ask("/broken")).status, 500);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    assert.equal((await ask()).status, 200);
    assert.equal((await ask()).status, 429);
  });
});

test("a_request_refused_by_the_second_limiter_is_charged_by_the_first", async () => {
  const store = new MemoryStore();
  const app = express();
  app.use(rateLimit({ windowMs: 24 * HOUR, limit: 1000, store }));
  app.use(rateLimit({ windowMs: HOUR, limit: 10 }));
  app.get("/", (_request, response) => void response.send("hello"));
  await serving(app, async (ask) => {
    let passed = 0;
    for (let i = 0; i < 100; i++) {
      passed += Number((await ask()).status === 200);
    }
    assert.equal(passed, 10);
    assert.equal((await store.get("127.0.0.1"))?.totalHits, 100);
  });
});

test("a_failing_store_results_in_500_by_default", async () => {
  const store = () => {
    const store = new MemoryStore();
    store.increment = async () => Promise.reject(new Error("down"));
    return store;
  };
  await serving(limited(false, { store: store() }), async (ask) => assert.equal((await ask()).status, 500));
  await serving(limited(false, { store: store(), passOnStoreError: true }), async (ask) => {
    assert.equal((await ask()).status, 200);
  });
});

test("a_fixed_window_admits_nearly_twice_its_limit_around_its_end", async (context) => {
  const store = new MemoryStore();
  store.init({ windowMs: HOUR } as Options);
  const begin = Date.now();
  let now = begin;
  context.mock.method(Date, "now", () => now);
  const granted = [];
  for (const [at, tries] of [[0, 1], [HOUR - 1, 20], [HOUR, 20]] as const) {
    now = begin + at;
    let these = 0;
    for (let i = 0; i < tries; i++) {
      these += Number((await store.increment("ada")).totalHits <= 10);
    }
    granted.push(these);
  }
  assert.deepEqual(granted, [1, 9, 10]);
  store.shutdown();
});

test("every_key_is_kept_for_a_window_or_two", async () => {
  const store = new MemoryStore();
  store.init({ windowMs: HOUR } as Options);
  for (let i = 0; i < 20_000; i++) {
    await store.increment(`client ${i}`);
  }
  assert.equal(store.current.size, 20_000);
  store.shutdown();
});
