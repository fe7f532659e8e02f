//! What headers say of a policy: its items of the lists `RateLimit-Policy` and `RateLimit`, rendered once as far as
//! they stay the same.

use std::time::Duration;

use http::HeaderValue;

use crate::algorithm::Quota;
use crate::policy::{Policy, PolicyName, seconds_up};

/// The items of a policy.
#[derive(Clone)]
pub(super) struct PolicyItems {
    /// Its name as a string of a structured field: `"api"`.
    name: String,
    /// The items of `RateLimit-Policy`, `"api";q=100;w=60`, one for each of its quotas.
    quotas: Vec<(Quota, HeaderValue)>,
}

impl PolicyItems {
    /// Rendered for all quotas that the policy is made with.
    pub(super) fn new(policy: &Policy) -> PolicyItems {
        let mut items = PolicyItems::of_name(policy.name());
        items.quotas = policy.quotas().map(|quota| (*quota, items.rendered(quota))).collect();
        items
    }

    /// Nothing is rendered yet but the name.
    pub(super) fn of_name(name: &PolicyName) -> PolicyItems {
        // Names are printable ASCII: a structured field escapes what Rust does, `"` and `\` (RFC 9651, section 3.3.3).
        PolicyItems { name: format!("{:?}", name.as_str()), quotas: Vec::new() }
    }

    /// Of `RateLimit-Policy`. Items of a quota that was set at run time are rendered each time.
    pub(super) fn policy(&self, quota: &Quota) -> HeaderValue {
        // Whatever the boundaries of its windows.
        let numbers = |quota: &Quota| (quota.algorithm(), quota.rate(), quota.period(), quota.limit());
        let known = self.quotas.iter().find(|(known, _)| numbers(known) == numbers(quota));
        known.map_or_else(|| self.rendered(quota), |(_, item)| item.clone())
    }

    fn rendered(&self, quota: &Quota) -> HeaderValue {
        value(format!("{};q={};w={}", self.name, quota.limit(), whole_seconds(quota.window())))
    }

    /// Of `RateLimit`: what remains, and for how many seconds, if that is told.
    pub(super) fn limit(&self, remaining: u64, seconds: Option<u64>) -> HeaderValue {
        let [mut left, mut time] = [itoa::Buffer::new(), itoa::Buffer::new()];
        let left = digits(&mut left, remaining);
        value(match seconds {
            Some(seconds) => [&self.name, ";r=", left, ";t=", digits(&mut time, seconds)].concat(),
            None => [&self.name, ";r=", left].concat(),
        })
    }
}

/// Seconds for a header: rounded up, since coming back early is coming back refused; at least 1, since 0 invites a
/// client to try again at once.
pub(super) fn whole_seconds(duration: Duration) -> u64 {
    seconds_up(duration).clamp(1, Quota::MAX_TOKENS)
}

/// Of an integer of a structured field, which has at most 15 digits.
fn digits(buffer: &mut itoa::Buffer, number: u64) -> &str {
    buffer.format(number.min(Quota::MAX_TOKENS))
}

/// A number by itself.
pub(super) fn number(number: u64) -> HeaderValue {
    value(itoa::Buffer::new().format(number).to_owned())
}

/// A field's value, of printable ASCII characters.
pub(super) fn value(item: String) -> HeaderValue {
    // A policy's name has only printable ASCII characters; if that ever changed, no header is better than a panic.
    HeaderValue::try_from(item).unwrap_or(HeaderValue::from_static("\"\";q=0"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::{DAY, MINUTE};

    #[test]
    fn q_is_the_capacity_and_w_the_time_to_refill_it() {
        for (quota, text) in [
            (Quota::token_bucket(100, MINUTE), "\"api\";q=100;w=60"),
            (Quota::token_bucket(10, MINUTE).capacity(20), "\"api\";q=20;w=120"),
            (Quota::token_bucket(7, Duration::from_millis(1500)), "\"api\";q=7;w=2"),
            (Quota::token_bucket(1000, Duration::from_micros(1)), "\"api\";q=1000;w=1"),
            (Quota::fixed_window(1000, DAY), "\"api\";q=1000;w=86400"),
        ] {
            assert_eq!(PolicyItems::of_name(&PolicyName::new("api")).policy(&quota), text);
        }
    }

    #[test]
    fn each_quota_has_an_item_that_is_rendered_once() {
        let (free, pro) = (Quota::token_bucket(10, MINUTE), Quota::token_bucket(100, MINUTE));
        let items = PolicyItems::new(&Policy::new("api", free).tier("pro", pro));
        for (quota, text) in [(free, "\"api\";q=10;w=60"), (pro, "\"api\";q=100;w=60")] {
            let item = items.policy(&quota);
            assert_eq!(item, text);
            let is_kept = |known: &HeaderValue| std::ptr::eq(known.as_bytes(), item.as_bytes());
            assert!(items.quotas.iter().any(|(_, known)| is_kept(known)), "{text}: anew");
        }
        // One that came with an override is written when it is needed.
        let other = Quota::token_bucket(7, MINUTE);
        assert_eq!(
            (items.policy(&other), items.limit(3, None)),
            (value(r#""api";q=7;w=60"#.into()), value(r#""api";r=3"#.into()))
        );
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
        let item = PolicyItems::of_name(&name).policy(&Quota::token_bucket(1, MINUTE));
        assert_eq!(item, r#""a\"b\\c";q=1;w=60"#);
        let list: sfv::List = sfv::Parser::new(item.as_bytes()).parse().unwrap();
        let sfv::ListEntry::Item(item) = &list[0] else { panic!() };
        assert_eq!(item.bare_item.as_string().map(|text| text.as_str()), Some(name.as_str()));
    }

    #[test]
    fn names_of_any_length_are_written_whole() {
        for length in [1, 26, 27, 28, 29, 127, 128] {
            for letter in ["a", "\\"] {
                let name = letter.repeat(length);
                let item = PolicyItems::of_name(&PolicyName::try_new(name.clone()).expect("a name"));
                let name = name.replace('\\', "\\\\");
                assert_eq!(item.limit(u64::MAX, Some(u64::MAX)), format!("\"{name}\";r={0};t={0}", Quota::MAX_TOKENS));
                assert_eq!(item.limit(0, None), format!("\"{name}\";r=0"));
            }
        }
        assert_eq!(Quota::MAX_TOKENS.to_string().len(), 15, "what there is room for");
    }
}
