// The rate-limit headers of a response, as rules that deny requests until a given time.
import { parseRateLimit, parseRetryAfter, type HeaderSource, type RateLimitItem } from './headers.js';

/** A rule derived from a response. Until a given time, it denies requests that cost more than `remaining`. */
export interface Hold {
  /** The hold's policy, which is absent if the hold comes from `Retry-After`. */
  readonly policy?: string;
  /** The policies that the response names. The list is empty if the response's headers contain no policy names. */
  readonly items: readonly RateLimitItem[];
  /** The remaining tokens; -1 denies every request. */
  readonly remaining: number;
  /** The capacity in tokens. A request that costs more is never allowed. */
  readonly quota?: number | null;
  /** `since` and `until` are milliseconds on the monotonic clock. */
  readonly since: number;
  readonly until: number;
}

/** A response to a limited request, for example a `Response`. */
export interface LimitedResponse {
  readonly status: number;
  readonly headers: HeaderSource;
}

/**
 * Returns a response's holds. The response arrived at `now` (milliseconds since the epoch), which is `since` on the
 * monotonic clock (milliseconds).
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
