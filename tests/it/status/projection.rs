//! Clients can compute later decisions from the reported status.

use std::time::Duration;

use axum::Router;
use proptest::prelude::*;
use tollgate::algorithm::{Algorithm, Ask, Micros, step};
use tollgate::{
    Charge, MemoryBackend, Policy, Quota, RateLimiter, Reservation,
    clock::{Clock, ManualClock},
    status,
};

use super::app::{status, user};

fn quotas() -> impl Strategy<Value = Quota> {
    let period = prop_oneof![1..50_u64, 1..100_000_000_u64];
    let tokens = || prop_oneof![1..20_u64, 1..100_000_u64];
    (0..3_u8, tokens(), period, tokens(), prop_oneof![Just(None), (0..30_u64).prop_map(Some)], any::<u32>()).prop_map(
        |(algorithm, rate, period, capacity, reserved, start)| {
            let period = Duration::from_micros(period);
            let quota = match algorithm {
                0 => Quota::token_bucket(rate, period).capacity(capacity),
                1 => Quota::fixed_window(rate, period).capacity(capacity),
                _ => {
                    let quota = Quota::sliding_window(rate, period);
                    return if start % 2 == 0 { quota } else { quota.start(Duration::from_micros(start.into())) };
                }
            };
            let quota = match start % 3 {
                0 => quota.start(Duration::from_micros(start.into())),
                _ => quota,
            };
            match reserved {
                Some(tokens) => quota.max_reserved(tokens),
                None => quota.unlimited_reservations(),
            }
        },
    )
}

/// A change to the row, the clock or the quota before the status is read.
#[derive(Clone, Debug)]
enum Event {
    Spend(u64),
    Reserve(u64),
    /// Spends tokens and refunds them after a delay in microseconds.
    Refund(u64, u64),
    Advance(u64),
    /// Sets the clock back by less time than a full refill takes, because rows further in the future may be reset. Only
    /// the first such event in a history takes effect.
    SetBack(u64),
    Change(u64),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let micros = || prop_oneof![0..100_u64, 0..100_000_000_u64];
    let event = prop_oneof![
        4 => (0..40_u64).prop_map(Event::Spend),
        2 => (0..40_u64).prop_map(Event::Reserve),
        2 => ((1..40_u64), micros()).prop_map(|(cost, later)| Event::Refund(cost, later)),
        4 => micros().prop_map(Event::Advance),
        1 => micros().prop_map(Event::SetBack),
        1 => (1..40_u64).prop_map(Event::Change),
    ];
    prop::collection::vec(event, 0..12)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn projections_match_the_decisions_of_later_checks(
        quota in quotas(),
        history in events(),
        later in prop::collection::vec((prop_oneof![0..100_u64, 0..100_000_000_u64], 0..60_u64), 1..8),
    ) {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
            let clock = ManualClock::new();
            let limiter = RateLimiter::new(MemoryBackend::builder().clock(clock.clone()).build());
            let policy = Policy::new("p", quota);
            let app = Router::new().route("/rate-limit", status::of(&limiter, &policy, user));
            apply(&limiter, &clock, &policy, history).await;

            let reported = status(&app, "ada").await;
            let (quota, state) = (reported.quota(), reported.state());
            assert_eq!(Micros::new(reported.now as u64), limiter.now().await.unwrap());
            for (pass, cost) in later {
                clock.advance(Duration::from_micros(pass));
                let now = limiter.now().await.unwrap();
                for ask in [Ask::cost(cost), Ask::cost(cost).reserve()] {
                    let charge = Charge::new(&policy, "ada".to_owned()).cost(cost);
                    let charge = if ask.max_wait().is_some() { charge.reserve() } else { charge };
                    let answered = *limiter.try_check_all([charge]).await.unwrap().get(0).unwrap().step();
                    let projected = step(&quota, &state, now, ask);
                    // The decision's `spent` does not include the cost of the call itself.
                    let charged = if projected.is_allowed() { cost as f64 } else { 0.0 };
                    let left = (projected.state.spent - charged).max(0.0);
                    assert_eq!((projected.verdict, left), (answered.verdict, answered.state.spent));
                }
            }
        });
    }
}

async fn apply(limiter: &RateLimiter, clock: &ManualClock, policy: &Policy, history: Vec<Event>) {
    let ada = || "ada".to_owned();
    let mut is_set_back = false;
    for event in history {
        match event {
            Event::Spend(cost) => drop(limiter.try_acquire(policy, ada()).cost(cost).await),
            Event::Reserve(cost) => {
                drop(limiter.acquire(policy, ada()).cost(cost).reserve().await.map(Reservation::into_receipt))
            }
            Event::Refund(cost, later) => {
                if let Ok(held) = limiter.acquire(policy, ada()).cost(cost).hold().await {
                    clock.advance(Duration::from_micros(later));
                    held.cancel().await.unwrap();
                }
            }
            Event::Advance(micros) => clock.advance(Duration::from_micros(micros)),
            Event::SetBack(_) if is_set_back => {}
            Event::SetBack(back) => {
                let limit = policy.quotas()[0].window().min(policy.quotas()[0].period()).as_micros() as u64;
                clock.set(Micros::new(clock.now().get() - back % limit));
                is_set_back = true;
            }
            Event::Change(factor) => {
                let rate = policy.quotas()[0].rate() * factor;
                let period = policy.quotas()[0].period();
                let quota = match policy.quotas()[0].algorithm() {
                    Algorithm::TokenBucket => Quota::token_bucket(rate, period),
                    Algorithm::FixedWindow => Quota::fixed_window(rate, period),
                    _ => Quota::sliding_window(rate, period),
                };
                limiter.set_quota(policy, quota).await.unwrap();
            }
        }
    }
}
