//! Run-time control of the keys for which a policy is enforced.

use super::overrides::Setting;
use super::{RateLimiter, SetQuotaError};
use crate::backend::RowId;
use crate::policy::{Enforce, Policy, Subject};

impl RateLimiter {
    /// Sets the keys for which denials under a policy are [enforced](Enforce). `None` restores the setting that the
    /// program [defines](Policy::enforce). The policy is identified by its name.
    ///
    /// The change takes effect in this limiter immediately, and in other processes on a shared backend within a second.
    ///
    /// # Errors
    /// Fails if a share is not between 0.0 and 1.0, if 100,000 changes are already in effect, or if the backend cannot
    /// publish the change. If publishing fails, the change may still have been made.
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

    /// Returns the enforcement setting in effect: the policy's [own](Policy::enforce), unless another was set at run
    /// time.
    pub fn enforcement(&self, policy: &Policy) -> Enforce {
        self.inner.overrides.enforcement(policy.name()).unwrap_or(policy.enforcement())
    }

    pub(crate) fn enforces(&self, policy: &Policy, subject: &Subject) -> bool {
        let row = || RowId { policy: policy.name(), key: self.row_key(subject.key()) }.lasting_digest();
        self.enforcement(policy).covers(row)
    }
}
