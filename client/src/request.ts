// Requests for snapshots and for the server's time.
import { parseRetryAfter } from './headers.js';

/** A failed request for a snapshot or for the server's time. */
export class RateLimitError extends Error {
  override readonly name = 'RateLimitError';

  constructor(
    message: string,
    /** Whether a retry may succeed. */
    readonly temporary: boolean,
    /** How long the server asks the client to wait before a retry, in milliseconds. */
    readonly retryAfter = 0,
    cause?: unknown,
  ) {
    super(`tollgate: ${message}`, { cause });
  }
}

/** A JSON response. The times of the request and the response are in milliseconds on the monotonic clock. */
export interface JsonResponse {
  readonly body: unknown;
  readonly sent: number;
  readonly received: number;
}

/** The options of a request. Times are in milliseconds. */
export interface RequestOptions {
  readonly fetch: typeof globalThis.fetch;
  readonly init: RequestInit | undefined;
  readonly timeout: number;
  readonly now: () => number;
  readonly monotonic: () => number;
}

/**
 * Fetches JSON, bypassing the cache.
 *
 * @throws RateLimitError on any failure, including a timeout.
 */
export async function request(url: string, options: RequestOptions): Promise<JsonResponse> {
  const { fetch, init, timeout, now, monotonic } = options;
  const signal = AbortSignal.timeout(timeout);
  try {
    const sent = monotonic();
    const response = await orAbort(fetch(url, { cache: 'no-store', ...init, signal }), signal);
    const received = monotonic();
    const { ok, status, headers } = response;
    if (!ok) {
      const temporary = status >= 500 || status === 429 || status === 408;
      throw new RateLimitError(`${url} returned ${status}`, temporary, parseRetryAfter(headers, now()) ?? 0);
    }
    const body = await orAbort(response.json(), signal);
    return { body, sent, received: arrivedAt(response.url, sent, received) };
  } catch (cause) {
    if (cause instanceof RateLimitError) {
      throw cause;
    }
    const reason = signal.aborted ? `did not respond within ${timeout} ms` : 'could not be fetched, or is not JSON';
    throw new RateLimitError(`${url} ${reason}`, true, 0, cause);
  }
}

/**
 * Returns the time at which the response arrived. A page that is busy, for example because it is still loading, might
 * be notified of the response later.
 */
function arrivedAt(url: string, sent: number, notified: number): number {
  // The timing entry may be missing. For a response from another origin, `responseStart` may be 0.
  const start = (performance.getEntriesByName(url).at(-1) as PerformanceResourceTiming | undefined)?.responseStart ?? 0;
  return start > sent && start <= notified ? start : notified;
}

/** Rejects when `signal` aborts, even if a custom `fetch` ignores the signal. */
function orAbort<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason), { once: true });
    promise.then(resolve, reject);
  });
}
