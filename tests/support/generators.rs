//! Random quotas, asks and clocks. Raw random numbers are scaled to the quota, so that histories often reach the edge
//! cases: window boundaries, the capacity, retry times, due times, and the microseconds before and after them.

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use tollgate::algorithm::{Algorithm, Ask, Micros};
use tollgate::{DAY, HOUR, MINUTE, Quota, SECOND, WEEK};

/// Configures proptest to generate the same cases in every run, unless `PROPTEST_CASES` or `PROPTEST_RNG_SEED` is set.
pub(crate) fn cases(cases: u32) -> ProptestConfig {
    let mut config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = cases;
    }
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(20_260_704);
    }
    config.max_shrink_iters = 200_000;
    (config.max_local_rejects, config.max_global_rejects) = (u32::MAX, u32::MAX);
    config
}

/// Generates a number below `2^bits`. All bit lengths are about equally likely.
pub(crate) fn sized(bits: u32) -> impl Strategy<Value = u64> {
    (0..=bits, any::<u64>()).prop_map(|(bits, raw)| raw & ((1u64 << bits) - 1))
}

/// Generates a valid quota with realistic or somewhat larger numbers.
pub(crate) fn quota() -> impl Strategy<Value = Quota> {
    prop_oneof![4 => bucket(), 4 => window(), 2 => sliding()]
}

/// Generates a token bucket or a fixed window, both of which admit at most the capacity plus the refilled tokens.
pub(crate) fn bucket_or_window() -> impl Strategy<Value = Quota> {
    prop_oneof![bucket(), window()]
}

pub(crate) fn bucket() -> impl Strategy<Value = Quota> {
    reserving((rate(), period()).prop_map(|(rate, period)| Quota::try_token_bucket(rate, period).ok()))
}

pub(crate) fn window() -> impl Strategy<Value = Quota> {
    let plain = (rate(), period(), start())
        .prop_map(|(rate, period, start)| Quota::try_fixed_window(rate, period).ok()?.try_start(start).ok());
    reserving(plain)
}

pub(crate) fn sliding() -> impl Strategy<Value = Quota> {
    (rate(), period(), start()).prop_map(|(rate, period, start)| Quota::sliding_window(rate, period).start(start))
}

/// Generates quotas small enough that histories often reach their limits.
pub(crate) fn tiny() -> impl Strategy<Value = Quota> {
    let reserved = prop_oneof![Just(Some(0)), (1u64..=8).prop_map(Some), Just(None)];
    (any::<bool>(), 1u64..=4, 1u64..=12, 0u64..=5, reserved, 0u64..12).prop_filter_map(
        "a quota that denies every call",
        |(window, rate, period, capacity, reserved, start)| {
            let period = Duration::from_micros(period);
            let quota = if window {
                Quota::fixed_window(rate, period).start(Duration::from_micros(start))
            } else {
                Quota::token_bucket(rate, period)
            };
            let quota = quota.capacity(capacity);
            let quota = reserved.map_or(quota.unlimited_reservations(), |tokens| quota.max_reserved(tokens));
            tollgate::algorithm::validate(&quota).is_ok().then_some(quota)
        },
    )
}

fn rate() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 1u64..=12, 4 => sized(30).prop_map(|n| n.clamp(1, 1_000_000_000)), 1 => Just(999_999_937u64)]
}

fn period() -> impl Strategy<Value = Duration> {
    prop_oneof![
        2 => (1u64..=20).prop_map(Duration::from_micros),
        4 => sized(42).prop_map(|micros| Duration::from_micros(micros.max(1))),
        2 => prop::sample::select(vec![SECOND, MINUTE, HOUR, DAY, WEEK]),
        // These periods share no factor with most rates.
        1 => prop::sample::select(vec![3_333_331u64, 86_400_000_011, 3_000_000_019]).prop_map(Duration::from_micros),
    ]
}

fn start() -> impl Strategy<Value = Duration> {
    prop_oneof![Just(Duration::ZERO), sized(45).prop_map(Duration::from_micros)]
}

fn reserving(plain: impl Strategy<Value = Option<Quota>>) -> impl Strategy<Value = Quota> {
    let capacity = prop_oneof![2 => Just(None), 2 => (0u64..=6).prop_map(Some), 2 => sized(32).prop_map(Some)];
    let reserved = prop_oneof![
        2 => Just(Some(0)),
        2 => (1u64..=12).prop_map(Some),
        2 => sized(34).prop_map(Some),
        2 => Just(None),
    ];
    (plain, capacity, reserved).prop_filter_map("an invalid quota", |(quota, capacity, reserved)| {
        let mut quota = quota?;
        if let Some(capacity) = capacity {
            quota = quota.try_capacity(capacity).ok()?;
        }
        quota = match reserved {
            Some(tokens) => quota.try_max_reserved(tokens).ok()?,
            None => quota.unlimited_reservations(),
        };
        tollgate::algorithm::validate(&quota).is_ok().then_some(quota)
    })
}

/// One operation, described by random numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Raw {
    /// The kind of operation, and a number that selects its rows or its receipt.
    pub(crate) what: (u8, u64),
    pub(crate) step: (u8, u64),
    pub(crate) cost: (u8, u64),
    pub(crate) how: (u8, u64),
}

pub(crate) fn history(operations: usize) -> impl Strategy<Value = Vec<Raw>> {
    let raw = ((0u8..12, any::<u64>()), (0u8..10, any::<u64>()), (0u8..9, any::<u64>()), (0u8..6, any::<u64>()))
        .prop_map(|(what, step, cost, how)| Raw { what, step, cost, how });
    prop::collection::vec(raw, 1..=operations)
}

/// Generates the first instant of a history: the epoch, a recent instant or a random instant.
pub(crate) fn begin() -> impl Strategy<Value = Micros> {
    prop_oneof![Just(Micros::EPOCH), Just(Micros::new(1_700_000_000_000_000)), sized(51).prop_map(Micros::new)]
}

/// The longest time by which a single operation advances the clock: about 400 days.
const MAX_ADVANCE: u64 = 1 << 45;

impl Raw {
    /// Returns the instant of this operation. `promised` is the retry time or due time of the last decision.
    pub(crate) fn moved(&self, quota: &Quota, now: Micros, promised: Micros) -> Micros {
        let (period, fill) = (quota.period().as_micros() as u64, quota.window().as_micros() as u64);
        let (kind, raw) = self.step;
        let step = match kind {
            0 | 1 => 0,
            2 => 1 + raw % 3,
            3 => raw % (period / quota.rate().max(1)).saturating_add(2),
            4 => raw % (period + 1),
            5 => raw % (3 * period),
            6 => raw % (fill.saturating_add(2)),
            7 => (raw % 4 * period + period - phase(quota, now)).saturating_sub(1) + (raw >> 32) % 3,
            _ => (promised.since(now).as_micros() as u64).saturating_sub(1) + (raw >> 32) % 3,
        };
        if step > MAX_ADVANCE {
            return now;
        }
        now + Duration::from_micros(step)
    }

    pub(crate) fn tokens(&self, quota: &Quota) -> u64 {
        let (kind, raw) = self.cost;
        let capacity = quota.get_capacity();
        let ceiling = capacity + quota.get_max_reserved().unwrap_or(12 << (raw >> 60));
        match kind {
            0 | 1 => 1,
            2 => 0,
            3 => raw % 5,
            4 => capacity + raw % 2,
            5 | 6 => raw % (capacity + 2),
            7 => raw % (ceiling + 2),
            _ => ceiling + raw % 2,
        }
    }

    pub(crate) fn ask(&self, quota: &Quota) -> Ask {
        let ask = Ask::cost(self.tokens(quota));
        let (kind, raw) = self.how;
        let period = quota.period().as_micros() as u64;
        match kind {
            0 | 1 => ask,
            2 | 3 => ask.reserve(),
            4 => ask.wait_up_to(Duration::from_micros(raw % (4 * period))),
            _ => ask.wait_up_to(Duration::from_micros(raw % (period / quota.rate() + 2) * (1 + (raw >> 60)))),
        }
    }
}

fn phase(quota: &Quota, now: Micros) -> u64 {
    let (period, start) =
        (quota.period().as_micros() as u64, quota.get_start().map_or(0, |start| start.as_micros() as u64));
    match quota.algorithm() {
        Algorithm::TokenBucket => 0,
        _ => (now.get() + period - start) % period,
    }
}
