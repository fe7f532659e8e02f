import { useCallback, useEffect, useMemo, useReducer, useSyncExternalStore } from 'react';
import { createRateLimit, identityOf } from './shared.js';
import { UNKNOWN, type RateLimitOptions, type RateLimitStatus, type RateLimitStore } from './store.js';

/** What a component wants to know, and the options of `createRateLimit`. */
export interface UseRateLimitOptions extends Omit<RateLimitOptions, 'url'> {
  /** Tokens that the request costs. Default 1. */
  readonly count?: number;
}

/** How the limit stands, and what to tell its store. */
export interface UseRateLimit extends Pick<RateLimitStore, 'check' | 'spend' | 'observe' | 'refresh'> {
  readonly status: RateLimitStatus;
}

/**
 * How a limit stands for requests of `count` tokens. Renders again exactly when that changes. Where `source`, `init` or
 * `key` change, as when another user signs in, nothing is known until that one's snapshot is there.
 *
 * @param source - the status endpoint, whose store is shared as `createRateLimit` shares it; or a store of your own.
 */
export function useRateLimit(source: string | RateLimitStore, options: UseRateLimitOptions = {}): UseRateLimit {
  // Kept as long as the request is the same one: where stores are not shared, another would ask anew at each render.
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
 * Whole seconds until `retryAt` (milliseconds since the epoch, like `Date.now()`), rounded up; 0 if it is `null` or
 * past. Renders again whenever that changes.
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

/** On a server, and until the page is hydrated. */
const unknown = (): RateLimitStatus => UNKNOWN;
