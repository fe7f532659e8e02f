//! The header fields that tell clients about their limits, by families.

use std::borrow::Cow;
use std::time::Duration;

use http::header::{CACHE_CONTROL, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use smallvec::SmallVec;

use super::items::{PolicyItems, number, value, whole_seconds};
use crate::policy::{Decision, Decisions};

/// Which headers tell clients about their limits. One response speaks one of these languages.
///
/// ```
/// use axum::{body::Body, extract::Request, routing::get, Router};
/// use tollgate::{key, HeaderFamily, Policy, Quota, RateLimitLayer, MINUTE};
/// use tower::ServiceExt;
///
/// const API: Policy = Policy::new("api", Quota::token_bucket(100, MINUTE));
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let app = |family| {
///     let layer = RateLimitLayer::new(API, key::global()).headers(family);
///     Router::new().route("/", get(|| async { "hello" })).layer(layer)
/// };
/// let new = app(HeaderFamily::Draft11).oneshot(Request::new(Body::empty())).await?;
/// assert_eq!(new.headers()["ratelimit-policy"], r#""api";q=100;w=60"#);
/// assert_eq!(new.headers()["ratelimit"], r#""api";r=99;t=60"#);
///
/// let old = app(HeaderFamily::Draft6).oneshot(Request::new(Body::empty())).await?;
/// assert_eq!(old.headers()["ratelimit-policy"], "100;w=60");
/// assert_eq!(old.headers()["ratelimit-limit"], "100");
/// assert_eq!(old.headers()["ratelimit-remaining"], "99");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeaderFamily {
    /// `RateLimit-Policy: "api";q=100;w=60` and `RateLimit: "api";r=42;t=18` for each policy, as in
    /// draft-ietf-httpapi-ratelimit-headers-08 to -11. Appended to what an inner limiter sent.
    ///
    /// Of an allowed request, `t` is the time for which `r` may be spent without outpacing the quota: to the end of a
    /// window; for a token bucket, as long as `r` tokens take to come back, so it falls with `r`. Of a denial it is the
    /// wait. A denial has a `RateLimit-Policy` of every policy, and a `RateLimit` only of those that were violated.
    #[default]
    Draft11,
    /// `RateLimit-Limit: 100`, `RateLimit-Remaining: 42`, `RateLimit-Reset: 18` (seconds from now) and
    /// `RateLimit-Policy: 100;w=60`, as in drafts -04 to -06 (the reset as with
    /// [`XRateLimit`](HeaderFamily::XRateLimit)), of the policy that has the smallest share left (of the longest wait,
    /// if denied). Left as they are if an inner limiter sent them: these fields must not occur twice.
    Draft6,
    /// `X-RateLimit-Limit: 100`, `X-RateLimit-Remaining: 42`, `X-RateLimit-Reset`, of one policy as with
    /// [`Draft6`](HeaderFamily::Draft6).
    ///
    /// The reset of a denial is when the request would fit; a request that never fits gets none. Of an allowed request it is the end of the window; a token
    /// bucket has none, so there it is when all of it is back.
    XRateLimit(ResetUnit),
    /// None. A denial still says `Retry-After`.
    None,
}

/// What `X-RateLimit-Reset` counts.
///
/// ```
/// use tollgate::{key, middleware::ResetUnit, HeaderFamily, Quota, RateLimitLayer, MINUTE};
///
/// RateLimitLayer::new(Quota::token_bucket(10, MINUTE), key::client_ip())
///     .headers(HeaderFamily::XRateLimit(ResetUnit::Epoch));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums)] // Nobody uses anything else.
pub enum ResetUnit {
    /// Seconds from now, as with the drafts. Needs no common clock.
    Seconds,
    /// The Unix time in seconds, as GitHub and express-rate-limit send it.
    Epoch,
}

const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const DRAFT_6: [&str; 3] = ["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"];
const X_RATELIMIT: [&str; 3] = ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"];

/// A header's name that the program says. The type's own constructor panics at such a mistake too, but without a word.
#[track_caller]
pub(super) fn field_name(name: &'static str) -> HeaderName {
    match HeaderName::from_bytes(name.as_bytes()) {
        Ok(known) if known.as_str() == name => known,
        Ok(known) => panic!("tollgate: the header name {name:?} is not in lower case; write {:?}", known.as_str()),
        Err(_) => panic!("tollgate: {name:?} is no header name; write letters, digits and \"-\", as in \"x-api-key\""),
    }
}

/// The fields that tell a response's client about its limits.
#[derive(Default)]
pub(super) struct Report {
    /// One policy in the manner of draft 11, what most responses are told, has two.
    fields: SmallVec<[(HeaderName, HeaderValue); 2]>,
    /// To be there once: an inner limiter's stay.
    single: bool,
}

impl Report {
    /// `items`: what was rendered of a decision's policy, if anything was.
    pub(super) fn new<'a>(
        family: HeaderFamily,
        decisions: &Decisions,
        items: impl Fn(&Decision) -> Option<&'a PolicyItems>,
    ) -> Report {
        match family {
            HeaderFamily::Draft11 => Report::draft_11(decisions, items),
            HeaderFamily::Draft6 => Report::three_fields(decisions, DRAFT_6, ResetUnit::Seconds, true),
            HeaderFamily::XRateLimit(unit) => Report::three_fields(decisions, X_RATELIMIT, unit, false),
            HeaderFamily::None => Report::default(),
        }
    }

    /// Every policy, but of a denial limits only of those that were violated. The others' windows may end after
    /// `Retry-After`, which is not to point before the end of a window that is sent (draft-11, section 6).
    fn draft_11<'a>(decisions: &Decisions, items: impl Fn(&Decision) -> Option<&'a PolicyItems>) -> Report {
        let allowed = decisions.is_allowed();
        let mut report = Report::default();
        for decision in decisions {
            let known =
                items(decision).map_or_else(|| Cow::Owned(PolicyItems::of_name(decision.policy())), Cow::Borrowed);
            report.fields.push((RATELIMIT_POLICY, known.policy(decision.quota())));
            if allowed || decision.is_violated() {
                // Without a time if waiting does not help.
                let helps = allowed || decision.retry_after().is_some();
                let seconds = helps.then(|| whole_seconds(decision.window()));
                report.fields.push((RATELIMIT, known.limit(decision.remaining(), seconds)));
            }
        }
        report
    }

    /// Of the policy with the smallest share left; if denied, of the longest wait.
    fn three_fields(decisions: &Decisions, names: [&'static str; 3], unit: ResetUnit, with_policy: bool) -> Report {
        let longest = || decisions.violated().max_by_key(|decision| decision.retry_after());
        let decision = if decisions.is_allowed() { decisions.tightest() } else { longest() };
        let Some(decision) = decision else { return Report::default() };
        let until = reset(decision);
        let reset = match unit {
            ResetUnit::Seconds => whole_seconds(until),
            ResetUnit::Epoch => (decision.step().now + until).get().div_ceil(1_000_000),
        };
        let values = [decision.capacity(), decision.remaining(), reset].map(number);
        // A reset would promise a success that never comes.
        let never = decision.is_violated() && decision.retry_after().is_none();
        let count = if never { 2 } else { 3 };
        let mut fields: SmallVec<_> = names.map(HeaderName::from_static).into_iter().zip(values).take(count).collect();
        if with_policy {
            let window = whole_seconds(decision.quota().window());
            fields.push((RATELIMIT_POLICY, value(format!("{};w={window}", decision.capacity()))));
        }
        Report { fields, single: true }
    }

    /// One field, appended.
    pub(super) fn field(name: HeaderName, value: HeaderValue) -> Report {
        Report { fields: SmallVec::from_iter([(name, value)]), single: false }
    }

    /// Never overwrites what is there.
    pub(super) fn append_to(self, headers: &mut HeaderMap) {
        if self.single && self.fields.iter().any(|(name, _)| headers.contains_key(name)) {
            return;
        }
        // An inner limiter's denial, or a handler's, says when to come back; a window of ours may end later than that,
        // and `Retry-After` is not to point before the end of one that is sent. An inner limiter that speaks of three
        // fields has a `RateLimit-Policy` of another syntax: the two do not mix.
        let (refused, three_fields) = (headers.contains_key(RETRY_AFTER), headers.contains_key(DRAFT_6[0]));
        for (name, value) in self.fields {
            let unfit = name == RATELIMIT && (refused || three_fields) || name == RATELIMIT_POLICY && three_fields;
            if !unfit {
                headers.append(name, value);
            }
        }
    }
}

/// What every denial says: when to come back, if that helps, and not to be stored. What is there already stays.
pub(super) fn retry_later(retry: Option<Duration>, headers: &mut HeaderMap) {
    if let Some(retry) = retry {
        headers.entry(RETRY_AFTER).or_insert_with(|| number(whole_seconds(retry)));
    }
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}

/// Until there is more: the end of the window, the whole bucket, or the moment when the denied request would fit.
fn reset(decision: &Decision) -> Duration {
    if decision.is_violated() || decision.quota().algorithm().has_windows() {
        decision.window()
    } else {
        decision.reset()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::{Ask, MINUTE, Micros, Quota, State, step};
    use crate::policy::{Policy, PolicyName};

    const NOW: Micros = Micros::new(1_700_000_000_000_000);

    fn decision(quota: Quota, state: &State, cost: u64) -> Decisions {
        let step = step(&quota, state, NOW, Ask::cost(cost));
        std::iter::once(Decision::new(
            PolicyName::new("api"),
            crate::policy::Digest::from_bits(0),
            quota,
            cost,
            step,
            true,
        ))
        .collect()
    }

    fn sent(report: Report) -> HeaderMap {
        let mut headers = HeaderMap::new();
        report.append_to(&mut headers);
        headers
    }

    #[test]
    #[should_panic = "the header name \"X-Api-Key\" is not in lower case; write \"x-api-key\""]
    fn a_name_in_capitals_is_a_mistake_and_says_so() {
        assert_eq!(field_name("x-api-key"), "x-api-key");
        field_name("X-Api-Key");
    }

    #[test]
    fn each_policy_tells_what_is_left_and_until_when() {
        let told = |headers: &HeaderMap| [headers[RATELIMIT_POLICY].clone(), headers[RATELIMIT].clone()];
        let policy = PolicyItems::new(&Policy::new("api", Quota::token_bucket(100, MINUTE)));
        let decisions = decision(Quota::token_bucket(100, MINUTE), &State::default(), 58);
        let headers = sent(Report::new(HeaderFamily::Draft11, &decisions, |_| Some(&policy)));
        assert_eq!(told(&headers), ["\"api\";q=100;w=60", "\"api\";r=42;t=26"]);
        let spent = decisions.iter().next().expect("a decision").step().state;
        let denied = decision(Quota::token_bucket(100, MINUTE), &spent, 60);
        let headers = sent(Report::new(HeaderFamily::Draft11, &denied, |_| None));
        assert_eq!(told(&headers), ["\"api\";q=100;w=60", "\"api\";r=42;t=11"]);
    }

    #[test]
    fn a_reset_is_the_windows_end_or_a_whole_bucket_or_when_the_request_fits() {
        let seconds = |quota: Quota, before: u64, cost| {
            let state = step(&quota, &State::default(), NOW, Ask::cost(before)).state;
            reset(decision(quota, &state, cost).iter().next().expect("a decision")).as_secs()
        };
        let start = Duration::from_secs(20);
        let window = Quota::fixed_window(5, MINUTE).capacity(10).start(start);
        // 1,700,000,000 is 20 s into a minute: so at the window's very beginning.
        assert_eq!((seconds(window, 9, 1), seconds(window, 10, 6)), (60, 120), "not 120: that is when all is back");
        let bucket = Quota::token_bucket(60, MINUTE);
        assert_eq!((seconds(bucket, 30, 10), seconds(bucket, 60, 20)), (40, 20));
    }

    #[test]
    fn a_denial_says_when_to_come_back_unless_that_is_said() {
        let mut headers = HeaderMap::new();
        retry_later(Some(Duration::from_millis(1500)), &mut headers);
        assert_eq!([&headers[RETRY_AFTER], &headers[CACHE_CONTROL]], ["2", "no-store"]);
        retry_later(Some(Duration::from_secs(9)), &mut headers);
        assert_eq!((headers[RETRY_AFTER].as_bytes(), headers.len()), (&b"2"[..], 2));
    }

    #[test]
    fn a_denial_that_waiting_cannot_help_has_no_times() {
        let decisions = decision(Quota::token_bucket(10, MINUTE), &State::default(), 11);
        let mut headers = sent(Report::new(HeaderFamily::Draft11, &decisions, |_| None));
        retry_later(decisions.retry_after(), &mut headers);
        assert_eq!(headers[RATELIMIT], "\"api\";r=10");
        assert!(!headers.contains_key(RETRY_AFTER));
    }

    #[test]
    fn the_older_families_tell_of_one_policy() {
        let decisions = decision(Quota::token_bucket(100, MINUTE), &State::default(), 58);
        let headers = |family| sent(Report::new(family, &decisions, |_| None));
        let draft = headers(HeaderFamily::Draft6);
        assert_eq!(draft["ratelimit-policy"], "100;w=60");
        assert_eq!((&draft["ratelimit-limit"], &draft["ratelimit-remaining"]), (&100.into(), &42.into()));
        assert_eq!(draft["ratelimit-reset"], "35", "34.8 s until all of it is back");
        let seconds = headers(HeaderFamily::XRateLimit(ResetUnit::Seconds));
        assert_eq!((&seconds["x-ratelimit-limit"], &seconds["x-ratelimit-reset"]), (&100.into(), &35.into()));
        let epoch = headers(HeaderFamily::XRateLimit(ResetUnit::Epoch));
        assert_eq!(epoch["x-ratelimit-reset"], "1700000035");
        assert!(headers(HeaderFamily::None).is_empty());
    }

    #[test]
    fn what_an_inner_limiter_sent_stays() {
        let decisions = decision(Quota::token_bucket(100, MINUTE), &State::default(), 1);
        let policy = PolicyItems::new(&Policy::new("api", Quota::token_bucket(100, MINUTE)));
        let report = |family| Report::new(family, &decisions, |_| Some(&policy));
        let pair: Decisions = decisions.iter().chain(&decisions).cloned().collect();
        let two = || Report::new(HeaderFamily::Draft11, &pair, |_| Some(&policy));
        let mut headers = HeaderMap::new();
        headers.insert("ratelimit-limit", 7.into());
        report(HeaderFamily::Draft6).append_to(&mut headers);
        assert_eq!((headers.len(), &headers["ratelimit-limit"]), (1, &7.into()));
        // Nor does the other draft's `RateLimit-Policy` mix with that family's.
        report(HeaderFamily::Draft11).append_to(&mut headers);
        two().append_to(&mut headers);
        Report::field(HeaderName::from_static("x-shadow"), HeaderValue::from_static("denied")).append_to(&mut headers);
        assert_eq!((headers.len(), &headers["x-shadow"]), (2, &HeaderValue::from_static("denied")));
        let mut headers = HeaderMap::new();
        headers.insert(RATELIMIT, HeaderValue::from_static("\"inner\";r=0;t=60"));
        report(HeaderFamily::Draft11).append_to(&mut headers);
        assert_eq!(headers.get_all(RATELIMIT).iter().count(), 2);
        // Of a denial, windows of ours may end later than it says to come back. All else is told.
        headers.insert(RETRY_AFTER, 60.into());
        report(HeaderFamily::Draft11).append_to(&mut headers);
        two().append_to(&mut headers);
        assert_eq!(headers.get_all(RATELIMIT).iter().count(), 2);
        assert_eq!(headers.get_all(RATELIMIT_POLICY).iter().count(), 4);
    }
}
