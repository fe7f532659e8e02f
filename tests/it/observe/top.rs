//! `Top` reports the heaviest keys of each policy. It shows key texts only for policies passed to `show_keys`.

use std::sync::Arc;

use tollgate::observe::{Top, TopKey};
use tollgate::policy::{DecidedBy, Enforce};
use tollgate::{
    Charge, HOUR, Key, Policy, Quota, RateLimiter, Subject, key,
    protection::{DenyList, DenyRule, Signal},
};

use super::backends::FlakyBackend;

static TWO: Policy = Policy::new("two", Quota::token_bucket(2, HOUR));
static ONE: Policy = Policy::new("one", Quota::token_bucket(1, HOUR));

fn limiter_with(top: Top) -> (RateLimiter, Arc<Top>) {
    let top = Arc::new(top);
    (FlakyBackend::new().limiter().observer(Arc::clone(&top)).build(), top)
}

/// Returns the numbers of requested and refused charges for a key under `policy`.
fn counts(limiter: &RateLimiter, top: &Top, policy: &Policy, key: impl Into<Key>) -> (u64, u64) {
    let digest = limiter.digest(Some(&key.into()));
    let count = |keys: &[TopKey]| keys.iter().find(|key| key.digest() == digest).map_or(0, TopKey::count);
    (count(top.requested(policy.name(), 100).keys()), count(top.refused(policy.name(), 100).keys()))
}

#[tokio::test]
async fn keys_are_sorted_by_count_and_checks_are_not_counted() {
    let (limiter, top) = limiter_with(Top::new());
    for (key, times) in [("ada", 3), ("bob", 5), ("eve", 2)] {
        for _ in 0..times {
            drop(limiter.try_limit(&TWO, key).await.unwrap());
            drop(limiter.try_check(&TWO, key).await.unwrap());
        }
    }
    let requested = top.requested(TWO.name(), 2);
    assert_eq!(requested.keys().iter().map(TopKey::count).collect::<Vec<_>>(), [5, 3]);
    assert_eq!((requested.total(), requested.max_error()), (10, 0));
    let refused = top.refused(TWO.name(), 10);
    assert_eq!(refused.keys().iter().map(TopKey::count).collect::<Vec<_>>(), [3, 1]);
    assert_eq!(refused.keys()[0].digest(), limiter.digest(Some(&Key::from("bob"))));
    assert_eq!(refused.total(), 4);
    assert!(top.requested(ONE.name(), 10).keys().is_empty());
    top.clear();
    assert_eq!((top.requested(TWO.name(), 10).total(), top.refused(TWO.name(), 10).keys().len()), (0, 0));
}

#[tokio::test]
async fn a_charge_counts_as_refused_only_under_the_policy_that_denied_it() {
    let (limiter, top) = limiter_with(Top::new());
    for _ in 0..2 {
        drop(limiter.try_limit_all([Charge::new(&TWO, "ada"), Charge::new(&ONE, "ada")]).await.unwrap());
    }
    assert_eq!(counts(&limiter, &top, &TWO, "ada"), (2, 0));
    assert_eq!(counts(&limiter, &top, &ONE, "ada"), (2, 1));
}

#[tokio::test]
async fn every_kind_of_denial_counts_as_refused() {
    static SHADOW: std::sync::LazyLock<Policy> =
        std::sync::LazyLock::new(|| Policy::new("shadow", Quota::token_bucket(1, HOUR)).enforce(Enforce::Never));
    let top = Arc::new(Top::new());
    let list = DenyList::from_iter([DenyRule::key("mallory")]);
    let limiter = FlakyBackend::new().limiter().block_cache(100).deny_list(&list).observer(Arc::clone(&top)).build();
    limiter.block(Signal::key("eve"), HOUR).await.unwrap();
    for key in ["mallory", "eve"] {
        drop(limiter.try_limit(&TWO, key).await.unwrap());
        assert_eq!(counts(&limiter, &top, &TWO, key), (1, 1), "{key}");
    }
    for _ in 0..3 {
        assert!(limiter.try_limit(&SHADOW, "ada").await.unwrap().is_allowed());
    }
    assert_eq!(counts(&limiter, &top, &SHADOW, "ada"), (3, 2));
    let mut decided_by = Vec::new();
    for _ in 0..3 {
        decided_by.push(limiter.try_limit(&ONE, "bob").await.unwrap().decided_by());
    }
    assert_eq!(decided_by[2], DecidedBy::BlockCache);
    assert_eq!(counts(&limiter, &top, &ONE, "bob"), (3, 2));
}

#[tokio::test]
async fn all_shards_of_a_key_count_as_one_key() {
    let policy = Policy::new("busy", Quota::token_bucket(64, HOUR).shards(8));
    let (limiter, top) = limiter_with(Top::new());
    for _ in 0..100 {
        drop(limiter.try_limit(&policy, "ada").await.unwrap());
    }
    assert_eq!(top.requested(policy.name(), 10).keys().len(), 1);
    let (requested, refused) = counts(&limiter, &top, &policy, "ada");
    assert!(requested == 100 && (36..=60).contains(&refused), "{requested} {refused}");
}

#[tokio::test]
async fn the_text_of_a_key_is_shown_only_if_the_policy_shows_keys() {
    let (limiter, top) = limiter_with(Top::new().show_keys([&TWO]));
    let long = "ä".repeat(100);
    // These keys contain credentials, so their text is never shown.
    let credentials = [key::bearer().key("hunter2"), key::header("x-api-key").key("hunter2")];
    let inside = Key::from((key::cookie("session").key("hunter2"), 7));
    let shown = [Key::from("hunter2"), Key::from(long.as_str()), Key::from(("hunter2", 7))];
    for key in credentials.iter().chain([&inside]).chain(&shown) {
        for policy in [&ONE, &TWO] {
            for _ in 0..4 {
                drop(limiter.try_limit(policy, key).await.unwrap());
            }
        }
    }
    for list in [top.requested(TWO.name(), 10), top.refused(TWO.name(), 10)] {
        let mut texts: Vec<_> = list.keys().iter().map(TopKey::text).collect();
        texts.sort();
        let short = format!("\"{}…", "ä".repeat(63));
        assert_eq!(texts, [None, None, None, Some("\"hunter2\""), Some(&*short), Some("(\"hunter2\", 7)")]);
        assert!(!format!("{list:?} {top:?}").contains("hunter2"));
    }
    assert!(top.requested(ONE.name(), 10).keys().iter().all(|key| key.text().is_none()));
}

#[tokio::test]
async fn callers_without_a_key_are_listed_as_the_anonymous_key() {
    let (limiter, top) = limiter_with(Top::new().show_keys([&TWO]));
    for _ in 0..2 {
        drop(limiter.try_limit(&TWO, Subject::anonymous()).await.unwrap());
    }
    let requested = top.requested(TWO.name(), 10);
    assert_eq!((requested.keys()[0].digest(), requested.keys()[0].text()), (limiter.digest(None), Some("anonymous")));
}

#[tokio::test]
async fn a_key_that_takes_over_a_counter_does_not_keep_the_text_of_the_previous_key() {
    let (limiter, top) = limiter_with(Top::new().max_keys(8).show_keys([&TWO]));
    for key in 0..1000 {
        for _ in 0..2 {
            drop(limiter.try_limit(&TWO, key).await.unwrap());
        }
    }
    let requested = top.requested(TWO.name(), 100);
    assert_eq!(requested.keys().len(), 8);
    for key in requested.keys() {
        let text: Key = key.text().expect("expected the key's text").parse().unwrap();
        assert_eq!(limiter.digest(Some(&text)), key.digest());
        assert!(key.count() - key.max_error() == 2, "{key:?}");
    }
}

#[tokio::test]
async fn policies_after_the_first_512_are_counted_together() {
    let (limiter, top) = limiter_with(Top::new());
    let policy = |number: usize| Policy::try_new(format!("customer-{number}"), Quota::token_bucket(1, HOUR)).unwrap();
    for number in 0..600 {
        drop(limiter.try_limit(&policy(number), "ada").await.unwrap());
    }
    assert_eq!(counts(&limiter, &top, &policy(511), "ada"), (1, 0));
    assert_eq!(counts(&limiter, &top, &policy(512), "ada"), (600 - 512, 0));
}

#[tokio::test]
async fn show_keys_applies_per_policy_even_if_policies_are_counted_together() {
    let policy = |name: String| Policy::try_new(name, TWO.quotas()[0]).unwrap();
    let (shown, hidden) = (policy("shown".to_owned()), policy("hidden".to_owned()));
    let (limiter, top) = limiter_with(Top::new().show_keys([&shown]));
    for number in 0..512 {
        drop(limiter.try_limit(&policy(format!("policy-{number}")), 1).await.unwrap());
    }
    for policy in [&hidden, &shown, &shown] {
        drop(limiter.try_limit(policy, "ada").await.unwrap());
    }
    assert_eq!(top.requested(shown.name(), 1).keys()[0].text(), Some("\"ada\""));
    assert_eq!(top.requested(hidden.name(), 1).keys()[0].text(), None);
}

#[test]
fn charges_from_eight_threads_are_all_counted() {
    let top = Arc::new(Top::new());
    let limiter = RateLimiter::builder(tollgate::MemoryBackend::new()).observer(Arc::clone(&top)).build();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for call in 0..10_000 {
                    drop(limiter.limit_now(&TWO, call % 100));
                }
            });
        }
    });
    for key in 0..100 {
        assert_eq!(counts(&limiter, &top, &TWO, key), (800, 798), "{key}");
    }
    assert_eq!(top.requested(TWO.name(), 1).total(), 80_000);
}
