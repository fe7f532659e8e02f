/**
 * The last instant, and the most that is ever spent: 2^53 - 1, the largest integer up to which a double counts by ones.
 * Microseconds since the Unix epoch reach it in the year 2255.
 */
export const LAST = Number.MAX_SAFE_INTEGER;

/**
 * The instant nearest to `micros` (microseconds since the Unix epoch) that there is.
 *
 * A sum or a product beyond 2^53 is rounded, but never to below 2^53: cut off here, it comes to the same as if it had
 * been exact. So the algebra needs no larger integers for instants.
 */
export const instant = (micros: number): number => Math.min(Math.max(micros, 0), LAST);
