//! The error for an invalid quota.

use std::fmt;

use super::const_message::ConstMessage;

/// The error for an invalid quota. It shows the invalid value and the valid range. See [`Quota`](super::Quota).
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
        const SECOND: u64 = 1_000_000;
        let (number, after) = if micros % (86_400 * SECOND) == 0 {
            (micros / (86_400 * SECOND), SAME_PERIOD[0])
        } else if micros % (3600 * SECOND) == 0 {
            (micros / (3600 * SECOND), SAME_PERIOD[1])
        } else if micros % SECOND == 0 {
            (micros / SECOND, SAME_PERIOD[2])
        } else {
            (micros, SAME_PERIOD[3])
        };
        QuotaError::new("two quotas have a period of ", number, after)
    }

    pub(crate) const fn different_shards(shards: u64) -> QuotaError {
        QuotaError::new(
            "shards is ",
            shards,
            ", which differs from the first quota; quotas that apply together need the same number of shards",
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

const SAME_PERIOD: [&str; 4] = [
    " d; quotas that apply together need different periods: remove one of them, or change its period",
    " h; quotas that apply together need different periods: remove one of them, or change its period",
    " s; quotas that apply together need different periods: remove one of them, or change its period",
    " us; quotas that apply together need different periods: remove one of them, or change its period",
];

pub(super) const TOO_MANY: &str = "; it must be at most 999999999999999 tokens";
pub(super) const TOO_LONG: &str = "; at this rate it takes over 285 years to refill, so lower it or raise the rate";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_shown_in_the_largest_unit_that_divides_it() {
        for (micros, period) in [
            (172_800_000_000, "2 d;"),
            (90_000_000_000, "25 h;"),
            (10_800_000_000, "3 h;"),
            (5_400_000_000, "5400 s;"),
            (2_000_000, "2 s;"),
            (1_500_000, "1500000 us;"),
        ] {
            let text = QuotaError::same_period(micros).to_string();
            assert!(text.starts_with(&format!("two quotas have a period of {period}")), "{text}");
        }
    }
}
