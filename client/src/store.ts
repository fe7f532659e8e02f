import { createAlarm } from './alarm.js';
import { createServerClock } from './clock.js';
import type { LimitedResponse } from './holds.js';
import { checkCount } from './project.js';
import { createProjection } from './projection.js';
import { RateLimitError, request } from './request.js';
import { parseNow, parseSnapshots, type RateLimitConfig } from './snapshot.js';

/** Where and how to ask. Times in milliseconds. */
export interface RateLimitOptions {
  /** The status endpoint: answers a `Snapshot`, or `{ limits: [snapshot, ...] }` of several policies. */
  readonly url: string;
  /** A server-time endpoint, `{ now }`: asked too, where `url`'s answers may come from a cache. */
  readonly timeUrl?: string;
  /** Credentials, headers and the like of both requests. */
  readonly init?: RequestInit;
  /**
   * Who or what is limited, where neither `url` nor `init` tells: the user's id, if a cookie says who asks. Stores with
   * other keys share nothing.
   */
  readonly key?: string | number | null | undefined;
  /** Names of the limit's policies, for `observe` where `url` cannot be asked. Those of the snapshot are known. */
  readonly policies?: readonly string[];
  /** Until a request that is not answered is given up. Default 10,000. */
  readonly timeout?: number;
  /** How often a failed request is repeated before the next reason to ask: after 1, 2, 4, ... s. Default 5. */
  readonly retries?: number;
  /** Instead of the global `fetch`. */
  readonly fetch?: typeof globalThis.fetch;
  /** Instead of `Date.now`: what instants that are handed in and out are compared with. */
  readonly now?: () => number;
  /** Instead of `performance.now`: what waits are measured with. */
  readonly monotonic?: () => number;
}

/** Whether a request would pass now. The same object as long as nothing changes. */
export interface RateLimitStatus {
  /** As long as nothing is known, `true`: let the server decide. */
  readonly ok: boolean;
  /**
   * When the request passes: milliseconds since the epoch, as the browser's own `Date.now()` will tell them, rounded
   * up. `null` if it passes now, or never will.
   */
  readonly retryAt: number | null;
  /** Whether the server has told how the limit stands. */
  readonly known: boolean;
  /** Why it was not told the last time that it was asked; `null` if it was. */
  readonly error: Error | null;
}

/** What would become of a request. */
export interface RateLimitCheck {
  /** Whole tokens that could be spent at once at `ts`, before the request. */
  readonly value: number;
  /** The instant that was asked about: milliseconds since the epoch, like `Date.now()`. */
  readonly ts: number;
  /** The policy that stands in the way; if none does, the one with the fewest tokens left. */
  readonly config: RateLimitConfig;
  readonly ok: boolean;
  /** As in {@link RateLimitStatus}. */
  readonly retryAt: number | null;
}

/** One limit of one user, projected in this page. Its functions may be passed around by themselves. */
export interface RateLimitStore {
  /**
   * Calls `listener` after every change, until the function is called that it returns. While there are listeners,
   * the snapshot is fetched, failures are retried, and one timer waits for the next change.
   */
  subscribe(listener: () => void): () => void;
  /** Whether a request of `count` tokens (default 1) passes now. */
  getStatus(count?: number): RateLimitStatus;
  /**
   * What becomes of a request of `count` tokens (default 1) at `ts` (milliseconds since the epoch, default
   * `Date.now()`), if nobody spends until then. `null` as long as no snapshot is there.
   */
  check(ts?: number, count?: number): RateLimitCheck | null;
  /**
   * A request that cost `count` tokens (default 1) passed: take them off here, so that nobody need ask. `ts` is when
   * the server charged it, if it took long to answer since; by default now, which waits rather too long than too short.
   */
  spend(count?: number, ts?: number): void;
  /**
   * Any response of the limited server. What `RateLimit`, `RateLimit-Policy` and `Retry-After` say of this limit's
   * policies counts where it is stricter than what is known; what they say of others is ignored. A `Retry-After` without
   * a policy's name counts until the next snapshot. A refusal that was not foreseen has the snapshot fetched again.
   */
  observe(response: LimitedResponse): void;
  /** Fetches the snapshot, once for all who ask meanwhile. Never rejects: `getStatus().error` tells. */
  refresh(): Promise<void>;
}

/** A store that no other shares. It calls `idle` when its last listener leaves. */
export function createStore(options: RateLimitOptions, idle?: () => void): RateLimitStore {
  const { url, timeUrl, retries = 5, timeout = 10_000, init, policies = [] } = options;
  const { now = () => Date.now(), monotonic = () => performance.now() } = options;
  const fetch = options.fetch ?? ((...args) => globalThis.fetch(...args));
  /** The time of day less the monotonic clock. It moves when one of them is set, or stood still. */
  let gap = now() - monotonic();
  const clock = createServerClock(gap);
  const projection = createProjection(clock, monotonic, policies);
  const alarm = createAlarm(monotonic, wake);
  const listeners = new Set<() => void>();

  let known = false;
  let error: Error | null = null;
  /** By count: computed when asked for, and anew after each change. */
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
      // Not there on a server.
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
    if (statuses.size >= MOST_COUNTS) {
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
      // Nobody can tell whether the answer on its way knows of it. Rather twice than not at all, until the next one.
      spentInFlight += count;
    }
    projection.spend(count, monotonicAt(ts));
    changed();
  }

  function observe(response: LimitedResponse): void {
    const unforeseen = projection.observe(response, now());
    changed();
    // Unless it is asked already, as where this is its answer, or soon anyway, or asked not to be.
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
    const how = { fetch, init, timeout, now, monotonic };
    try {
      const [status, time] = await Promise.all([request(url, how), timeUrl ? request(timeUrl, how) : null]);
      const limits = parseSnapshots(status.body);
      const told = time ? parseNow(time.body) : limits[0]?.now;
      if (told !== undefined) {
        const { sent, received } = time ?? status;
        clock.sample(told, sent, received);
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
      const backoff = Math.min(1000 * 2 ** failures, LONGEST_BACKOFF) * (0.5 + Math.random() / 2);
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

  /** The alarm rang, or the page is back: timers and, while the machine slept, a clock may have stood still. */
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

/** Of any store, as long as nothing is known. */
export const UNKNOWN: RateLimitStatus = { ok: true, retryAt: null, known: false, error: null };

/** As the browser's clock will tell it. */
function retryAt(now: number, wait: number): number | null {
  return wait > 0 && wait < Infinity ? Math.min(Math.ceil(now + wait), LAST_DATE) : null;
}

/** Two clocks that tick by themselves differ by a millisecond from one reading to the next. */
function isSame(a: RateLimitStatus, b: RateLimitStatus): boolean {
  const moved = Math.abs((a.retryAt ?? 0) - (b.retryAt ?? 0));
  return a.ok === b.ok && moved <= 1 && a.known === b.known && a.error === b.error;
}

interface Timed {
  readonly status: RateLimitStatus;
  /** Until then it holds by itself: milliseconds of the monotonic clock. */
  readonly until: number;
}

/** Milliseconds: 32 s or so after the sixth failure; nobody waits for longer. */
const LONGEST_BACKOFF = 60_000;
/** Milliseconds by which two clocks do not drift apart while a page is open. */
const CLOCK_JUMP = 1000;
/** The last instant that a `Date` can tell, whatever a header says. */
const LAST_DATE = 8.64e15;
/** Counts that one page asks about between two changes; more of them are computed again. */
const MOST_COUNTS = 1000;
