import { LAST } from './algorithm/algebra.js';
import type { ServerClock } from './clock.js';
import { holdsOf, type Hold, type LimitedResponse } from './holds.js';
import { project } from './project.js';
import type { RateLimitConfig, Snapshot } from './snapshot.js';

/** What would become of a request. */
export interface Decision {
  /** Milliseconds until it passes; `Infinity` if it never does. */
  readonly wait: number;
  /** Whole tokens that could be spent at once. */
  readonly value: number;
  /** The policy that stands in the way; if none does, the one with the fewest tokens left. */
  readonly config: RateLimitConfig | null;
}

/** What is known of a user's limits, projected to any instant (milliseconds of the monotonic clock). */
export interface Projection {
  decide(at: number, count: number): Decision;
  /** The server was `asked` how its limits stand, and answered this. */
  replace(limits: readonly Snapshot[], asked: number): void;
  /** A request that was sent at `at` cost `count`. */
  spend(count: number, at: number): void;
  /** Drops what headers said and rows know as well. */
  settle(now: number): void;
  /** Says whether `response` refused what was thought to pass. */
  observe(response: LimitedResponse, now: number, monotonic: number): boolean;
}

/** Of which nothing is known yet. */
export function createProjection(clock: ServerClock): Projection {
  let limits: readonly Snapshot[] = [];
  let holds: readonly Hold[] = [];

  function decide(at: number, count: number): Decision {
    const micros = clock.at(at);
    let [wait, value]: [number, number] = [0, Infinity];
    let config: RateLimitConfig | null = null;
    for (const limit of limits) {
      const { available, retryAt, at: instant } = project(limit, micros, count);
      const waits = (retryAt - instant) / 1000;
      if (waits > wait || (waits === wait && available <= value)) {
        config = limit;
        wait = waits;
      }
      value = Math.min(value, available);
    }
    for (const { remaining, quota, until } of holds) {
      if (count > remaining && until > at) {
        wait = Math.max(wait, count > quota ? Infinity : until - at);
        value = Math.min(value, Math.max(remaining, 0));
      }
    }
    return { wait, value, config };
  }

  function replace(fresh: readonly Snapshot[], asked: number): void {
    limits = fresh;
    holds = holds.filter(({ since, items }) => since > asked || !items.some(({ policy }) => limitOf(policy)));
  }

  function spend(count: number, at: number): void {
    limits = limits.map((limit) => {
      const { row } = project(limit, clock.at(at), 0);
      // The row belongs to this quota from now on.
      const { clear: _, written_by: __, ...own } = limit;
      return { ...own, ...row, spent: Math.min(row.spent + count, LAST) };
    });
  }

  function settle(now: number): void {
    // A header rounds up to whole seconds, a row knows the microsecond; unless it is behind.
    const known = ({ items }: Hold): boolean =>
      items.some(({ policy, remaining }) => {
        const limit = limitOf(policy);
        return limit && project(limit, clock.at(now), 0).available <= remaining;
      });
    holds = holds.filter((hold) => hold.until > now && !known(hold)).slice(-MOST_HOLDS);
  }

  function observe(response: LimitedResponse, now: number, monotonic: number): boolean {
    const fresh = holdsOf(response, now, monotonic);
    holds = [...holds.filter(({ about }) => !fresh.some((hold) => hold.about === about)), ...fresh];
    settle(monotonic);
    return response.status === 429 && !(fresh.length && fresh.every((hold) => !holds.includes(hold)));
  }

  const limitOf = (policy: string): Snapshot | undefined => limits.find((limit) => limit.policy === policy);

  return { decide, replace, spend, settle, observe };
}

const MOST_HOLDS = 100;
