// A simulated server, network and browser for the store's tests.
import { mock, type TestContext } from 'node:test';
import {
  calculateRateLimit,
  createRateLimit,
  type RateLimitOptions,
  type RateLimitStore,
  type Snapshot,
} from '../src/index.js';
import { NOW, snapshot } from './support.js';

/** A simulated server, network and browser. Times are in milliseconds. */
export interface World {
  readonly store: RateLimitStore;
  /** The outcome of each request: one or several snapshots, another response, or a network error. */
  answer: Snapshot | { limits: Snapshot[]; now: number } | Response | Error;
  /** The delay of a request and the delay of its response. */
  latency: [number, number];
  /** How far the browser's clock is ahead of the correct time. */
  clockError: number;
  /** How long the browser's monotonic clock has been stopped in total. */
  slept: number;
  /** The URLs that have been requested so far. */
  readonly urls: string[];
  /** Returns the number of the store's pending timers. */
  readonly timers: () => number;
  /** Advances time and runs the timers that are due. */
  pass(milliseconds: number): Promise<void>;
}

/** Returns the server's time in microseconds. */
export const serverNow = (): number => Date.now() * 1000;

export function world(test: TestContext, options: Partial<RateLimitOptions> = {}, clockError = 0): World {
  mock.timers.enable({ apis: ['setTimeout', 'Date'], now: NOW / 1000 });
  const mocked = globalThis.setTimeout;
  const mockedClear = globalThis.clearTimeout;
  const set = new Set<unknown>();
  // The timers that the fake network uses are not counted.
  globalThis.setTimeout = ((callback: () => void, wait: number) => {
    const timer: unknown = mocked(() => {
      set.delete(timer);
      callback();
    }, wait);
    set.add(timer);
    return timer;
  }) as typeof setTimeout;
  globalThis.clearTimeout = ((timer: NodeJS.Timeout) => {
    set.delete(timer);
    mockedClear(timer);
  }) as typeof clearTimeout;
  test.after(() => {
    globalThis.setTimeout = mocked;
    globalThis.clearTimeout = mockedClear;
    mock.timers.reset();
  });

  const state = {
    answer: snapshot({}) as World['answer'],
    latency: [0, 0] as [number, number],
    clockError,
    slept: 0,
    urls: [] as string[],
  };
  const later = async (wait: number): Promise<void> => {
    if (wait > 0) {
      await new Promise((resolve) => mocked(resolve, wait));
    }
  };
  async function fetch(url: string | URL | Request): Promise<Response> {
    state.urls.push(String(url));
    const [there, back] = state.latency;
    await later(there);
    const answer = answerNow(state.answer);
    await later(back);
    if (answer instanceof Error) {
      throw answer;
    }
    return answer instanceof Response ? answer.clone() : Response.json(answer);
  }

  const store = createRateLimit({
    url: '/limits/chat',
    fetch,
    now: () => Date.now() + state.clockError,
    monotonic: () => Date.now() - NOW / 1000 - state.slept,
    ...options,
  });
  return Object.assign(state, {
    store,
    timers: () => set.size,
    async pass(milliseconds: number) {
      const end = Date.now() + milliseconds;
      // Use small steps except for long waits, during which no responses are in flight.
      const tick = milliseconds > 100_000 ? milliseconds / 100 : 10;
      await settle();
      while (Date.now() < end) {
        mock.timers.tick(Math.min(end - Date.now(), tick));
        await settle();
      }
    },
  });
}

/** Returns the outcome of a request that arrives now. If the outcome is a snapshot, its time is updated. */
function answerNow(answer: World['answer']): World['answer'] {
  if (answer instanceof Response || answer instanceof Error || 'limits' in answer) {
    return answer;
  }
  if (answer.shards !== undefined) {
    return { ...answer, now: serverNow() };
  }
  return { ...answer, ...calculateRateLimit(answer, serverNow(), 0).row, now: serverNow() };
}

/** Waits until pending promises have settled. */
export async function settle(): Promise<void> {
  for (let i = 0; i < 3; i++) {
    await new Promise((resolve) => setImmediate(resolve));
  }
}
