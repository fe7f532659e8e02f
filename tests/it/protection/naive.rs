//! Compares deny lists with a model that checks every rule.

use std::collections::HashSet;
use std::net::IpAddr;

use proptest::prelude::*;
use tollgate::{
    Key,
    protection::{DenyList, DenyRule, Signals},
};

use crate::support::generators::cases;

/// A deny rule in a form that the model can read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum ModelRule {
    Key(u8),
    /// Whether the network is IPv6, and the bits of its prefix, most significant bit first.
    Network(bool, Vec<bool>),
    Agent(String),
    Label(&'static str, String),
}

#[derive(Clone, Debug)]
struct Caller {
    key: Option<u8>,
    address: Option<(bool, Vec<bool>)>,
    /// Whether an IPv4 address is sent as an IPv4-mapped IPv6 address.
    mapped: bool,
    agent: Option<String>,
    labels: Vec<(&'static str, String)>,
}

fn address(is_v6: bool, bits: &[bool]) -> IpAddr {
    if is_v6 {
        let number = bits.iter().enumerate().fold(0u128, |sum, (i, bit)| sum | u128::from(*bit) << (127 - i));
        IpAddr::V6(number.into())
    } else {
        let number = bits.iter().enumerate().fold(0u32, |sum, (i, bit)| sum | u32::from(*bit) << (31 - i));
        IpAddr::V4(number.into())
    }
}

impl ModelRule {
    fn rule(&self) -> DenyRule {
        match self {
            ModelRule::Key(key) => DenyRule::key(*key),
            ModelRule::Network(is_v6, bits) => {
                DenyRule::network(&format!("{}/{}", address(*is_v6, bits), bits.len())).unwrap()
            }
            ModelRule::Agent(pattern) => DenyRule::user_agent(pattern).unwrap(),
            ModelRule::Label(name, value) => DenyRule::label(*name, value).unwrap(),
        }
    }

    fn is_match(&self, caller: &Caller) -> bool {
        match self {
            ModelRule::Key(key) => caller.key == Some(*key),
            ModelRule::Network(is_v6, bits) => {
                caller.address.as_ref().is_some_and(|(v6, address)| v6 == is_v6 && address.starts_with(bits))
            }
            ModelRule::Agent(pattern) => caller
                .agent
                .as_ref()
                .is_some_and(|agent| matches(pattern.to_lowercase().as_bytes(), agent.to_lowercase().as_bytes())),
            ModelRule::Label(name, value) => {
                caller.labels.iter().any(|(known, actual)| known == name && actual.eq_ignore_ascii_case(value))
            }
        }
    }

    /// Returns the precedence of a matching rule. Networks come first (smaller networks before larger ones), then
    /// labels, then user agents (exact patterns first), then keys.
    fn rank(&self) -> (u8, usize) {
        match self {
            ModelRule::Network(_, bits) => (0, 128 - bits.len()),
            ModelRule::Label(..) => (1, 0),
            ModelRule::Agent(pattern) => (2, usize::from(pattern.contains('*'))),
            ModelRule::Key(_) => (3, 0),
        }
    }
}

fn matches(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern.first(), text.first()) {
        (None, None) => true,
        (Some(b'*'), _) => matches(&pattern[1..], text) || !text.is_empty() && matches(pattern, &text[1..]),
        (Some(a), Some(b)) => a == b && matches(&pattern[1..], &text[1..]),
        _ => false,
    }
}

/// Generates prefixes whose bits after the first four are 0, so that networks are often nested.
fn bits(max: usize) -> impl Strategy<Value = Vec<bool>> {
    (prop::collection::vec(any::<bool>(), 0..=4), 0..=max).prop_map(move |(head, length)| {
        let mut bits = head;
        bits.resize(length, false);
        bits
    })
}

fn model_rule() -> impl Strategy<Value = ModelRule> {
    let network = any::<bool>().prop_flat_map(|is_v6| {
        bits(if is_v6 { 128 } else { 32 }).prop_map(move |bits| ModelRule::Network(is_v6, bits))
    });
    prop_oneof![
        2 => (0u8..6).prop_map(ModelRule::Key),
        5 => network,
        2 => "[aB*]{1,4}".prop_filter("matches every agent", |text| text.bytes().any(|b| b != b'*')).prop_map(ModelRule::Agent),
        2 => (prop::sample::select(vec!["country", "asn"]), "[aB]{1,2}")
            .prop_map(|(name, value)| ModelRule::Label(name, value)),
    ]
}

fn caller() -> impl Strategy<Value = Caller> {
    let address = any::<bool>().prop_flat_map(|is_v6| {
        let width = if is_v6 { 128 } else { 32 };
        (prop::collection::vec(any::<bool>(), 4), 0..width).prop_map(move |(mut bits, flipped)| {
            bits.resize(width, false);
            bits[flipped] ^= true;
            (is_v6, bits)
        })
    });
    let labels = prop::collection::vec((prop::sample::select(vec!["country", "asn"]), "[Ab]{1,2}"), 0..3);
    (prop::option::of(0u8..6), prop::option::of(address), any::<bool>(), prop::option::of("[Ab]{0,5}"), labels)
        .prop_map(|(key, address, mapped, agent, labels)| Caller { key, address, mapped, agent, labels })
}

proptest! {
    #![proptest_config(cases(20_000))]
    #[test]
    fn a_deny_list_agrees_with_a_model_that_checks_every_rule(
        rules in prop::collection::vec(model_rule(), 0..24),
        removed in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
        callers in prop::collection::vec(caller(), 1..8),
    ) {
        let list = DenyList::from_iter(rules.iter().map(ModelRule::rule));
        let mut left: HashSet<ModelRule> = rules.iter().cloned().collect();
        for index in removed {
            if let Some(rule) = rules.get(index.index(rules.len().max(1))) {
                let same = |other: &ModelRule| other.rule() == rule.rule();
                prop_assert_eq!(list.remove(&rule.rule()), left.iter().any(same));
                left.retain(|other| !same(other));
            }
        }
        for caller in callers {
            let mut signals = Signals::new();
            if let Some((is_v6, bits)) = &caller.address {
                signals = signals.ip(match address(*is_v6, bits) {
                    IpAddr::V4(v4) if caller.mapped => IpAddr::V6(v4.to_ipv6_mapped()),
                    address => address,
                });
            }
            if let Some(agent) = &caller.agent {
                signals = signals.user_agent(agent.clone());
            }
            for (name, value) in &caller.labels {
                signals = signals.label(*name, value.clone());
            }
            let key = caller.key.map(Key::from);
            let found = list.find(key.as_ref(), &signals);
            let matching: Vec<&ModelRule> = left.iter().filter(|rule| rule.is_match(&caller)).collect();
            let text = format!("found {found:?}; the matching rules are {matching:?}");
            prop_assert_eq!(found.is_some(), !matching.is_empty(), "{}", text);
            if let Some(found) = found {
                // Rules of equal rank are interchangeable.
                let best = matching.iter().map(|rule| rule.rank()).min();
                let actual = matching.iter().filter(|rule| rule.rule() == *found).map(|rule| rule.rank()).min();
                prop_assert_eq!(actual, best, "{}", text);
            }
        }
    }
}
