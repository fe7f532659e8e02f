// The public items of the package, without React.
export type { Row } from './algorithm/algebra.js';
export { calculateRateLimit, type CalculateOptions, type RateLimitResult } from './calculate.js';
export { parseRateLimit, parseRetryAfter, type HeaderSource, type RateLimitItem } from './headers.js';
export type { LimitedResponse } from './holds.js';
export { RateLimitError } from './request.js';
export { createRateLimit } from './shared.js';
export {
  parseSnapshots,
  type Algorithm,
  type RateLimitConfig,
  type RowSnapshot,
  type Shard,
  type ShardedSnapshot,
  type Snapshot,
} from './snapshot.js';
export type { RateLimitCheck, RateLimitOptions, RateLimitStatus, RateLimitStore } from './store.js';
