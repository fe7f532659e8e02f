/**
 * Replaces a tollgate server in the browser tests unless `TOLLGATE_URL` is set. Each user, identified by `x-user`, has
 * a bucket of three tokens, and one token is refilled every three seconds. The stand-in uses the client's arithmetic,
 * which `tests/differential.test.ts` compares with the crate's.
 */

import { createServer, type Server } from 'node:http';
import { calculateRateLimit, type Snapshot } from '../src/index.js';

export function standIn(): Server {
  const users = new Map<string, Snapshot>();
  const serverNow = (): number => Math.floor((performance.timeOrigin + performance.now()) * 1000);

  return createServer((request, response) => {
    const now = serverNow();
    const user = String(request.headers['x-user']);
    const limit = { ...(users.get(user) ?? newSnapshot(now)), now };
    request.resume();
    if (request.method === 'GET' && request.url === '/limits/chat') {
      const { row } = calculateRateLimit(limit, now, 0);
      response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify({ ...limit, ...row }));
    } else if (request.method === 'POST' && request.url === '/chat') {
      const { ok, remaining, retryAfter, row } = calculateRateLimit(limit, now, 1);
      users.set(user, { ...limit, ...row });
      const seconds = Math.ceil((retryAfter ?? 3_000_000) / 1_000_000);
      response.setHeader('ratelimit-policy', '"chat";q=3;w=9');
      response.setHeader('ratelimit', `"chat";r=${remaining};t=${Math.max(seconds, remaining * 3)}`);
      if (!ok) {
        response.setHeader('retry-after', seconds);
      }
      response.writeHead(ok ? 200 : 429).end();
    } else {
      response.writeHead(404).end();
    }
  });
}

function newSnapshot(now: number): Snapshot {
  return {
    policy: 'chat',
    algorithm: 'token_bucket',
    rate: 1,
    period: 3_000_000,
    capacity: 3,
    start: 0,
    max_reserved: 0,
    spent: 0,
    previous: 0,
    ts: now,
    now,
  };
}
