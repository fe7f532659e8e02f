//! The `RateLimit` header fields of draft-ietf-httpapi-ratelimit-headers-11, as structured fields (RFC 9651).

use std::fmt::Write;
use std::time::Duration;

use http::header::{CACHE_CONTROL, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use smallvec::SmallVec;

use crate::algorithm::Quota;
use crate::policy::{Decision, Decisions, Policy, PolicyName};

const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// A policy's items of `RateLimit-Policy`, one for each of its quotas, rendered when the layer is built.
#[derive(Clone)]
pub(super) struct PolicyHeader(Vec<(u16, HeaderValue)>);

impl PolicyHeader {
    pub(super) fn new(policy: &Policy) -> PolicyHeader {
        let quotas = std::iter::once(policy.quota()).chain(policy.tiers().map(|(_, quota)| quota));
        PolicyHeader(quotas.map(|quota| (quota.stamp(), policy_item(policy.name(), quota))).collect())
    }

    fn item(&self, decision: &Decision) -> HeaderValue {
        let stamp = decision.quota().stamp();
        match self.0.iter().find(|(known, _)| *known == stamp) {
            Some((_, item)) if self.0.len() == 1 => item.clone(),
            // Stamps are short: with several quotas, two may have the same.
            _ => policy_item(decision.policy(), decision.quota()),
        }
    }
}

/// What a response is told of its limits, ready to be appended.
#[derive(Default)]
pub(super) struct Report(SmallVec<[(HeaderName, HeaderValue); 2]>);

impl Report {
    /// Of an answer that is not a denial: every policy.
    pub(super) fn allowed<'a>(decisions: &Decisions, headers: impl Iterator<Item = &'a PolicyHeader>) -> Report {
        let mut report = Report::default();
        for (decision, header) in decisions.iter().zip(headers) {
            report.0.push((RATELIMIT_POLICY, header.item(decision)));
            report.0.push((RATELIMIT, limit_item(decision)));
        }
        report
    }

    /// Appended, never overwriting: an inner limiter may have sent its own.
    pub(super) fn append_to(self, headers: &mut HeaderMap) {
        for (name, value) in self.0 {
            headers.append(name, value);
        }
    }
}

/// The headers of a denial: every policy, the violated ones' limits, and when to come back.
///
/// Of policies that were not violated no `RateLimit` is sent: their windows may end after `Retry-After`, which is not to point
/// before the end of a window that is sent (draft-11, section 6).
pub(super) fn denied(decisions: &Decisions, limits: bool, headers: &mut HeaderMap) {
    if limits {
        for decision in decisions {
            headers.append(RATELIMIT_POLICY, policy_item(decision.policy(), decision.quota()));
        }
        for decision in decisions.violated() {
            headers.append(RATELIMIT, limit_item(decision));
        }
    }
    if let Some(retry) = decisions.retry_after() {
        headers.insert(RETRY_AFTER, HeaderValue::from(whole_seconds(retry)));
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
}

/// Seconds for a header: rounded up, since coming back early is coming back refused; at least 1, since 0 invites a client to
/// try again at once.
pub(super) fn whole_seconds(duration: Duration) -> u64 {
    let up = u64::from(duration.subsec_nanos() > 0);
    duration.as_secs().saturating_add(up).clamp(1, Quota::MAX_TOKENS)
}

/// `"api";q=100;w=60`
fn policy_item(name: &PolicyName, quota: &Quota) -> HeaderValue {
    let mut item = Item::new(name);
    item.parameter('q', quota.limit());
    item.parameter('w', whole_seconds(quota.window()));
    item.finish()
}

/// `"api";r=42;t=18`; without `t` if waiting does not help.
fn limit_item(decision: &Decision) -> HeaderValue {
    let mut item = Item::new(decision.policy());
    item.parameter('r', decision.remaining());
    if !decision.is_violated() || decision.retry_after().is_some() {
        item.parameter('t', whole_seconds(decision.window()));
    }
    item.finish()
}

/// A string with parameters, written where no allocation is needed.
struct Item(SmallVec<[u8; 192]>);

impl Item {
    fn new(name: &PolicyName) -> Item {
        let mut item = Item(SmallVec::new());
        item.0.push(b'"');
        for byte in name.as_str().bytes() {
            if matches!(byte, b'"' | b'\\') {
                item.0.push(b'\\');
            }
            item.0.push(byte);
        }
        item.0.push(b'"');
        item
    }

    fn parameter(&mut self, key: char, value: u64) {
        // An integer of a structured field has at most 15 digits.
        let value = value.min(Quota::MAX_TOKENS);
        // Writing to a vector does not fail.
        let _ = write!(self, ";{key}={value}");
    }

    fn finish(self) -> HeaderValue {
        // A policy's name has only printable ASCII characters; if that ever changed, no header is better than a panic.
        HeaderValue::from_bytes(&self.0).unwrap_or(HeaderValue::from_static("\"\";q=0"))
    }
}

impl std::fmt::Write for Item {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::{Ask, DAY, MINUTE, Micros, State, step};

    const NOW: Micros = Micros::new(1_700_000_000_000_000);

    fn decision(quota: Quota, state: &State, cost: u64) -> Decision {
        Decision::new(PolicyName::new("api"), quota, cost, step(&quota, state, NOW, Ask::cost(cost)), true)
    }

    #[test]
    fn q_is_the_capacity_and_w_the_time_to_refill_it() {
        for (quota, text) in [
            (Quota::token_bucket(100, MINUTE), "\"api\";q=100;w=60"),
            (Quota::token_bucket(10, MINUTE).capacity(20), "\"api\";q=20;w=120"),
            (Quota::token_bucket(7, Duration::from_millis(1500)), "\"api\";q=7;w=2"),
            (Quota::token_bucket(1000, Duration::from_micros(1)), "\"api\";q=1000;w=1"),
            (Quota::fixed_window(1000, DAY), "\"api\";q=1000;w=86400"),
        ] {
            assert_eq!(policy_item(&PolicyName::new("api"), &quota), text);
        }
    }

    #[test]
    fn a_denial_that_waiting_cannot_help_has_no_times() {
        let quota = Quota::token_bucket(10, MINUTE);
        let decisions: Decisions = std::iter::once(decision(quota, &State::default(), 11)).collect();
        let mut headers = HeaderMap::new();
        denied(&decisions, true, &mut headers);
        assert_eq!(headers[RATELIMIT], "\"api\";r=10");
        assert!(!headers.contains_key(RETRY_AFTER));
    }

    #[test]
    fn retry_after_is_rounded_up_and_never_zero() {
        for (micros, seconds) in [(0, 1), (1, 1), (999_999, 1), (1_000_000, 1), (1_000_001, 2), (5_000_001, 6)] {
            assert_eq!(whole_seconds(Duration::from_micros(micros)), seconds);
        }
        assert_eq!(whole_seconds(Duration::MAX), Quota::MAX_TOKENS);
    }

    #[test]
    fn names_are_quoted_as_structured_strings() {
        let name = PolicyName::new("a\"b\\c");
        let item = policy_item(&name, &Quota::token_bucket(1, MINUTE));
        assert_eq!(item, r#""a\"b\\c";q=1;w=60"#);
        let list: sfv::List = sfv::Parser::new(item.as_bytes()).parse().unwrap();
        let sfv::ListEntry::Item(item) = &list[0] else { panic!() };
        assert_eq!(item.bare_item.as_string().map(|text| text.as_str()), Some(name.as_str()));
    }
}
