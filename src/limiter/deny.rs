//! Deny lists.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use ipnet::IpNet;

use super::agents::Agents;
use crate::policy::{DenyKind, DenyRule, Key, Pattern, Signals};
use crate::sync::{Mutex, PoisonError, RwLock};

/// A list of rules that deny callers by key, address, user agent, country or any other label, regardless of quotas. A
/// list can be edited while it is in use. Clones of a list share its rules.
///
/// ```
/// use tollgate::protection::{DenyList, DenyRule, Signals};
/// use tollgate::{Key, MemoryBackend, Policy, Quota, RateLimiter, Reason, MINUTE};
/// static API: Policy = Policy::new("api", Quota::token_bucket(100, MINUTE));
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let list = DenyList::from_iter([DenyRule::network("192.0.2.0/24")?, DenyRule::user_agent("*GPTBot/*")?]);
/// let limiter = RateLimiter::builder(MemoryBackend::new()).deny_list(&list).build();
///
/// let denied = limiter.try_acquire(&API, "ada").ip("192.0.2.7".parse()?).await?;
/// assert_eq!(denied.reason(), Reason::DenyList);
///
/// list.insert(DenyRule::key("mallory")); // takes effect immediately
/// assert!(!limiter.try_limit(&API, "mallory").await?.is_allowed());
/// assert!(list.find(Some(&Key::from("mallory")), &Signals::new()).is_some()); // without a limiter
/// list.replace([DenyRule::network("192.0.2.0/24")?]); // after rereading a file, for example
/// # Ok(()) }
/// ```
///
/// A listed caller is denied without a call to the backend. The client receives a 429 response that does not say when
/// to retry. Handlers and observers can read the rule with [`Decision::denied_rule`](crate::Decision::denied_rule).
///
/// A layer [reads](crate::RateLimitLayer::client_ip) signals from the request. Outside of a layer, pass signals with
/// methods such as [`Acquire::ip`](crate::limiter::Acquire::ip). User agents and countries are reported by the client
/// or the CDN, so rules for them stop only clients that do not disguise themselves.
///
/// # Rules that can never match
/// A rule for a key matches only that exact key, including its type: the text `"7"` differs from the number 7 and from
/// the bearer token `7`. A rule for a key from [`bearer`](crate::key::bearer), [`header`](crate::key::header),
/// [`cookie`](crate::key::cookie) or `path` also matches combined keys that contain it. For example, the rule
/// `bearer:sk_leaked` also applies to `bearer().and(client_ip())`. To deny any other combined key, list the whole key.
/// To deny an address, add a network rule for it, such as a /32. A rule for [`Key::anonymous`] matches all callers
/// without a key.
///
/// Rules that a layer can never apply are counted in [`Stats::mistakes`](crate::limiter::Stats::mistakes), when the
/// layer wraps a service or when they are added later. Each kind of unmatchable rule is
/// [reported](crate::observe::Observer::mistake) once, with a text that explains what to add to the layer. Ignore the
/// report if another layer or a handler with the same limiter applies the rules. A rule with the wrong type of key is
/// not detected if the layer's keys come from a closure, an extractor with [`map`] or a custom extractor.
///
/// [`map`]: crate::key::KeyExtractor::map
#[derive(Clone, Default)]
pub struct DenyList {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    compiled: RwLock<Arc<Compiled>>,
    /// Serializes writers, which rebuild the list before they lock `compiled`.
    changing: Mutex<()>,
    changes: AtomicU64,
}

#[derive(Default)]
struct Compiled {
    rules: HashSet<Arc<DenyRule>>,
    /// The prefix lengths of all networks. A lookup tries them one by one.
    prefixes: BTreeSet<u8>,
    agents: Arc<Agents>,
    kinds: OnceLock<Vec<Arc<DenyRule>>>,
}

impl DenyList {
    /// Creates an empty list.
    pub fn new() -> DenyList {
        DenyList::default()
    }

    /// Adds a rule. Returns whether the rule is new. Every change rebuilds the list, so use
    /// [`extend`](DenyList::extend) to add many rules.
    pub fn insert(&self, rule: DenyRule) -> bool {
        self.extend([rule]) > 0
    }

    /// Adds several rules. Returns how many of them are new.
    pub fn extend(&self, rules: impl IntoIterator<Item = DenyRule>) -> usize {
        self.change(|all| {
            let before = all.len();
            all.extend(rules.into_iter().map(Arc::new));
            all.len() - before
        })
    }

    /// Removes exactly this rule. Returns whether the rule was on the list.
    pub fn remove(&self, rule: &DenyRule) -> bool {
        self.change(|all| all.remove(rule))
    }

    /// Replaces all rules in one step.
    pub fn replace(&self, rules: impl IntoIterator<Item = DenyRule>) {
        self.change(|all| *all = rules.into_iter().map(Arc::new).collect());
    }

    /// Returns the rules, in arbitrary order.
    pub fn rules(&self) -> Vec<Arc<DenyRule>> {
        self.compiled().rules.iter().cloned().collect()
    }

    /// Returns whether exactly this rule is on the list.
    pub fn contains(&self, rule: &DenyRule) -> bool {
        self.compiled().rules.contains(rule)
    }

    /// Returns the number of rules.
    pub fn len(&self) -> usize {
        self.compiled().rules.len()
    }

    /// Returns whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.compiled().rules.is_empty()
    }

    /// Returns the rule that denies a caller with the given key and signals. If several networks match, returns the
    /// rule for the smallest network.
    pub fn find(&self, key: Option<&Key>, signals: &Signals) -> Option<Arc<DenyRule>> {
        let compiled = self.compiled();
        let network = || compiled.find_network(signals.ip?);
        let label = || signals.labels().find_map(|(name, value)| compiled.find_label(name, value));
        let agent = || compiled.find_agent(signals.user_agent.as_deref()?);
        let find_key = |key: Key| compiled.find(DenyKind::Key(key));
        let key = || find_key(key?.clone()).or_else(|| key?.found_inside().find_map(find_key));
        network().or_else(label).or_else(agent).or_else(key).cloned()
    }

    #[cfg(feature = "serde")]
    pub(crate) fn is_same(&self, other: &DenyList) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    pub(crate) fn changes(&self) -> u64 {
        self.shared.changes.load(Ordering::Acquire)
    }

    /// Returns one rule of each [kind](DenyRule::kind), ordered by kind.
    pub(crate) fn kinds(&self) -> Vec<Arc<DenyRule>> {
        let compiled = self.compiled();
        compiled.kinds.get_or_init(|| compiled.find_kinds()).clone()
    }

    fn compiled(&self) -> Arc<Compiled> {
        Arc::clone(&self.shared.compiled.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Readers wait only while the rules are swapped.
    fn change<T>(&self, change: impl FnOnce(&mut HashSet<Arc<DenyRule>>) -> T) -> T {
        let _one_at_a_time = self.shared.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.compiled();
        let mut rules = before.rules.clone();
        let changed = change(&mut rules);
        let compiled = Arc::new(Compiled::new(rules, &before));
        // The old rules are dropped after `compiled` is unlocked.
        let _before =
            std::mem::replace(&mut *self.shared.compiled.write().unwrap_or_else(PoisonError::into_inner), compiled);
        self.shared.changes.fetch_add(1, Ordering::Release);
        changed
    }
}

impl Compiled {
    fn new(rules: HashSet<Arc<DenyRule>>, before: &Compiled) -> Compiled {
        let mut compiled = Compiled::default();
        let mut patterns = Vec::new();
        for rule in &rules {
            match &rule.0 {
                DenyKind::Network(network) => {
                    compiled.prefixes.insert(network.prefix_len());
                }
                DenyKind::UserAgent(pattern) if !pattern.is_exact() => {
                    patterns.push((pattern, rule));
                }
                DenyKind::UserAgent(_) | DenyKind::Key(_) | DenyKind::Label { .. } => {}
            }
        }
        let all_known = patterns.iter().all(|(_, rule)| before.rules.contains(*rule));
        let unchanged = all_known && patterns.len() == before.agents.len();
        compiled.agents = if unchanged { Arc::clone(&before.agents) } else { Arc::new(Agents::new(&patterns)) };
        Compiled { rules, ..compiled }
    }

    fn find_kinds(&self) -> Vec<Arc<DenyRule>> {
        let mut kinds: BTreeMap<String, &Arc<DenyRule>> = BTreeMap::new();
        self.rules.iter().for_each(|rule| _ = kinds.entry(rule.kind()).or_insert(rule));
        kinds.into_values().cloned().collect()
    }

    fn find(&self, kind: DenyKind) -> Option<&Arc<DenyRule>> {
        self.rules.get(&DenyRule(kind))
    }

    fn find_network(&self, address: IpAddr) -> Option<&Arc<DenyRule>> {
        self.prefixes.iter().rev().find_map(|length| {
            let network = IpNet::new(address, *length).ok()?; // An IPv4 address cannot have a 64-bit prefix.
            self.find(DenyKind::Network(network.trunc()))
        })
    }

    fn find_label(&self, name: &str, value: &str) -> Option<&Arc<DenyRule>> {
        self.find(DenyKind::Label { name: name.to_owned().into(), value: value.to_owned() })
    }

    fn find_agent(&self, agent: &str) -> Option<&Arc<DenyRule>> {
        let exactly = Pattern::exactly(agent);
        self.find(DenyKind::UserAgent(exactly.clone())).or_else(|| self.agents.find(exactly.as_str()))
    }
}

impl FromIterator<DenyRule> for DenyList {
    fn from_iter<I: IntoIterator<Item = DenyRule>>(rules: I) -> DenyList {
        let list = DenyList::new();
        list.extend(rules);
        list
    }
}

debug_fields!(DenyList, |list| len: list.len());

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn signals(ip: &str) -> Signals {
        Signals::new().ip(ip.parse().expect("a valid address"))
    }

    #[test]
    fn each_kind_of_rule_matches_its_signal() {
        let list = DenyList::from_iter([
            DenyRule::key("mallory"),
            DenyRule::network("192.0.2.0/24").expect("a valid network"),
            DenyRule::user_agent("*bot*").expect("a valid pattern"),
            DenyRule::user_agent("curl/8.0").expect("a valid pattern"),
            DenyRule::country("KP").expect("a valid country"),
            DenyRule::label("asn", "64496").expect("a valid label"),
        ]);
        let found = |key: Option<&str>, signals: Signals| {
            list.find(key.map(Key::from).as_ref(), &signals).map(|rule| rule.to_string())
        };
        let rule = |text: &str| Some(text.to_owned());
        assert_eq!(found(Some("mallory"), Signals::new()), rule("key"));
        assert_eq!(found(None, signals("192.0.2.7")), rule("network 192.0.2.0/24"));
        assert_eq!(found(None, signals("::ffff:192.0.2.7")), rule("network 192.0.2.0/24"));
        assert_eq!(found(None, Signals::new().user_agent("GoogleBot/2")), rule("user agent \"*bot*\""));
        assert_eq!(found(None, Signals::new().user_agent("CURL/8.0")), rule("user agent \"curl/8.0\""));
        assert_eq!(found(None, Signals::new().country("kp")), rule("country \"KP\""));
        assert_eq!(found(None, Signals::new().label("asn", "64496")), rule("asn \"64496\""));
        let harmless = signals("192.0.3.7").user_agent("curl/8.0.1").country("DE").label("asn", "64497");
        assert_eq!(found(Some("ada"), harmless), None);
        assert_eq!(found(None, Signals::new()), None);
    }

    #[test]
    fn a_deny_list_can_be_edited_while_in_use() {
        let list = DenyList::new();
        let (wide, narrow) = ("10.0.0.0/8", "10.1.0.0/16");
        let rule = |text: &str| DenyRule::network(text).expect("a valid network");
        assert!(list.insert(rule(wide)) && !list.insert(rule(wide)));
        assert_eq!(list.extend([rule(wide), rule(narrow)]), 1);
        assert_eq!(list.find(None, &signals("10.1.2.3")), Some(Arc::new(rule(narrow))));
        assert!(list.remove(&rule(narrow)) && !list.remove(&rule(narrow)));
        assert_eq!(list.find(None, &signals("10.1.2.3")), Some(Arc::new(rule(wide))));
        list.clone().replace([rule(narrow)]);
        assert!(list.contains(&rule(narrow)) && !list.contains(&rule(wide)));
        assert_eq!((list.len(), list.find(None, &signals("10.2.0.1"))), (1, None));
    }

    #[test]
    fn concurrent_inserts_lose_no_rule() {
        let list = DenyList::new();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let list = &list;
                scope.spawn(move || (0..50).for_each(|i| assert!(list.insert(DenyRule::key((thread, i))))));
            }
        });
        assert_eq!(list.len(), 200);
    }

    fn network() -> impl Strategy<Value = IpNet> {
        // The addresses differ in only a few bits, so that networks often overlap.
        let v4 = (0u32..8, 0u32..8, 0u8..=32).prop_map(|(high, low, prefix)| {
            IpNet::new(IpAddr::V4((high << 29 | low).into()), prefix).expect("a valid prefix").trunc()
        });
        let v6 = (0u128..4, 0u128..4, 0u8..=128).prop_map(|(high, low, prefix)| {
            IpNet::new(IpAddr::V6((high << 126 | low).into()), prefix).expect("a valid prefix").trunc()
        });
        prop_oneof![v4, v6]
    }

    fn compiled(networks: &HashSet<IpNet>) -> Compiled {
        Compiled::new(
            networks.iter().map(|network| Arc::new(DenyRule(DenyKind::Network(*network)))).collect(),
            &Compiled::default(),
        )
    }

    fn found(compiled: &Compiled, address: IpAddr) -> Option<IpNet> {
        compiled.find_network(address).map(|rule| match &rule.0 {
            DenyKind::Network(network) => *network,
            _ => unreachable!("only networks were inserted"),
        })
    }

    fn smallest(networks: &HashSet<IpNet>, address: IpAddr) -> Option<IpNet> {
        let matching = networks.iter().filter(|network| network.contains(&address));
        matching.max_by_key(|network| network.prefix_len()).copied()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(5_000))]
        #[test]
        fn the_smallest_matching_network_is_found(networks in proptest::collection::hash_set(network(), 0..20)) {
            let rules = compiled(&networks);
            for network in &networks {
                let (first, last) = (network.network(), network.broadcast());
                let near = match (first, last) {
                    (IpAddr::V4(first), IpAddr::V4(last)) => {
                        let (first, last) = (u32::from(first), u32::from(last));
                        [first, first.wrapping_sub(1), last, last.wrapping_add(1)].map(|a| IpAddr::V4(a.into()))
                    }
                    (IpAddr::V6(first), IpAddr::V6(last)) => {
                        let (first, last) = (u128::from(first), u128::from(last));
                        [first, first.wrapping_sub(1), last, last.wrapping_add(1)].map(|a| IpAddr::V6(a.into()))
                    }
                    _ => unreachable!("a network has one address family"),
                };
                for address in near {
                    prop_assert_eq!(found(&rules, address), smallest(&networks, address), "{}", address);
                }
            }
        }
    }

    #[test]
    fn the_smallest_match_among_many_realistic_networks_is_found() {
        let mut random = 1u64;
        let mut next = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            random >> 32
        };
        let networks: HashSet<IpNet> = (0..3000)
            .map(|_| {
                let v4 = IpNet::new(IpAddr::V4((next() as u32).into()), 8 + (next() % 25) as u8);
                let v6 = u128::from(0x2001_0db8 + next() % 4096) << 96 | u128::from(next()) << 64;
                let v6 = IpNet::new(IpAddr::V6(v6.into()), 20 + (next() % 45) as u8);
                if next() % 2 == 0 { v4 } else { v6 }.expect("a valid prefix").trunc()
            })
            .collect();
        let rules = compiled(&networks);
        for _ in 0..3000 {
            let v4 = IpAddr::V4((next() as u32).into());
            let v6 = IpAddr::V6((u128::from(0x2001_0db8 + next() % 4096) << 96 | u128::from(next()) << 64).into());
            for address in [v4, v6] {
                assert_eq!(found(&rules, address), smallest(&networks, address), "{address}");
            }
        }
    }
}
