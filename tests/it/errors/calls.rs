//! Errors returned by calls to a limiter.

use tollgate::backend::{Adjustment, Backend, BackendFuture, RowId, Steps, Take};
use tollgate::{
    Charge, DAY, MINUTE, MemoryBackend, Policy, Quota, RateLimiter, SECOND,
    clock::ManualClock,
    protection::{DenyList, DenyRule, Signal},
};

use super::list::List;

static API: Policy = Policy::new("api", Quota::token_bucket(10, MINUTE));
static MAIL: Policy = Policy::new("mail", Quota::token_bucket(1, SECOND).max_reserved(100));
static DAILY: Policy = Policy::new("daily", Quota::fixed_window(3, DAY).start(std::time::Duration::ZERO));

fn limiter(list: &DenyList) -> RateLimiter {
    let backend = MemoryBackend::builder().clock(ManualClock::new()).build();
    RateLimiter::builder(backend).deny_list(list).build()
}

pub(crate) async fn denials(list: &mut List) {
    list.section("Denials: Denied and LimitError, with the same messages");
    let limiter = limiter(&DenyList::from_iter([DenyRule::key("mallory")]));
    limiter.limit_all([Charge::new(&API, 7).cost(10), Charge::new(&DAILY, 7).cost(3)]).await.unwrap();

    let denied = limiter.try_limit(&API, 7).await.unwrap().into_result();
    list.error("an exceeded quota", denied);
    let both = limiter.try_limit_all([Charge::new(&API, 7), Charge::new(&DAILY, 7)]).await.unwrap();
    list.error("two exceeded quotas", both.into_result());
    let never = limiter.try_acquire(&API, 8).cost(11).await.unwrap();
    list.error("a cost that never fits", never.into_result());
    list.error("a reservation too far in the future", limiter.acquire(&MAIL, 8).cost(50).reserve_within(SECOND).await);
    list.error("a caller on a deny list", limiter.try_limit(&API, "mallory").await.unwrap().into_result());
    limiter.block(Signal::key("eve"), DAY).await.unwrap();
    list.error("a blocked caller", limiter.try_limit(&API, "eve").await.unwrap().into_result());
    list.error("a held charge that exceeds the quota", limiter.acquire(&API, 7).hold().await);
    list.error("a wait that would be too long", limiter.acquire(&MAIL, 8).cost(50).wait_up_to(SECOND).await);
    list.error("a wait without reservations", limiter.acquire(&DAILY, 8).wait_up_to(SECOND).await);
    list.error("a reservation in `limit_all`", limiter.limit_all([Charge::new(&MAIL, 8).reserve()]).await);
}

pub(crate) async fn changed_quotas(list: &mut List) {
    list.section("Quotas changed at run time: SetQuotaError");
    let api = Policy::new("api", Quota::token_bucket(10, MINUTE));
    let tiers =
        api.clone().tier("free", Quota::token_bucket(20, MINUTE)).tier("premium", Quota::token_bucket(90, MINUTE));
    let (no_capacity, sliding) = (Quota::token_bucket(10, MINUTE).capacity(0), Quota::sliding_window(10, MINUTE));
    let limiter = RateLimiter::default();
    list.error("a quota that refuses everything", limiter.set_quota(&api, no_capacity).await);
    list.error("a quota with a different algorithm", limiter.set_key_quota(&api, "ada", sliding).await);
    list.error("a tier's quota that refuses everything", limiter.set_tier_quota(&tiers, "free", no_capacity).await);
    list.error("a quota for an unknown tier", limiter.set_tier_quota(&tiers, "gold", api.quotas()[0]).await);
    list.error("the same for a policy without tiers", limiter.set_tier_quota(&api, "gold", api.quotas()[0]).await);
    for key in 0..100_000 {
        limiter.set_key_quota(&api, key, api.quotas()[0]).await.unwrap();
    }
    list.error("more quotas than the maximum", limiter.set_key_quota(&api, "ada", api.quotas()[0]).await);
}

/// A backend with a bug: it returns no steps.
#[derive(Debug)]
struct BuggyBackend;

impl Backend for BuggyBackend {
    fn acquire(&self, _: &[Take<'_>]) -> BackendFuture<Steps> {
        BackendFuture::ready(Ok(Steps::default()))
    }

    fn peek(&self, _: &[Take<'_>]) -> BackendFuture<Steps> {
        BackendFuture::ready(Ok(Steps::default()))
    }

    fn settle(&self, _: &[Adjustment<'_>]) -> BackendFuture<bool> {
        BackendFuture::ready(Ok(true))
    }

    fn reset(&self, _: &[RowId<'_>]) -> BackendFuture<usize> {
        BackendFuture::ready(Ok(0))
    }
}

pub(crate) async fn backends(list: &mut List) {
    list.section("Backends: Error");
    let limiter = RateLimiter::new(BuggyBackend);
    list.error("a backend with a bug", limiter.try_limit(&API, 7).await);
    list.error("the same for a held charge", limiter.acquire(&API, 7).hold().await);
    let limiter = RateLimiter::default();
    for key in 0..100_000 {
        limiter.block(Signal::key(key), DAY).await.unwrap();
    }
    list.error("more blocks than the maximum", limiter.block(Signal::key("eve"), DAY).await);
}
