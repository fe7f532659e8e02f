//! Quotas that are set while they are in use: whose goes first, what carries over, what is refused.

use std::error::Error as _;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tollgate::{HOUR, MINUTE, Policy, Quota, RateLimiter, SECOND, Subject, clock::ManualClock, limiter::SetQuotaError};

use crate::app::{API, US, behind};
use crate::client::serve;
use crate::store::Store;
use crate::support::now;

const fn tens(tokens: u64) -> Quota {
    Quota::token_bucket(tokens, MINUTE)
}

fn limiter() -> (RateLimiter, ManualClock) {
    let clock = ManualClock::new();
    (RateLimiter::new(Store::near(&clock)), clock)
}

#[test]
fn a_key_goes_before_its_tier_a_tier_before_everybody_and_none_puts_back_what_was_under_it() {
    let (limiter, _clock) = limiter();
    let api = Policy::new("api", tens(100)).tier("free", tens(10));
    let limits = || {
        let limit = |subject: Subject| {
            now(limiter.try_check(&api, subject.clone())).capacity().min(limiter.quota(&api, subject).limit())
        };
        let free = |key: &str| Subject::new(key).tier("free");
        [
            limit("bob".into()),
            limit(free("bob")),
            limit("ada".into()),
            limit(free("ada")),
            limit(Subject::new("bob").tier("gold")),
        ]
    };
    assert_eq!(limits(), [100, 10, 100, 10, 100]);
    now(limiter.set_quota(&api, Some(tens(50))));
    assert_eq!(limits(), [50, 50, 50, 50, 50], "for all its callers, whatever their tier");
    now(limiter.set_tier_quota(&api, "free", Some(tens(20))));
    assert_eq!(limits(), [50, 20, 50, 20, 50]);
    now(limiter.set_key_quota(&api, "ada", Some(tens(7))));
    assert_eq!(limits(), [50, 20, 7, 7, 50]);
    assert_eq!(limiter.stats().changed_quotas, 3);
    now(limiter.set_quota(&api, None));
    assert_eq!(limits(), [100, 20, 7, 7, 100]);
    now(limiter.set_key_quota(&api, "ada", None));
    assert_eq!(limits(), [100, 20, 100, 20, 100]);
    now(limiter.set_tier_quota(&api, "free", None));
    assert_eq!(limits(), [100, 10, 100, 10, 100]);
    // Nothing is there to be put back.
    now(limiter.set_quota(&api, None));
    now(limiter.set_key_quota(&api, Subject::anonymous(), None));
    assert_eq!(limiter.stats().changed_quotas, 0);
    // It goes by the policy's name, and no other policy is touched.
    now(limiter.set_quota(&api, Some(tens(3))));
    assert_eq!(limiter.quota(&API, "ada").limit(), 3);
    assert_eq!(limiter.quota(&Policy::new("other", tens(9)), "ada").limit(), 9);
    // Those without a key have one of their own.
    now(limiter.set_key_quota(&api, Subject::anonymous(), Some(tens(1))));
    assert_eq!((limiter.quota(&api, None::<u64>).limit(), limiter.quota(&api, "").limit()), (1, 3));
}

#[test]
fn what_was_spent_stays_spent() {
    let (limiter, clock) = limiter();
    drop(now(limiter.try_acquire(&API, "ada").cost(10).send()));
    // Up: the room is there at once, less what was spent.
    now(limiter.set_quota(&API, Some(tens(100))));
    assert_eq!(now(limiter.remaining(&API, "ada")), 90);
    drop(now(limiter.try_acquire(&API, "ada").cost(90).send()));
    // Down: paid back as the faster quota pays. 100 in a minute are down to 5, and so one of 6 is there, after 57 s.
    now(limiter.set_quota(&API, Some(tens(6))));
    assert_eq!(now(limiter.try_limit(&API, "ada")).retry_after(), Some(57 * SECOND));
    clock.advance(57 * SECOND - US);
    assert!(!now(limiter.try_check(&API, "ada")).is_allowed());
    clock.advance(US);
    assert!(now(limiter.try_limit(&API, "ada")).is_allowed());
    // Back again: what the row says, under the policy's own.
    now(limiter.set_quota(&API, None));
    assert_eq!(now(limiter.remaining(&API, "ada")), 4);
    clock.advance(36 * SECOND);
    assert_eq!(now(limiter.remaining(&API, "ada")), 10);
}

/// Two quotas that are set in turn, once a second each. Each change forgave what was spent beyond the new capacity, and
/// 56,519 requests were admitted in a minute.
#[test]
fn quotas_that_are_set_in_turn_admit_no_more_than_the_larger_one() {
    let (limiter, clock) = limiter();
    let mut admitted = 0;
    for second in 0..60 {
        now(limiter.set_quota(&API, Some(tens(if second % 2 == 0 { 60 } else { 1000 }))));
        while now(limiter.try_limit(&API, "ada")).is_allowed() {
            admitted += 1;
        }
        clock.advance(SECOND);
    }
    assert!((1900..=2000 + 1000).contains(&admitted), "{admitted}");
}

#[tokio::test]
async fn headers_show_the_quota_that_was_set() {
    let (limiter, _clock) = limiter();
    let client = behind(&limiter, &API).await;
    let shown = async |status| {
        let answer = client.get_as("ada").await;
        assert_eq!(answer.status, status);
        let [(_, q, w)] = answer.policies()[..] else { panic!("one policy") };
        (q, w, answer.limits()[0].1)
    };
    assert_eq!(shown(200).await, (10, 60, 9));
    now(limiter.set_quota(&API, Some(Quota::token_bucket(5, HOUR).capacity(20))));
    assert_eq!(shown(200).await, (20, 4 * 3600, 18));
    now(limiter.set_key_quota(&API, "ada", Some(tens(2))));
    assert_eq!(shown(429).await, (2, 60, 0));
    assert_eq!(client.get_as("bob").await.policies(), [("api".to_owned(), 20, 4 * 3600)]);
    now(limiter.set_key_quota(&API, "ada", None));
    now(limiter.set_quota(&API, None));
    assert_eq!(shown(200).await.0, 10);
}

#[test]
fn what_cannot_stand_in_a_quotas_place_is_refused_and_nothing_changes() {
    let (limiter, _clock) = limiter();
    let api = Policy::new("api", tens(100)).tier("free", tens(10));
    now(limiter.set_quota(&api, Some(tens(50))));
    let refused = |result: Result<(), SetQuotaError>| {
        let error = result.expect_err("refused");
        assert!(matches!(error, SetQuotaError::Quota(_)), "{error:?}");
        error.to_string()
    };
    let wait = |future: std::pin::Pin<Box<dyn Future<Output = Result<(), SetQuotaError>> + '_>>| {
        now(async { Ok::<_, ()>(future.await) })
    };
    let window = Some(Quota::fixed_window(10, MINUTE));
    let nothing = Some(tens(10).capacity(0));
    let told = refused(wait(Box::pin(limiter.set_quota(&api, window))));
    assert!(told.starts_with("policy \"api\": ") && told.contains("another algorithm"), "{told}");
    let told = refused(wait(Box::pin(limiter.set_key_quota(&api, "ada", Some(Quota::sliding_window(1, SECOND))))));
    assert!(told.contains("another algorithm"), "{told}");
    let told = refused(wait(Box::pin(limiter.set_quota(&api, nothing))));
    assert!(told.contains("\"api\"") && told.contains("capacity is 0"), "{told}");
    let told = refused(wait(Box::pin(limiter.set_tier_quota(&api, "gold", Some(tens(5))))));
    assert_eq!(told, "policy \"api\": unknown tier \"gold\"; the policy's tiers are [\"free\"]");
    let error = wait(Box::pin(limiter.set_tier_quota(&api, "free", nothing))).expect_err("refused");
    assert!(error.source().is_some(), "the cause is told too");
    assert_eq!(limiter.stats().changed_quotas, 1);
    assert_eq!(limiter.quota(&api, "ada").limit(), 50);
    assert_eq!(limiter.quota(&api, Subject::new("ada").tier("free")).limit(), 50);
}

#[test]
fn there_is_room_for_a_hundred_thousand_and_to_put_back() {
    let (limiter, _clock) = limiter();
    for key in 0..100_000u64 {
        now(limiter.set_key_quota(&API, key, Some(tens(1 + key))));
    }
    let full = now(async { Ok::<_, ()>(limiter.set_key_quota(&API, "ada", Some(tens(5))).await) });
    let error = full.expect_err("full");
    assert!(matches!(error, SetQuotaError::TooMany) && error.to_string().contains("100000"), "{error}");
    assert_eq!((limiter.stats().changed_quotas, limiter.quota(&API, "ada").limit()), (100_000, 10));
    assert_eq!(limiter.quota(&API, 77_777u64).limit(), 77_778);
    now(limiter.set_key_quota(&API, 5u64, None));
    now(limiter.set_key_quota(&API, "ada", Some(tens(5))));
    assert_eq!((limiter.stats().changed_quotas, limiter.quota(&API, 5u64).limit()), (100_000, 10));
}

#[test]
fn whoever_reads_meanwhile_sees_one_quota_or_the_other() {
    let clock = ManualClock::new();
    let limiter = RateLimiter::new(Store::near(&clock));
    let (done, content) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for reader in 0..3u64 {
            let (limiter, done, content) = (&limiter, &done, &content);
            scope.spawn(move || {
                let mut seen = [false; 2];
                while !done.load(Ordering::Relaxed) {
                    let decision = now(limiter.try_acquire(&API, reader).cost(0).send());
                    // Rate, capacity and period of one quota.
                    let quota = decision.quota();
                    let one = (quota.rate(), quota.limit(), quota.period()) == (10, 10, MINUTE);
                    let other = (quota.rate(), quota.limit(), quota.period()) == (7, 70, SECOND);
                    assert!(one || other, "{quota}");
                    if seen != [true; 2] {
                        seen = [seen[0] | one, seen[1] | other];
                        content.fetch_add(usize::from(seen == [true; 2]), Ordering::Relaxed);
                    }
                }
            });
        }
        let other = Quota::token_bucket(7, SECOND).capacity(70);
        // Until each has seen both, however busy the machine is.
        let mut changes = 0;
        while changes < 4000 || content.load(Ordering::Relaxed) < 3 && changes < 4_000_000 {
            now(limiter.set_quota(&API, (changes % 2 == 0).then_some(other)));
            std::thread::yield_now();
            changes += 1;
        }
        done.store(true, Ordering::Relaxed);
        now(limiter.set_quota(&API, None));
    });
    assert_eq!(content.load(Ordering::Relaxed), 3);
    assert_eq!(limiter.quota(&API, "ada"), *API.quota());
}

#[tokio::test]
async fn a_route_whose_quota_is_set_takes_it_in_the_middle_of_a_connection() {
    let (limiter, _clock) = limiter();
    let layer = tollgate::RateLimitLayer::new(&API, crate::app::user).limiter(&limiter);
    let client = serve(crate::client::hello().layer(layer)).await;
    for _ in 0..10 {
        assert_eq!(client.get_as("ada").await.status, 200);
    }
    assert_eq!(client.get_as("ada").await.status, 429);
    now(limiter.set_quota(&API, Some(tens(12))));
    assert_eq!(client.get_as("ada").await.status, 200);
    assert_eq!(client.get_as("ada").await.status, 200);
    assert_eq!(client.get_as("ada").await.status, 429);
}

/// A tier that another version of the program had kept the quota that was set for it, and nobody could take that back.
#[test]
fn the_quota_of_a_tier_that_is_gone_counts_for_nobody_and_can_be_taken_back() {
    let (limiter, _clock) = limiter();
    let before = Policy::new("api", tens(100)).tier("premium", tens(200));
    let api = Policy::new("api", tens(100));
    now(limiter.set_tier_quota(&before, "premium", Some(tens(300))));
    assert_eq!(limiter.quota(&api, Subject::new("ada").tier("premium")).limit(), 100);
    now(limiter.set_quota(&api, Some(tens(40))));
    assert_eq!(limiter.quota(&api, Subject::new("ada").tier("premium")).limit(), 40);
    now(limiter.set_tier_quota(&api, "premium", None));
    assert_eq!(limiter.stats().changed_quotas, 1);
}

/// A key's quota of another algorithm, which an earlier version of the policy had, hid what was set for all.
#[test]
fn a_quota_of_another_algorithm_hides_no_other() {
    let (limiter, _clock) = limiter();
    let before = Policy::new("api", tens(100)).tier("free", tens(50));
    now(limiter.set_key_quota(&before, "ada", Some(tens(9))));
    now(limiter.set_tier_quota(&before, "free", Some(tens(8))));
    let api = Policy::new("api", Quota::fixed_window(100, HOUR)).tier("free", Quota::fixed_window(60, HOUR));
    now(limiter.set_quota(&api, Some(Quota::fixed_window(5, HOUR))));
    assert_eq!(limiter.quota(&api, Subject::new("ada").tier("free")).limit(), 5);
}
