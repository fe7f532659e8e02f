/** An estimate of the server's clock, relative to the page's monotonic clock. The browser's time of day is not used. */
export interface ServerClock {
  /**
   * Records that the server reported `now` (microseconds) in a response to a request sent and answered at these
   * instants of the monotonic clock (milliseconds). Half the round trip is the best estimate of the way back, and is
   * off by at most the other half. The clock is set back by that half too: one that runs ahead would enable a button
   * too early.
   *
   * The sample with the shortest round trip is kept until drift may have made it the worse one.
   */
  sample(now: number, sent: number, received: number): void;
  /** Makes the next sample count, whatever its round trip: the monotonic clock may have stopped meanwhile. */
  distrust(): void;
  /** The server's time (microseconds since the epoch) at `monotonic` (milliseconds). */
  at(monotonic: number): number;
}

/** `offset` is how far the server is ahead until the first sample, in milliseconds. */
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

/** Two computers' clocks drift apart by less than 100 microseconds per second. */
const DRIFT = 1e-4;
