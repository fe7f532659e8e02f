//! Tests of limiters: tiers, digests, calls with several charges, and `limit_now`.

use super::*;
use crate::algorithm::{MINUTE, Quota, Steps};
use crate::backend::{ErrorKind, Take};
use crate::clock::ManualClock;
use crate::policy::{DenyRule, Reason, Secret};

static API: Policy = Policy::new("api", Quota::token_bucket(10, MINUTE));

fn limiter() -> (RateLimiter, ManualClock) {
    let clock = ManualClock::new();
    (RateLimiter::new(MemoryBackend::builder().clock(clock.clone()).build()), clock)
}

#[tokio::test]
async fn spent_tokens_stay_spent_when_the_tier_changes() {
    let (limiter, clock) = limiter();
    let api = API.clone().tier("premium", Quota::token_bucket(100, MINUTE));
    let (free, premium) = (Subject::new(7), Subject::new(7).tier("premium"));
    for _ in 0..10 {
        assert!(limiter.try_limit(&api, free.clone()).await.unwrap().is_allowed());
    }
    assert!(!limiter.try_limit(&api, free.clone()).await.unwrap().is_allowed());
    let upgraded = limiter.try_limit(&api, premium.clone()).await.unwrap();
    assert_eq!((upgraded.capacity(), upgraded.remaining()), (100, 89));
    // Tokens are refilled at the rate of the faster quota.
    clock.advance(MINUTE);
    assert_eq!(limiter.remaining(&api, free).await.unwrap(), 10);
}

#[tokio::test]
async fn a_key_has_the_same_digest_in_decisions_and_rows() {
    let window = Policy::new("window", Quota::fixed_window(10, MINUTE));
    let key = Key::from("ada");
    let secret = Secret::new([7; 16]);
    let open = RateLimiter::builder(MemoryBackend::new()).secret(secret).build();
    let boxed = RateLimiter::new(Box::new(MemoryBackend::new()) as Box<dyn Backend>);
    let (limiter, _clock) = limiter();
    for limiter in [&limiter, &open, &boxed] {
        let decision = limiter.try_limit(&window, "ada").await.unwrap();
        assert_eq!(decision.key(), limiter.digest(Some(&key)));
        assert_eq!(limiter.digest(None), limiter.digest(Some(&Key::anonymous())));
        let row = RowId { policy: window.name(), key: limiter.row_key(Some(&key)) };
        assert_eq!(decision.quota(), window.quotas()[0].seeded(row.digest().seed()));
    }
    assert_ne!(limiter.digest(Some(&key)), RateLimiter::default().digest(Some(&key)));
    assert_eq!(open.digest(Some(&key)), secret.digest(&key));
}

#[tokio::test]
async fn a_denied_call_reports_which_charge_exceeded_its_quota() {
    let (limiter, _clock) = limiter();
    let tight = Policy::new("tight", Quota::token_bucket(1, MINUTE));
    limiter.limit(&tight, 1).await.unwrap();
    let decisions = limiter.try_limit_all([Charge::new(&API, 1), Charge::new(&tight, 1)]).await.unwrap();
    let reasons: Vec<_> = decisions.iter().map(|decision| decision.reason()).collect();
    assert_eq!(reasons, [Reason::RefusedElsewhere, Reason::QuotaExceeded]);
    assert_eq!(decisions.iter().next().unwrap().remaining(), 10);
    assert_eq!(decisions.retry_after(), Some(MINUTE));
}

#[tokio::test]
async fn a_row_that_occurs_twice_in_one_call_is_charged_twice() {
    let (limiter, _clock) = limiter();
    let api = &API;
    let charge = || Charge::new(api, 1).cost(4);
    assert!(limiter.try_limit_all([charge(), charge()]).await.unwrap().is_allowed());
    let denied = limiter.try_limit_all([Charge::new(&API, 1).cost(2), Charge::new(&API, 1)]).await.unwrap();
    assert!(!denied.is_allowed());
    assert_eq!(limiter.remaining(&API, 1).await.unwrap(), 2);
}

#[tokio::test]
async fn anonymous_callers_share_one_bucket() {
    let (limiter, _clock) = limiter();
    limiter.limit(&API, Subject::anonymous()).await.unwrap();
    limiter.limit(&API, None::<u64>).await.unwrap();
    assert_eq!(limiter.remaining(&API, Subject::anonymous()).await.unwrap(), 8);
    assert_eq!(limiter.remaining(&API, "").await.unwrap(), 10);
}

#[tokio::test]
async fn a_snapshot_predicts_the_tokens_available_later() {
    let (limiter, clock) = limiter();
    limiter.acquire(&API, 1).cost(10).await.unwrap();
    let snapshot = limiter.snapshot(&API, 1).await.unwrap().remove(0);
    assert_eq!(snapshot.available(snapshot.now()), 0);
    assert_eq!(snapshot.available(snapshot.now() + MINUTE / 2), 5);
    clock.advance(MINUTE / 2);
    assert_eq!(limiter.remaining(&API, 1).await.unwrap(), 5);
}

#[derive(Debug)]
struct ClaimsRemote(MemoryBackend);

impl Backend for ClaimsRemote {
    fn acquire(&self, takes: &[Take<'_>]) -> BackendFuture<Steps> {
        self.0.acquire(takes)
    }

    fn peek(&self, takes: &[Take<'_>]) -> BackendFuture<Steps> {
        self.0.peek(takes)
    }

    fn settle(&self, settlements: &[crate::backend::Adjustment<'_>]) -> BackendFuture<bool> {
        self.0.settle(settlements)
    }

    fn reset(&self, rows: &[RowId<'_>]) -> BackendFuture<usize> {
        self.0.reset(rows)
    }

    fn is_remote(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn limit_now_works_only_with_backends_in_this_process() {
    let one = Policy::new("one", Quota::token_bucket(1, MINUTE));
    let backends: [Box<dyn Backend>; 3] = [
        Box::new(MemoryBackend::new()),
        Box::new(Arc::new(MemoryBackend::new())),
        Box::new(Box::new(MemoryBackend::new()) as Box<dyn Backend>),
    ];
    for backend in backends {
        let limiter = RateLimiter::new(backend);
        assert!(limiter.limit_now(&one, 7).is_ok());
        assert!(matches!(limiter.limit_now(&one, 7), Err(LimitError::Denied(_))));
    }
    let remote = RateLimiter::new(ClaimsRemote(MemoryBackend::new()));
    assert!(
        matches!(remote.limit_now(&one, 7), Err(LimitError::Backend(error)) if error.kind() == ErrorKind::Unsupported)
    );
    assert!(
        remote.try_limit(&one, 7).await.unwrap().is_allowed(),
        "`limit_now` must not spend anything on a remote backend"
    );
}

#[tokio::test]
async fn limit_now_applies_deny_lists_the_block_cache_and_runtime_quotas() {
    let one = Policy::new("one", Quota::token_bucket(1, MINUTE));
    let list = DenyList::from_iter([DenyRule::key("mallory")]);
    let local = RateLimiter::builder(MemoryBackend::new()).deny_list(&list).build();
    let remote = RateLimiter::builder(ClaimsRemote(MemoryBackend::new())).deny_list(&list).build();
    for limiter in [&local, &remote] {
        let denied = limiter.limit_now(&one, "mallory").unwrap_err();
        let LimitError::Denied(denied) = denied else { panic!("{denied}") };
        assert_eq!(denied.decisions().get(0).unwrap().reason(), Reason::DenyList);
    }
    assert!(local.limit_now(&one, "ada").is_ok());
    assert!(matches!(remote.limit_now(&one, "ada"), Err(LimitError::Backend(_))));
    // The first call spends the only token. From then on, the block cache denies calls.
    assert!(remote.try_limit(&one, "ada").await.unwrap().is_allowed());
    assert!(!remote.try_limit(&one, "ada").await.unwrap().is_allowed());
    assert!(matches!(remote.limit_now(&one, "ada"), Err(LimitError::Denied(_))));
    local.set_quota(&one, Quota::token_bucket(5, MINUTE)).await.unwrap();
    assert_eq!(local.limit_now(&one, "bob").unwrap().capacity(), 5);
}
