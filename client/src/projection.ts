import { LAST } from './algorithm/instant.js';
import { calculateRateLimit } from './calculate.js';
import type { ServerClock } from './clock.js';
import { holdsOf, join, type Hold, type LimitedResponse } from './holds.js';
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
export class Projection {
  readonly #clock: ServerClock;
  #limits: readonly Snapshot[] = [];
  #holds: readonly Hold[] = [];

  constructor(clock: ServerClock) {
    this.#clock = clock;
  }

  decide(at: number, count: number): Decision {
    const micros = this.#clock.at(at);
    let decision: Decision = { wait: 0, value: Infinity, config: null };
    for (const config of this.#limits) {
      const { ok, available, retryAfter } = calculateRateLimit(config, micros, count);
      const wait = ok ? 0 : (retryAfter ?? Infinity) / 1000;
      const value = Math.min(available, decision.value);
      if (wait > decision.wait || (wait === decision.wait && available <= decision.value)) {
        decision = { wait, value, config };
      } else {
        decision = { ...decision, value };
      }
    }
    for (const { remaining, quota, until } of this.#holds) {
      if (count > remaining && until > at) {
        const wait = count > quota ? Infinity : until - at;
        decision = { ...decision, wait: Math.max(decision.wait, wait) };
      }
    }
    return decision;
  }

  /** The server said at `asked` or later how its limits stand; since then, requests here spent `spent`. */
  replace(limits: readonly Snapshot[], asked: number, now: number, spent: number): void {
    this.#limits = limits;
    // What was held against the policies that it speaks of is in their rows now.
    this.#holds = this.#holds.filter((hold) => hold.since >= asked || !hold.policies.some(({ policy }) => this.#row(policy)));
    this.spend(spent, now, now);
  }

  /** A request that was sent at `at` cost `count`. */
  spend(count: number, at: number, now: number): void {
    const micros = this.#clock.at(at);
    this.#limits = this.#limits.map((limit) => {
      const { row } = calculateRateLimit(limit, micros, 0);
      return { ...limit, ...row, spent: Math.min(row.spent + count, LAST) };
    });
    this.#settle(now);
  }

  /** Says whether `response` refused what was thought to pass. */
  observe(response: LimitedResponse, now: number, monotonic: number): boolean {
    const holds = holdsOf(response, now, monotonic);
    this.#holds = join(this.#holds, holds);
    this.#settle(monotonic);
    return response.status === 429 && (holds.length === 0 || this.#holds.some((hold) => holds.includes(hold)));
  }

  /**
   * Drops holds that are over, and those that say no more than the rows do: a header rounds up to whole seconds, a row
   * knows the microsecond.
   */
  #settle(now: number): void {
    const micros = this.#clock.at(now);
    const foreseen = ({ policies }: Hold): boolean =>
      policies.some(({ policy, remaining }) => {
        const row = this.#row(policy);
        return row !== undefined && calculateRateLimit(row, micros, 0).available <= remaining;
      });
    this.#holds = this.#holds.filter((hold) => hold.until > now && !foreseen(hold));
  }

  #row(policy: string): Snapshot | undefined {
    return this.#limits.find((limit) => limit.policy === policy);
  }
}
