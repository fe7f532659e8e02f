//! Random quotas, rows, instants and requests.

use std::time::Duration;

use tollgate::Quota;
use tollgate::algorithm::{self, Algorithm, Ask, Micros, State, Step, Verdict, step};

/// Returns a random quota, or `None` if the combination of random numbers is invalid.
pub fn quota(random: &mut Random) -> Option<Quota> {
    let period = match random.below(4) {
        0 => Duration::from_micros(random.magnitude(Quota::MAX_PERIOD.as_micros() as u64).max(1)),
        1 => Duration::from_micros(random.pick(&[1, 2, 3, 7, 10, 999_983, 3_333_331])),
        _ => Duration::from_secs(random.pick(&[1, 10, 60, 3600, 86_400, 30 * 86_400, 3_155_760_000])),
    };
    let rate = random.tokens().max(1);
    let quota = match random.below(3) {
        0 => Quota::try_token_bucket(rate, period),
        1 => Quota::try_fixed_window(rate, period),
        _ => return Quota::try_sliding_window(rate, period).ok().map(|quota| with_random_start(random, quota)),
    };
    let mut quota = quota.ok()?;
    if random.one_in(2) {
        let capacity = if random.one_in(2) { random.tokens() } else { random.near(rate).min(Quota::MAX_TOKENS) };
        quota = quota.try_capacity(capacity).ok()?;
    }
    quota = match random.below(4) {
        0 => quota.try_unlimited_reservations().ok()?,
        1 => quota.try_max_reserved(random.tokens()).ok()?,
        2 => quota.try_max_reserved(random.near(rate).min(Quota::MAX_TOKENS)).ok()?,
        _ => quota,
    };
    algorithm::validate(&quota).ok()?;
    if quota.algorithm() == Algorithm::FixedWindow { Some(with_random_start(random, quota)) } else { Some(quota) }
}

fn with_random_start(random: &mut Random, quota: Quota) -> Quota {
    let period = quota.period().as_micros() as u64;
    let start = match random.below(3) {
        0 => 0,
        1 => period - 1,
        _ => random.below(period),
    };
    quota.start(Duration::from_micros(start))
}

/// Returns an arbitrary row, which may have fractional counts, be in the distant past, or be ahead of the clock.
pub fn row(random: &mut Random, quota: &Quota, now: Micros) -> State {
    let fill = quota.window().as_micros() as u64;
    let at = match random.below(6) {
        0 => now.get(),
        1 => now.get().saturating_sub(random.magnitude(Micros::MAX.get())),
        2 => now.get().saturating_sub(random.near(fill)),
        3 => now.get().saturating_add(random.near(fill)),
        4 => now.get().saturating_add(random.magnitude(Micros::MAX.get())),
        _ => random.pick(&[0, Micros::MAX.get()]),
    };
    let mut at = Micros::new(at);
    if quota.algorithm() != Algorithm::TokenBucket && !random.one_in(4) {
        // Use a boundary, because a sliding window ignores rows that do not begin at a boundary.
        let fresh = State { at, stamp: algorithm::stamp(quota), ..State::default() };
        at = step(quota, &fresh, at, Ask::cost(0)).state.at;
    }
    let carry = if quota.algorithm() == Algorithm::SlidingWindow { random.spent(quota.get_capacity()) } else { 0.0 };
    State { spent: random.spent(quota.get_capacity()), at, carry, stamp: algorithm::stamp(quota), ..State::default() }
}

/// Returns a row that another quota wrote. The row's count and expiry may be realistic or arbitrary.
pub fn foreign(random: &mut Random, quota: &Quota, now: Micros) -> Option<State> {
    let writer = match random.below(3) {
        // The other quota has the same period and start.
        0 => {
            let rate = random.near(quota.rate()).clamp(1, Quota::MAX_TOKENS);
            let other = match quota.algorithm() {
                Algorithm::TokenBucket => Quota::try_token_bucket(rate, quota.period()),
                Algorithm::FixedWindow => Quota::try_fixed_window(rate, quota.period()),
                _ => Quota::try_sliding_window(rate, quota.period()),
            };
            let other = other.ok()?;
            quota.get_start().map_or(Some(other), |start| other.try_start(start).ok())?
        }
        _ => self::quota(random)?,
    };
    let mut state = row(random, &writer, now);
    if random.one_in(2) {
        state.at = now.min(state.at);
    }
    let charged = step(&writer, &State::default(), state.at, Ask::cost(1.min(writer.get_capacity())));
    if charged.is_allowed() && random.one_in(2) {
        state = State { spent: random.near(writer.get_capacity()) as f64, ..charged.state };
    }
    state.clear = match random.below(4) {
        0 => Micros::MAX,
        1 => state.at + Duration::from_micros(2 * writer.period().as_micros() as u64),
        2 => now + Duration::from_micros(random.magnitude(1 << 50)),
        _ => state.at + Duration::from_micros(random.near(writer.window().as_micros() as u64)),
    };
    state.clear = Micros::new(state.clear.get().div_ceil(1_000_000) * 1_000_000);
    if state.clear <= now {
        state.clear = Micros::new((now.get() / 1_000_000 + 1 + random.below(1000)) * 1_000_000);
    }
    (state.stamp != algorithm::stamp(quota)).then_some(state)
}

pub fn instant(random: &mut Random) -> Micros {
    match random.below(8) {
        0 => Micros::new(random.magnitude(Micros::MAX.get())),
        1 => Micros::new(Micros::MAX.get() - random.magnitude(Micros::MAX.get())),
        _ => Micros::new(1_700_000_000_000_000 + random.below(100_000_000_000_000)),
    }
}

/// Returns the instant of the next decision: the end of the wait in `step`, one microsecond before that, a random
/// earlier or later instant, or `now`.
pub fn next(random: &mut Random, quota: &Quota, now: Micros, step: &Step) -> Micros {
    if let Verdict::Deny { retry: Some(time) } | Verdict::Reserve { wait: time } = step.verdict {
        let time = time.as_micros() as u64;
        match random.below(4) {
            0 => return now + Duration::from_micros(time),
            1 => return now + Duration::from_micros(time.saturating_sub(1)),
            _ => {}
        }
    }
    match random.below(4) {
        0 => now,
        1 => Micros::new(now.get().saturating_sub(random.near(quota.window().as_micros() as u64))),
        2 => Micros::new(now.get().saturating_add(random.near(quota.period().as_micros() as u64))),
        _ => Micros::new(now.get().saturating_add(random.near(quota.window().as_micros() as u64))),
    }
}

pub fn ask(random: &mut Random, quota: &Quota, spent: f64) -> Ask {
    let cost = match random.below(8) {
        0 => 0,
        1 => quota.get_capacity(),
        2 => quota.get_capacity() + 1,
        3 => random.near(quota.get_capacity()),
        4 => (quota.get_capacity() as f64 - spent).max(1.0) as u64,
        5 => {
            quota.get_max_reserved().map_or(UNLIMITED_CEILING - 1, |tokens| quota.get_capacity() + tokens)
                + random.below(3)
        }
        6 => random.magnitude(1 << 53) - 1,
        _ => 1 + random.below(10),
    };
    let ask = Ask::cost(cost.min((1 << 53) - 1));
    match random.below(4) {
        0 => ask,
        1 => ask.reserve(),
        2 => ask.wait_up_to(Duration::from_micros(random.near(quota.window().as_micros() as u64).min(1 << 53))),
        _ => ask.wait_up_to(Duration::from_micros(random.magnitude(1 << 53))),
    }
}

pub struct Random(pub u64);

impl Random {
    /// Returns the next output of SplitMix64.
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.bits() % end.max(1)
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn pick(&mut self, of: &[u64]) -> u64 {
        of[self.below(of.len() as u64) as usize]
    }

    /// Returns a number from 1 to `most`. All orders of magnitude are equally likely.
    pub fn magnitude(&mut self, most: u64) -> u64 {
        let bits = 64 - most.leading_zeros() as u64;
        let shift = 63 - self.below(bits);
        ((self.bits() | 1 << 63) >> shift).clamp(1, most)
    }

    /// Returns a number within 2 of `number`, below `number`, or below four times `number`.
    pub fn near(&mut self, number: u64) -> u64 {
        match self.below(4) {
            0 => number.saturating_sub(self.below(3)),
            1 => number.saturating_add(self.below(3)),
            2 => self.below(number),
            _ => self.below(number.saturating_mul(4)),
        }
    }

    fn tokens(&mut self) -> u64 {
        match self.below(3) {
            0 => self.magnitude(Quota::MAX_TOKENS),
            1 => self.pick(&[0, 1, 2, 3, 7, 10, 100, 1000, Quota::MAX_TOKENS]),
            _ => 1 + self.below(100),
        }
    }

    fn spent(&mut self, limit: u64) -> f64 {
        match self.below(6) {
            0 => 0.0,
            1 => limit as f64,
            2 => self.near(limit) as f64,
            3 => self.near(limit) as f64 / 10.0,
            4 => self.near(limit) as f64 * (self.below(1 << 30) as f64 / (1u64 << 30) as f64),
            _ => self.magnitude((1 << 53) - 1) as f64,
        }
    }
}

/// The largest number of tokens that can be spent with unlimited reservations: `2^53 - 1` minus the largest cost.
const UNLIMITED_CEILING: u64 = (1 << 53) - 1 - Quota::MAX_TOKENS;
