//! Lists of quotas that apply together.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::str::FromStr;

use super::quota::ParseQuotaError;
use crate::algorithm::{Quota, QuotaError};

/// One to [four](Quotas::MAX) quotas with different periods that apply together, such as 10 per second **and** 1,000
/// per day. A call is charged under all of them, or it is denied and charged under none.
///
/// Functions that take `impl Into<Quotas>` accept one quota or a list. In text, the quotas are separated by `;`.
///
/// ```
/// use tollgate::{policy::Quotas, Policy, Quota, DAY};
///
/// const API: Policy = Policy::new("api", Quota::per_second(10)).and(Quota::fixed_window(1000, DAY));
/// const PRO: Quotas = Quota::per_second(50).and(Quota::fixed_window(20_000, DAY));
/// assert_eq!("50/s; 20000/d fixed".parse(), Ok(PRO));
/// assert_eq!(API.tier("pro", PRO).quotas_for(Some("pro"))[1].get_capacity(), 20_000);
/// ```
#[derive(Clone, Copy)]
pub struct Quotas {
    /// Unused elements repeat the first quota.
    list: [Quota; Quotas::MAX],
    len: u8,
}

impl Quotas {
    /// The maximum number of quotas in a list.
    pub const MAX: usize = 4;

    pub(super) const fn one(quota: Quota) -> Quotas {
        Quotas { list: [quota; Quotas::MAX], len: 1 }
    }

    /// Adds a quota to the list.
    ///
    /// # Panics
    /// Panics if the list already has a quota with the same period, if the new quota has a different number of
    /// [shards](Quota::shards), or if the list is full. In a `const`, this is a compile error.
    #[track_caller]
    #[must_use]
    pub const fn and(self, quota: Quota) -> Quotas {
        match self.try_and(quota) {
            Ok(quotas) => quotas,
            Err(error) => error.panic(),
        }
    }

    /// Like [`Quotas::and`], but for values that are known only at run time.
    ///
    /// # Errors
    /// Fails if [`Quotas::and`] would panic.
    pub const fn try_and(mut self, quota: Quota) -> Result<Quotas, QuotaError> {
        let mut i = 0;
        while i < self.len as usize {
            if self.list[i].period_micros() == quota.period_micros() {
                return Err(QuotaError::same_period(quota.period_micros()));
            }
            i += 1;
        }
        if self.list[0].get_shards() != quota.get_shards() {
            return Err(QuotaError::different_shards(quota.get_shards()));
        }
        if self.len as usize == Quotas::MAX {
            return Err(QuotaError::too_many_quotas());
        }
        self.list[self.len as usize] = quota;
        self.len += 1;
        Ok(self)
    }

    pub(crate) const fn validate(&self) -> Result<(), QuotaError> {
        let mut i = 0;
        while i < self.len as usize {
            if let Err(error) = self.list[i].validate() {
                return Err(error);
            }
            i += 1;
        }
        Ok(())
    }

    pub(super) const fn count(&self) -> usize {
        self.len as usize
    }

    pub(super) const fn at(&self, index: usize) -> &Quota {
        &self.list[index]
    }
}

impl Quota {
    /// Creates a list of this quota and another one, which apply together.
    ///
    /// # Panics
    /// Panics in the same cases as [`Quotas::and`].
    #[track_caller]
    #[must_use]
    pub const fn and(self, quota: Quota) -> Quotas {
        Quotas::one(self).and(quota)
    }
}

impl From<Quota> for Quotas {
    fn from(quota: Quota) -> Quotas {
        Quotas::one(quota)
    }
}

impl From<Quota> for Option<Quotas> {
    /// Allows methods that accept `None` to take a quota directly.
    fn from(quota: Quota) -> Option<Quotas> {
        Some(quota.into())
    }
}

impl Deref for Quotas {
    type Target = [Quota];

    #[inline]
    fn deref(&self) -> &[Quota] {
        &self.list[..usize::from(self.len)]
    }
}

impl FromStr for Quotas {
    type Err = ParseQuotaError;

    /// Parses [quotas](Quota::from_str) separated by `;`.
    fn from_str(text: &str) -> Result<Quotas, ParseQuotaError> {
        let mut parts = text.split(';').map(str::trim);
        let first: Quota = parts.next().unwrap_or("").parse()?;
        parts.try_fold(Quotas::one(first), |quotas, part| {
            if part.is_empty() {
                return Err(ParseQuotaError::new(text, "expected a quota after each `;`".into(), None));
            }
            quotas.try_and(part.parse()?).map_err(|cause| ParseQuotaError::new(text, cause.to_string(), Some(cause)))
        })
    }
}

/// Writes text that [`FromStr`] parses back to the same list, such as `10/s; 1000/d`.
impl fmt::Display for Quotas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, quota) in self.iter().enumerate() {
            if i > 0 {
                f.write_str("; ")?;
            }
            quota.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Quotas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Eq for Quotas {}

impl PartialEq for Quotas {
    fn eq(&self, other: &Quotas) -> bool {
        self[..] == other[..]
    }
}

impl Hash for Quotas {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self[..].hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::{DAY, MINUTE, SECOND};

    #[test]
    fn a_list_of_quotas_is_displayed_as_the_text_that_it_was_parsed_from() {
        for text in ["10/s", "10/s; 1000/d", "10/s burst 20; 100/min fixed; 1000/d sliding; 5/2w"] {
            assert_eq!(text.parse::<Quotas>().map(|quotas| quotas.to_string()), Ok(text.to_owned()));
        }
        let list = Quota::token_bucket(10, SECOND).and(Quota::token_bucket(1000, DAY));
        assert_eq!("10/s;1000/day".parse(), Ok(list));
        assert_ne!(Quotas::from(list[0]), list);
    }

    #[test]
    fn an_error_about_a_list_names_the_invalid_quota() {
        for (text, expected) in [
            ("10/s; 20/1000ms", "quota \"10/s; 20/1000ms\": two quotas have a period of 1 s; "),
            ("10/s; 1/min; 1/h; 1/d; 1/w", "more than four quotas"),
            ("10/s;", "quota \"10/s;\": expected a quota after each `;`"),
            ("10/s; ten/min", "quota \"ten/min\": expected a rate"),
        ] {
            let error = text.parse::<Quotas>().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn unused_elements_are_ignored() {
        let both = |first| Quota::token_bucket(first, SECOND).and(Quota::token_bucket(1, MINUTE));
        assert_ne!(both(1), both(2));
        assert_eq!(both(1), both(1));
        assert_eq!(format!("{:?}", both(1)), format!("{:?}", both(1).to_vec()));
    }
}
