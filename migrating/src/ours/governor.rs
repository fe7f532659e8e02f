//! The code that replaces governor.

use tollgate::{Charge, DAY, LimitError, Policy, Quota, RateLimiter, SECOND};

static BURST: Policy = Policy::new("burst", Quota::token_bucket(10, SECOND));
static DAILY: Policy = Policy::new("daily", Quota::token_bucket(1000, DAY));
/// The API allows ten requests per second. A rate of nine without bursts leaves a margin for late timers and network
/// delays.
static UPSTREAM: Policy = Policy::new("upstream", Quota::token_bucket(9, SECOND).capacity(1).max_reserved(100));

pub struct Limits {
    limiter: RateLimiter,
}

impl Limits {
    pub fn new(limiter: RateLimiter) -> Limits {
        Limits { limiter }
    }

    /// Charges both policies, or neither. The error's `denied()` returns the policy and the retry time.
    pub async fn search(&self, user: u64) -> Result<(), LimitError> {
        let charges = [Charge::new(&DAILY, user), Charge::new(&BURST, user)];
        self.limiter.limit_all(charges).await?;
        Ok(())
    }

    /// Call this before each call to the upstream API. Fails if the wait would exceed thirty seconds.
    pub async fn upstream(&self) -> Result<(), LimitError> {
        self.limiter.acquire(&UPSTREAM, "their API").wait_up_to(30 * SECOND).await?;
        Ok(())
    }
}
