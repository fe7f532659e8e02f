// Tests of parsing the rate-limit headers and `Retry-After`.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseRateLimit, parseRetryAfter } from '../src/index.js';

const item = { policy: 'api', remaining: 42, reset: 18, quota: null, window: null };

function limits(ratelimit: string, policy?: string) {
  return parseRateLimit(new Headers(policy === undefined ? { ratelimit } : { ratelimit, 'ratelimit-policy': policy }));
}

test('an item contains the remaining tokens and the reset time', () => {
  assert.deepEqual(limits('"api";r=42;t=18'), [item]);
  assert.deepEqual(limits('"api"; r=42; t=18'), [item]);
  assert.deepEqual(limits('"api";r=42'), [{ ...item, reset: null }]);
  assert.deepEqual(limits('"api";r=42;t=18', '"api";q=100;w=60'), [{ ...item, quota: 100, window: 60 }]);
  assert.deepEqual(limits('"api";r=42;t=18', '"other";q=100;w=60'), [item]);
  // If a policy has several quotas, the name of each limit ends with the quota's period.
  const daily = { ...item, policy: 'api;1d', quota: 1000, window: 86400 };
  assert.deepEqual(limits('"api;1d";r=42;t=18', '"api;1s";q=10;w=1, "api;1d";q=1000;w=86400'), [daily]);
});

test('several policies can share one field or be spread over several fields', () => {
  const both = [item, { ...item, policy: 'day', remaining: 0, reset: 4000 }];
  assert.deepEqual(limits('"api";r=42;t=18, "day";r=0;t=4000'), both);
  assert.deepEqual(limits('"api";r=42;t=18 ,\t"day";r=0;t=4000'), both);
  const headers = new Headers([
    ['RateLimit', '"api";r=42;t=18'],
    ['RateLimit', '"day";r=0;t=4000'],
  ]);
  assert.deepEqual(parseRateLimit(headers), both);
});

test('policy names can contain separators', () => {
  assert.deepEqual(limits(String.raw`"a\"b\\,;r=1";r=42;t=18`), [{ ...item, policy: String.raw`a"b\,;r=1` }]);
});

test('unknown parameters of any type are ignored', () => {
  assert.deepEqual(limits('"api";pk=:cGs=:;x;y=?1;z="; r=1, ";*d=@17;e=-1.5;f=t/o:k;r=42;t=18'), [item]);
});

test('the last of several parameters with the same name applies', () => {
  assert.deepEqual(limits('"api";r=1;r=42;t=18'), [item]);
});

test('an item without a quoted name or without a valid `r` is ignored', () => {
  for (const bad of [
    'api;r=1;t=2',
    '1;r=1',
    '"x"',
    '"x";r',
    '"x";r=-1',
    '"x";r=1.0',
    '"x";r="1"',
    '"x";r=1234567890123456',
  ]) {
    assert.deepEqual(limits(`${bad}, "api";r=42;t=18`), [item], bad);
  }
  assert.deepEqual(limits('"api";r=42;t=-18'), [{ ...item, reset: null }]);
});

test('a malformed field is ignored entirely', () => {
  const good = '"api";r=42;t=18';
  for (const bad of [
    `${good},`,
    `,${good}`,
    `${good},,${good}`,
    `${good} ${good}`,
    `${good};`,
    `${good};R=1`,
    `${good};r=`,
    `${good};x=a b`,
    `${good}, "open`,
    `${good}, "b\\ad";r=1`,
    `${good}, "ümlaut";r=1`,
    `${good}, ("inner" "list");r=1`,
    'limit=100, remaining=50, reset=5',
    '',
  ]) {
    assert.deepEqual(parseRateLimit({ get: (name) => (name === 'ratelimit' ? bad : null) }), [], bad);
  }
});

test('very long fields are parsed or ignored quickly', () => {
  const began = performance.now();
  for (const part of ['"a";r=1,', ';a', '"', '\\', ' ', '"a"', ';a="', '"a";a=a', ',']) {
    limits(part.repeat(8192 / part.length).slice(0, 8192));
    limits(`"a"${part.repeat(1_000_000)}`);
    assert.deepEqual(limits(`"api";r=42;t=18,${part.repeat(9000)}`), []);
  }
  assert.ok(performance.now() - began < 2000, 'parsing took too long');
});

const date = 'Sun, 06 Nov 1994 08:49:37 GMT';
const milliseconds = 784_111_777_000;

function retryAfter(fields: Record<string, string>, now = milliseconds - 5000) {
  return parseRetryAfter(new Headers(fields), now);
}

test('`Retry-After` can be a number of seconds', () => {
  assert.equal(retryAfter({ 'retry-after': '18' }), 18_000);
  assert.equal(retryAfter({ 'retry-after': '0' }), 0);
  for (const bad of ['', '-1', '1.5', '1e3', '0x10', '1234567890123456', 'soon', '18 s', 'Mon 5']) {
    assert.equal(retryAfter({ 'retry-after': bad }), null, bad);
  }
  assert.equal(retryAfter({}), null);
});

test('`Retry-After` can be a date in any of three forms', () => {
  for (const form of [date, 'Sunday, 06-Nov-94 08:49:37 GMT', 'Sun Nov  6 08:49:37 1994']) {
    assert.equal(retryAfter({ 'retry-after': form }), 5000, form);
  }
  for (const bad of [
    '06 Nov 1994 08:49:37 GMT',
    '1994-11-06T08:49:37Z',
    'Sun, 06 Nov 1994 08:49:37',
    'Sun, 99 Foo 1994 08:49:37 GMT',
  ]) {
    assert.equal(retryAfter({ 'retry-after': bad }), null, bad);
  }
});

test('a date is compared with the `Date` header or, if that is absent, with the browser clock', () => {
  assert.equal(retryAfter({ 'retry-after': date, date: 'Sun, 06 Nov 1994 08:49:30 GMT' }, 0), 7000);
  assert.equal(retryAfter({ 'retry-after': date }, milliseconds + 1), 0, 'a past date means no wait');
});
