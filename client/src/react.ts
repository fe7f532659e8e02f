import { useCallback, useEffect, useMemo, useReducer, useSyncExternalStore } from 'react';
import { sharedStore } from './shared.js';
import type { RateLimitOptions, RateLimitStatus, RateLimitStore } from './store.js';

/** What a component wants to know, and how the store of its url is made by the first one that uses it. */
export interface UseRateLimitOptions extends Omit<RateLimitOptions, 'url'> {
  /** Tokens that the request costs. Default 1. */
  readonly count?: number;
}

/** How the limit stands, and what to tell its store. */
export interface UseRateLimit extends Pick<RateLimitStore, 'check' | 'spend' | 'observe' | 'refresh'> {
  readonly status: RateLimitStatus;
}

/**
 * How a limit stands for requests of `count` tokens. Renders again exactly when that changes.
 *
 * @param source - the status endpoint, whose store all components of the page share; or a store of your own.
 */
export function useRateLimit(source: string | RateLimitStore, options: UseRateLimitOptions = {}): UseRateLimit {
  // Kept: where stores are not shared, another one at each render would ask anew each time.
  const store = useMemo(() => (typeof source === 'string' ? sharedStore(source, options) : source), [source]);
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
const UNKNOWN: RateLimitStatus = { ok: true, retryAt: null, known: false, error: null };
