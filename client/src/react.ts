// The React hooks.
import { useCallback, useEffect, useMemo, useReducer, useSyncExternalStore } from 'react';
import { createRateLimit, identityOf } from './shared.js';
import { UNKNOWN, type RateLimitOptions, type RateLimitStatus, type RateLimitStore } from './store.js';

export interface UseRateLimitOptions extends Omit<RateLimitOptions, 'url'> {
  /** The cost of the request in tokens. Default 1. */
  readonly count?: number;
}

export interface UseRateLimit extends Pick<RateLimitStore, 'check' | 'spend' | 'observe' | 'refresh'> {
  readonly status: RateLimitStatus;
}

/**
 * Returns the status of a limit for requests that cost `count` tokens, and the store's `check`, `spend`, `observe` and
 * `refresh`. The component re-renders only when the status changes.
 *
 * When `source`, `init` or `key` changes, for example because another user signs in, the status is unknown until the
 * next snapshot arrives.
 *
 * @param source - your own store, or the URL of the status endpoint. For a URL, the store is shared, as with
 * `createRateLimit`.
 */
export function useRateLimit(source: string | RateLimitStore, options: UseRateLimitOptions = {}): UseRateLimit {
  // Memoize the store: `createRateLimit` returns a new object each time, so each render would otherwise resubscribe.
  const [identity, create] =
    typeof source === 'string'
      ? [identityOf({ ...options, url: source }), () => createRateLimit({ ...options, url: source })]
      : [source, () => source];
  const store = useMemo(create, [identity]);
  const { count = 1 } = options;
  const read = useCallback(() => store.getStatus(count), [store, count]);
  const status = useSyncExternalStore(store.subscribe, read, unknown);
  const { check, spend, observe, refresh } = store;
  return useMemo(() => ({ status, check, spend, observe, refresh }), [status, check, spend, observe, refresh]);
}

/**
 * Returns the number of seconds until `retryAt` (milliseconds since the epoch), rounded up, or 0 if `retryAt` is `null`
 * or in the past. The component re-renders whenever this number changes.
 */
export function useCountdown(retryAt: number | null): number {
  const [, tick] = useReducer((ticks: number) => ticks + 1, 0);
  const left = retryAt === null ? 0 : Math.max(retryAt - Date.now(), 0);
  useEffect(() => {
    if (left > 0) {
      const timer = setTimeout(tick, left % 1000 || 1000);
      return () => clearTimeout(timer);
    }
    return undefined;
  });
  return Math.ceil(left / 1000);
}

/** Returns the status during server rendering and hydration. */
const unknown = (): RateLimitStatus => UNKNOWN;
