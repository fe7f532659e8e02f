import { createStore, type RateLimitOptions, type RateLimitStore } from './store.js';

/**
 * A store of one limit. It does nothing until it is subscribed to or refreshed.
 *
 * On a page, all stores with the same `url`, `timeUrl`, `init` and `key` are one from the first listener to the last,
 * those of hooks too. Its other options are those of the store that was subscribed to first. When the last listener
 * leaves, it is released: the next listener begins with a new snapshot. Without a `document`, as on a server that renders
 * for many users, nothing is shared.
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

/** What tells one user's limit from another's: all that is sent, and `key`. Equal headers are equal however spelled. */
export function identityOf({ url, timeUrl, init, key }: RateLimitOptions): string {
  return JSON.stringify([url, timeUrl, key, { ...init, headers: [...new Headers(init?.headers)] }]);
}

/** Those that have listeners. */
const stores = new Map<string, RateLimitStore>();
