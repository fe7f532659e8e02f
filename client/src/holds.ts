import { parseRateLimit, parseRetryAfter, type HeaderSource, type RateLimitItem } from './headers.js';

/** A temporary ban from a response, on requests that cost more than `remaining`. */
export interface Hold {
  /** The policy; absent if all requests are banned. */
  readonly policy?: string;
  /** The policies that the response names; empty if its header family has no names. */
  readonly items: readonly RateLimitItem[];
  /** Tokens; -1 bans every request. */
  readonly remaining: number;
  /** Tokens; a request that costs more never fits. */
  readonly quota?: number | null;
  /** Instants of the monotonic clock, milliseconds. */
  readonly since: number;
  readonly until: number;
}

/** A response to a limited request, such as a `Response`. */
export interface LimitedResponse {
  readonly status: number;
  readonly headers: HeaderSource;
}

/** The bans in a response that arrived at `since` (monotonic clock), which is `now` since the epoch; milliseconds. */
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
