import { parseRateLimit, parseRetryAfter, type HeaderSource, type RateLimitItem } from './headers.js';

/** What a response forbids for a time: requests that cost more than `remaining`. */
export interface Hold {
  /** The policies that it is about, each with the tokens that it had left; none if the response named none. */
  readonly policies: readonly RateLimitItem[];
  /** Tokens; -1 forbids every request. */
  readonly remaining: number;
  /** Requests that cost more never fit: tokens. */
  readonly quota: number;
  /** Until then, and since when: milliseconds of the monotonic clock. */
  readonly until: number;
  readonly since: number;
}

/** A response to a limited request; a `Response` is one. */
export interface LimitedResponse {
  readonly status: number;
  readonly headers: HeaderSource;
}

/** What `response` forbids, received at `now` (milliseconds since the epoch), `monotonic` (of the monotonic clock). */
export function holdsOf(response: LimitedResponse, now: number, monotonic: number): Hold[] {
  const { status, headers } = response;
  const policies = parseRateLimit(headers);
  const retryAfter = status === 429 || status === 503 ? parseRetryAfter(headers, now) : null;
  const holds = policies.map((item): Hold => {
    const seconds = item.reset ?? item.window ?? 0;
    return {
      policies: [item],
      remaining: item.remaining,
      quota: item.quota ?? Infinity,
      until: monotonic + seconds * 1000,
      since: monotonic,
    };
  });
  if (retryAfter !== null) {
    holds.push({ policies, remaining: -1, quota: Infinity, until: monotonic + retryAfter, since: monotonic });
  }
  return holds;
}

/** The holds together: of two about the same, the later says how it stands now. */
export function join(before: readonly Hold[], after: readonly Hold[]): readonly Hold[] {
  const kept = before.filter((hold) => !after.some((other) => about(other) === about(hold)));
  return [...kept, ...after].slice(-MOST_HOLDS);
}

function about({ policies, remaining }: Hold): string {
  return remaining < 0 ? '' : `"${policies[0]?.policy}`;
}

const MOST_HOLDS = 100;
