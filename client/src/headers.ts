/** What `RateLimit` and `RateLimit-Policy` say about one policy (draft-ietf-httpapi-ratelimit-headers-11). */
export interface RateLimitItem {
  readonly policy: string;
  /** The parameter `r`: the number of tokens left. */
  readonly remaining: number;
  /** The parameter `t`: the number of seconds for which `r` applies, rounded up. `null` if absent. */
  readonly reset: number | null;
  /** The parameter `q`: the policy's capacity in tokens. `null` if absent. */
  readonly quota: number | null;
  /** The parameter `w`: the number of seconds in which `q` tokens are refilled. `null` if absent. */
  readonly window: number | null;
}

/** A source of header fields, for example `Headers`. */
export interface HeaderSource {
  get(name: string): string | null;
}

/**
 * Parses `RateLimit` and `RateLimit-Policy`. Several policies can share one field or be spread over several fields.
 *
 * Ignores fields that are longer than 8 KiB or are not structured lists of items (RFC 9651). Also ignores items without
 * a name and items without `r`.
 */
export function parseRateLimit(headers: HeaderSource): RateLimitItem[] {
  const policies = new Map(parseList(headers.get('ratelimit-policy')));
  const items: RateLimitItem[] = [];
  for (const [policy, parameters] of parseList(headers.get('ratelimit'))) {
    const remaining = integer(parameters.get('r'));
    if (remaining !== null) {
      const described = policies.get(policy);
      const [quota, window] = [integer(described?.get('q')), integer(described?.get('w'))];
      const reset = integer(parameters.get('t'));
      items.push({ policy, remaining, reset, quota, window });
    }
  }
  return items;
}

/**
 * Parses `Retry-After`, which is a number of seconds or a date in any of the three forms of RFC 9110, section 5.6.7.
 * If it is a date, the wait is measured from the response's `Date` header or, if that is absent, from `now` (in
 * milliseconds since the epoch).
 *
 * @returns the time to wait in milliseconds, or `null` if the field is absent or malformed.
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

/** Returns the strings in a list, each with its parameters. The result is empty if the field is malformed. */
function parseList(field: string | null): [string, Map<string, string>][] {
  const text = (field ?? '').trim();
  const members: [string, Map<string, string>][] = [];
  if (text.length > MAX_FIELD_LEN || text.endsWith(',')) {
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

/** Parses a non-negative structured-field integer. A double is exact, because such an integer has at most 15 digits. */
function integer(value: string | undefined): number | null {
  return /^\d{1,15}$/.test(value ?? '') ? Number(value) : null;
}

/** Parses an HTTP date. Returns the milliseconds since the epoch, or `NaN` if the date is malformed. */
function httpDate(value: string | null): number {
  // Check the form first, because `Date.parse` accepts nearly any text. The `asctime` form does not name its zone, UTC.
  const form = HTTP_DATE.exec(value ?? '');
  return form ? Date.parse(form[1] ? form[0] : `${form[0]} GMT`) : NaN;
}

const MAX_FIELD_LEN = 8192;
const CHARACTERS = String.raw`(?:[ !#-[\]-~]|\\["\\])*`;
/** A string, or any other bare item. */
const VALUE = `"${CHARACTERS}"|[\\w!#$%&'*+./:?@^|~=\`-]+`;
const KEY = '[a-z*][\\w.*-]*';
const PARAMETER = new RegExp(`; *(${KEY})(?:=(${VALUE}))?`, 'g');
const MEMBER = new RegExp(
  `(?:"(${CHARACTERS})"|[A-Za-z*:?@\\d-][^\\s",;=]*)((?:; *${KEY}(?:=(?:${VALUE}))?)*)[ \\t]*(?:,[ \\t]*|$)`,
  'y',
);
const HTTP_DATE = /^(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,? [\w -]+ \d\d:\d\d:\d\d(?:( GMT)| \d{4})$/;
