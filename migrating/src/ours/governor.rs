//! Instead of governor.

use tollgate::{Charge, DAY, LimitError, Policy, Quota, RateLimiter, SECOND};

static BURST: Policy = Policy::new("burst", Quota::token_bucket(10, SECOND));
static DAILY: Policy = Policy::new("daily", Quota::token_bucket(1000, DAY));
/// They allow ten a second. No bursts, and one less for timers and a network that are late: `capacity(1)`, and nine.
static UPSTREAM: Policy = Policy::new("upstream", Quota::token_bucket(9, SECOND).capacity(1).max_reserved(100));

pub struct Limits {
    limiter: RateLimiter,
}

impl Limits {
    pub fn new(limiter: RateLimiter) -> Limits {
        Limits { limiter }
    }

    /// Under both, or under neither. Of an error, `denied()` tells which, and `retry_after()` how long to wait.
    pub async fn search(&self, user: u64) -> Result<(), LimitError> {
        let charges = [Charge::new(&DAILY, user), Charge::new(&BURST, user)];
        self.limiter.limit_all(charges).await?;
        Ok(())
    }

    /// Before each call of somebody else's API. Fails if the turn would come later than in thirty seconds.
    pub async fn upstream(&self) -> Result<(), LimitError> {
        self.limiter.acquire(&UPSTREAM, "their API").wait_up_to(30 * SECOND).await?;
        Ok(())
    }
}
