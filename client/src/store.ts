// A limit's store: fetches snapshots and notifies listeners when the status changes.
import { createAlarm } from './alarm.js';
import { createServerClock } from './clock.js';
import type { LimitedResponse } from './holds.js';
import { checkCount } from './project.js';
import { createProjection } from './projection.js';
import { RateLimitError, request } from './request.js';
import { parseNow, parseSnapshots, type RateLimitConfig } from './snapshot.js';

/** The options of a store. Times are in milliseconds. */
export interface RateLimitOptions {
  /** The status endpoint's URL. It returns a `Snapshot` or, for several policies, `{ limits: [snapshot, ...] }`. */
  readonly url: string;
  /** The URL of a server-time endpoint, which returns `{ now }`. Needed if responses from `url` may be cached. */
  readonly timeUrl?: string;
  /** The options for requests to `url` and `timeUrl`. */
  readonly init?: RequestInit;
  /**
   * Identifies the user. Required if users are identified only by a cookie. Stores with different keys share nothing.
   */
  readonly key?: string | number | null | undefined;
  /**
   * The names of this limit's policies. Needed to use `observe` without a status endpoint. Snapshots add more names.
   */
  readonly policies?: readonly string[];
  /** The time after which a request fails. Default 10,000. */
  readonly timeout?: number;
  /** The maximum number of retries of a failed request. Their random delays are at most 1, 2, 4, ... s. Default 5. */
  readonly retries?: number;
  /** Replaces the global `fetch`. */
  readonly fetch?: typeof globalThis.fetch;
  /** Replaces `Date.now`, the clock for all instants in arguments and results. */
  readonly now?: () => number;
  /** Replaces `performance.now`, the clock that measures waits. */
  readonly monotonic?: () => number;
}

/** Whether a request would be allowed now. A store returns the same object until one of the fields changes. */
export interface RateLimitStatus {
  /** Before any snapshot or observed response, this is `true`, so that the server decides. */
  readonly ok: boolean;
  /** When the request will be allowed, on the clock of `Date.now()`. `null` if it is allowed now, or never allowed. */
  readonly retryAt: number | null;
  /** Whether a snapshot has been received. */
  readonly known: boolean;
  /** The error from the last attempt to fetch a snapshot, or `null` if that attempt succeeded. */
  readonly error: Error | null;
}

export interface RateLimitCheck {
  /** The number of whole tokens available at `ts`, before the request. */
  readonly value: number;
  /** The instant of the request in milliseconds since the epoch, by `Date.now()`. */
  readonly ts: number;
  /** The policy that requires the longest wait or, if none requires a wait, the policy with the fewest tokens left. */
  readonly config: RateLimitConfig;
  readonly ok: boolean;
  readonly retryAt: number | null;
}

/** A store for one user's limit. The functions do not use `this`. */
export interface RateLimitStore {
  /**
   * Calls `listener` after every change, until the returned function is called. As long as there are listeners, the
   * store fetches the snapshot, retries failed requests and keeps one timer for the next change.
   */
  subscribe(listener: () => void): () => void;
  /** Returns whether a request that costs `count` tokens (default 1) is allowed now. */
  getStatus(count?: number): RateLimitStatus;
  /**
   * Returns the outcome of a request that costs `count` tokens (default 1) at `ts` (milliseconds since the epoch,
   * default `Date.now()`), assuming that no other request spends tokens until then. Returns `null` before the first
   * snapshot.
   */
  check(ts?: number, count?: number): RateLimitCheck | null;
  /**
   * Subtracts the `count` tokens (default 1) of an allowed request without fetching a snapshot. `ts` is the time at
   * which the server charged the request. It defaults to the current time, which can make the computed wait too long
   * but never too short.
   */
  spend(count?: number, ts?: number): void;
  /**
   * Reads the headers of any response from the server. If the response names a policy of this limit, its `RateLimit`,
   * `RateLimit-Policy` and `Retry-After` apply where they are stricter than the snapshot. A `Retry-After` in a response
   * that names no policy applies until the next snapshot. After an unexpected refusal, the store fetches the snapshot
   * again.
   */
  observe(response: LimitedResponse): void;
  /** Fetches the snapshot. Concurrent calls share one request. The promise never rejects; see `getStatus().error`. */
  refresh(): Promise<void>;
}

/** Creates a store that is not shared. Calls `idle` when the last listener is removed. */
export function createStore(options: RateLimitOptions, idle?: () => void): RateLimitStore {
  const { url, timeUrl, retries = 5, timeout = 10_000, init, policies = [] } = options;
  const { now = () => Date.now(), monotonic = () => performance.now() } = options;
  const fetch = options.fetch ?? ((...args) => globalThis.fetch(...args));
  /** The time of day minus the time of the monotonic clock. It changes when one of the two clocks is set or stops. */
  let gap = now() - monotonic();
  const clock = createServerClock(gap);
  const projection = createProjection(clock, monotonic, policies);
  const alarm = createAlarm(monotonic, wake);
  const listeners = new Set<() => void>();

  let known = false;
  let error: Error | null = null;
  /** The statuses by count, which are computed on demand and discarded on each change. */
  let statuses = new Map<number, TimedStatus>();
  let statusesBefore = statuses;

  let pending: Promise<void> | undefined;
  let spentWhilePending = 0;
  let failures = 0;
  let fetchAt = Infinity;

  function subscribe(listener: () => void): () => void {
    const entry = () => listener();
    listeners.add(entry);
    if (listeners.size === 1) {
      globalThis.document?.addEventListener('visibilitychange', shown);
      void refresh();
    }
    statuses.forEach(watch);
    return () => {
      if (listeners.delete(entry) && listeners.size === 0) {
        globalThis.document?.removeEventListener('visibilitychange', shown);
        fetchAt = Infinity;
        alarm.clear();
        idle?.();
      }
    };
  }

  function getStatus(count = 1): RateLimitStatus {
    checkCount(count);
    const at = monotonic();
    const last = statuses.get(count);
    if (last && at < last.until) {
      return last.status;
    }
    const { wait } = projection.decide(at, count);
    const fresh = { ok: wait === 0, retryAt: retryAt(now(), wait), known, error };
    const before = (last ?? statusesBefore.get(count))?.status ?? UNKNOWN;
    const status = isSame(before, fresh) ? before : fresh;
    const timed = { status, until: wait === 0 ? Infinity : at + wait };
    if (statuses.size >= MAX_COUNTS) {
      statuses.clear();
    }
    statuses.set(count, timed);
    watch(timed);
    return status;
  }

  function check(ts = now(), count = 1): RateLimitCheck | null {
    checkCount(count);
    const { wait, value, config } = projection.decide(monotonicAt(ts), count);
    return config && { value, ts, config, ok: wait === 0, retryAt: retryAt(ts, wait) };
  }

  function spend(count = 1, ts = now()): void {
    checkCount(count);
    if (pending) {
      // The pending snapshot may already include these tokens. It is safer to count them twice than not at all.
      spentWhilePending += count;
    }
    projection.spend(count, monotonicAt(ts));
    changed();
  }

  function observe(response: LimitedResponse): void {
    const unexpected = projection.observe(response, now());
    changed();
    // Do not fetch during a pending fetch, which may be the refused request itself, or if a scheduled retry will fetch
    // the snapshot anyway.
    if (unexpected && !pending && fetchAt === Infinity) {
      void refresh();
    }
  }

  function refresh(): Promise<void> {
    failures = 0;
    return fetchOnce();
  }

  function fetchOnce(): Promise<void> {
    if (!pending) {
      fetchAt = Infinity;
      spentWhilePending = 0;
      pending = read().finally(() => {
        pending = undefined;
        changed();
      });
    }
    return pending;
  }

  async function read(): Promise<void> {
    try {
      const get = (from: string) => request(from, { fetch, init, timeout, now, monotonic });
      const [status, time] = await Promise.all([get(url), timeUrl ? get(timeUrl) : null]);
      const limits = parseSnapshots(status.body);
      const serverNow = time ? parseNow(time.body) : limits[0]?.now;
      if (serverNow !== undefined) {
        const { sent, received } = time ?? status;
        clock.sample(serverNow, sent, received);
      }
      projection.replace(limits, status.sent);
      projection.spend(spentWhilePending, monotonic());
      known = true;
      error = null;
    } catch (cause) {
      failed(cause as Error);
    }
  }

  function failed(cause: Error): void {
    error = cause;
    if (cause instanceof RateLimitError && cause.temporary && failures < retries && listeners.size > 0) {
      const backoff = Math.min(1000 * 2 ** failures, MAX_BACKOFF) * (0.5 + Math.random() / 2);
      failures += 1;
      fetchAt = monotonic() + Math.max(backoff, cause.retryAfter);
      alarm.set(fetchAt);
    }
  }

  function changed(): void {
    statusesBefore = statuses;
    statuses = new Map();
    listeners.forEach((listener) => listener());
  }

  function shown(): void {
    if (document.visibilityState === 'visible') {
      if (error && fetchAt === Infinity) {
        void refresh();
      }
      wake();
    }
  }

  /**
   * Runs when the alarm rings or the page is shown again. Timers and clocks may have stopped while the machine slept.
   */
  function wake(): void {
    const gapNow = now() - monotonic();
    if (Math.abs(gapNow - gap) > CLOCK_JUMP) {
      gap = gapNow;
      clock.distrust();
      void refresh();
    } else if (fetchAt <= monotonic()) {
      void fetchOnce();
    }
    changed();
    alarm.set(fetchAt);
  }

  function watch({ until }: TimedStatus): void {
    if (listeners.size > 0) {
      alarm.set(until);
    }
  }

  function monotonicAt(ts: number): number {
    return monotonic() + (ts - now());
  }

  return { subscribe, getStatus, check, spend, observe, refresh };
}

export const UNKNOWN: RateLimitStatus = { ok: true, retryAt: null, known: false, error: null };

function retryAt(now: number, wait: number): number | null {
  return wait > 0 && wait < Infinity ? Math.min(Math.ceil(now + wait), LAST_DATE) : null;
}

/**
 * Returns whether two statuses are equal. Retry times may differ by a millisecond, because `now` and `monotonic` are
 * not called at the same instant.
 */
function isSame(a: RateLimitStatus, b: RateLimitStatus): boolean {
  const moved = Math.abs((a.retryAt ?? 0) - (b.retryAt ?? 0));
  return a.ok === b.ok && moved <= 1 && a.known === b.known && a.error === b.error;
}

interface TimedStatus {
  readonly status: RateLimitStatus;
  /** The time until which the status is valid, in milliseconds on the monotonic clock. */
  readonly until: number;
}

/** The longest backoff, in milliseconds, which is reached only if `retries` is higher than the default. */
const MAX_BACKOFF = 60_000;
/** The largest change in `gap`, in milliseconds, that is attributed to drift between the two clocks. */
const CLOCK_JUMP = 1000;
/** The last instant that a `Date` can represent. */
const LAST_DATE = 8.64e15;
const MAX_COUNTS = 1000;
