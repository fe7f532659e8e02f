//! Headers: for any decisions, the headers of each family parse back to the numbers and names of the decisions.

use std::time::Duration;

use arbitrary::{Result, Unstructured};
use http::HeaderMap;
use tollgate::algorithm::{Algorithm, State, step};
use tollgate::{Decision, HeaderFamily, Policy, Quota, fuzzing, middleware::ResetUnit, policy::Decisions};

use crate::raw;

/// Reads `data` as a header family and up to four decisions at the same instant.
pub fn run(data: &[u8]) {
    let _ = check(&mut Unstructured::new(data));
}

fn check(u: &mut Unstructured<'_>) -> Result<()> {
    let shape: u8 = u.arbitrary()?;
    let family = match shape % 5 {
        0 | 1 => HeaderFamily::Draft11,
        2 => HeaderFamily::Draft6,
        3 => HeaderFamily::XRateLimit(ResetUnit::Seconds),
        _ => HeaderFamily::XRateLimit(ResetUnit::Epoch),
    };
    let now = raw::instant(u)?;
    let (mut policies, mut steps) = (Vec::new(), Vec::new());
    for _ in 0..=shape >> 6 & 3 {
        let (quota, other) = (raw::quota(u)?, raw::quota(u)?);
        let length = 1 + usize::from(u.arbitrary::<u8>()?) % 128;
        let name: String = u.bytes(length.min(u.len()))?.iter().map(|byte| char::from(b' ' + byte % 95)).collect();
        let policy = Policy::try_new(name, quota).map_err(|_| arbitrary::Error::IncorrectFormat)?;
        // The policy may have a tier, and the caller may be in it.
        let (policy, quota) = match policy.clone().try_tier("tier", other) {
            Ok(tiered) => (tiered, if shape & 32 == 0 { quota } else { other }),
            Err(_) => (policy, quota),
        };
        let state = if shape & 16 == 0 { State::default() } else { raw::state(u, &quota)? };
        let ask = raw::ask(u, &quota)?;
        steps.push((quota, ask, step(&quota, &state, now, ask)));
        policies.push(policy);
    }
    let all_granted = steps.iter().all(|(.., step)| step.is_allowed());
    let decided = policies.iter().zip(steps).map(|(policy, (quota, ask, step))| {
        fuzzing::decision(policy.name().clone(), quota, ask.tokens(), step, all_granted)
    });
    let decisions: Decisions = decided.collect();
    let headers = fuzzing::sent(family, &policies, &decisions);
    match family {
        HeaderFamily::Draft11 => check_draft_11(&headers, &decisions),
        HeaderFamily::Draft6 => check_three_fields(&headers, &decisions, "", false),
        HeaderFamily::XRateLimit(unit) => check_three_fields(&headers, &decisions, "x-", unit == ResetUnit::Epoch),
        _ => {}
    }
    let retry = decisions.retry_after();
    assert_eq!(one_number(&headers, "retry-after"), retry.map(seconds), "{decisions:?}");
    assert_eq!(headers.contains_key("cache-control"), !decisions.is_allowed(), "{headers:?}");
    assert!(decisions.iter().all(|decision| decision.remaining() <= decision.capacity()), "{decisions:?}");
    Ok(())
}

/// Checks the structured fields of draft 11, with an item for each policy.
fn check_draft_11(headers: &HeaderMap, decisions: &Decisions) {
    let allowed = decisions.is_allowed();
    let shown: Vec<&Decision> = decisions.iter().filter(|decision| allowed || decision.is_violated()).collect();
    let policies = items(headers, "ratelimit-policy");
    let limits = items(headers, "ratelimit");
    assert_eq!((policies.len(), limits.len()), (decisions.iter().count(), shown.len()), "{headers:?}");
    for ((name, parameters), decision) in policies.iter().zip(decisions) {
        assert_eq!(name, decision.policy().as_str());
        let expected = [("q", decision.capacity()), ("w", seconds(window(&decision.quota())))];
        assert_eq!(parameters[..], expected.map(|(key, value)| (key.to_owned(), value)), "{decision:?}");
    }
    for ((name, parameters), decision) in limits.iter().zip(shown) {
        assert_eq!(name, decision.policy().as_str());
        let mut expected = vec![("r".to_owned(), decision.remaining())];
        if allowed || decision.retry_after().is_some() {
            expected.push(("t".to_owned(), seconds(decision.window())));
        }
        assert_eq!(*parameters, expected, "{decision:?}");
    }
    // `Retry-After` must not be earlier than the end of any window in the header (draft-11, section 6).
    if let Some(retry) = one_number(headers, "retry-after") {
        let ends = limits.iter().flat_map(|(_, parameters)| parameters).filter(|(key, _)| key == "t");
        assert!(ends.into_iter().all(|(_, ends)| *ends <= retry), "{headers:?}");
    }
}

/// Checks the three fields of the older families. They describe the decision with the smallest remaining share or the
/// longest wait.
fn check_three_fields(headers: &HeaderMap, decisions: &Decisions, x: &str, epoch: bool) {
    let field = |name: &str| one_number(headers, &format!("{x}ratelimit-{name}"));
    let number = |name: &str| field(name).expect("a field");
    let (limit, remaining, reset) = (number("limit"), number("remaining"), field("reset"));
    let numbers = |decision: &Decision| (decision.capacity(), decision.remaining());
    let mut fits = decisions.iter().filter(|decision| numbers(decision) == (limit, remaining));
    let at = decisions.iter().next().expect("a decision").step().now;
    let found = fits.any(|decision| {
        let wait = if decision.is_violated() || decision.quota().algorithm() != Algorithm::TokenBucket {
            decision.window()
        } else {
            decision.reset()
        };
        // A request that can never be allowed has no reset.
        let never = decision.is_violated() && decision.retry_after().is_none();
        let expected = if epoch { (at + wait).get().div_ceil(1_000_000) } else { seconds(wait) };
        let reset_fits = reset == (!never).then_some(expected);
        // Only draft 6 has the field `RateLimit-Policy`.
        let policy = format!("{};w={}", decision.capacity(), seconds(window(&decision.quota())));
        reset_fits && headers.get("ratelimit-policy").is_none_or(|text| text == policy.as_str())
    });
    assert!(found, "{headers:?} of {decisions:?}");
    assert_eq!(headers.contains_key("ratelimit-policy"), x.is_empty(), "{headers:?}");
    if decisions.is_allowed() {
        let share = |decision: &Decision| u128::from(decision.remaining()) * u128::from(limit);
        let least = decisions.iter().all(|d| share(d) >= u128::from(remaining) * u128::from(d.capacity()));
        assert!(least, "{headers:?} of {decisions:?}");
    }
}

/// Returns the strings in a structured list, with their parameters.
fn items(headers: &HeaderMap, name: &str) -> Vec<(String, Vec<(String, u64)>)> {
    let lines: Vec<&[u8]> = headers.get_all(name).iter().map(|line| line.as_bytes()).collect();
    let text = lines.join(&b", "[..]);
    let list: sfv::List = sfv::Parser::new(&text).parse().unwrap_or_else(|error| panic!("{error}: {headers:?}"));
    let item = |entry: &sfv::ListEntry| {
        let sfv::ListEntry::Item(item) = entry else { panic!("an inner list: {headers:?}") };
        let number = |value: &sfv::BareItem| u64::try_from(value.as_integer().map(i64::from)?).ok();
        let parameters = item.params.iter().map(|(key, value)| (key.to_string(), number(value).expect("a number")));
        (item.bare_item.as_string().expect("a string").to_string(), parameters.collect())
    };
    list.iter().map(item).collect()
}

fn one_number(headers: &HeaderMap, name: &str) -> Option<u64> {
    let mut all = headers.get_all(name).iter();
    let number = all.next()?.to_str().ok()?.parse().expect("a number");
    assert!(all.next().is_none(), "duplicate {name}: {headers:?}");
    Some(number)
}

/// Seconds for a header: rounded up, at least 1, and at most fifteen digits.
fn seconds(duration: Duration) -> u64 {
    duration.as_nanos().div_ceil(1_000_000_000).clamp(1, 999_999_999_999_999) as u64
}

/// `w` as the draft defines it: the time window of the limit. For a capacity of 0, it is the time in which one token is
/// refilled.
fn window(quota: &Quota) -> Duration {
    let (period, limit, rate) =
        (quota.period().as_micros(), u128::from(quota.get_capacity().max(1)), u128::from(quota.rate()));
    let micros = match quota.algorithm() {
        Algorithm::TokenBucket => (limit * period).div_ceil(rate),
        Algorithm::FixedWindow => limit.div_ceil(rate) * period,
        _ => period,
    };
    Duration::from_micros(micros as u64)
}
