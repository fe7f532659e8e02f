/** One timer for several due times, which are in milliseconds on the monotonic clock. */
export interface Alarm {
  /**
   * Adds a due time. The alarm rings at the earliest of the due times, or earlier if the wait exceeds `MAX_TIMEOUT`.
   */
  set(due: number): void;
  /** Cancels all due times. */
  clear(): void;
}

export function createAlarm(monotonic: () => number, ring: () => void): Alarm {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let earliest = Infinity;

  function clear(): void {
    clearTimeout(timer);
    earliest = Infinity;
  }

  function set(due: number): void {
    if (due < earliest) {
      clear();
      earliest = due;
      const wait = Math.max(Math.ceil(due - monotonic()), 0);
      timer = setTimeout(
        () => {
          earliest = Infinity;
          ring();
        },
        Math.min(wait, MAX_TIMEOUT),
      );
    }
  }

  return { set, clear };
}

/** The longest timeout, in milliseconds. Browsers treat longer timeouts as 0. */
const MAX_TIMEOUT = 2 ** 31 - 1;
