/** What a response says of one policy, in `RateLimit` and `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers-11). */
export interface RateLimitItem {
  /** The policy's name. */
  readonly policy: string;
  /** Tokens left: `r`. */
  readonly remaining: number;
  /** Seconds for which that holds, rounded up: `t`. `null` if the response does not say. */
  readonly reset: number | null;
  /** The most tokens that can be spent at once: `q` of the policy. */
  readonly quota: number | null;
  /** Seconds in which so many are paid back: `w` of the policy. */
  readonly window: number | null;
}

/** Reads header fields; a `Headers` does. */
export interface HeaderSource {
  get(name: string): string | null;
}

/**
 * Reads `RateLimit` and `RateLimit-Policy`, several policies in one field or in several.
 *
 * A field that is no list of structured items (RFC 9651), or longer than 8 KiB, is ignored as a whole; an item without a
 * name or without `r` is ignored by itself.
 */
export function parseRateLimit(headers: HeaderSource): RateLimitItem[] {
  const policies = new Map(parseList(headers.get('ratelimit-policy')));
  const items: RateLimitItem[] = [];
  for (const [policy, parameters] of parseList(headers.get('ratelimit'))) {
    const remaining = integer(parameters.get('r'));
    if (remaining !== null) {
      const of = policies.get(policy);
      const [reset, quota, window] = [parameters.get('t'), of?.get('q'), of?.get('w')].map(integer);
      items.push({ policy, remaining, reset: reset ?? null, quota: quota ?? null, window: window ?? null });
    }
  }
  return items;
}

/**
 * Reads `Retry-After`: seconds, or a date in any of the three forms of RFC 9110, section 5.6.7.
 *
 * A date is taken relative to the response's own `Date`, or else to `now` (milliseconds since the epoch).
 *
 * @returns milliseconds from now, `null` if there is no such field or it is neither.
 */
export function parseRetryAfter(headers: HeaderSource, now: number): number | null {
  const value = headers.get('retry-after');
  if (value === null) {
    return null;
  }
  const seconds = integer(value);
  if (seconds !== null) {
    return seconds * 1000;
  }
  const until = httpDate(value);
  return until === null ? null : Math.max(until - (httpDate(headers.get('date') ?? '') ?? now), 0);
}

/** The strings of a list, each with its parameters; none if the field is malformed. */
function parseList(field: string | null): [string, Map<string, string>][] {
  const text = (field ?? '').trim();
  const members: [string, Map<string, string>][] = [];
  if (text.length > LONGEST_FIELD || text.endsWith(',')) {
    return [];
  }
  for (let at = 0; at < text.length; ) {
    MEMBER.lastIndex = at;
    const member = MEMBER.exec(text);
    if (!member) {
      return [];
    }
    const [whole, item = '', parameters = ''] = member;
    if (item.startsWith('"')) {
      const pairs = [...parameters.matchAll(PARAMETER)].map(([, key = '', value = '']): [string, string] => [key, value]);
      members.push([item.slice(1, -1).replace(/\\(.)/g, '$1'), new Map(pairs)]);
    }
    at += whole.length;
  }
  return members;
}

/** An integer of a structured field, not negative: at most 15 digits, so exact. */
function integer(value: string | undefined): number | null {
  return value !== undefined && /^\d{1,15}$/.test(value) ? Number(value) : null;
}

function httpDate(value: string): number | null {
  // `Date.parse` takes nearly anything. The last of the three forms does not say that it is UTC.
  const milliseconds = HTTP_DATE.test(value) ? Date.parse(value.endsWith('GMT') ? value : `${value} GMT`) : NaN;
  return Number.isNaN(milliseconds) ? null : milliseconds;
}

const LONGEST_FIELD = 8192;
/** Bare items of RFC 9651, each told by its first character, so that nothing is tried twice. */
const BARE_ITEM = [
  String.raw`"(?:[ !#-[\]-~]|\\["\\])*"`,
  String.raw`-?(?:\d{1,12}\.\d{1,3}|\d{1,15})(?![\d.])`,
  String.raw`[A-Za-z*][\w!#$%&'*+.^|~:/` + '`-]*',
  String.raw`:[\w+/=]*:`,
  String.raw`\?[01]`,
  String.raw`@-?\d{1,15}`,
  String.raw`%"(?:[ !#$&-~]|%[\da-f]{2})*"`,
].join('|');
const KEY = String.raw`[a-z*][a-z\d_.*-]*`;
const PARAMETER = new RegExp(`; *(${KEY})(?:=(${BARE_ITEM}))?`, 'g');
const MEMBER = new RegExp(`(${BARE_ITEM})((?:; *${KEY}(?:=(?:${BARE_ITEM}))?)*)(?:[ \\t]*,[ \\t]*|$)`, 'y');
const HTTP_DATE =
  /^([A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} [\d:]{8} GMT|[A-Z][a-z]{5,8}, \d\d-[A-Z][a-z]{2}-\d\d [\d:]{8} GMT|[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d [\d:]{8} \d{4})$/;
