// Made from client/; see main.rs.

// src/algorithm/algebra.ts
var LAST = Number.MAX_SAFE_INTEGER;
var ALREADY = -1;
function tighten(guess, enough) {
  let elapsed = guess;
  for (let i = 0; i < 4; i++) {
    if (!enough(elapsed)) {
      elapsed += 1;
    } else if (elapsed > 0 && enough(elapsed - 1)) {
      elapsed -= 1;
    }
  }
  return elapsed;
}

// src/algorithm/windows.ts
function windowsOf({ period, start }) {
  return {
    index(now) {
      const since = now - start;
      return since < 0 ? 0 : (since - since % period) / period + 1;
    },
    begin: (index, offset = 0) => Math.max((index - 1) * period + start + offset, 0),
    offset: (now) => now < start ? now - start + period : (now - start) % period
  };
}

// src/algorithm/changed.ts
function isForeign(row, now) {
  return row.written_by !== void 0 && row.spent + row.previous > 0 && now < (row.clear ?? 0);
}
var FASTER_BUCKET = 1;
var OWN = 2;
var WHOLE = 3;
function readingOf(config, { written_by, ts, clear }) {
  const { algorithm, period } = config;
  if (written_by !== algorithm) {
    return WHOLE;
  }
  if (algorithm !== "sliding_window") {
    return algorithm === "token_bucket" ? FASTER_BUCKET : OWN;
  }
  const seconds = Math.ceil((ts + 2 * period) / 1e6);
  const expected = seconds < NEVER ? seconds * 1e6 : LAST;
  return period % 1e6 === 0 && expected === clear && isBoundary(config, ts) ? OWN : WHOLE;
}
var NEVER = 2 ** 32 - 1;
function isBoundary(config, ts) {
  const { index, begin } = windowsOf(config);
  return begin(index(ts)) === ts;
}
function rollWhole(config, row, now) {
  const { index, begin } = windowsOf(config);
  const latest = Math.max(row.ts, now);
  const boundary = (instant) => begin(index(instant));
  const { algorithm } = config;
  const ts = algorithm === "token_bucket" ? latest : algorithm === "fixed_window" ? Math.max(row.ts, boundary(now)) : boundary(latest);
  return { ...row, ts };
}
function rollFaster(row, rolled, spent, now, clear) {
  const left = Math.ceil(row.spent * (clear - now) / (clear - row.ts));
  return now > row.ts && clear < LAST && left < spent ? { ...rolled, spent: left, ts: now } : rolled;
}
function first(from, end, holds) {
  if (from >= end || !holds(end - 1)) {
    return Infinity;
  }
  let [low, high] = [from, end - 1];
  while (low < high) {
    const middle = low + Math.floor((high - low) / 2);
    if (holds(middle)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return high;
}

// src/algorithm/reservations.ts
function reservationsOf(config, quota, maxWait) {
  const { capacity, max_reserved: reservable } = config;
  const { roll, fits, within, when } = quota;
  const ceiling = reservable === null ? CEILING_WITHOUT_BOUND : capacity + reservable;
  const whenCharged = (row, now, cost) => when({ ...row, spent: row.spent + cost }, now, capacity);
  function due(row, now, cost) {
    const at = cost <= ceiling && within(row, now, ceiling - cost) ? whenCharged(row, now, cost) : Infinity;
    return at - now <= maxWait ? at : Infinity;
  }
  function ifGranted(row, at, cost) {
    const then = roll(row, at);
    return fits(then, at, cost) || due(then, at, cost) < Infinity ? at : Infinity;
  }
  function retryAt2(state, now, cost) {
    if (!isForeign(state, now)) {
      return retryOwn(state, now, cost);
    }
    const { clear } = state;
    const reading = readingOf(config, state);
    const holds = (at) => ifGranted(state, at, cost) < Infinity;
    let before = Infinity;
    if (reading === OWN) {
      before = retryOwn(roll(state, now), now, cost);
    } else if (reading === FASTER_BUCKET) {
      before = first(now, clear, holds);
    } else {
      const { index, begin } = windowsOf(config);
      before = first(now, Math.min(begin(index(Math.max(now, state.ts)) + 1), clear), holds);
    }
    if (before < clear || clear === LAST) {
      return before < clear ? before : Infinity;
    }
    return holds(clear) ? clear : retryOwn(roll(state, clear), clear, cost);
  }
  function retryOwn(row, now, cost) {
    const fitsCeiling = when(row, now, ceiling - cost);
    const dueNow = whenCharged(row, now, cost);
    if (fitsCeiling + dueNow === Infinity) {
      return Infinity;
    }
    const at = ifGranted(row, Math.max(fitsCeiling, dueNow - maxWait, now), cost);
    const clear = when(row, now, 0);
    if (at < Infinity || config.algorithm !== "fixed_window" || clear === Infinity) {
      return at;
    }
    const { index, begin } = windowsOf(config);
    const dueThen = whenCharged({ ...row, spent: 0, ts: begin(index(clear)) }, clear, cost);
    return dueThen < Infinity ? ifGranted(row, Math.max(dueThen - maxWait, clear), cost) : Infinity;
  }
  return { due, retryAt: retryAt2 };
}
var CEILING_WITHOUT_BOUND = LAST - 999999999999999;

// src/algorithm/fixed-window.ts
function fixedWindow(config) {
  const { rate, period, capacity } = config;
  const { index, begin } = windowsOf(config);
  return {
    // Below 10^15, a fractional quotient is never rounded down to an integer.
    fill: Math.ceil((capacity || 1) / rate) * period,
    roll(row, now) {
      const rowWindow = index(row.ts);
      const window = index(now);
      return window <= rowWindow ? row : { ...row, spent: Math.max(row.spent - rate * (window - rowWindow), 0), ts: begin(window) };
    },
    spent: (row) => row.spent,
    within: (row, _now, level) => row.spent <= level,
    when(row, level) {
      const debt = row.spent - level;
      const windows = Math.ceil(debt / rate);
      if (debt <= 0) {
        return ALREADY;
      }
      return windows * period > LAST ? Infinity : begin(index(row.ts) + windows);
    }
  };
}

// src/algorithm/sliding-window.ts
function slidingWindow(config) {
  const { period } = config;
  const { index, begin, offset } = windowsOf(config);
  const weighted = (count, elapsed) => Math.min(count * (period - elapsed) / period, count);
  const previousAt = (row, now) => weighted(row.previous, now < row.ts ? 0 : offset(now));
  const elapsedUntil = (count, level) => count <= level ? 0 : tighten(
    Math.min(Math.ceil((count - level) * period / count), period),
    (elapsed) => weighted(count, elapsed) <= level
  );
  return {
    fill: 2 * period,
    roll(row, now) {
      const rowWindow = index(row.ts);
      const window = index(now);
      if (window > rowWindow) {
        return { spent: 0, previous: window - rowWindow > 1 ? 0 : row.spent, ts: begin(window) };
      }
      return { ...row, ts: begin(rowWindow) };
    },
    spent: (row, now) => row.spent + previousAt(row, now),
    within: (row, now, level) => previousAt(row, now) <= level - row.spent,
    when(row, level) {
      const room = level - row.spent;
      const window = index(row.ts);
      if (room < 0) {
        return begin(window + 1, elapsedUntil(row.spent, level));
      }
      return row.previous <= room ? ALREADY : begin(window, elapsedUntil(row.previous, room));
    }
  };
}

// src/algorithm/token-bucket.ts
function tokenBucket({ rate, period, capacity }) {
  const common = greatestCommonDivisor(rate, period);
  const grainTokens = rate / common;
  const grainMicros = period / common;
  const since = (ts, now) => Math.max(now - ts, 0);
  const repaid = (elapsed) => elapsed * grainTokens / grainMicros;
  return {
    // This product must be exact even beyond 2^53.
    fill: Number(
      (BigInt(capacity || 1) * BigInt(grainMicros) + BigInt(grainTokens - 1)) / BigInt(grainTokens)
    ),
    roll(row, now) {
      const elapsed = since(row.ts, now);
      const rest = elapsed % grainMicros;
      const grains = (elapsed - rest) / grainMicros;
      const spent = row.spent - grains * grainTokens;
      const ts = row.ts + grains * grainMicros;
      return repaid(since(ts, now)) >= spent ? { ...row, spent: 0, ts: Math.max(row.ts, now) } : { ...row, spent, ts };
    },
    spent: (row, now) => Math.max(row.spent - repaid(since(row.ts, now)), 0),
    // `spent() <= level` would add another rounding, because it subtracts first.
    within: (row, now, level) => row.spent - level <= repaid(since(row.ts, now)),
    when(row, level) {
      const debt = row.spent - level;
      if (debt <= 0) {
        return ALREADY;
      }
      const grains = Math.floor(debt / grainTokens);
      const rest = debt - grains * grainTokens;
      const elapsed = Math.max(Math.ceil(rest * grainMicros / grainTokens), 0);
      return row.ts + (grains * grainMicros + tighten(elapsed, (elapsed2) => repaid(elapsed2) >= rest));
    }
  };
}
function greatestCommonDivisor(a, b) {
  return b ? greatestCommonDivisor(b, a % b) : a;
}

// src/algorithm/quota.ts
function quotaOf(config) {
  const limit = config.capacity;
  const algebra = ALGEBRAS[config.algorithm](config);
  const { within } = algebra;
  function when(row, now, level) {
    if (!isForeign(row, now)) {
      return whenOwn(row, now, level);
    }
    const then = readingOf(config, row) === OWN ? whenOwn(roll(row, now), now, level) : first(now, row.clear, (at) => within(roll(row, at), at, level));
    const from = Math.min(then, row.clear);
    return level < 0 || from >= LAST ? Infinity : from;
  }
  function whenOwn(row, now, level) {
    const then = algebra.when(row, level);
    const from = Math.max(then, now);
    return then < 0 ? now : level < 0 || from >= LAST ? Infinity : from;
  }
  function fits(row, now, cost) {
    return cost <= limit && within(row, now, limit - cost);
  }
  function roll(state, now) {
    let { spent, ts, previous } = state;
    let reading = OWN;
    const foreign = isForeign(state, now);
    if (foreign) {
      reading = readingOf(config, state);
      spent += reading === WHOLE ? previous : 0;
      previous = reading === OWN ? previous : 0;
    } else if (state.written_by || config.algorithm === "sliding_window" && !isBoundary(config, ts)) {
      [spent, previous] = [0, 0];
    }
    let row = { spent, ts, previous };
    if (ts - now > algebra.fill && when({ ...row, ts: now }, now, 0) < ts) {
      row = { spent: 0, ts: now, previous: 0 };
      reading = OWN;
    }
    if (reading === WHOLE) {
      return rollWhole(config, row, now);
    }
    const rolled = algebra.roll(row, now);
    return foreign && reading !== OWN ? rollFaster(row, rolled, algebra.spent(rolled, now), now, state.clear) : rolled;
  }
  return {
    within,
    when,
    fits,
    roll,
    available(row, now) {
      const left = limit - algebra.spent(row, now) + 1e-6;
      const guess = Math.floor(Math.min(Math.max(left, 0), limit));
      return guess > 0 && !fits(row, now, guess) ? guess - 1 : guess;
    }
  };
}
var ALGEBRAS = { token_bucket: tokenBucket, fixed_window: fixedWindow, sliding_window: slidingWindow };

// src/project.ts
function project(snapshot, now, count) {
  checkCount(count);
  const at = Math.min(Math.max(Math.floor(now), 0), LAST);
  const { policy, algorithm, period, start, not_before = 0 } = snapshot;
  if (snapshot.shards === void 0) {
    return [projectRow(snapshot, snapshot, not_before, at, count)];
  }
  return snapshot.rows.map((row) => {
    const { rate, capacity, max_reserved } = row;
    const config = { policy, algorithm, rate, period, capacity, start, max_reserved };
    return projectRow(config, row, not_before, at, count);
  });
}
function projectRow(config, from, notBefore, at, count) {
  const quota = quotaOf(config);
  const { spent, ts, previous, clear, written_by } = from;
  const stored = { spent, ts, previous, ...clear !== void 0 && written_by && { clear, written_by } };
  const row = quota.roll(stored, at);
  const state = isForeign(stored, at) ? stored : row;
  const fitsAt = quota.fits(row, at, count) ? at : quota.when(state, at, config.capacity - count);
  const blocked = notBefore > at;
  const retryAt2 = Math.max(fitsAt, notBefore === LAST ? Infinity : notBefore);
  return { config, quota, at, row, state, retryAt: retryAt2, blocked, available: blocked ? 0 : quota.available(row, at) };
}
function acrossShards({ capacity, shards = 1 }, tokens) {
  const [sum, read] = [tokens.reduce((sum2, next) => sum2 + next), tokens.length];
  const rest = sum % read;
  return Math.min((sum - rest) / read * shards + Math.floor(rest * shards / read), capacity);
}
function checkCount(count) {
  if (!Number.isSafeInteger(count) || count < 0) {
    throw new RangeError(`tollgate: count is ${count}; it must be a whole number of tokens from 0 to 2^53 - 1`);
  }
}

// src/calculate.ts
function calculateRateLimit(snapshot, now, count, options = {}) {
  const rows = project(snapshot, now, count);
  const outcomes = rows.map((row2) => decide(row2, count, options));
  const best2 = outcomes.reduce((best3, next) => isEarlier(next, best3) ? next : best3);
  const { ok, wait, retryAfter, row } = best2;
  return {
    ok,
    available: acrossShards(snapshot, rows.map(({ available }) => available)),
    remaining: acrossShards(snapshot, outcomes.map((each, i) => each === best2 ? each.remaining : rows[i].available)),
    wait,
    retryAfter,
    row
  };
}
function decide(projected, count, options) {
  const { config, quota, at, row: before, state, available, retryAt: fitsAt, blocked } = projected;
  const maxWait = options.reserve ? Infinity : options.maxWaitMicros;
  const waits = maxWait !== void 0 && config.max_reserved !== 0 && !blocked;
  const reservations = waits ? reservationsOf(config, quota, maxWait) : null;
  const due = fitsAt > at && reservations ? reservations.due(before, at, count) : fitsAt;
  const ok = reservations ? due < Infinity : due === at;
  const retryAt2 = ok ? Infinity : reservations ? reservations.retryAt(state, at, count) : fitsAt;
  const row = ok && (count || due > at) ? { ...before, spent: before.spent + count } : state;
  return {
    ok,
    remaining: ok && count ? quota.available(row, at) : available,
    wait: ok ? due - at : 0,
    retryAfter: retryAt2 === Infinity ? null : retryAt2 - at,
    row
  };
}
function isEarlier(a, b) {
  const delay = ({ ok, wait, retryAfter }) => ok ? wait : retryAfter ?? Infinity;
  return a.ok === b.ok ? delay(a) < delay(b) : a.ok;
}

// src/headers.ts
function parseRateLimit(headers) {
  const policies = new Map(parseList(headers.get("ratelimit-policy")));
  const items = [];
  for (const [policy, parameters] of parseList(headers.get("ratelimit"))) {
    const remaining = integer(parameters.get("r"));
    if (remaining !== null) {
      const described = policies.get(policy);
      const [quota, window] = [integer(described?.get("q")), integer(described?.get("w"))];
      const reset = integer(parameters.get("t"));
      items.push({ policy, remaining, reset, quota, window });
    }
  }
  return items;
}
function parseRetryAfter(headers, now) {
  const value = headers.get("retry-after");
  const seconds = integer(value ?? "");
  if (seconds !== null) {
    return seconds * 1e3;
  }
  const wait = httpDate(value) - (httpDate(headers.get("date")) || now);
  return Number.isNaN(wait) ? null : Math.max(wait, 0);
}
function parseList(field) {
  const text = (field ?? "").trim();
  const members = [];
  if (text.length > MAX_FIELD_LEN || text.endsWith(",")) {
    return [];
  }
  for (let at = 0; at < text.length; at = MEMBER.lastIndex) {
    MEMBER.lastIndex = at;
    const [, name, parameters] = MEMBER.exec(text) ?? [];
    if (parameters === void 0) {
      return [];
    }
    if (name !== void 0) {
      const pairs = [...parameters.matchAll(PARAMETER)].map(([, key, value]) => [key, value]);
      members.push([name.replace(/\\(.)/g, "$1"), new Map(pairs)]);
    }
  }
  return members;
}
function integer(value) {
  return /^\d{1,15}$/.test(value ?? "") ? Number(value) : null;
}
function httpDate(value) {
  const form = HTTP_DATE.exec(value ?? "");
  return form ? Date.parse(form[1] ? form[0] : `${form[0]} GMT`) : NaN;
}
var MAX_FIELD_LEN = 8192;
var CHARACTERS = String.raw`(?:[ !#-[\]-~]|\\["\\])*`;
var VALUE = `"${CHARACTERS}"|[\\w!#$%&'*+./:?@^|~=\`-]+`;
var KEY = "[a-z*][\\w.*-]*";
var PARAMETER = new RegExp(`; *(${KEY})(?:=(${VALUE}))?`, "g");
var MEMBER = new RegExp(
  `(?:"(${CHARACTERS})"|[A-Za-z*:?@\\d-][^\\s",;=]*)((?:; *${KEY}(?:=(?:${VALUE}))?)*)[ \\t]*(?:,[ \\t]*|$)`,
  "y"
);
var HTTP_DATE = /^(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,? [\w -]+ \d\d:\d\d:\d\d(?:( GMT)| \d{4})$/;

// src/request.ts
var RateLimitError = class extends Error {
  constructor(message, temporary, retryAfter = 0, cause) {
    super(`tollgate: ${message}`, { cause });
    this.temporary = temporary;
    this.retryAfter = retryAfter;
  }
  temporary;
  retryAfter;
  name = "RateLimitError";
};
async function request(url, options) {
  const { fetch, init, timeout, now, monotonic } = options;
  const signal = AbortSignal.timeout(timeout);
  try {
    const sent = monotonic();
    const response = await orAbort(fetch(url, { cache: "no-store", ...init, signal }), signal);
    const received = monotonic();
    const { ok, status, headers } = response;
    if (!ok) {
      const temporary = status >= 500 || status === 429 || status === 408;
      throw new RateLimitError(`${url} returned ${status}`, temporary, parseRetryAfter(headers, now()) ?? 0);
    }
    const body = await orAbort(response.json(), signal);
    return { body, sent, received: arrivedAt(response.url, sent, received) };
  } catch (cause) {
    if (cause instanceof RateLimitError) {
      throw cause;
    }
    const reason = signal.aborted ? `did not respond within ${timeout} ms` : "could not be fetched, or is not JSON";
    throw new RateLimitError(`${url} ${reason}`, true, 0, cause);
  }
}
function arrivedAt(url, sent, notified) {
  const start = performance.getEntriesByName(url).at(-1)?.responseStart ?? 0;
  return start > sent && start <= notified ? start : notified;
}
function orAbort(promise, signal) {
  return new Promise((resolve, reject) => {
    signal.addEventListener("abort", () => reject(signal.reason), { once: true });
    promise.then(resolve, reject);
  });
}

// src/alarm.ts
function createAlarm(monotonic, ring) {
  let timer;
  let earliest = Infinity;
  function clear() {
    clearTimeout(timer);
    earliest = Infinity;
  }
  function set(due) {
    if (due < earliest) {
      clear();
      earliest = due;
      const wait = Math.max(Math.ceil(due - monotonic()), 0);
      timer = setTimeout(
        () => {
          earliest = Infinity;
          ring();
        },
        Math.min(wait, MAX_TIMEOUT)
      );
    }
  }
  return { set, clear };
}
var MAX_TIMEOUT = 2 ** 31 - 1;

// src/clock.ts
function createServerClock(offset) {
  let shortest = Infinity;
  let sampledAt = 0;
  return {
    sample(now, sent, received) {
      const half = (received - sent) / 2;
      if (half <= shortest + (received - sampledAt) * DRIFT) {
        offset = now / 1e3 - (sent + half) - half;
        shortest = half;
        sampledAt = received;
      }
    },
    distrust() {
      shortest = Infinity;
    },
    at: (monotonic) => Math.floor((monotonic + offset) * 1e3)
  };
}
var DRIFT = 1e-4;

// src/holds.ts
function holdsOf({ status, headers }, now, since) {
  const items = parseRateLimit(headers);
  const holds = items.map((item) => {
    const until = since + (item.reset ?? item.window ?? 0) * 1e3;
    return { ...item, items: [item], since, until };
  });
  const retryAfter = parseRetryAfter(headers, now);
  if (retryAfter !== null && status >= 400) {
    holds.push({ items, remaining: -1, since, until: since + retryAfter });
  }
  return holds;
}

// src/projection.ts
function createProjection(clock, monotonic, policies) {
  let limits = [];
  let holds = [];
  function decide2(at, count) {
    const micros = clock.at(at);
    let [wait, value] = [0, Infinity];
    let config = null;
    for (const charge of chargesOf(limits, micros, count)) {
      const shard = best(charge, ({ retryAt: retryAt2 }) => -retryAt2);
      for (const { limit, rows } of charge) {
        const { retryAt: retryAt2, at: instant } = rows[shard];
        const available = acrossShards(limit, rows.map((row) => row.available));
        const limitWait = (retryAt2 - instant) / 1e3;
        if (limitWait > wait || limitWait === wait && available <= value) {
          config = limit;
          wait = limitWait;
        }
        value = Math.min(value, available);
      }
    }
    for (const hold of holds) {
      const { remaining, quota, until } = hold;
      if (count > remaining && until > at && isOwn(hold)) {
        wait = Math.max(wait, count > (quota ?? Infinity) ? Infinity : until - at);
        value = Math.min(value, Math.max(remaining, 0));
      }
    }
    return { wait, value, config };
  }
  function replace(fresh, sent) {
    limits = fresh;
    holds = holds.filter(({ since }) => since > sent);
  }
  function spend(count, at) {
    limits = chargesOf(limits, clock.at(at), 0).flatMap((charge) => {
      const shard = best(charge, ({ available }) => available);
      return charge.map((limit) => charged(limit, shard, count));
    });
    dropHolds();
  }
  function dropHolds() {
    const now = monotonic();
    const reflected = ({ items, policy: own2 }) => items.some(({ policy, remaining }) => {
      const limit = limitOf(policy);
      const rows = limit ? project(limit, clock.at(now), 0) : [];
      return limit?.shards ? own2 !== void 0 : rows.some(({ available }) => available <= remaining);
    });
    holds = holds.filter((hold) => hold.until > now && !reflected(hold) && mayBeOwn(hold)).slice(-MAX_HOLDS);
  }
  function observe(response, now) {
    const received = holdsOf(response, now, monotonic());
    const fresh = received.filter(mayBeOwn);
    holds = [...holds.filter(({ policy }) => !fresh.some((hold) => hold.policy === policy)), ...fresh];
    dropHolds();
    return response.status === 429 && (!received.length || fresh.some((hold) => holds.includes(hold)));
  }
  const isOwn = ({ items }) => !items.length || items.some(({ policy }) => limitOf(policy) || policies.includes(policy));
  const mayBeOwn = (hold) => !limits.length || isOwn(hold);
  const limitOf = (policy) => limits.find((limit) => limit.policy === policy);
  return { decide: decide2, replace, spend, observe };
}
function chargesOf(limits, at, count) {
  const charges = /* @__PURE__ */ new Map();
  for (const limit of limits) {
    const rows = project(limit, at, count);
    const policy = `${limit.policy.replace(/;\d+[a-z]+$/, "")};${rows.length}`;
    charges.set(policy, [...charges.get(policy) ?? [], { limit, rows }]);
  }
  return [...charges.values()];
}
function best(charge, rating) {
  const ratings = charge[0].rows.map((_, shard) => Math.min(...charge.map(({ rows }) => rating(rows[shard]))));
  return ratings.indexOf(Math.max(...ratings));
}
function charged({ limit, rows }, shard, count) {
  const { row } = rows[shard];
  const spent = Math.min(row.spent + count, LAST);
  if (limit.shards === void 0) {
    return { ...own(limit), ...row, spent };
  }
  return { ...limit, rows: limit.rows.map((old, index) => index === shard ? { ...own(old), ...row, spent } : old) };
}
function own({ clear: _, written_by: __, ...own2 }) {
  return own2;
}
var MAX_HOLDS = 100;

// src/snapshot.ts
function parseSnapshots(body) {
  const limits = fieldsOf(body)["limits"];
  return (Array.isArray(limits) ? limits : [body]).map((limit) => {
    const fields = fieldsOf(limit);
    checkQuota(fields);
    check(fields, "period", 1, MAX_PERIOD);
    check(fields, "start", 0, MAX_PERIOD);
    check(fields, "now", 0, LAST);
    if (fields["not_before"] !== void 0) {
      check(fields, "not_before", 0, LAST);
    }
    const { policy, algorithm, rows } = fields;
    if (typeof policy !== "string" || !isAlgorithm(algorithm)) {
      throw new TypeError(`tollgate: policy "${policy}" has the unknown algorithm "${algorithm}"`);
    }
    if (fields["shards"] === void 0) {
      checkState(fields);
    } else {
      const shards = check(fields, "shards", 1, MAX_SHARDS);
      if (!Array.isArray(rows) || rows.length < 1 || rows.length > shards) {
        throw new TypeError(`tollgate: "rows" of the snapshot is not a list of 1 to ${shards} shards`);
      }
      for (const row of rows.map(fieldsOf)) {
        checkQuota(row);
        checkState(row);
      }
    }
    return fields;
  });
}
function parseNow(body) {
  return check(fieldsOf(body), "now", 0, LAST);
}
function fieldsOf(value) {
  return Object(value);
}
function checkQuota(fields) {
  check(fields, "rate", 1, MAX_TOKENS);
  check(fields, "capacity", 0, MAX_TOKENS);
  if (fields["max_reserved"] !== null) {
    check(fields, "max_reserved", 0, MAX_TOKENS);
  }
}
function checkState(fields) {
  check(fields, "spent", 0, LAST);
  check(fields, "previous", 0, LAST);
  check(fields, "ts", 0, LAST);
  const { clear, written_by } = fields;
  if (clear !== void 0 || written_by !== void 0) {
    check(fields, "clear", 0, LAST);
    if (!isAlgorithm(written_by)) {
      throw new TypeError(`tollgate: the field "written_by" of the snapshot names an unknown algorithm, "${written_by}"`);
    }
  }
}
var isAlgorithm = (name) => ALGORITHMS.includes(name);
function check(fields, name, min, max) {
  const value = fields[name];
  if (typeof value !== "number" || !(value >= min && value <= max) || value % 1 && !FRACTIONS.includes(name)) {
    throw new TypeError(`tollgate: the field "${name}" of the snapshot is ${value}; does the URL point to a status endpoint?`);
  }
  return value;
}
var ALGORITHMS = ["token_bucket", "fixed_window", "sliding_window"];
var FRACTIONS = ["spent", "previous"];
var MAX_TOKENS = 999999999999999;
var MAX_SHARDS = 64;
var MAX_PERIOD = 315576e10;

// src/store.ts
function createStore(options, idle) {
  const { url, timeUrl, retries = 5, timeout = 1e4, init, policies = [] } = options;
  const { now = () => Date.now(), monotonic = () => performance.now() } = options;
  const fetch = options.fetch ?? ((...args) => globalThis.fetch(...args));
  let gap = now() - monotonic();
  const clock = createServerClock(gap);
  const projection = createProjection(clock, monotonic, policies);
  const alarm = createAlarm(monotonic, wake);
  const listeners = /* @__PURE__ */ new Set();
  let known = false;
  let error = null;
  let statuses = /* @__PURE__ */ new Map();
  let statusesBefore = statuses;
  let pending;
  let spentWhilePending = 0;
  let failures = 0;
  let fetchAt = Infinity;
  function subscribe(listener) {
    const entry = () => listener();
    listeners.add(entry);
    if (listeners.size === 1) {
      globalThis.document?.addEventListener("visibilitychange", shown);
      void refresh();
    }
    statuses.forEach(watch);
    return () => {
      if (listeners.delete(entry) && listeners.size === 0) {
        globalThis.document?.removeEventListener("visibilitychange", shown);
        fetchAt = Infinity;
        alarm.clear();
        idle?.();
      }
    };
  }
  function getStatus(count = 1) {
    checkCount(count);
    const at = monotonic();
    const last = statuses.get(count);
    if (last && at < last.until) {
      return last.status;
    }
    const { wait } = projection.decide(at, count);
    const fresh = { ok: wait === 0, retryAt: retryAt(now(), wait), known, error };
    const before = (last ?? statusesBefore.get(count))?.status ?? UNKNOWN;
    const status = isSame(before, fresh) ? before : fresh;
    const timed = { status, until: wait === 0 ? Infinity : at + wait };
    if (statuses.size >= MAX_COUNTS) {
      statuses.clear();
    }
    statuses.set(count, timed);
    watch(timed);
    return status;
  }
  function check2(ts = now(), count = 1) {
    checkCount(count);
    const { wait, value, config } = projection.decide(monotonicAt(ts), count);
    return config && { value, ts, config, ok: wait === 0, retryAt: retryAt(ts, wait) };
  }
  function spend(count = 1, ts = now()) {
    checkCount(count);
    if (pending) {
      spentWhilePending += count;
    }
    projection.spend(count, monotonicAt(ts));
    changed();
  }
  function observe(response) {
    const unexpected = projection.observe(response, now());
    changed();
    if (unexpected && !pending && fetchAt === Infinity) {
      void refresh();
    }
  }
  function refresh() {
    failures = 0;
    return fetchOnce();
  }
  function fetchOnce() {
    if (!pending) {
      fetchAt = Infinity;
      spentWhilePending = 0;
      pending = read().finally(() => {
        pending = void 0;
        changed();
      });
    }
    return pending;
  }
  async function read() {
    try {
      const get = (from) => request(from, { fetch, init, timeout, now, monotonic });
      const [status, time] = await Promise.all([get(url), timeUrl ? get(timeUrl) : null]);
      const limits = parseSnapshots(status.body);
      const serverNow = time ? parseNow(time.body) : limits[0]?.now;
      if (serverNow !== void 0) {
        const { sent, received } = time ?? status;
        clock.sample(serverNow, sent, received);
      }
      projection.replace(limits, status.sent);
      projection.spend(spentWhilePending, monotonic());
      known = true;
      error = null;
    } catch (cause) {
      failed(cause);
    }
  }
  function failed(cause) {
    error = cause;
    if (cause instanceof RateLimitError && cause.temporary && failures < retries && listeners.size > 0) {
      const backoff = Math.min(1e3 * 2 ** failures, MAX_BACKOFF) * (0.5 + Math.random() / 2);
      failures += 1;
      fetchAt = monotonic() + Math.max(backoff, cause.retryAfter);
      alarm.set(fetchAt);
    }
  }
  function changed() {
    statusesBefore = statuses;
    statuses = /* @__PURE__ */ new Map();
    listeners.forEach((listener) => listener());
  }
  function shown() {
    if (document.visibilityState === "visible") {
      if (error && fetchAt === Infinity) {
        void refresh();
      }
      wake();
    }
  }
  function wake() {
    const gapNow = now() - monotonic();
    if (Math.abs(gapNow - gap) > CLOCK_JUMP) {
      gap = gapNow;
      clock.distrust();
      void refresh();
    } else if (fetchAt <= monotonic()) {
      void fetchOnce();
    }
    changed();
    alarm.set(fetchAt);
  }
  function watch({ until }) {
    if (listeners.size > 0) {
      alarm.set(until);
    }
  }
  function monotonicAt(ts) {
    return monotonic() + (ts - now());
  }
  return { subscribe, getStatus, check: check2, spend, observe, refresh };
}
var UNKNOWN = { ok: true, retryAt: null, known: false, error: null };
function retryAt(now, wait) {
  return wait > 0 && wait < Infinity ? Math.min(Math.ceil(now + wait), LAST_DATE) : null;
}
function isSame(a, b) {
  const moved = Math.abs((a.retryAt ?? 0) - (b.retryAt ?? 0));
  return a.ok === b.ok && moved <= 1 && a.known === b.known && a.error === b.error;
}
var MAX_BACKOFF = 6e4;
var CLOCK_JUMP = 1e3;
var LAST_DATE = 864e13;
var MAX_COUNTS = 1e3;

// src/shared.ts
function createRateLimit(options) {
  if (!globalThis.document) {
    return createStore(options);
  }
  const identity = identityOf(options);
  let store = stores.get(identity) ?? createStore(options, () => stores.delete(identity));
  const shared = () => store = stores.get(identity) ?? store;
  return {
    subscribe(listener) {
      stores.set(identity, shared());
      return store.subscribe(listener);
    },
    getStatus: (count) => shared().getStatus(count),
    check: (ts, count) => shared().check(ts, count),
    spend: (count, ts) => shared().spend(count, ts),
    observe: (response) => shared().observe(response),
    refresh: () => shared().refresh()
  };
}
function identityOf({ url, timeUrl, init, key }) {
  return JSON.stringify([url, timeUrl, key, { ...init, headers: [...new Headers(init?.headers)] }]);
}
var stores = /* @__PURE__ */ new Map();
export {
  RateLimitError,
  calculateRateLimit,
  createRateLimit,
  parseRateLimit,
  parseRetryAfter,
  parseSnapshots
};
