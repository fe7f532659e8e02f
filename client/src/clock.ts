/** An estimate of the server's clock, relative to the page's monotonic clock. The browser's time of day is not used. */
export interface ServerClock {
  /**
   * Records that the server reported `now` (microseconds). `sent` and `received` are the times of the request and the
   * response on the monotonic clock (milliseconds). The estimate must never be ahead of the server, because that would
   * enable a button too early. For this reason, the estimate assumes that the response took no time to arrive.
   *
   * Keeps the sample with the shortest round trip until clock drift might have made a newer sample more accurate.
   */
  sample(now: number, sent: number, received: number): void;
  /** Uses the next sample even if its round trip is long. Call this if the monotonic clock may have stopped. */
  distrust(): void;
  /** The server's time (microseconds since the epoch) at `monotonic` (milliseconds). */
  at(monotonic: number): number;
}

/** Creates a clock that is `offset` milliseconds ahead of the monotonic clock until the first sample. */
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

/** The clocks of two computers drift apart by less than 100 microseconds per second. */
const DRIFT = 1e-4;
