/** One timer for several due times, in milliseconds of the monotonic clock. */
export interface Alarm {
  /** Rings at `due` or earlier: at the earliest due time, or when a timer reaches its longest wait. */
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

/** Milliseconds; browsers treat longer timeouts as 0. */
const MAX_TIMEOUT = 2 ** 31 - 1;
