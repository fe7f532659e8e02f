//! The error for an invalid quota.

use std::fmt;

use super::const_message::ConstMessage;

/// The error for an invalid quota. The message shows the invalid value and the valid range.
///
/// ```
/// use tollgate::{Quota, MINUTE};
/// let error = Quota::try_token_bucket(0, MINUTE).unwrap_err();
/// assert_eq!(error.to_string(), "rate is 0; it must be from 1 to 999999999999999 tokens");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaError {
    before: &'static str,
    value: Option<u64>,
    after: &'static str,
}

impl QuotaError {
    pub(super) const fn new(before: &'static str, value: u64, after: &'static str) -> QuotaError {
        QuotaError { before, value: Some(value), after }
    }

    pub(super) const fn without_value(message: &'static str) -> QuotaError {
        QuotaError { before: message, value: None, after: "" }
    }

    pub(crate) const fn same_period(micros: u64) -> QuotaError {
        QuotaError::new(
            "two quotas have a period of ",
            micros,
            " us; quotas that apply together need different periods: remove one of them, or change its period",
        )
    }

    pub(crate) const fn too_many_quotas() -> QuotaError {
        QuotaError::without_value("more than four quotas apply together; remove some")
    }

    #[track_caller]
    pub(crate) const fn panic(&self) -> ! {
        let message = ConstMessage::new().text(self.before);
        let message = match self.value {
            Some(value) => message.number(value),
            None => message,
        };
        message.text(self.after).panic()
    }
}

impl fmt::Display for QuotaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.before)?;
        if let Some(value) = self.value {
            write!(f, "{value}")?;
        }
        f.write_str(self.after)
    }
}

impl std::error::Error for QuotaError {}

pub(super) const TOO_MANY: &str = "; it must be at most 999999999999999 tokens";
pub(super) const TOO_LONG: &str = "; at this rate it takes over 285 years to refill, so lower it or raise the rate";
