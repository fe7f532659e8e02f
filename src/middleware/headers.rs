//! The header families that inform clients about their limits.

use std::borrow::Cow;
use std::time::Duration;

use http::header::{CACHE_CONTROL, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use smallvec::SmallVec;

use super::items::{Item, PolicyItems, header_value, number, whole_seconds};
use crate::policy::{Decision, Decisions};

/// The headers that inform clients about their limits.
///
/// ```
/// use tollgate::{key, middleware::ResetUnit, HeaderFamily, Quota, RateLimitLayer, MINUTE};
/// let family = HeaderFamily::XRateLimit(ResetUnit::Epoch);
/// RateLimitLayer::new(Quota::token_bucket(100, MINUTE), key::client_ip()).headers(family);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeaderFamily {
    /// `RateLimit-Policy: "api";q=100;w=60` and `RateLimit: "api";r=42;t=18` for each policy, as in
    /// draft-ietf-httpapi-ratelimit-headers-08 to -11. The values are appended to those of an inner limiter.
    ///
    /// For an allowed request, `t` is the time until the window ends or, for a token bucket, the time needed to refill
    /// `r` tokens. For a denial, `t` is the time to wait, and only the limits that were exceeded have a `RateLimit`
    /// item.
    #[default]
    Draft11,
    /// `RateLimit-Limit: 100`, `RateLimit-Remaining: 42`, `RateLimit-Reset: 18` (seconds from now) and
    /// `RateLimit-Policy: 100;w=60`, as in drafts -04 to -06. The fields describe the policy with the smallest share of
    /// its limit left or, for a denial, the policy with the longest wait. The reset is defined as for
    /// [`XRateLimit`](HeaderFamily::XRateLimit). The fields are omitted if an inner limiter has already sent them.
    Draft6,
    /// `X-RateLimit-Limit: 100`, `X-RateLimit-Remaining: 42` and `X-RateLimit-Reset`, for the same policy as `Draft6`.
    ///
    /// For a denial, the reset is the time at which the request would be allowed. It is omitted if waiting would not
    /// help. For an allowed request, it is the end of the window, or the time at which the token bucket will be full.
    XRateLimit(ResetUnit),
    /// No headers that describe the limits. Refusals still carry `Retry-After` and `Cache-Control`.
    None,
}

/// The unit of `X-RateLimit-Reset`. See [`HeaderFamily`] for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums)] // No other unit is in use.
pub enum ResetUnit {
    /// Seconds from now, as in the drafts. This unit does not require synchronized clocks.
    Seconds,
    /// Unix time in seconds, as sent by GitHub and express-rate-limit.
    Epoch,
}

const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const DRAFT_6: [&str; 3] = ["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"];
const X_RATELIMIT: [&str; 3] = ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"];

#[track_caller]
pub(super) fn field_name(name: &'static str) -> HeaderName {
    match HeaderName::from_bytes(name.as_bytes()) {
        Ok(known) if known.as_str() == name => known,
        Ok(known) => panic!("tollgate: the header name {name:?} is not in lower case; write {:?}", known.as_str()),
        Err(_) => {
            panic!(
                "tollgate: expected a header name made of letters, digits and \"-\" (such as \"x-api-key\"), found \
                 {name:?}"
            )
        }
    }
}

#[derive(Default)]
pub(super) struct LimitHeaders {
    fields: SmallVec<[(HeaderName, HeaderValue); 2]>,
    /// Whether to omit the fields if an inner limiter has already sent them.
    single: bool,
}

impl LimitHeaders {
    pub(super) fn new<'a>(
        family: HeaderFamily,
        decisions: &Decisions,
        items: impl Fn(&Decision) -> Option<&'a PolicyItems>,
    ) -> LimitHeaders {
        // Limits in shadow mode are hidden from clients.
        let enforced: Decisions;
        let mut decisions = decisions;
        if !decisions.iter().all(Decision::is_enforced) {
            enforced = decisions.iter().filter(|decision| decision.is_enforced()).cloned().collect();
            decisions = &enforced;
        }
        match family {
            HeaderFamily::Draft11 => LimitHeaders::draft_11(decisions, items),
            HeaderFamily::Draft6 => LimitHeaders::three_fields(decisions, DRAFT_6, ResetUnit::Seconds, true),
            HeaderFamily::XRateLimit(unit) => LimitHeaders::three_fields(decisions, X_RATELIMIT, unit, false),
            HeaderFamily::None => LimitHeaders::default(),
        }
    }

    /// A denial has `RateLimit` items only for the limits that were exceeded. The windows of other policies might end
    /// after `Retry-After`, which section 6 of draft-11 forbids.
    fn draft_11<'a>(decisions: &Decisions, items: impl Fn(&Decision) -> Option<&'a PolicyItems>) -> LimitHeaders {
        let allowed = decisions.is_allowed();
        let mut limit_headers = LimitHeaders::default();
        for decision in decisions {
            let item = items(decision).and_then(|items| items.of(decision));
            let item = item.map_or_else(|| Cow::Owned(Item::of(decision)), Cow::Borrowed);
            limit_headers.fields.push((RATELIMIT_POLICY, item.policy()));
            if allowed || decision.is_violated() {
                let helps = allowed || decision.retry_after().is_some();
                let seconds = helps.then(|| whole_seconds(decision.window()));
                limit_headers.fields.push((RATELIMIT, item.limit(decision.remaining(), seconds)));
            }
        }
        limit_headers
    }

    fn three_fields(
        decisions: &Decisions,
        names: [&'static str; 3],
        unit: ResetUnit,
        with_policy: bool,
    ) -> LimitHeaders {
        let longest = || decisions.violated().max_by_key(|decision| decision.retry_after());
        let decision = if decisions.is_allowed() { decisions.tightest() } else { longest() };
        let Some(decision) = decision else { return LimitHeaders::default() };
        let until = reset(decision);
        let reset = match unit {
            ResetUnit::Seconds => whole_seconds(until),
            ResetUnit::Epoch => (decision.step().now + until).get().div_ceil(1_000_000),
        };
        let values = [decision.capacity(), decision.remaining(), reset].map(number);
        let never = decision.is_violated() && decision.retry_after().is_none();
        let count = if never { 2 } else { 3 };
        let mut fields: SmallVec<_> = names.map(HeaderName::from_static).into_iter().zip(values).take(count).collect();
        if with_policy {
            let window = whole_seconds(decision.quota().window());
            fields.push((RATELIMIT_POLICY, header_value(format!("{};w={window}", decision.capacity()))));
        }
        LimitHeaders { fields, single: true }
    }

    pub(super) fn add(&mut self, name: HeaderName, value: HeaderValue) {
        self.fields.push((name, value));
    }

    pub(super) fn append_to(self, headers: &mut HeaderMap) {
        if self.single && self.fields.iter().any(|(name, _)| headers.contains_key(name)) {
            return;
        }
        // No window may end after the `Retry-After` of an inner limiter or handler (see `draft_11`). An inner limiter
        // that sends the three fields of draft 6 uses a different syntax in `RateLimit-Policy`.
        let (refused, three_fields) = (headers.contains_key(RETRY_AFTER), headers.contains_key(DRAFT_6[0]));
        for (name, value) in self.fields {
            let conflicts = name == RATELIMIT && (refused || three_fields) || name == RATELIMIT_POLICY && three_fields;
            if !conflicts {
                headers.append(name, value);
            }
        }
    }
}

/// Adds `Retry-After` (if waiting would help) and `Cache-Control: no-store` to a refusal, unless they are already set.
pub(super) fn add_retry_after(retry: Option<Duration>, headers: &mut HeaderMap) {
    if let Some(retry) = retry {
        headers.entry(RETRY_AFTER).or_insert_with(|| number(whole_seconds(retry)));
    }
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}

/// Returns the time until the window ends, until the bucket is full, or until the denied request would be allowed.
fn reset(decision: &Decision) -> Duration {
    if decision.is_violated() || decision.of().quota.algorithm().has_windows() {
        decision.window()
    } else {
        decision.reset()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::{Ask, MINUTE, Micros, Quota, State, step};
    use crate::policy::{ChargedQuota, Digest, Part, Policy, PolicyName};

    const NOW: Micros = Micros::new(1_700_000_000_000_000);

    fn decision(quota: Quota, state: &State, cost: u64) -> Decisions {
        let step = step(&quota, state, NOW, Ask::cost(cost));
        let (policy, key) = (PolicyName::new("api"), Digest::from_bits(0));
        let of = ChargedQuota { policy, row_key: key, quota, cost, window: 0, part: Part::WHOLE };
        Decision::new(of, step, true).into()
    }

    fn sent(limit_headers: LimitHeaders) -> HeaderMap {
        let mut headers = HeaderMap::new();
        limit_headers.append_to(&mut headers);
        headers
    }

    #[test]
    #[should_panic = "the header name \"X-Api-Key\" is not in lower case; write \"x-api-key\""]
    fn an_uppercase_header_name_panics() {
        assert_eq!(field_name("x-api-key"), "x-api-key");
        field_name("X-Api-Key");
    }

    #[test]
    fn draft_11_sends_the_remaining_tokens_and_the_window_of_a_policy() {
        let pair = |headers: &HeaderMap| [headers[RATELIMIT_POLICY].clone(), headers[RATELIMIT].clone()];
        let policy = PolicyItems::new(&Policy::new("api", Quota::token_bucket(100, MINUTE)));
        let decisions = decision(Quota::token_bucket(100, MINUTE), &State::default(), 58);
        let headers = sent(LimitHeaders::new(HeaderFamily::Draft11, &decisions, |_| Some(&policy)));
        assert_eq!(pair(&headers), ["\"api\";q=100;w=60", "\"api\";r=42;t=26"]);
        let spent = decisions.iter().next().expect("a decision").step().state;
        let denied = decision(Quota::token_bucket(100, MINUTE), &spent, 60);
        let headers = sent(LimitHeaders::new(HeaderFamily::Draft11, &denied, |_| None));
        assert_eq!(pair(&headers), ["\"api\";q=100;w=60", "\"api\";r=42;t=11"]);
    }

    #[test]
    fn the_reset_depends_on_the_algorithm_and_the_decision() {
        let seconds = |quota: Quota, before: u64, cost| {
            let state = step(&quota, &State::default(), NOW, Ask::cost(before)).state;
            reset(decision(quota, &state, cost).iter().next().expect("a decision")).as_secs()
        };
        let start = Duration::from_secs(20);
        let window = Quota::fixed_window(5, MINUTE).capacity(10).start(start);
        // The Unix time 1,700,000,000 is 20 s into a minute, so a window starts at that time.
        assert_eq!(
            (seconds(window, 9, 1), seconds(window, 10, 6)),
            (60, 120),
            "60 s until the window ends, 120 s until a retry"
        );
        let bucket = Quota::token_bucket(60, MINUTE);
        assert_eq!((seconds(bucket, 30, 10), seconds(bucket, 60, 20)), (40, 20));
    }

    #[test]
    fn retry_after_is_added_to_a_denial_unless_present() {
        let mut headers = HeaderMap::new();
        add_retry_after(Some(Duration::from_millis(1500)), &mut headers);
        assert_eq!([&headers[RETRY_AFTER], &headers[CACHE_CONTROL]], ["2", "no-store"]);
        add_retry_after(Some(Duration::from_secs(9)), &mut headers);
        assert_eq!((headers[RETRY_AFTER].as_bytes(), headers.len()), (&b"2"[..], 2));
    }

    #[test]
    fn a_cost_above_the_capacity_has_no_retry_after() {
        let decisions = decision(Quota::token_bucket(10, MINUTE), &State::default(), 11);
        let mut headers = sent(LimitHeaders::new(HeaderFamily::Draft11, &decisions, |_| None));
        add_retry_after(decisions.retry_after(), &mut headers);
        assert_eq!(headers[RATELIMIT], "\"api\";r=10");
        assert!(!headers.contains_key(RETRY_AFTER));
    }

    #[test]
    fn older_header_families_describe_only_one_policy() {
        let decisions = decision(Quota::token_bucket(100, MINUTE), &State::default(), 58);
        let headers = |family| sent(LimitHeaders::new(family, &decisions, |_| None));
        let draft = headers(HeaderFamily::Draft6);
        assert_eq!(draft["ratelimit-policy"], "100;w=60");
        assert_eq!((&draft["ratelimit-limit"], &draft["ratelimit-remaining"]), (&100.into(), &42.into()));
        assert_eq!(draft["ratelimit-reset"], "35", "34.8 s until the bucket is full");
        let seconds = headers(HeaderFamily::XRateLimit(ResetUnit::Seconds));
        assert_eq!((&seconds["x-ratelimit-limit"], &seconds["x-ratelimit-reset"]), (&100.into(), &35.into()));
        let epoch = headers(HeaderFamily::XRateLimit(ResetUnit::Epoch));
        assert_eq!(epoch["x-ratelimit-reset"], "1700000035");
        assert!(headers(HeaderFamily::None).is_empty());
    }

    #[test]
    fn fields_of_an_inner_limiter_are_kept() {
        let decisions = decision(Quota::token_bucket(100, MINUTE), &State::default(), 1);
        let policy = PolicyItems::new(&Policy::new("api", Quota::token_bucket(100, MINUTE)));
        let limit_headers = |family| LimitHeaders::new(family, &decisions, |_| Some(&policy));
        let pair: Decisions = decisions.iter().chain(&decisions).cloned().collect();
        let two = || LimitHeaders::new(HeaderFamily::Draft11, &pair, |_| Some(&policy));
        let mut headers = HeaderMap::new();
        headers.insert("ratelimit-limit", 7.into());
        limit_headers(HeaderFamily::Draft6).append_to(&mut headers);
        assert_eq!((headers.len(), &headers["ratelimit-limit"]), (1, &7.into()));
        // The `RateLimit-Policy` of draft 11 is not added to a response with the three fields of draft 6.
        limit_headers(HeaderFamily::Draft11).append_to(&mut headers);
        two().append_to(&mut headers);
        let mut shadow = LimitHeaders::default();
        shadow.add(HeaderName::from_static("x-shadow"), HeaderValue::from_static("denied"));
        shadow.append_to(&mut headers);
        assert_eq!((headers.len(), &headers["x-shadow"]), (2, &HeaderValue::from_static("denied")));
        let mut headers = HeaderMap::new();
        headers.insert(RATELIMIT, HeaderValue::from_static("\"inner\";r=0;t=60"));
        limit_headers(HeaderFamily::Draft11).append_to(&mut headers);
        assert_eq!(headers.get_all(RATELIMIT).iter().count(), 2);
        // `RateLimit` is not added to a denial, since its window might end after `Retry-After`.
        headers.insert(RETRY_AFTER, 60.into());
        limit_headers(HeaderFamily::Draft11).append_to(&mut headers);
        two().append_to(&mut headers);
        assert_eq!(headers.get_all(RATELIMIT).iter().count(), 2);
        assert_eq!(headers.get_all(RATELIMIT_POLICY).iter().count(), 4);
    }
}
