//! Deny lists: whom a limiter denies whatever the limits say.

mod networks;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use ipnet::IpNet;

use self::networks::Networks;
use crate::policy::{DenyKind, DenyRule, Key, Pattern, Signals};
use crate::sync::{Mutex, PoisonError, RwLock};

/// Whom a limiter denies whatever the limits say, by key, address, user agent, country or another label. It can be
/// edited while it is in use; clones are the same list.
///
/// ```
/// use tollgate::{DenyList, DenyRule, Policy, Quota, RateLimiter, Reason, MemoryBackend, MINUTE};
///
/// static API: Policy = Policy::new("api", Quota::token_bucket(100, MINUTE));
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let list = DenyList::from_iter([DenyRule::network("192.0.2.0/24")?, DenyRule::user_agent("*GPTBot/*")?]);
/// let limiter = RateLimiter::builder(MemoryBackend::new()).deny_list(&list).build();
///
/// let denied = limiter.acquire(&API, "ada").ip("192.0.2.7".parse()?).await?;
/// assert_eq!(denied.reason(), Reason::DenyList);
///
/// list.insert(DenyRule::key("mallory")); // from now on
/// assert!(!limiter.limit(&API, "mallory").await?.is_allowed());
/// # Ok(())
/// # }
/// ```
///
/// The list by itself:
///
/// ```
/// use tollgate::{DenyList, DenyRule, Key, Signals};
///
/// let list = DenyList::new();
/// assert_eq!(list.extend([DenyRule::key("mallory"), DenyRule::key("eve"), DenyRule::key("eve")]), 2);
/// assert!(list.contains(&DenyRule::key("eve")) && list.remove(&DenyRule::key("eve")));
/// assert_eq!((list.len(), list.rules().len(), list.is_empty()), (1, 1, false));
/// assert!(list.find(Some(&Key::from("mallory")), &Signals::new()).is_some());
///
/// list.replace([DenyRule::network("192.0.2.0/24")?]); // as a file that was read again says
/// assert!(list.find(Some(&Key::from("mallory")), &Signals::new()).is_none());
/// # Ok::<(), tollgate::DenyRuleError>(())
/// ```
///
/// Whoever is on it is answered without asking the backend. Clients get the 429 of any denial that waiting does not
/// lift; [`Decision::denied_rule`](crate::Decision::denied_rule) and observers tell the rule.
///
/// A layer in [shadow mode](crate::RateLimitLayer::shadow), or for the share of keys for which it is not enforced,
/// keeps nobody out by it either.
///
/// What is known of a caller comes with the request ([`RateLimitLayer::client_ip`](crate::RateLimitLayer::client_ip),
/// [`label`](crate::RateLimitLayer::label)) or the call ([`Acquire::ip`](crate::Acquire::ip)). A user agent and a
/// country are what the client, or the CDN in front of the service, says they are: they keep out who does not hide.
#[derive(Clone, Default)]
pub struct DenyList {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    compiled: RwLock<Arc<Compiled>>,
    /// Held by whoever changes the list, for longer than readers could wait.
    changing: Mutex<()>,
}

/// The rules, in the shape in which they are looked up.
#[derive(Default)]
struct Compiled {
    rules: Vec<Arc<DenyRule>>,
    keys: HashMap<Key, u32>,
    networks: Networks<Arc<DenyRule>>,
    agents: HashMap<String, u32>,
    patterns: Vec<(Pattern, u32)>,
    /// By name, then by value.
    labels: HashMap<String, HashMap<String, u32>>,
}

impl DenyList {
    /// A list of nobody.
    pub fn new() -> DenyList {
        DenyList::default()
    }

    /// Adds a rule; whether it was not there yet. The list is put together anew each time, so that looking something up
    /// stays cheap: add many at once by [`extend`](DenyList::extend).
    pub fn insert(&self, rule: DenyRule) -> bool {
        self.extend([rule]) > 0
    }

    /// Adds rules; how many were not there yet.
    pub fn extend(&self, rules: impl IntoIterator<Item = DenyRule>) -> usize {
        let mut count = 0;
        self.change(|all| {
            let before = all.len();
            all.extend(rules.into_iter().map(Arc::new));
            count = all.len() - before;
        });
        count
    }

    /// Takes a rule off; whether it was there. A network is taken off whole: not one address out of it.
    pub fn remove(&self, rule: &DenyRule) -> bool {
        let mut was_there = false;
        self.change(|all| was_there = all.remove(rule));
        was_there
    }

    /// These rules and no others, in one step.
    pub fn replace(&self, rules: impl IntoIterator<Item = DenyRule>) {
        self.change(|all| *all = rules.into_iter().map(Arc::new).collect());
    }

    /// The rules, in no order.
    pub fn rules(&self) -> Vec<Arc<DenyRule>> {
        self.compiled().rules.clone()
    }

    /// Whether this rule is there, by itself.
    pub fn contains(&self, rule: &DenyRule) -> bool {
        self.compiled().rules.iter().any(|known| **known == *rule)
    }

    /// How many rules there are.
    pub fn len(&self) -> usize {
        self.compiled().rules.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.compiled().rules.is_empty()
    }

    /// The rule that denies a caller of whom so much is known; of networks the smallest.
    pub fn find(&self, key: Option<&Key>, signals: &Signals) -> Option<Arc<DenyRule>> {
        let compiled = self.shared.compiled.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(rule) = signals.address().and_then(|address| compiled.networks.find(address)) {
            return Some(Arc::clone(rule));
        }
        let number = compiled.find_signals(signals).or_else(|| compiled.find_key(key?))?;
        compiled.rules.get(number as usize).cloned()
    }

    fn compiled(&self) -> Arc<Compiled> {
        Arc::clone(&self.shared.compiled.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Readers are kept waiting for the exchange only; writers see what those before them wrote.
    fn change(&self, change: impl FnOnce(&mut HashSet<Arc<DenyRule>>)) {
        let _one_at_a_time = self.shared.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rules = self.compiled().rules.iter().cloned().collect();
        change(&mut rules);
        let compiled = Arc::new(Compiled::new(rules.into_iter().collect()));
        let mut current = self.shared.compiled.write().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *current, compiled);
        drop(current);
        drop(before);
    }
}

impl Compiled {
    fn new(rules: Vec<Arc<DenyRule>>) -> Compiled {
        let mut compiled = Compiled::default();
        let mut networks: Vec<(IpNet, Arc<DenyRule>)> = Vec::new();
        for (rule, number) in rules.iter().zip(0..) {
            match &rule.0 {
                DenyKind::Key(key) => {
                    compiled.keys.insert(key.clone(), number);
                }
                DenyKind::Network(network) => networks.push((*network, Arc::clone(rule))),
                DenyKind::UserAgent(pattern) if pattern.is_exact() => {
                    compiled.agents.insert(pattern.as_str().to_owned(), number);
                }
                DenyKind::UserAgent(pattern) => compiled.patterns.push((pattern.clone(), number)),
                DenyKind::Label { name, value } => {
                    compiled.labels.entry(name.to_string()).or_default().insert(value.clone(), number);
                }
            }
        }
        compiled.networks = Networks::new(networks);
        compiled.rules = rules;
        compiled
    }

    fn find_key(&self, key: &Key) -> Option<u32> {
        if self.keys.is_empty() { None } else { self.keys.get(key).copied() }
    }

    fn find_signals(&self, signals: &Signals) -> Option<u32> {
        if let Some(number) = signals.labels().find_map(|(name, value)| self.labels.get(name)?.get(value).copied()) {
            return Some(number);
        }
        if self.agents.is_empty() && self.patterns.is_empty() {
            return None;
        }
        let agent = signals.agent()?.to_ascii_lowercase();
        self.agents
            .get(&agent)
            .copied()
            .or_else(|| self.patterns.iter().find(|(pattern, _)| pattern.matches(&agent)).map(|(_, number)| *number))
    }
}

impl FromIterator<DenyRule> for DenyList {
    fn from_iter<I: IntoIterator<Item = DenyRule>>(rules: I) -> DenyList {
        let list = DenyList::new();
        list.extend(rules);
        list
    }
}

impl fmt::Debug for DenyList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DenyList").field("len", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signals(ip: &str) -> Signals {
        Signals::new().ip(ip.parse().expect("an address"))
    }

    #[test]
    fn each_kind_of_rule_finds_its_own() {
        let list = DenyList::from_iter([
            DenyRule::key("mallory"),
            DenyRule::network("192.0.2.0/24").expect("a network"),
            DenyRule::user_agent("*bot*").expect("a pattern"),
            DenyRule::user_agent("curl/8.0").expect("a pattern"),
            DenyRule::country("KP").expect("a country"),
            DenyRule::label("asn", "64496").expect("a label"),
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
    fn it_is_edited_while_it_is_used() {
        let list = DenyList::new();
        let (wide, narrow) = ("10.0.0.0/8", "10.1.0.0/16");
        let rule = |text: &str| DenyRule::network(text).expect("a network");
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
    fn nobody_loses_a_rule_that_somebody_else_adds() {
        let list = DenyList::new();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let list = &list;
                scope.spawn(move || (0..50).for_each(|i| assert!(list.insert(DenyRule::key((thread, i))))));
            }
        });
        assert_eq!(list.len(), 200);
    }
}
