import type { Algorithm, RateLimitConfig } from '../snapshot.js';

/** The numbers of a quota, and those that are derived from them. Tokens; times in microseconds. */
export interface Quota {
  readonly algorithm: Algorithm;
  readonly rate: number;
  readonly period: number;
  /** The most tokens spent at once. */
  readonly limit: number;
  /** The most that may stand as spent after a reservation. */
  readonly ceiling: number;
  readonly reserves: boolean;
  readonly start: number;
  /** `rate / period` in lowest terms: after `grainMicros`, exactly `grainTokens` are paid back. */
  readonly grainTokens: number;
  readonly grainMicros: number;
  /** The time in which a full capacity is paid back. */
  readonly fill: number;
}

/** Derives what the algebra needs to know of a quota. */
export function quotaOf(config: RateLimitConfig): Quota {
  const { algorithm, rate, period, capacity, max_reserved: reservable } = config;
  const common = greatestCommonDivisor(rate, period);
  const grainTokens = rate / common;
  const grainMicros = period / common;
  return {
    algorithm,
    rate,
    period,
    limit: capacity,
    ceiling: reservable === null ? CEILING_WITHOUT_BOUND : capacity + reservable,
    reserves: reservable !== 0,
    start: config.start,
    grainTokens,
    grainMicros,
    fill: fill(algorithm, capacity || 1, rate, period, grainTokens, grainMicros),
  };
}

/** `capacity` is at least 1: a capacity of 0 must not make every step of the clock look like a jump. */
function fill(
  algorithm: Algorithm,
  capacity: number,
  rate: number,
  period: number,
  grainTokens: number,
  grainMicros: number,
): number {
  if (algorithm === 'sliding_window') {
    return 2 * period;
  }
  if (algorithm === 'fixed_window') {
    // Below 10^15, a quotient that is no integer is never rounded to one below it.
    return Math.ceil(capacity / rate) * period;
  }
  // The one product of the algebra that exceeds 2^53 and is not cut off there.
  return Number((BigInt(capacity) * BigInt(grainMicros) + BigInt(grainTokens - 1)) / BigInt(grainTokens));
}

function greatestCommonDivisor(a: number, b: number): number {
  return b ? greatestCommonDivisor(b, a % b) : a;
}

/** 2^53 - 1 less the most tokens that a cost can be, 10^15 - 1. */
const CEILING_WITHOUT_BOUND = 8_007_199_254_740_992;
