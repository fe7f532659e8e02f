export type { Row } from './algorithm/row.js';
export { calculateRateLimit, type CalculateOptions, type RateLimitResult } from './calculate.js';
export { parseSnapshots, type Algorithm, type RateLimitConfig, type Snapshot } from './snapshot.js';
