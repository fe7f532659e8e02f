/** One timer, for the earliest of the instants that anybody waits for (milliseconds of the monotonic clock). */
export class Alarm {
  readonly #monotonic: () => number;
  readonly #ring: () => void;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #due = Infinity;

  constructor(monotonic: () => number, ring: () => void) {
    this.#monotonic = monotonic;
    this.#ring = ring;
  }

  /** Rings at `due` at the latest; earlier if an earlier instant is waited for, or a timer cannot wait that long. */
  set(due: number): void {
    if (due < this.#due) {
      this.clear();
      this.#due = due;
      const wait = Math.max(Math.ceil(due - this.#monotonic()), 0);
      this.#timer = setTimeout(
        () => {
          this.#due = Infinity;
          this.#ring();
        },
        Math.min(wait, LONGEST_TIMEOUT),
      );
    }
  }

  /** Nobody waits any more. */
  clear(): void {
    clearTimeout(this.#timer);
    this.#due = Infinity;
  }
}

/** A longer one would be taken for none at all. */
const LONGEST_TIMEOUT = 2 ** 31 - 1;
