/**
 * The server's clock, as this page sees it: how far it is ahead of the page's own monotonic clock. The time of day that
 * the browser believes in plays no part.
 */
export class ServerClock {
  /** Milliseconds; until a server told its time, the browser's time of day is taken for it. */
  #offset: number;
  #roundTrip = Infinity;
  #sampledAt = 0;

  /** Both clocks tell milliseconds: since the epoch, and since some fixed instant. */
  constructor(now: number, monotonic: number) {
    this.#offset = now - monotonic;
  }

  /**
   * A server said `now` (microseconds) in answer to a request sent and answered at these instants of the monotonic
   * clock (milliseconds). Half the round trip is taken for the way back, so that it is off by at most that half.
   *
   * The sample with the shortest round trip stays, until the drift since then may have made it the worse one.
   */
  sample(now: number, sent: number, received: number): void {
    const roundTrip = received - sent;
    if (roundTrip <= this.#roundTrip + (received - this.#sampledAt) * DRIFT) {
      this.#offset = now / 1000 - (sent + received) / 2;
      this.#roundTrip = roundTrip;
      this.#sampledAt = received;
    }
  }

  /** The next sample counts, whatever its round trip: the monotonic clock may have stood still meanwhile. */
  distrust(): void {
    this.#roundTrip = Infinity;
  }

  /** The server's time, microseconds since the epoch, when the monotonic clock tells `monotonic` milliseconds. */
  at(monotonic: number): number {
    return Math.floor((monotonic + this.#offset) * 1000);
  }
}

/** Two computers' clocks drift apart by less than 50 microseconds a second; doubled, since half a round trip counts. */
const DRIFT = 1e-4;
