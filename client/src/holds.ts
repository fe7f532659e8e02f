import { parseRateLimit, parseRetryAfter, type HeaderSource, type RateLimitItem } from './headers.js';

/** What a response forbids for a time: requests that cost more than `remaining`. */
export interface Hold {
  /** What it is about: a policy's name, or nothing if it is all requests. */
  readonly about: string | undefined;
  /** The policies that have to do with it, as the response tells them. */
  readonly items: readonly RateLimitItem[];
  /** Tokens; -1 forbids every request. */
  readonly remaining: number;
  /** Tokens; what costs more never fits. */
  readonly quota: number;
  /** Instants of the monotonic clock, milliseconds. */
  readonly since: number;
  readonly until: number;
}

/** A response to a limited request; a `Response` is one. */
export interface LimitedResponse {
  readonly status: number;
  readonly headers: HeaderSource;
}

/** What `response` forbids, that came at `since` (of the monotonic clock) and `now` (since the epoch). */
export function holdsOf({ status, headers }: LimitedResponse, now: number, since: number): Hold[] {
  const items = parseRateLimit(headers);
  const holds = items.map((item): Hold => {
    const { policy, remaining, quota, reset, window } = item;
    const until = since + (reset ?? window ?? 0) * 1000;
    return { about: policy, items: [item], remaining, quota: quota ?? Infinity, since, until };
  });
  const retryAfter = parseRetryAfter(headers, now);
  if (retryAfter !== null && status >= 400) {
    holds.push({ about: undefined, items, remaining: -1, quota: Infinity, since, until: since + retryAfter });
  }
  return holds;
}
