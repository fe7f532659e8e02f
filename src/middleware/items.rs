//! A policy's items in the lists `RateLimit-Policy` and `RateLimit`, with the constant parts rendered once.

use std::time::Duration;

use http::HeaderValue;

use crate::algorithm::Quota;
use crate::policy::{Policy, PolicyName, seconds_up};

#[derive(Clone)]
pub(super) struct PolicyItems {
    /// The name as a structured field string: `"api"`.
    name: String,
    /// The `RateLimit-Policy` item of each quota: `"api";q=100;w=60`.
    quotas: Vec<(Quota, HeaderValue)>,
}

impl PolicyItems {
    pub(super) fn new(policy: &Policy) -> PolicyItems {
        let mut items = PolicyItems::of_name(policy.name());
        items.quotas = policy.quotas().map(|quota| (*quota, items.rendered(quota))).collect();
        items
    }

    pub(super) fn of_name(name: &PolicyName) -> PolicyItems {
        // In printable ASCII, structured fields and Rust escape the same characters: `"` and `\` (RFC 9651, section 3.3.3).
        PolicyItems { name: format!("{:?}", name.as_str()), quotas: Vec::new() }
    }

    /// Returns the `RateLimit-Policy` item. The item for a quota set at run time is rendered on every call.
    pub(super) fn policy(&self, quota: &Quota) -> HeaderValue {
        // The start of the windows is not part of the item.
        let numbers = |quota: &Quota| (quota.algorithm(), quota.rate(), quota.period(), quota.get_capacity());
        let known = self.quotas.iter().find(|(known, _)| numbers(known) == numbers(quota));
        known.map_or_else(|| self.rendered(quota), |(_, item)| item.clone())
    }

    fn rendered(&self, quota: &Quota) -> HeaderValue {
        header_value(format!("{};q={};w={}", self.name, quota.get_capacity(), whole_seconds(quota.window())))
    }

    /// Returns the `RateLimit` item: the remaining tokens and, if given, the seconds.
    pub(super) fn limit(&self, remaining: u64, seconds: Option<u64>) -> HeaderValue {
        let [mut r, mut t] = [itoa::Buffer::new(), itoa::Buffer::new()];
        let r = digits(&mut r, remaining);
        header_value(match seconds {
            Some(seconds) => [&self.name, ";r=", r, ";t=", digits(&mut t, seconds)].concat(),
            None => [&self.name, ";r=", r].concat(),
        })
    }
}

/// Converts a wait to seconds for a header: rounded up, since an early retry is refused, and at least 1, since 0
/// invites an immediate retry.
pub(super) fn whole_seconds(duration: Duration) -> u64 {
    seconds_up(duration).clamp(1, Quota::MAX_TOKENS)
}

/// Formats a structured-field integer, which has at most 15 digits.
fn digits(buffer: &mut itoa::Buffer, number: u64) -> &str {
    buffer.format(number.min(Quota::MAX_TOKENS))
}

pub(super) fn number(number: u64) -> HeaderValue {
    header_value(itoa::Buffer::new().format(number).to_owned())
}

pub(super) fn header_value(item: String) -> HeaderValue {
    // Cannot fail, since policy names are printable ASCII; an empty item is better than a panic.
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
            assert!(items.quotas.iter().any(|(_, known)| is_kept(known)), "{text} was rendered again");
        }
        let other = Quota::token_bucket(7, MINUTE);
        assert_eq!(
            (items.policy(&other), items.limit(3, None)),
            (header_value(r#""api";q=7;w=60"#.into()), header_value(r#""api";r=3"#.into()))
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
    fn names_of_any_length_are_written_in_full() {
        for length in [1, 26, 27, 28, 29, 127, 128] {
            for letter in ["a", "\\"] {
                let name = letter.repeat(length);
                let item = PolicyItems::of_name(&PolicyName::try_new(name.clone()).expect("a name"));
                let name = name.replace('\\', "\\\\");
                assert_eq!(item.limit(u64::MAX, Some(u64::MAX)), format!("\"{name}\";r={0};t={0}", Quota::MAX_TOKENS));
                assert_eq!(item.limit(0, None), format!("\"{name}\";r=0"));
            }
        }
        assert_eq!(Quota::MAX_TOKENS.to_string().len(), 15, "the limit of structured field integers");
    }
}
