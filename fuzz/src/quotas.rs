//! Quotas as text: a parsed quota has the values in the text, and its printed form parses to the same quota.

use tollgate::algorithm::Algorithm;
use tollgate::{Policy, Quota};

/// Reads `data` as a quota.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match text.parse::<Quota>() {
        Ok(quota) => {
            check_values(text, &quota);
            reads_back(&quota);
        }
        Err(error) => {
            let message = error.to_string();
            assert!(message.starts_with("quota \""), "{message}");
            // The message quotes two strings of up to 80 characters, all of which may be escaped.
            assert!(message.len() < 2500, "{} bytes: {message}", message.len());
        }
    }
}

/// Checks that the quota parses back from its text and from serde, and that its text is a valid policy name.
pub fn reads_back(quota: &Quota) {
    let printed = quota.to_string();
    assert_eq!(printed.parse().as_ref(), Ok(quota), "{printed}");
    let json = serde_json::to_string(quota).expect("text");
    assert_eq!(serde_json::from_str::<Quota>(&json).ok().as_ref(), Some(quota), "{json}");
    assert!(
        tollgate::algorithm::validate(&quota).is_err() || Policy::try_new(printed.clone(), *quota).is_ok(),
        "{printed}"
    );
}

fn check_values(text: &str, quota: &Quota) {
    let number = |text: &str| text.trim().replace('_', "").parse::<u64>().expect("a number");
    let (rate, rest) = text.split_once('/').or_else(|| text.split_once(" per ")).expect("two halves");
    assert_eq!(quota.rate(), number(rate), "{text:?}");
    let words: Vec<&str> = rest.split_whitespace().collect();
    let after = |word: &str| words.iter().position(|other| *other == word).map(|at| words[at + 1]);
    assert_eq!(quota.get_capacity(), after("burst").map_or(quota.rate(), number), "{text:?}");
    let max_reserved = match after("reserve") {
        None => Some(0),
        Some("unlimited") => None,
        Some(tokens) => Some(number(tokens)),
    };
    assert_eq!(quota.get_max_reserved(), max_reserved, "{text:?}");
    let algorithm = match (words.contains(&"fixed"), words.contains(&"sliding")) {
        (false, false) => Algorithm::TokenBucket,
        (true, false) => Algorithm::FixedWindow,
        _ => Algorithm::SlidingWindow,
    };
    assert_eq!(quota.algorithm(), algorithm, "{text:?}");
    assert_eq!(quota.get_start().is_some(), after("start").is_some(), "{text:?}");
    assert!(!quota.period().is_zero() && quota.period() <= Quota::MAX_PERIOD, "{text:?}");
}
