// Stores that several callers on a page share.
import { createStore, type RateLimitOptions, type RateLimitStore } from './store.js';

/**
 * Creates a store for one limit. The store does nothing until it has a listener or `refresh` is called.
 *
 * On a page, all calls and hooks with the same `url`, `timeUrl`, `init` and `key` share one store. The first call or
 * hook sets the other options. The store is released when its last listener is removed, and the next listener starts
 * with a new snapshot. Without a `document`, for example during server rendering, nothing is shared.
 */
export function createRateLimit(options: RateLimitOptions): RateLimitStore {
  if (!globalThis.document) {
    return createStore(options);
  }
  const identity = identityOf(options);
  let store = stores.get(identity) ?? createStore(options, () => stores.delete(identity));
  const shared = (): RateLimitStore => (store = stores.get(identity) ?? store);
  return {
    subscribe(listener) {
      stores.set(identity, shared());
      return store.subscribe(listener);
    },
    getStatus: (count) => shared().getStatus(count),
    check: (ts, count) => shared().check(ts, count),
    spend: (count, ts) => shared().spend(count, ts),
    observe: (response) => shared().observe(response),
    refresh: () => shared().refresh(),
  };
}

/**
 * Returns the identity of a user's limit: `key` and everything that requests contain, with normalized headers.
 */
export function identityOf({ url, timeUrl, init, key }: RateLimitOptions): string {
  return JSON.stringify([url, timeUrl, key, { ...init, headers: [...new Headers(init?.headers)] }]);
}

/** The stores that have listeners. */
const stores = new Map<string, RateLimitStore>();
