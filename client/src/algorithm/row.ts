import type { Quota } from './quota.js';

/** What a server remembers of one key under one policy. */
export interface Row {
  /** Tokens spent and, at `ts`, not yet paid back. */
  readonly spent: number;
  /** The instant from which they are paid back, microseconds since the Unix epoch; of windows a boundary. */
  readonly ts: number;
  /** Sliding window: tokens of the window before. Else 0. */
  readonly previous: number;
}

/** How spending is paid back: what each algorithm says of a row. Instants in microseconds. */
export interface Algebra {
  /** The row brought to `now`: what has been paid back is off it. */
  roll(quota: Quota, row: Row, now: number): Row;
  /** What stands as spent at `now`, of a row that was rolled there. */
  spent(quota: Quota, row: Row, now: number): number;
  /** Whether no more than `level` stands as spent at `now`. */
  within(quota: Quota, row: Row, now: number, level: number): boolean;
  /** The first instant from `now` on at which `within` holds, if nobody spends meanwhile; `null` if there is none. */
  when(quota: Quota, row: Row, now: number, level: number): number | null;
}
