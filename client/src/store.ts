import { createAlarm } from './alarm.js';
import { createServerClock } from './clock.js';
import type { LimitedResponse } from './holds.js';
import { checkCount } from './project.js';
import { createProjection } from './projection.js';
import { RateLimitError, request } from './request.js';
import { parseNow, parseSnapshots, type RateLimitConfig } from './snapshot.js';

/** The options of a store. Times in milliseconds. */
export interface RateLimitOptions {
  /** The status endpoint: returns a `Snapshot`, or `{ limits: [snapshot, ...] }` for several policies. */
  readonly url: string;
  /** A server-time endpoint, `{ now }`, for when responses of `url` may come from a cache. */
  readonly timeUrl?: string;
  /** Options of both requests. */
  readonly init?: RequestInit;
  /** Identifies the user if `url` and `init` do not, as with a cookie. Stores with different keys share nothing. */
  readonly key?: string | number | null | undefined;
  /** Names of the limit's policies, for `observe` without a status endpoint. Those of the snapshot are known. */
  readonly policies?: readonly string[];
  /** Default 10,000. */
  readonly timeout?: number;
  /** How often a failed request is retried: after 1, 2, 4, ... s. Default 5. */
  readonly retries?: number;
  /** Replaces the global `fetch`. */
  readonly fetch?: typeof globalThis.fetch;
  /** Replaces `Date.now`, the clock of the instants in arguments and results. */
  readonly now?: () => number;
  /** Replaces `performance.now`, the clock that measures waits. */
  readonly monotonic?: () => number;
}

/** Whether a request would be allowed now. The same object as long as nothing changes. */
export interface RateLimitStatus {
  /** `true` before the first snapshot: the server decides. */
  readonly ok: boolean;
  /** When the request will be allowed, like `Date.now()`, rounded up. `null` if it is allowed now, or never. */
  readonly retryAt: number | null;
  /** Whether a snapshot has been received. */
  readonly known: boolean;
  /** The error of the last request; `null` if it succeeded. */
  readonly error: Error | null;
}

export interface RateLimitCheck {
  /** Whole tokens available at `ts`, before the request. */
  readonly value: number;
  /** The instant of the request: milliseconds since the epoch, like `Date.now()`. */
  readonly ts: number;
  /** The policy that denies; if none does, the one with the fewest tokens left. */
  readonly config: RateLimitConfig;
  readonly ok: boolean;
  readonly retryAt: number | null;
}

/** One limit of one user, projected in this page. Its functions do not depend on `this`. */
export interface RateLimitStore {
  /**
   * Calls `listener` after every change, until the returned function is called. While there are listeners, the snapshot
   * is fetched, failures are retried, and one timer waits for the next change.
   */
  subscribe(listener: () => void): () => void;
  /** Whether a request of `count` tokens (default 1) is allowed now. */
  getStatus(count?: number): RateLimitStatus;
  /**
   * The outcome of a request of `count` tokens (default 1) at `ts` (milliseconds since the epoch, default
   * `Date.now()`), if no other request spends until then. `null` before the first snapshot.
   */
  check(ts?: number, count?: number): RateLimitCheck | null;
  /**
   * Subtracts the `count` tokens (default 1) of an allowed request, without fetching. `ts` is when the server charged
   * it; the default, now, errs on the side of waiting too long.
   */
  spend(count?: number, ts?: number): void;
  /**
   * Reads the headers of any response of the limited server. `RateLimit`, `RateLimit-Policy` and `Retry-After` apply if
   * they name this limit's policies and are stricter than the snapshot. A `Retry-After` without a policy's name applies
   * until the next snapshot. An unexpected refusal fetches the snapshot again.
   */
  observe(response: LimitedResponse): void;
  /** Fetches the snapshot; concurrent calls share one request. Never rejects: see `getStatus().error`. */
  refresh(): Promise<void>;
}

/** Creates an unshared store. It calls `idle` when its last listener leaves. */
export function createStore(options: RateLimitOptions, idle?: () => void): RateLimitStore {
  const { url, timeUrl, retries = 5, timeout = 10_000, init, policies = [] } = options;
  const { now = () => Date.now(), monotonic = () => performance.now() } = options;
  const fetch = options.fetch ?? ((...args) => globalThis.fetch(...args));
  /** The time of day minus the monotonic clock. It changes when one of them is set or stops. */
  let gap = now() - monotonic();
  const clock = createServerClock(gap);
  const projection = createProjection(clock, monotonic, policies);
  const alarm = createAlarm(monotonic, wake);
  const listeners = new Set<() => void>();

  let known = false;
  let error: Error | null = null;
  /** By count; computed on demand, discarded on each change. */
  let statuses = new Map<number, Timed>();
  let statusesBefore = statuses;

  let flight: Promise<void> | undefined;
  let spentInFlight = 0;
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
    if (flight) {
      // The pending snapshot may or may not include it. Counting it twice until the next one is safer than not at all.
      spentInFlight += count;
    }
    projection.spend(count, monotonicAt(ts));
    changed();
  }

  function observe(response: LimitedResponse): void {
    const unforeseen = projection.observe(response, now());
    changed();
    // Not if a request is under way (this may be its response) or scheduled.
    if (unforeseen && !flight && fetchAt === Infinity) {
      void refresh();
    }
  }

  function refresh(): Promise<void> {
    failures = 0;
    return ask();
  }

  function ask(): Promise<void> {
    if (!flight) {
      fetchAt = Infinity;
      spentInFlight = 0;
      flight = read().finally(() => {
        flight = undefined;
        changed();
      });
    }
    return flight;
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
      projection.spend(spentInFlight, monotonic());
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

  /** Runs when the alarm rings or the page is shown: timers or a clock may have stopped while the machine slept. */
  function wake(): void {
    const gapNow = now() - monotonic();
    if (Math.abs(gapNow - gap) > CLOCK_JUMP) {
      gap = gapNow;
      clock.distrust();
      void refresh();
    } else if (fetchAt <= monotonic()) {
      void ask();
    }
    changed();
    alarm.set(fetchAt);
  }

  function watch({ until }: Timed): void {
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

/** Tolerates a millisecond, by which independent clocks differ between readings. */
function isSame(a: RateLimitStatus, b: RateLimitStatus): boolean {
  const moved = Math.abs((a.retryAt ?? 0) - (b.retryAt ?? 0));
  return a.ok === b.ok && moved <= 1 && a.known === b.known && a.error === b.error;
}

interface Timed {
  readonly status: RateLimitStatus;
  /** Milliseconds of the monotonic clock; valid until then. */
  readonly until: number;
}

/** Milliseconds; reached only with more than the default number of retries. */
const MAX_BACKOFF = 60_000;
/** Milliseconds; more than two clocks drift apart while a page is open. */
const CLOCK_JUMP = 1000;
/** The last instant that a `Date` can represent. */
const LAST_DATE = 8.64e15;
const MAX_COUNTS = 1000;
