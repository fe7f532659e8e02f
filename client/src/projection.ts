// A user's limits, projected to any instant. Tokens spent since the last snapshot are taken into account.
import { LAST, type Row } from './algorithm/algebra.js';
import type { ServerClock } from './clock.js';
import { holdsOf, type Hold, type LimitedResponse } from './holds.js';
import { acrossShards, project, type Projected } from './project.js';
import type { RateLimitConfig, Snapshot } from './snapshot.js';

export interface Decision {
  /** The time until the request is allowed, in milliseconds, or `Infinity` if the request is never allowed. */
  readonly wait: number;
  /** The number of whole tokens that can be spent. */
  readonly value: number;
  /** The policy that requires the longest wait or, if none requires a wait, the policy with the fewest tokens left. */
  readonly config: RateLimitConfig | null;
}

/** The limits of a user, projected to any instant. Instants are in milliseconds on the monotonic clock. */
export interface Projection {
  decide(at: number, count: number): Decision;
  /** Replaces the limits with a snapshot that was requested at `sent`. */
  replace(limits: readonly Snapshot[], sent: number): void;
  spend(count: number, at: number): void;
  /**
   * Applies a response that was received at `now` (milliseconds since the epoch). Returns whether the response is an
   * unexpected refusal.
   */
  observe(response: LimitedResponse, now: number): boolean;
}

/** Creates a projection. `policies` contains the names of the policies that are known before the first snapshot. */
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
    for (const charge of chargesOf(limits, micros, count)) {
      const shard = best(charge, ({ retryAt }) => -retryAt);
      for (const { limit, rows } of charge) {
        const { retryAt, at: instant } = rows[shard]!;
        const available = acrossShards(limit, rows.map((row) => row.available));
        const limitWait = (retryAt - instant) / 1000;
        if (limitWait > wait || (limitWait === wait && available <= value)) {
          config = limit;
          wait = limitWait;
        }
        value = Math.min(value, available);
      }
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

  function replace(fresh: readonly Snapshot[], sent: number): void {
    limits = fresh;
    holds = holds.filter(({ since }) => since > sent);
  }

  function spend(count: number, at: number): void {
    limits = chargesOf(limits, clock.at(at), 0).flatMap((charge) => {
      const shard = best(charge, ({ available }) => available);
      return charge.map((limit) => charged(limit, shard, count));
    });
    dropHolds();
  }

  /** Drops holds that have ended, are already reflected in a row, or concern other limits. */
  function dropHolds(): void {
    const now = monotonic();
    // A row takes precedence over headers that report the same number of tokens or more. Its times are more precise,
    // because headers round times up to whole seconds. For a limit with shards, a header item describes only one shard.
    const reflected = ({ items, policy: own }: Hold): boolean =>
      items.some(({ policy, remaining }) => {
        const limit = limitOf(policy);
        const rows = limit ? project(limit, clock.at(now), 0) : [];
        return limit?.shards ? own !== undefined : rows.some(({ available }) => available <= remaining);
      });
    holds = holds.filter((hold) => hold.until > now && !reflected(hold) && mayBeOwn(hold)).slice(-MAX_HOLDS);
  }

  function observe(response: LimitedResponse, now: number): boolean {
    const received = holdsOf(response, now, monotonic());
    const fresh = received.filter(mayBeOwn);
    holds = [...holds.filter(({ policy }) => !fresh.some((hold) => hold.policy === policy)), ...fresh];
    dropHolds();
    return response.status === 429 && (!received.length || fresh.some((hold) => holds.includes(hold)));
  }

  /**
   * Returns whether a hold applies. A hold without policy names might concern this limit, so it applies until the next
   * snapshot.
   */
  const isOwn = ({ items }: Hold): boolean =>
    !items.length || items.some(({ policy }) => limitOf(policy) || policies.includes(policy));
  /** Returns whether a hold may apply. Every hold may apply until the first snapshot names the policies. */
  const mayBeOwn = (hold: Hold): boolean => !limits.length || isOwn(hold);
  const limitOf = (policy: string): Snapshot | undefined => limits.find((limit) => limit.policy === policy);

  return { decide, replace, spend, observe };
}

/** A limit, and its rows at an instant. */
interface ProjectedLimit {
  readonly limit: Snapshot;
  readonly rows: readonly Projected[];
}

/**
 * Projects the limits and groups them by policy. Under all quotas of a policy, a request spends tokens from the same
 * shard. All limits of a policy have the same shards in the same order. If a policy has several limits, their names end
 * with the period, as in `api;1s`.
 */
function chargesOf(limits: readonly Snapshot[], at: number, count: number): (readonly ProjectedLimit[])[] {
  const charges = new Map<string, ProjectedLimit[]>();
  for (const limit of limits) {
    const rows = project(limit, at, count);
    const policy = `${limit.policy.replace(/;\d+[a-z]+$/, '')};${rows.length}`;
    charges.set(policy, [...(charges.get(policy) ?? []), { limit, rows }]);
  }
  return [...charges.values()];
}

/** Returns the index of the shard with the highest rating. A shard's rating is the lowest rating of its rows. */
function best(charge: readonly ProjectedLimit[], rating: (row: Projected) => number): number {
  const ratings = charge[0]!.rows.map((_, shard) => Math.min(...charge.map(({ rows }) => rating(rows[shard]!))));
  return ratings.indexOf(Math.max(...ratings));
}

/** Returns a copy of `limit` with `count` tokens spent from the row of `shard`. */
function charged({ limit, rows }: ProjectedLimit, shard: number, count: number): Snapshot {
  const { row } = rows[shard]!;
  const spent = Math.min(row.spent + count, LAST);
  if (limit.shards === undefined) {
    return { ...own(limit), ...row, spent };
  }
  return { ...limit, rows: limit.rows.map((old, index) => (index === shard ? { ...own(old), ...row, spent } : old)) };
}

/** Removes the fields that mark a row as written by another quota. Spending tokens makes this quota the writer. */
function own<T extends Row>({ clear: _, written_by: __, ...own }: T): Omit<T, 'clear' | 'written_by'> {
  return own;
}

const MAX_HOLDS = 100;
