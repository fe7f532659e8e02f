import { createRateLimit, type RateLimitOptions, type RateLimitStore } from './store.js';

/** The store of a url: the same for all who ask on one page. On a server, where many users meet, never shared. */
export function sharedStore(url: string, options: Omit<RateLimitOptions, 'url'>): RateLimitStore {
  let store = stores.get(url);
  if (!store) {
    store = createRateLimit({ ...options, url });
    if (typeof document !== 'undefined') {
      stores.set(url, store);
      forgetOldest();
    }
  }
  return store;
}

/** Who still uses a forgotten store keeps it. */
function forgetOldest(): void {
  for (const url of stores.keys()) {
    if (stores.size <= MOST_STORES) {
      return;
    }
    stores.delete(url);
  }
}

const stores = new Map<string, RateLimitStore>();
/** More status endpoints than a page has at a time. */
const MOST_STORES = 100;
