/** One timer, for the earliest of the instants that anybody waits for (milliseconds of the monotonic clock). */
export interface Alarm {
  /** Rings at `due` at the latest; earlier if an earlier instant is waited for, or a timer cannot wait that long. */
  set(due: number): void;
  /** Nobody waits any more. */
  clear(): void;
}

/** An alarm that is not set. */
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
        Math.min(wait, LONGEST_TIMEOUT),
      );
    }
  }

  return { set, clear };
}

/** A longer one would be taken for none at all. */
const LONGEST_TIMEOUT = 2 ** 31 - 1;
