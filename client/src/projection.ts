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
  /** Says whether `response`, which came at `now` (milliseconds since the epoch), refused what was thought to pass. */
  observe(response: LimitedResponse, now: number): boolean;
}

/** Of which nothing is known yet but the names of some of its `policies`. */
export function createProjection(
  clock: ServerClock,
  monotonic: () => number,
  policies: readonly string[],
): Projection {
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
    for (const hold of holds) {
      const { remaining, quota, until } = hold;
      if (count > remaining && until > at && isOwn(hold)) {
        wait = Math.max(wait, count > (quota ?? Infinity) ? Infinity : until - at);
        value = Math.min(value, Math.max(remaining, 0));
      }
    }
    return { wait, value, config };
  }

  function replace(fresh: readonly Snapshot[], asked: number): void {
    limits = fresh;
    holds = holds.filter(({ since }) => since > asked);
  }

  function spend(count: number, at: number): void {
    limits = limits.map((limit) => {
      const { row } = project(limit, clock.at(at), 0);
      // The row belongs to this quota from now on.
      const { clear: _, written_by: __, ...own } = limit;
      return { ...own, ...row, spent: Math.min(row.spent + count, LAST) };
    });
    settle();
  }

  /** Drops what headers said that is past, that rows know as well, or that is about another limit. */
  function settle(): void {
    const now = monotonic();
    // A header rounds up to whole seconds, a row knows the microsecond; unless it is behind.
    const known = ({ items }: Hold): boolean =>
      items.some(({ policy, remaining }) => {
        const limit = limitOf(policy);
        return limit && project(limit, clock.at(now), 0).available <= remaining;
      });
    holds = holds.filter((hold) => hold.until > now && !known(hold) && mayBeOwn(hold)).slice(-MOST_HOLDS);
  }

  function observe(response: LimitedResponse, now: number): boolean {
    const said = holdsOf(response, now, monotonic());
    const fresh = said.filter(mayBeOwn);
    holds = [...holds.filter(({ policy }) => !fresh.some((hold) => hold.policy === policy)), ...fresh];
    settle();
    return response.status === 429 && (!said.length || fresh.some((hold) => holds.includes(hold)));
  }

  /** Headers without names may be about this limit: they count until the next snapshot. */
  const isOwn = ({ items }: Hold): boolean =>
    !items.length || items.some(({ policy }) => limitOf(policy) || policies.includes(policy));
  /** Before the first snapshot, which names the policies, every hold is kept. */
  const mayBeOwn = (hold: Hold): boolean => !limits.length || isOwn(hold);
  const limitOf = (policy: string): Snapshot | undefined => limits.find((limit) => limit.policy === policy);

  return { decide, replace, spend, observe };
}

const MOST_HOLDS = 100;
