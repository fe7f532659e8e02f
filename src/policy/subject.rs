//! Subjects: keys with optional tiers.

use std::borrow::Cow;

use super::key::Key;
use super::quotas::Quotas;

/// A caller, described by an optional key and an optional tier. Every type that converts to a [`Key`] also converts to
/// a subject without a tier. `None` converts to the anonymous subject.
///
/// ```
/// use tollgate::{Key, Quota, Subject};
///
/// let user = Subject::new(42).tier("premium");
/// assert_eq!((user.key(), user.tier_name()), (Some(&Key::from(42)), Some("premium")));
/// let customer = Subject::new(43).quota(Quota::per_second(100).and(Quota::per_day(50_000)));
/// assert_eq!(customer.quotas().map(|quotas| quotas.len()), Some(2));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    key: Option<Key>,
    tier: Option<Cow<'static, str>>,
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

    /// Sets the tier, which selects one of the [policy's quotas](crate::Policy::tier). A name that is not `'static`,
    /// such as a user's plan, must be owned: `.tier(user.plan.clone())`.
    #[must_use]
    pub fn tier(mut self, tier: impl Into<Cow<'static, str>>) -> Subject {
        self.tier = Some(tier.into());
        self
    }

    /// Sets this caller's own quota, or several quotas that apply together. They can come [from a
    /// database](crate::docs::several_quotas#quotas-from-a-database). To parse quotas, use `text.parse::<Quotas>()`. In
    /// calls with this subject, these quotas replace the policy's, unless a quota was [set for the
    /// key](crate::RateLimiter::set_key_quota) at run time. Spent tokens carry over when the quota changes.
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
