/** What `RateLimit` and `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers-11) say of one policy. */
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
 * A field that is no list of structured items (RFC 9651), or longer than 8 KiB, is ignored as a whole; an item without
 * a name or without `r` is ignored by itself.
 */
export function parseRateLimit(headers: HeaderSource): RateLimitItem[] {
  const policies = new Map(parseList(headers.get('ratelimit-policy')));
  const items: RateLimitItem[] = [];
  for (const [policy, parameters] of parseList(headers.get('ratelimit'))) {
    const remaining = integer(parameters.get('r'));
    if (remaining !== null) {
      const of = policies.get(policy);
      const [reset, quota, window] = [integer(parameters.get('t')), integer(of?.get('q')), integer(of?.get('w'))];
      items.push({ policy, remaining, reset, quota, window });
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
  const seconds = integer(value ?? '');
  if (seconds !== null) {
    return seconds * 1000;
  }
  const wait = httpDate(value) - (httpDate(headers.get('date')) || now);
  return Number.isNaN(wait) ? null : Math.max(wait, 0);
}

/** The strings of a list, each with its parameters; none if the field is malformed. */
function parseList(field: string | null): [string, Map<string, string>][] {
  const text = (field ?? '').trim();
  const members: [string, Map<string, string>][] = [];
  if (text.length > LONGEST_FIELD || text.endsWith(',')) {
    return [];
  }
  for (let at = 0; at < text.length; at = MEMBER.lastIndex) {
    MEMBER.lastIndex = at;
    const [, name, parameters] = MEMBER.exec(text) ?? [];
    if (parameters === undefined) {
      return [];
    }
    if (name !== undefined) {
      const pairs = [...parameters.matchAll(PARAMETER)].map(([, key, value]) => [key, value] as [string, string]);
      members.push([name.replace(/\\(.)/g, '$1'), new Map(pairs)]);
    }
  }
  return members;
}

/** An integer of a structured field, not negative: at most 15 digits, so exact. */
function integer(value: string | undefined): number | null {
  return /^\d{1,15}$/.test(value ?? '') ? Number(value) : null;
}

/** Milliseconds since the epoch, `NaN` if it is no date. */
function httpDate(value: string | null): number {
  // `Date.parse` takes nearly anything. The oldest of the three forms does not say that it is UTC.
  const form = HTTP_DATE.exec(value ?? '');
  return form ? Date.parse(form[1] ? form[0] : `${form[0]} GMT`) : NaN;
}

/** Characters. */
const LONGEST_FIELD = 8192;
const CHARACTERS = String.raw`(?:[ !#-[\]-~]|\\["\\])*`;
/** A string, or any other bare item, which are of no interest. */
const VALUE = `"${CHARACTERS}"|[\\w!#$%&'*+./:?@^|~=\`-]+`;
const KEY = '[a-z*][\\w.*-]*';
const PARAMETER = new RegExp(`; *(${KEY})(?:=(${VALUE}))?`, 'g');
const MEMBER = new RegExp(
  `(?:"(${CHARACTERS})"|[A-Za-z*:?@\\d-][^\\s",;=]*)((?:; *${KEY}(?:=(?:${VALUE}))?)*)[ \\t]*(?:,[ \\t]*|$)`,
  'y',
);
const HTTP_DATE = /^(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,? [\w -]+ \d\d:\d\d:\d\d(?:( GMT)| \d{4})$/;
