//! The setting that determines for which keys a policy's denials are enforced.

use super::digest::Digest;
use super::named::{Policy, PolicyError};

/// The keys for which a policy's denials are enforced. The other keys are in shadow mode.
///
/// In shadow mode, a policy decides and counts as usual, but a call that it denies is let through:
///
/// - [`Decision::is_allowed`](crate::Decision::is_allowed) and [`is_shadowed`](crate::Decision::is_shadowed) are
///   `true`, and `limit` returns `Ok`. [`retry_after`](crate::Decision::retry_after) describes the denial.
/// - Such a call spends nothing under the policy. If it also charges enforced policies, only those decide the call and
///   are charged. Several policies in shadow mode are charged together or not at all, as if they were enforced.
/// - Observers are notified of the denial, and [`is_enforced`](crate::observe::Decided::is_enforced) returns `false`.
/// - A call that reserves tokens may proceed without waiting for them.
/// - If the backend fails, the call is let through, whatever the [`FailureMode`](crate::FailureMode).
/// - Deny lists, blocks and pauses deny a call only if the call charges a policy that is enforced for the key.
///
/// ```
/// use tollgate::{policy::Enforce, Policy, Quota, RateLimiter, MINUTE};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// static API: Policy = Policy::new("api", Quota::token_bucket(1, MINUTE)).enforce(Enforce::Never);
///
/// let limiter = RateLimiter::default();
/// limiter.limit(&API, "ada").await?;
/// let shadowed = limiter.limit(&API, "ada").await?; // would have been denied
/// assert!(shadowed.is_shadowed() && shadowed.retry_after().is_some());
///
/// limiter.set_enforcement(&API, Enforce::Always).await?;
/// assert!(limiter.limit(&API, "ada").await.is_err());
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Enforce {
    /// Denials are enforced for every key.
    #[default]
    Always,
    /// Denials are not enforced for any key.
    Never,
    /// Denials are enforced for a share of the keys, from 0.0 to 1.0.
    ///
    /// The policy's name and the key's [digest](crate::RateLimiter::digest) determine whether a key is in the share, so
    /// processes with the same [secret](crate::limiter::RateLimiterBuilder::secret) enforce the policy for the same
    /// keys. A larger share includes all keys of a smaller share. All calls without a key count as one key.
    Share(f64),
}

impl Enforce {
    /// Returns whether denials are enforced for the row. The digest is computed only if it is needed.
    #[inline]
    pub(crate) fn covers(self, row: impl FnOnce() -> Digest) -> bool {
        match self {
            Enforce::Always => true,
            Enforce::Never => false,
            // The lower bits determine window boundaries. The upper bits are independent of them.
            Enforce::Share(share) => share >= 1.0 || (((row().to_bits() >> 64) as u64) as f64) < share * 2f64.powi(64),
        }
    }

    pub(crate) const fn is_valid(self) -> bool {
        match self {
            Enforce::Always | Enforce::Never => true,
            Enforce::Share(share) => 0.0 <= share && share <= 1.0,
        }
    }

    pub(crate) const fn share(self) -> f64 {
        match self {
            Enforce::Always => 1.0,
            Enforce::Never => 0.0,
            Enforce::Share(share) => share,
        }
    }

    pub(crate) fn of_share(share: f64) -> Option<Enforce> {
        match share {
            1.0 => Some(Enforce::Always),
            0.0 => Some(Enforce::Never),
            share => Some(Enforce::Share(share)).filter(|enforce| enforce.is_valid()),
        }
    }
}

impl Policy {
    /// Sets the keys for which denials under this policy are enforced. The default is [`Enforce::Always`].
    /// [`RateLimiter::set_enforcement`](crate::RateLimiter::set_enforcement) replaces the setting at run time.
    ///
    /// # Panics
    /// Panics if the share is not between 0.0 and 1.0. In a `const`, this is a compile error.
    #[track_caller]
    #[must_use]
    pub const fn enforce(mut self, enforce: Enforce) -> Policy {
        assert!(enforce.is_valid(), "tollgate: expected an enforced share from 0.0 to 1.0");
        self.enforce = enforce;
        self
    }

    /// Like [`Policy::enforce`], but for shares that are known only at run time.
    ///
    /// # Errors
    /// Fails if the share is not between 0.0 and 1.0.
    pub fn try_enforce(self, enforce: Enforce) -> Result<Policy, PolicyError> {
        self.check_enforcement(enforce)?;
        Ok(self.enforce(enforce))
    }

    /// The keys for which denials under this policy are enforced, unless the setting is changed at run time.
    pub const fn enforcement(&self) -> Enforce {
        self.enforce
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Key, PolicyName, Quota, Secret};

    fn rows() -> impl Iterator<Item = Digest> {
        let (secret, api) = (Secret::new([7; 16]), PolicyName::new("api"));
        (0..10_000u64).map(move |key| secret.digest(&Key::from(key)).under(&api))
    }

    #[test]
    fn a_share_covers_about_its_fraction_of_the_keys_and_includes_every_smaller_share() {
        let mut before: Vec<Digest> = Vec::new();
        for (share, least, most) in [(0.0, 0, 0), (0.1, 900, 1_100), (0.5, 4_800, 5_200), (1.0, 10_000, 10_000)] {
            let covered: Vec<Digest> = rows().filter(|row| Enforce::Share(share).covers(|| *row)).collect();
            assert!((least..=most).contains(&covered.len()), "{} keys in a share of {share}", covered.len());
            assert!(before.iter().all(|row| covered.contains(row)), "{share}");
            before = covered;
        }
        assert!(rows().all(|row| Enforce::Always.covers(|| row) && !Enforce::Never.covers(|| row)));
    }

    #[test]
    fn valid_shares_survive_a_round_trip_and_invalid_shares_are_rejected() {
        for enforce in [Enforce::Always, Enforce::Never, Enforce::Share(0.1), Enforce::Share(f64::MIN_POSITIVE)] {
            assert_eq!(Enforce::of_share(enforce.share()), Some(enforce));
        }
        for share in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert_eq!(Enforce::of_share(share), None);
        }
        let api = Policy::new("api", Quota::per_second(5));
        let error = api.try_enforce(Enforce::Share(1.5)).expect_err("a share above 1.0");
        assert_eq!(error.to_string(), "policy \"api\": expected an enforced share from 0.0 to 1.0, found 1.5");
    }
}
