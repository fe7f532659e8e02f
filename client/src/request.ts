import { parseRetryAfter } from './headers.js';

/** Why the server could not be asked how a limit stands. */
export class RateLimitError extends Error {
  override readonly name = 'RateLimitError';

  constructor(
    message: string,
    /** Whether asking again may help. */
    readonly temporary: boolean,
    /** Milliseconds that the server asked us to wait before. */
    readonly retryAfter = 0,
    cause?: unknown,
  ) {
    super(`tollgate: ${message}`, { cause });
  }
}

/** A JSON answer, and when it was asked for and came, in milliseconds of the monotonic clock. */
export interface Answer {
  readonly body: unknown;
  readonly sent: number;
  readonly received: number;
}

/** What a request needs to know. Times in milliseconds. */
export interface RequestOptions {
  readonly fetch: typeof globalThis.fetch;
  readonly init: RequestInit | undefined;
  readonly timeout: number;
  readonly now: () => number;
  readonly monotonic: () => number;
}

/**
 * Asks for JSON, never from a cache.
 *
 * @throws RateLimitError whatever goes wrong, after `timeout` at the latest.
 */
export async function request(url: string, options: RequestOptions): Promise<Answer> {
  const { fetch, init, timeout, now, monotonic } = options;
  const signal = AbortSignal.timeout(timeout);
  try {
    const sent = monotonic();
    const response = await orAbort(fetch(url, { cache: 'no-store', ...init, signal }), signal);
    const received = monotonic();
    const { ok, status, headers } = response;
    if (!ok) {
      const temporary = status >= 500 || status === 429 || status === 408;
      throw new RateLimitError(`${url} answered ${status}`, temporary, parseRetryAfter(headers, now()) ?? 0);
    }
    const body = await orAbort(response.json(), signal);
    return { body, sent, received: arrival(response.url, sent, received) };
  } catch (cause) {
    if (cause instanceof RateLimitError) {
      throw cause;
    }
    const reason = signal.aborted ? `did not answer within ${timeout} ms` : 'could not be asked, or answered no JSON';
    throw new RateLimitError(`${url} ${reason}`, true, 0, cause);
  }
}

/** When the answer really came: a page that is busy, as one that loads is, is told later. */
function arrival(url: string, sent: number, told: number): number {
  // There is no entry where the browser keeps none, and none that says so much of other origins.
  const start = (performance.getEntriesByName(url).at(-1) as PerformanceResourceTiming | undefined)?.responseStart ?? 0;
  return start > sent && start <= told ? start : told;
}

/** Not every `fetch` that a caller may bring heeds its signal. */
function orAbort<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason), { once: true });
    promise.then(resolve, reject);
  });
}
