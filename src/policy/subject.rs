//! Subjects: keys with optional tiers.

use std::borrow::Cow;

use super::key::Key;
use super::quotas::Quotas;

/// A caller, described by an optional key and an optional tier.
///
/// Every type that converts to a [`Key`] also converts to a subject without a tier. `None` converts to the anonymous
/// subject.
///
/// ```
/// use tollgate::{Key, Subject};
///
/// let user = Subject::new(42).tier("premium");
/// assert_eq!((user.key(), user.tier_name()), (Some(&Key::from(42)), Some("premium")));
/// assert_eq!(Subject::from(None::<u64>), Subject::anonymous());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    key: Option<Key>,
    tier: Option<Cow<'static, str>>,
    /// This field is boxed because few callers have their own quotas.
    quotas: Option<Box<Quotas>>,
}

impl Subject {
    /// Creates a subject with this key.
    #[inline]
    pub fn new(key: impl Into<Key>) -> Subject {
        Subject { key: Some(key.into()), tier: None, quotas: None }
    }

    /// Creates a subject without a key. All callers without a key share one row.
    pub const fn anonymous() -> Subject {
        Subject { key: None, tier: None, quotas: None }
    }

    /// Sets the tier (a `String` or a `&'static str`), which selects the policy's quota. An unknown tier selects the
    /// policy's own quota, and is counted as a [mistake](crate::observe::Mistake) if the policy has any tiers.
    #[must_use]
    pub fn tier(mut self, tier: impl Into<Cow<'static, str>>) -> Subject {
        self.tier = Some(tier.into());
        self
    }

    /// Sets this caller's own quota, or several quotas that apply together. They may come, for example, from a database
    /// row or from a JWT claim. For this call, they replace the policy's quotas, unless a quota was [set for the
    /// key](crate::RateLimiter::set_key_quota) at run time.
    ///
    /// The key keeps the same row, so its spent tokens carry over when its quota changes, as with
    /// [tiers](crate::docs::tiers_and_routes).
    ///
    /// ```
    /// use tollgate::{Policy, Quota, RateLimiter, Subject};
    /// static API: Policy = Policy::new("api", Quota::per_minute(60));
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = RateLimiter::default();
    /// let column = "100/s; 50000/d"; // from the customer's row
    /// let customer = Subject::new(42).quota(column.parse::<tollgate::policy::Quotas>()?);
    /// assert_eq!(limiter.limit(&API, customer).await?.remaining(), 99);
    /// assert_eq!(limiter.limit(&API, 43).await?.remaining(), 59);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn quota(mut self, quota: impl Into<Quotas>) -> Subject {
        self.quotas = Some(Box::new(quota.into()));
        self
    }

    /// The key, if any.
    #[inline]
    pub const fn key(&self) -> Option<&Key> {
        self.key.as_ref()
    }

    /// The tier's name, if any.
    #[inline]
    pub fn tier_name(&self) -> Option<&str> {
        self.tier.as_deref()
    }

    /// The caller's own quotas, if any.
    #[inline]
    pub fn quotas(&self) -> Option<&Quotas> {
        self.quotas.as_deref()
    }
}

impl<K: Into<Key>> From<K> for Subject {
    #[inline]
    fn from(key: K) -> Subject {
        Subject::new(key)
    }
}

impl From<Option<Subject>> for Subject {
    fn from(subject: Option<Subject>) -> Subject {
        subject.unwrap_or(Subject::anonymous())
    }
}

impl<K: Into<Key>> From<Option<K>> for Subject {
    #[inline]
    fn from(key: Option<K>) -> Subject {
        Subject { key: key.map(Into::into), tier: None, quotas: None }
    }
}
