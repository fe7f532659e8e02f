import { parseRateLimit, parseRetryAfter, type HeaderSource, type RateLimitItem } from './headers.js';

/** Denies requests that cost more than `remaining` until a given time, because of a response. */
export interface Hold {
  /** The policy; absent for `Retry-After`. */
  readonly policy?: string;
  /** The policies named in the response; empty if its header family has no policy names. */
  readonly items: readonly RateLimitItem[];
  /** Tokens; -1 denies every request. */
  readonly remaining: number;
  /** Tokens; a request that costs more is never allowed. */
  readonly quota?: number | null;
  /** `since` and `until` are milliseconds of the monotonic clock. */
  readonly since: number;
  readonly until: number;
}

/** A response to a limited request, such as a `Response`. */
export interface LimitedResponse {
  readonly status: number;
  readonly headers: HeaderSource;
}

/**
 * The holds of a response that was received at `now` (milliseconds since the epoch), which is `since` by the monotonic
 * clock.
 */
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
