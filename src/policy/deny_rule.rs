//! Deny rules, which match callers by key, address, user agent, country or another label.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

use super::key::Key;
use super::nat64::canonical;
use super::network::{CidrError, parse_network};
use super::pattern::Pattern;

/// A rule of a [deny list](crate::protection::DenyList). Neither `Display` nor `Debug` shows the content of a key.
///
/// ```
/// use tollgate::{key, protection::DenyRule};
///
/// let rules = [
///     DenyRule::key(key::bearer().key("sk_leaked")),
///     DenyRule::ip("::ffff:192.0.2.7".parse()?),
///     DenyRule::network("2001:db8::/32")?,
///     DenyRule::user_agent("*GPTBot/*")?,
///     DenyRule::country("kp")?,
///     DenyRule::label("asn", "as64496")?,
/// ];
/// assert_eq!([rules[1].to_string(), rules[4].to_string()], ["network 192.0.2.7/32", "country \"KP\""]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct DenyRule(pub(crate) DenyKind);

#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) enum DenyKind {
    Key(Key),
    Network(IpNet),
    UserAgent(Pattern),
    Label { name: Cow<'static, str>, value: String },
}

impl DenyRule {
    /// The maximum length of a pattern, label name or label value, in bytes.
    pub const MAX_LENGTH: usize = 256;

    /// Denies a key under every policy. The key must equal the key that the extractor finds, including its type. Create
    /// it with the extractor (`key::bearer().key(..)`), or parse its [text form](Key#text-form). See also [rules that
    /// can never match](crate::protection::DenyList#rules-that-can-never-match).
    pub fn key(key: impl Into<Key>) -> DenyRule {
        DenyRule(DenyKind::Key(key.into()))
    }

    /// Denies a single address. IPv4-mapped addresses and NAT64 addresses (`64:ff9b::/96`) count as IPv4 addresses.
    pub fn ip(address: IpAddr) -> DenyRule {
        DenyRule(DenyKind::Network(IpNet::from(canonical(address))))
    }

    /// Denies a network (such as `"192.0.2.0/24"` or `"2001:db8::/32"`) or a single address.
    ///
    /// # Errors
    /// Fails if `text` is neither a network nor an address, or if it is an address within a network (`192.0.2.7/24`).
    pub fn network(text: &str) -> Result<DenyRule, DenyRuleError> {
        let network =
            parse_network(text).map_err(|error| DenyRuleError { message: error.to_string(), cause: Some(error) })?;
        Ok(DenyRule(DenyKind::Network(network)))
    }

    /// Denies user agents that match a pattern. `*` matches any text, and ASCII case is ignored. Only the first 1,024
    /// bytes of a user agent are compared.
    ///
    /// Patterns such as `*bot*` are searched for together, so a thousand of them take little longer than ten. `a*`,
    /// `*b` and `a*b` take one comparison each. Patterns that combine `*text*` with other text, such as `a*b*`, take up
    /// to a microsecond each, so use dozens of them, not thousands.
    ///
    /// # Errors
    /// Fails if the pattern is empty, is longer than [`MAX_LENGTH`](DenyRule::MAX_LENGTH), or matches every caller.
    pub fn user_agent(pattern: &str) -> Result<DenyRule, DenyRuleError> {
        check_length("user agent", pattern)?;
        let pattern = Pattern::new(pattern);
        if pattern.is_anything() {
            let text = pattern.as_str();
            return Err(error(format!("user agent {text:?} would deny every caller; write more than `*`")));
        }
        Ok(DenyRule(DenyKind::UserAgent(pattern)))
    }

    #[cfg(feature = "serde")]
    pub(crate) fn is_pattern(&self) -> bool {
        matches!(&self.0, DenyKind::UserAgent(pattern) if !pattern.is_exact())
    }

    #[cfg(feature = "serde")]
    pub(crate) fn is_searched_alone(&self) -> bool {
        matches!(&self.0, DenyKind::UserAgent(pattern) if pattern.is_searched_alone())
    }

    /// Denies callers with this `country` [label](DenyRule::label): an ISO 3166-1 code, `T1` (Tor) or `XX` (unknown).
    ///
    /// # Errors
    /// Fails if `code` is not two ASCII letters or digits.
    pub fn country(code: &str) -> Result<DenyRule, DenyRuleError> {
        if code.len() != 2 || !code.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            let code = truncated(code);
            return Err(error(format!("country {code:?}: expected two letters or digits, such as \"KP\" or \"T1\"")));
        }
        DenyRule::label(COUNTRY, code)
    }

    /// Denies callers with this label. The case of the value is ignored.
    ///
    /// # Errors
    /// Fails if the name or the value is empty or longer than [`MAX_LENGTH`](DenyRule::MAX_LENGTH).
    pub fn label(name: impl Into<Cow<'static, str>>, value: &str) -> Result<DenyRule, DenyRuleError> {
        let name = name.into();
        check_length("label name", &name)?;
        check_length("label value", value)?;
        Ok(DenyRule(DenyKind::Label { name, value: value.to_ascii_uppercase() }))
    }
}

impl DenyRule {
    /// Describes the rule's kind without a key's content. In a layer, either all rules of a kind can match or none can.
    pub(crate) fn kind(&self) -> String {
        match &self.0 {
            DenyKind::Key(key) => format!("key {}", key.kind()),
            DenyKind::Network(_) => "network".to_owned(),
            DenyKind::UserAgent(_) => "user agent".to_owned(),
            DenyKind::Label { name, .. } => format!("label {name:?}"),
        }
    }
}

pub(crate) const COUNTRY: &str = "country";

fn check_length(what: &str, text: &str) -> Result<(), DenyRuleError> {
    let (length, max) = (text.len(), DenyRule::MAX_LENGTH);
    if text.is_empty() || length > max {
        let text = truncated(text);
        return Err(error(format!("{what} {text:?}: expected 1 to {max} bytes, found {length}")));
    }
    Ok(())
}

fn error(message: String) -> DenyRuleError {
    DenyRuleError { message, cause: None }
}

fn truncated(text: &str) -> String {
    text.chars().take(80).collect()
}

impl fmt::Display for DenyRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            DenyKind::Key(_) => f.write_str("key"),
            DenyKind::Network(network) => write!(f, "network {network}"),
            DenyKind::UserAgent(pattern) => write!(f, "user agent {:?}", pattern.as_str()),
            DenyKind::Label { name, value } => write!(f, "{name} {value:?}"),
        }
    }
}

impl fmt::Debug for DenyRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DenyRule({self})")
    }
}

/// The error for an invalid deny rule. `source()` returns the [`CidrError`](crate::key::CidrError), if any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DenyRuleError {
    message: String,
    cause: Option<CidrError>,
}

impl fmt::Display for DenyRuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for DenyRuleError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_ref().map(|cause| cause as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_value() {
        for (result, part) in [
            (DenyRule::network("10.0.0.0/33"), "\"10.0.0.0/33\" is not a network"),
            (DenyRule::network("::ffff:10.0.0.0/90"), "is not a network"),
            (
                DenyRule::network("::ffff:10.1.2.3/104"),
                "write \"10.0.0.0/8\" for the network or \"10.1.2.3\" for the address",
            ),
            (DenyRule::user_agent(""), "user agent \"\""),
            (DenyRule::user_agent("**"), "would deny every caller"),
            (DenyRule::user_agent(&"x".repeat(257)), "1 to 256 bytes"),
            (DenyRule::country("PRK"), "country \"PRK\""),
            (DenyRule::label("", "1"), "label name \"\""),
            (DenyRule::label("asn", ""), "label value \"\""),
        ] {
            let error = result.expect_err("an invalid rule").to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn equivalent_rules_are_equal() {
        assert_eq!(DenyRule::network("::ffff:10.0.0.0/104"), DenyRule::network("10.0.0.0/8"));
        assert_eq!(DenyRule::network("::ffff:10.0.0.1"), Ok(DenyRule::ip(IpAddr::from([10, 0, 0, 1]))));
        assert_eq!(DenyRule::country("kp"), DenyRule::label("country", "KP"));
        assert_eq!(DenyRule::user_agent("Bad*"), DenyRule::user_agent("bad*"));
        assert_eq!(format!("{:?}", DenyRule::key("hunter2")), "DenyRule(key)");
    }
}
