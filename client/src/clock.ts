/**
 * The server's clock, as this page sees it: how far it is ahead of the page's own monotonic clock. The time of day that
 * the browser believes in plays no part.
 */
export interface ServerClock {
  /**
   * A server said `now` (microseconds) in answer to a request sent and answered at these instants of the monotonic
   * clock (milliseconds). Half the round trip is the best guess at the way back, and is off by at most the other half.
   * That is waited too: a clock that runs ahead would open a button for a request that is refused.
   *
   * The sample with the shortest round trip stays, until the drift since then may have made it the worse one.
   */
  sample(now: number, sent: number, received: number): void;
  /** The next sample counts, whatever its round trip: the monotonic clock may have stood still meanwhile. */
  distrust(): void;
  /** The server's time, microseconds since the epoch, when the monotonic clock tells `monotonic` milliseconds. */
  at(monotonic: number): number;
}

/** A clock that is `offset` milliseconds ahead of the monotonic one, as long as no server told its time. */
export function createServerClock(offset: number): ServerClock {
  let shortest = Infinity;
  let sampledAt = 0;
  return {
    sample(now, sent, received) {
      const half = (received - sent) / 2;
      if (half <= shortest + (received - sampledAt) * DRIFT) {
        offset = now / 1000 - (sent + half) - half;
        shortest = half;
        sampledAt = received;
      }
    },
    distrust() {
      shortest = Infinity;
    },
    at: (monotonic) => Math.floor((monotonic + offset) * 1000),
  };
}

/** Two computers' clocks drift apart by less than 100 microseconds a second. */
const DRIFT = 1e-4;
