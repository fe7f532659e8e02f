//! A policy's items in the `RateLimit-Policy` and `RateLimit` headers. Their constant parts are rendered only once.

use std::time::Duration;

use http::HeaderValue;

use crate::algorithm::Quota;
use crate::policy::{Decision, Policy, limit_name, seconds_up};

/// The items of a policy, each with its quota and whether the quota is one of several.
#[derive(Clone)]
pub(super) struct PolicyItems(Vec<(Quota, bool, Item)>);

/// The constant parts of a quota's `RateLimit` and `RateLimit-Policy` items.
#[derive(Clone)]
pub(super) struct Item {
    /// The name as a structured field string: `"api"`, or `"api;10s"` if the policy has several quotas.
    name: String,
    /// The `RateLimit-Policy` item: `"api";q=100;w=60`.
    policy: HeaderValue,
}

impl PolicyItems {
    pub(super) fn new(policy: &Policy) -> PolicyItems {
        let items = policy.lists().flat_map(|list| {
            let item = move |quota: &Quota| Item::new(&limit_name(policy.name(), quota, list.len()), quota);
            list.iter().map(move |quota| (*quota, list.len() > 1, item(quota)))
        });
        PolicyItems(items.collect())
    }

    /// Returns the item for a decision, or `None` if the decision's quota was set at run time or came from the caller.
    pub(super) fn of(&self, decision: &Decision) -> Option<&Item> {
        // The start of the windows is ignored here because it is not part of the item.
        let numbers = |quota: &Quota| (quota.algorithm(), quota.rate(), quota.period(), quota.get_capacity());
        let quota = numbers(&decision.quota());
        let has_several = decision.of().part.count > 1;
        let is_of = |(known, several, _): &&(Quota, bool, Item)| numbers(known) == quota && *several == has_several;
        self.0.iter().find(is_of).map(|(_, _, item)| item)
    }
}

impl Item {
    pub(super) fn of(decision: &Decision) -> Item {
        Item::new(&decision.name(), &decision.quota())
    }

    fn new(name: &str, quota: &Quota) -> Item {
        // In printable ASCII, structured field strings and `{:?}` escape the same characters (RFC 9651, section 3.3.3).
        let name = format!("{name:?}");
        let policy = format!("{name};q={};w={}", quota.get_capacity(), whole_seconds(quota.window()));
        Item { policy: header_value(policy), name }
    }

    pub(super) fn policy(&self) -> HeaderValue {
        self.policy.clone()
    }

    /// Returns the `RateLimit` item, which contains `remaining` and, if given, `seconds`.
    pub(super) fn limit(&self, remaining: u64, seconds: Option<u64>) -> HeaderValue {
        let [mut r, mut t] = [itoa::Buffer::new(), itoa::Buffer::new()];
        let r = digits(&mut r, remaining);
        header_value(match seconds {
            Some(seconds) => [&self.name, ";r=", r, ";t=", digits(&mut t, seconds)].concat(),
            None => [&self.name, ";r=", r].concat(),
        })
    }
}

/// Rounds up to whole seconds (at least 1), since a client that retries too early is refused again.
pub(super) fn whole_seconds(duration: Duration) -> u64 {
    seconds_up(duration).clamp(1, Quota::MAX_TOKENS)
}

/// Formats a structured field integer, which can have at most 15 digits.
fn digits(buffer: &mut itoa::Buffer, number: u64) -> &str {
    buffer.format(number.min(Quota::MAX_TOKENS))
}

pub(super) fn number(number: u64) -> HeaderValue {
    header_value(itoa::Buffer::new().format(number).to_owned())
}

pub(super) fn header_value(item: String) -> HeaderValue {
    // This cannot fail, since policy names are printable ASCII. If it did, an empty item would be better than a panic.
    HeaderValue::try_from(item).unwrap_or(HeaderValue::from_static("\"\";q=0"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::{Ask, DAY, MINUTE, Micros, SECOND, State, step};
    use crate::policy::{ChargedQuota, Digest, Part, PolicyName};

    fn decision(quota: Quota, part: Part) -> Decision {
        let (policy, key) = (PolicyName::new("api"), Digest::from_bits(0));
        let step = step(&quota, &State::default(), Micros::new(1), Ask::cost(1));
        Decision::new(ChargedQuota { policy, row_key: key, quota, cost: 1, window: part.index, part }, step, true)
    }

    #[test]
    fn q_is_the_capacity_and_w_is_the_time_to_refill_it() {
        for (quota, text) in [
            (Quota::token_bucket(100, MINUTE), "\"api\";q=100;w=60"),
            (Quota::token_bucket(10, MINUTE).capacity(20), "\"api\";q=20;w=120"),
            (Quota::token_bucket(7, Duration::from_millis(1500)), "\"api\";q=7;w=2"),
            (Quota::token_bucket(1000, Duration::from_micros(1)), "\"api\";q=1000;w=1"),
            (Quota::fixed_window(1000, DAY), "\"api\";q=1000;w=86400"),
        ] {
            assert_eq!(Item::new("api", &quota).policy(), text);
        }
    }

    #[test]
    fn each_quota_of_a_policy_has_a_prepared_item() {
        let (free, pro) = (Quota::token_bucket(10, MINUTE), Quota::token_bucket(100, MINUTE));
        let items = PolicyItems::new(&Policy::new("api", free).tier("pro", pro));
        for (quota, text) in [(free, "\"api\";q=10;w=60"), (pro, "\"api\";q=100;w=60")] {
            let item = items.of(&decision(quota, Part::WHOLE)).expect("an item");
            assert_eq!(item.policy(), text);
        }
        let other = decision(Quota::token_bucket(7, MINUTE), Part::WHOLE);
        assert!(items.of(&other).is_none());
        assert_eq!(
            (Item::of(&other).policy(), Item::of(&other).limit(3, None)),
            (header_value(r#""api";q=7;w=60"#.into()), header_value(r#""api";r=3"#.into()))
        );
    }

    #[test]
    fn quotas_that_apply_together_are_named_by_their_periods() {
        let (burst, daily) = (Quota::token_bucket(10, 10 * SECOND), Quota::fixed_window(1000, DAY));
        let items = PolicyItems::new(&Policy::new("api", burst).and(daily).tier("free", burst));
        let both = |index| Part { index, count: 2, ..Part::WHOLE };
        for (quota, part, text) in [
            (burst, both(0), "\"api;10s\";q=10;w=10"),
            (daily, both(1), "\"api;1d\";q=1000;w=86400"),
            (burst, Part::WHOLE, "\"api\";q=10;w=10"),
        ] {
            let decision = decision(quota, part);
            assert_eq!(items.of(&decision).expect("an item").policy(), text);
            assert_eq!(Item::of(&decision).policy(), text);
        }
    }

    #[test]
    fn retry_after_is_rounded_up_and_never_zero() {
        for (micros, seconds) in [(0, 1), (1, 1), (999_999, 1), (1_000_000, 1), (1_000_001, 2), (5_000_001, 6)] {
            assert_eq!(whole_seconds(Duration::from_micros(micros)), seconds);
        }
        assert_eq!(whole_seconds(Duration::MAX), Quota::MAX_TOKENS);
    }

    #[test]
    fn names_are_quoted_as_structured_field_strings() {
        let name = PolicyName::new("a\"b\\c");
        let item = Item::new(name.as_str(), &Quota::token_bucket(1, MINUTE)).policy();
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
                let item = Item::new(&name, &Quota::token_bucket(1, MINUTE));
                let name = name.replace('\\', "\\\\");
                assert_eq!(item.limit(u64::MAX, Some(u64::MAX)), format!("\"{name}\";r={0};t={0}", Quota::MAX_TOKENS));
                assert_eq!(item.limit(0, None), format!("\"{name}\";r=0"));
            }
        }
        assert_eq!(Quota::MAX_TOKENS.to_string().len(), 15, "structured field integers have at most 15 digits");
    }
}
