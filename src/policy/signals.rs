//! Signals: addresses, user agents and labels, which describe a caller in addition to its key.

use std::borrow::Cow;
use std::net::IpAddr;

use ipnet::IpNet;

use super::deny_rule::{COUNTRY, DenyKind, DenyRule};
use super::key::Key;
use super::nat64::canonical;
use super::pattern::Pattern;

/// What is known about a caller besides its key: its address, user agent, country and other labels. [Deny
/// lists](crate::protection::DenyList) and [automatic blocking](crate::protection::AutoBlock) use signals.
///
/// ```
/// use tollgate::protection::{DenyList, DenyRule, Signals};
///
/// let list = DenyList::from_iter([DenyRule::country("KP")?]);
/// let caller = Signals::new().ip([192, 0, 2, 7].into()).country("kp").label("asn", "64496");
/// assert_eq!(list.find(None, &caller).map(|rule| rule.to_string()), Some("country \"KP\"".into()));
/// # Ok::<(), tollgate::protection::DenyRuleError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Signals {
    pub(crate) ip: Option<IpAddr>,
    pub(crate) user_agent: Option<String>,
    labels: Vec<(Cow<'static, str>, String)>,
}

impl Signals {
    /// Creates an empty set of signals.
    pub fn new() -> Signals {
        Signals::default()
    }

    /// Sets the caller's address. Do not use an address that clients can choose, such as one from an unverified header.
    #[must_use]
    pub fn ip(mut self, address: IpAddr) -> Signals {
        self.ip = Some(canonical(address));
        self
    }

    /// Sets the caller's user agent. Only its first 1,024 bytes are used.
    #[must_use]
    pub fn user_agent(mut self, text: impl Into<String>) -> Signals {
        self.user_agent = Some(truncated(text.into()));
        self
    }

    /// Adds the label `country` with a two-letter ISO 3166-1 code.
    #[must_use]
    pub fn country(self, code: impl Into<String>) -> Signals {
        self.label(COUNTRY, code)
    }

    /// Adds a label. The case of the value is ignored. If two labels have the same name, both are used.
    #[must_use]
    pub fn label(mut self, name: impl Into<Cow<'static, str>>, value: impl Into<String>) -> Signals {
        self.labels.push((name.into(), value.into().to_ascii_uppercase()));
        self
    }

    pub(crate) fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.labels.iter().map(|(name, value)| (name.as_ref(), value.as_str()))
    }
}

fn truncated(mut text: String) -> String {
    let end = (0..=MAX_USER_AGENT_LEN.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text.truncate(end);
    text
}

const MAX_USER_AGENT_LEN: usize = 1024;

/// A signal by which a caller can be blocked.
///
/// ```
/// use tollgate::{protection::Signal, RateLimiter, HOUR};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::backend::Error> {
/// # let limiter = RateLimiter::default();
/// for signal in [Signal::key("mallory"), Signal::user_agent("curl/8.5.0"), Signal::label("asn", "64496")] {
///     limiter.block(signal, HOUR).await?;
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Signal(pub(crate) SignalKind);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum SignalKind {
    Key(Key),
    Ip(IpAddr),
    UserAgent(String),
    Label(Cow<'static, str>, String),
}

impl Signal {
    /// A signal for a key under every policy.
    pub fn key(key: impl Into<Key>) -> Signal {
        Signal(SignalKind::Key(key.into()))
    }

    /// A signal for an address. An IPv6 address stands for its whole /64 network, which a client usually controls.
    pub fn ip(address: IpAddr) -> Signal {
        Signal(SignalKind::Ip(canonical(address)))
    }

    /// A signal for an exact user agent. Only the first 1,024 bytes are used.
    pub fn user_agent(text: impl Into<String>) -> Signal {
        Signal(SignalKind::UserAgent(truncated(text.into())))
    }

    /// A signal for a label. The case of the value is ignored.
    pub fn label(name: impl Into<Cow<'static, str>>, value: impl Into<String>) -> Signal {
        Signal(SignalKind::Label(name.into(), value.into().to_ascii_uppercase()))
    }

    /// Returns the key under which blocks on this signal are stored.
    pub(crate) fn to_key(&self) -> Key {
        match &self.0 {
            SignalKind::Key(key) => key.clone(),
            SignalKind::Ip(address) => {
                (SIGNAL_PREFIX, "ip", Key::network(*address, Key::DEFAULT_IPV4_PREFIX, Key::DEFAULT_IPV6_PREFIX)).into()
            }
            SignalKind::UserAgent(text) => (SIGNAL_PREFIX, "user agent", text.as_str()).into(),
            SignalKind::Label(name, value) => (SIGNAL_PREFIX, "label", name.as_ref(), value.as_str()).into(),
        }
    }

    pub(crate) fn to_rule(&self) -> DenyRule {
        DenyRule(match &self.0 {
            SignalKind::Key(key) => DenyKind::Key(key.clone()),
            SignalKind::Ip(address) => {
                let network = IpNet::new(*address, if address.is_ipv4() { 32 } else { 64 });
                DenyKind::Network(network.map_or((*address).into(), |network| network.trunc()))
            }
            SignalKind::UserAgent(text) => DenyKind::UserAgent(Pattern::exactly(text)),
            SignalKind::Label(name, value) => DenyKind::Label { name: name.clone(), value: value.clone() },
        })
    }

    /// Returns the rule to show in a list of blocks. Returns `None` for a key, because its content is not stored, and
    /// for text that is too long for a rule, because clients could otherwise exhaust the memory.
    pub(crate) fn to_listed(&self) -> Option<DenyRule> {
        let longest = match &self.0 {
            SignalKind::Key(_) => return None,
            SignalKind::Ip(_) => 0,
            SignalKind::UserAgent(text) => text.len(),
            SignalKind::Label(name, value) => name.len().max(value.len()),
        };
        (longest <= DenyRule::MAX_LENGTH).then(|| self.to_rule())
    }
}

/// Keeps the keys of signals apart from the keys of callers.
const SIGNAL_PREFIX: &str = "tollgate signal";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_user_agent_is_cut_between_characters() {
        let signals = Signals::new().user_agent("\u{e9}".repeat(1000));
        assert_eq!(signals.user_agent.as_deref().map(str::len), Some(1024));
        let signals = Signals::new().user_agent(format!("x{}", "\u{e9}".repeat(1000)));
        assert_eq!(signals.user_agent.as_deref().map(str::len), Some(1023));
    }

    #[test]
    fn an_ipv6_network_with_a_prefix_of_64_bits_is_one_signal() {
        let signal = |text: &str| Signal::ip(text.parse().expect("an address"));
        assert_eq!(signal("2001:db8::1").to_key(), signal("2001:db8::ffff").to_key());
        assert_ne!(signal("2001:db8::1").to_key(), signal("2001:db8:0:1::1").to_key());
        assert_eq!(signal("::ffff:192.0.2.1").to_key(), signal("192.0.2.1").to_key());
        assert_eq!(signal("2001:db8::1").to_rule().to_string(), "network 2001:db8::/64");
    }
}
