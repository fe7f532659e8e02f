//! governor 0.10.

use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::{Clock, DefaultClock};
use governor::{DefaultDirectRateLimiter, DefaultKeyedRateLimiter, Quota, RateLimiter};

const TEN: NonZeroU32 = NonZeroU32::new(10).unwrap();
const THOUSAND: NonZeroU32 = NonZeroU32::new(1000).unwrap();

pub struct Limits {
    burst: DefaultKeyedRateLimiter<u64>,
    daily: DefaultKeyedRateLimiter<u64>,
    upstream: DefaultDirectRateLimiter,
}

impl Limits {
    pub fn new() -> Limits {
        let daily = Quota::with_period(Duration::from_secs(86_400) / 1000).expect("not 0").allow_burst(THOUSAND);
        Limits {
            burst: RateLimiter::keyed(Quota::per_second(TEN)),
            daily: RateLimiter::keyed(daily),
            upstream: RateLimiter::direct(Quota::per_second(TEN)),
        }
    }

    /// Returns how long to wait if the call is denied.
    pub fn search(&self, user: u64) -> Result<(), Duration> {
        let now = DefaultClock::default().now();
        self.daily.check_key(&user).map_err(|not_until| not_until.wait_time_from(now))?;
        self.burst.check_key(&user).map_err(|not_until| not_until.wait_time_from(now))
    }

    /// Call this before each call to the upstream API.
    pub async fn upstream(&self) {
        self.upstream.until_ready().await;
    }

    /// Called by a timer.
    pub fn sweep(&self) {
        self.burst.retain_recent();
        self.daily.retain_recent();
    }
}
