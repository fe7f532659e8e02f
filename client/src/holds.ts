import { parseRateLimit, parseRetryAfter, type HeaderSource, type RateLimitItem } from './headers.js';

/** What a response forbids for a time: requests that cost more than `remaining`. */
export interface Hold {
  /** The policy that it is about; absent if it is all requests. */
  readonly policy?: string;
  /** The policies that the response names as the reason; none if its headers are of a family without names. */
  readonly items: readonly RateLimitItem[];
  /** Tokens; -1 forbids every request. */
  readonly remaining: number;
  /** Tokens; what costs more never fits. */
  readonly quota?: number | null;
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
  const holds: Hold[] = items.map((item) => {
    const until = since + (item.reset ?? item.window ?? 0) * 1000;
    return { ...item, items: [item], since, until };
  });
  const retryAfter = parseRetryAfter(headers, now);
  if (retryAfter !== null && status >= 400) {
    holds.push({ items, remaining: -1, since, until: since + retryAfter });
  }
  return holds;
}
