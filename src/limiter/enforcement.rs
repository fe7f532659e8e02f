//! Run-time control of the keys for which a policy is enforced.

use super::overrides::Setting;
use super::{RateLimiter, SetQuotaError};
use crate::backend::RowId;
use crate::policy::{Enforce, Policy, Subject};

impl RateLimiter {
    /// Sets the keys for which denials under a policy are enforced. This replaces the setting that the program
    /// [defines](Policy::enforce); `None` restores that setting. The policy is identified by its name. See [`Enforce`]
    /// for what happens to the other keys.
    ///
    /// ```
    /// # use tollgate::{policy::Enforce, Policy, Quota, RateLimiter, MINUTE};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let api = Policy::new("api", Quota::token_bucket(30, MINUTE)).enforce(Enforce::Never);
    /// let limiter = RateLimiter::default();
    /// limiter.set_enforcement(&api, Enforce::Share(0.1)).await?; // a tenth of the keys
    /// let [set] = &limiter.set_enforcements()[..] else { panic!("expected one") };
    /// assert_eq!((set.policy.as_str(), set.enforce), ("api", Enforce::Share(0.1)));
    ///
    /// limiter.set_enforcement(&api, None).await?;
    /// assert_eq!(limiter.enforcement(&api), Enforce::Never);
    /// # Ok(()) }
    /// ```
    ///
    /// The change takes effect immediately in this limiter and its clones, and within a second in all other limiters on
    /// a shared backend, including limiters that start later.
    ///
    /// # Errors
    /// Fails if a share is not between 0.0 and 1.0, if 100,000 changes are already in effect, or if the backend cannot
    /// publish the change. If publishing fails, the change may have been made nevertheless.
    pub async fn set_enforcement(
        &self,
        policy: &Policy,
        enforce: impl Into<Option<Enforce>>,
    ) -> Result<(), SetQuotaError> {
        let enforce = enforce.into();
        if let Some(enforce) = enforce {
            policy.check_enforcement(enforce)?;
        }
        self.change(policy, Setting::Enforcement(enforce)).await
    }

    /// Returns the keys for which denials under a policy are enforced. This is the setting
    /// [made](RateLimiter::set_enforcement) at run time or, if there is none, the [policy's own](Policy::enforce).
    pub fn enforcement(&self, policy: &Policy) -> Enforce {
        self.inner.overrides.enforcement(policy.name()).unwrap_or(policy.enforcement())
    }

    /// Returns whether denials of `subject` under a policy are enforced.
    pub(crate) fn enforces(&self, policy: &Policy, subject: &Subject) -> bool {
        let row = || RowId { policy: policy.name(), key: self.row_key(subject.key()) }.lasting_digest();
        self.enforcement(policy).covers(row)
    }
}
