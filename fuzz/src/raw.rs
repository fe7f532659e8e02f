//! Reads quotas, rows and asks from bytes, with realistic values and edge cases.

use std::time::Duration;

use arbitrary::{Result, Unstructured};
use tollgate::Quota;
use tollgate::algorithm::{Ask, Micros, State};

/// Reads a valid quota, or returns an error if the numbers are invalid.
pub fn quota(u: &mut Unstructured<'_>) -> Result<Quota> {
    let shape: u8 = u.arbitrary()?;
    let (rate, period) = (number(u)?.max(1), Duration::from_micros(number(u)?.max(1)));
    let quota = match shape % 3 {
        0 => Quota::try_token_bucket(rate, period),
        1 => Quota::try_fixed_window(rate, period),
        _ => Quota::try_sliding_window(rate, period),
    };
    let quota = if shape >> 2 & 1 == 1 { quota.and_then(|quota| quota.try_capacity(0)) } else { quota };
    let quota = match shape >> 3 & 3 {
        0 | 1 => quota,
        2 => quota.and_then(|quota| quota.try_unlimited_reservations()),
        _ => {
            let tokens = number(u)?;
            quota.and_then(|quota| quota.try_max_reserved(tokens))
        }
    };
    let quota = if shape >> 5 & 1 == 1 {
        let tokens = number(u)?;
        quota.and_then(|quota| quota.try_capacity(tokens))
    } else {
        quota
    };
    let quota = match shape >> 6 {
        0 => quota,
        1 => quota.map(|quota| tollgate::algorithm::seeded(quota, shape.into())),
        _ => {
            let start = number(u)?;
            quota.and_then(|quota| quota.try_start(Duration::from_micros(start)))
        }
    };
    quota.ok().filter(|quota| tollgate::algorithm::validate(&quota).is_ok()).ok_or(arbitrary::Error::IncorrectFormat)
}

/// Reads a number. The first byte determines its size, so that small numbers are as likely as large ones.
pub fn number(u: &mut Unstructured<'_>) -> Result<u64> {
    const TYPICAL: [u64; 16] = [
        0,
        1,
        10,
        60,
        1000,
        1_000_000,
        60_000_000,
        3_600_000_000,
        86_400_000_000,
        604_800_000_000,
        999_999_937,
        Quota::MAX_TOKENS,
        Quota::MAX_TOKENS + 1,
        (1 << 53) - 1,
        3_155_760_000_000_000,
        u64::MAX,
    ];
    Ok(match u.arbitrary::<u8>()? {
        size @ 0..=191 => size.into(),
        size @ 192..=207 => TYPICAL[usize::from(size - 192)],
        size @ 208..=223 => u64::from(u.arbitrary::<u16>()?) << (size - 208),
        size => u.arbitrary::<u64>()? >> (2 * (size - 224)),
    })
}

/// Reads any instant.
pub fn instant(u: &mut Unstructured<'_>) -> Result<Micros> {
    let micros = number(u)?;
    Ok(if micros < 192 { Micros::new(1_700_000_000_000_000 + micros) } else { Micros::new(micros) })
}

/// Reads a row as a backend may return it: finite, but otherwise arbitrary.
pub fn state(u: &mut Unstructured<'_>, quota: &Quota) -> Result<State> {
    let shape: u8 = u.arbitrary()?;
    let mut tokens = |whole: bool| -> Result<f64> {
        if whole {
            return Ok(number(u)?.min((1 << 53) - 1) as f64);
        }
        Ok(Some(f64::from_bits(u.arbitrary()?)).filter(|number| number.is_finite()).unwrap_or(0.5))
    };
    let (spent, carry) = (tokens(shape & 1 == 0)?, if shape & 2 == 0 { 0.0 } else { tokens(shape & 4 == 0)? });
    let stamp = if shape & 8 == 0 { tollgate::algorithm::stamp(&quota) } else { u.arbitrary()? };
    Ok(State { spent, at: instant(u)?, carry, stamp, clear: instant(u)? })
}

/// Reads an ask.
pub fn ask(u: &mut Unstructured<'_>, quota: &Quota) -> Result<Ask> {
    let shape: u8 = u.arbitrary()?;
    let cost = match shape & 7 {
        0 | 1 => 1,
        2 => 0,
        3 => quota.get_capacity(),
        4 => quota.get_capacity().saturating_add(1),
        5 => quota.get_capacity().saturating_add(quota.get_max_reserved().unwrap_or(1000)),
        _ => number(u)?,
    };
    let ask = Ask::cost(cost);
    Ok(match shape >> 3 & 3 {
        0 | 1 => ask,
        2 => ask.reserve(),
        _ => ask.wait_up_to(Duration::from_micros(number(u)?)),
    })
}
