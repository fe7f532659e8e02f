// Rules that deny requests until a certain time, derived from the rate-limit headers of a response.
import { parseRateLimit, parseRetryAfter, type HeaderSource, type RateLimitItem } from './headers.js';

/** A rule derived from a response. Until the time `until`, it denies requests that cost more than `remaining`. */
export interface Hold {
  /** The hold's policy, which is absent if the hold comes from `Retry-After`. */
  readonly policy?: string;
  /** The policies that may have caused the hold. The list is empty if `RateLimit` names no policy. */
  readonly items: readonly RateLimitItem[];
  /** The number of tokens left, or -1 to deny every request. */
  readonly remaining: number;
  /** The capacity in tokens. A request that costs more is never allowed. */
  readonly quota?: number | null;
  /** The time at which the response arrived. Like `until`, this is in milliseconds on the monotonic clock. */
  readonly since: number;
  readonly until: number;
}

/** A response to a limited request, for example a `Response` from `fetch`. */
export interface LimitedResponse {
  readonly status: number;
  readonly headers: HeaderSource;
}

/**
 * Returns a response's holds. Both `now` (milliseconds since the epoch) and `since` (milliseconds on the monotonic
 * clock) are the time at which the response arrived.
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
