//! Who is denied whatever the limits say: by key, address, user agent, country or another label.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

use super::key::Key;
use super::nat64::canonical;
use super::network::{CidrError, parse_network};
use super::pattern::Pattern;

/// One line of a [deny list](crate::protection::DenyList): whom it is about.
///
/// ```
/// use tollgate::protection::DenyRule;
///
/// let rules = [
///     DenyRule::key("mallory@example.com"),
///     DenyRule::network("192.0.2.0/24")?,
///     DenyRule::user_agent("*GPTBot/*")?,
///     DenyRule::country("kp")?,
///     DenyRule::label("asn", "64496")?,
/// ];
/// assert_eq!(rules[1].to_string(), "network 192.0.2.0/24");
/// assert_eq!(rules[3].to_string(), "country \"KP\"");
/// # Ok::<(), tollgate::protection::DenyRuleError>(())
/// ```
///
/// Neither its `Display` nor its `Debug` shows a key.
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
    /// The longest pattern, label name and value, in bytes.
    ///
    /// ```
    /// use tollgate::protection::DenyRule;
    ///
    /// assert!(DenyRule::user_agent(&"x".repeat(DenyRule::MAX_LENGTH)).is_ok());
    /// assert!(DenyRule::user_agent(&"x".repeat(DenyRule::MAX_LENGTH + 1)).is_err());
    /// ```
    pub const MAX_LENGTH: usize = 256;

    /// A key, under every policy. It has to be the key that the extractor finds, of the same type: the extractor makes it
    /// (`key::bearer().key(..)`), or its [text form](Key#text-form) does. Credentials and whatever else [`bearer`], [`header`],
    /// [`cookie`] or `path` find are denied also where they are only a part of the key, as in `bearer().and(client_ip())`.
    ///
    /// ```
    /// use tollgate::{key, protection::{DenyList, DenyRule, Signals}, Key};
    ///
    /// let list = DenyList::from_iter([DenyRule::key(key::bearer().key("sk_leaked")), DenyRule::key(42_u64)]);
    /// assert!(list.contains(&DenyRule::key("bearer:sk_leaked".parse::<Key>()?)));
    /// assert!(list.contains(&DenyRule::key(42_u8)) && !list.contains(&DenyRule::key("42")));
    ///
    /// let caller = Key::from((key::bearer().key("sk_leaked"), key::client_ip().key([192, 0, 2, 7].into())));
    /// assert!(list.find(Some(&caller), &Signals::new()).is_some());
    /// assert_eq!(DenyRule::key("mallory@example.com").to_string(), "key"); // and not whose
    /// # Ok::<(), tollgate::key::ParseKeyError>(())
    /// ```
    ///
    /// [`bearer`]: crate::key::bearer
    /// [`header`]: crate::key::header
    /// [`cookie`]: crate::key::cookie
    pub fn key(key: impl Into<Key>) -> DenyRule {
        DenyRule(DenyKind::Key(key.into()))
    }

    /// One address. An IPv4 address that is written as IPv6 is IPv4, in NAT64's well-known prefix too.
    ///
    /// ```
    /// use tollgate::protection::DenyRule;
    ///
    /// let rule = DenyRule::ip("::ffff:192.0.2.7".parse()?);
    /// assert_eq!(rule.to_string(), "network 192.0.2.7/32");
    /// # Ok::<(), std::net::AddrParseError>(())
    /// ```
    pub fn ip(address: IpAddr) -> DenyRule {
        DenyRule(DenyKind::Network(IpNet::from(canonical(address))))
    }

    /// The addresses of a network: `"192.0.2.0/24"`, `"2001:db8::/32"`, or one address. An address within a network, such as
    /// `"192.0.2.7/24"`, is an error, since it may be meant as either.
    ///
    /// ```
    /// use tollgate::protection::DenyRule;
    ///
    /// assert_eq!(DenyRule::network("2001:db8::/32")?.to_string(), "network 2001:db8::/32");
    /// assert!(DenyRule::network("example.com").is_err());
    /// # Ok::<(), tollgate::protection::DenyRuleError>(())
    /// ```
    ///
    /// # Errors
    /// If it is no network; the error shows the text.
    pub fn network(text: &str) -> Result<DenyRule, DenyRuleError> {
        let network =
            parse_network(text).map_err(|error| DenyRuleError { message: error.to_string(), cause: Some(error) })?;
        Ok(DenyRule(DenyKind::Network(network)))
    }

    /// A user agent. `*` stands for any text, everything else for itself; case does not count. Of what the client sent, no
    /// more than 1,024 bytes are looked at. Rules such as `*bot*` are all found in one pass over them: a thousand cost a
    /// request little more than ten. `a*`, `*b` and `a*b` cost a comparison each. Rules with another text between two `*`, such
    /// as `a*b*`, are tried one after the other, each in up to a microsecond: dozens of them, not thousands.
    ///
    /// ```
    /// use tollgate::protection::{DenyList, DenyRule, Signals};
    ///
    /// let list = DenyList::from_iter([DenyRule::user_agent("*gptbot/*")?]);
    /// let bot = Signals::new().user_agent("Mozilla/5.0 (compatible; GPTBot/1.2)");
    /// assert!(list.find(None, &bot).is_some());
    /// assert!(DenyRule::user_agent("*").is_err()); // everybody
    /// # Ok::<(), tollgate::protection::DenyRuleError>(())
    /// ```
    ///
    /// # Errors
    /// If it is empty, longer than [`MAX_LENGTH`](DenyRule::MAX_LENGTH), or matches everybody.
    pub fn user_agent(pattern: &str) -> Result<DenyRule, DenyRuleError> {
        checked("user agent", pattern)?;
        let pattern = Pattern::new(pattern);
        if pattern.is_anything() {
            let text = pattern.as_str();
            return Err(fault(format!("user agent {text:?} would deny everybody; write more than `*`")));
        }
        Ok(DenyRule(DenyKind::UserAgent(pattern)))
    }

    /// Whether it is a user agent with a `*`.
    #[cfg(feature = "serde")]
    pub(crate) fn is_pattern(&self) -> bool {
        matches!(&self.0, DenyKind::UserAgent(pattern) if !pattern.is_exact())
    }

    /// Whether it is one of those that are searched for one after the other.
    #[cfg(feature = "serde")]
    pub(crate) fn is_searched_alone(&self) -> bool {
        matches!(&self.0, DenyKind::UserAgent(pattern) if pattern.is_searched_alone())
    }

    /// A country, as the [label](DenyRule::label) of that name says it: two letters (ISO 3166-1), `T1`, `XX`.
    ///
    /// ```
    /// use tollgate::protection::DenyRule;
    ///
    /// assert_eq!(DenyRule::country("kp")?, DenyRule::label("country", "KP")?);
    /// assert!(DenyRule::country("PRK").is_err());
    /// # Ok::<(), tollgate::protection::DenyRuleError>(())
    /// ```
    ///
    /// # Errors
    /// If it is not two letters or digits; the error shows the text.
    pub fn country(code: &str) -> Result<DenyRule, DenyRuleError> {
        if code.len() != 2 || !code.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            let code = quoted(code);
            return Err(fault(format!("country {code:?}: write two letters or digits, as in \"KP\" or \"T1\"")));
        }
        DenyRule::label(COUNTRY, code)
    }

    /// Anything else that is known of a caller, by name and value; case does not count in the value.
    ///
    /// ```
    /// use tollgate::protection::{DenyList, DenyRule, Signals};
    ///
    /// let list = DenyList::from_iter([DenyRule::label("asn", "as64496")?]);
    /// assert!(list.find(None, &Signals::new().label("asn", "AS64496")).is_some());
    /// assert!(DenyRule::label("asn", "").is_err());
    /// # Ok::<(), tollgate::protection::DenyRuleError>(())
    /// ```
    ///
    /// # Errors
    /// If one of them is empty or longer than [`MAX_LENGTH`](DenyRule::MAX_LENGTH).
    pub fn label(name: impl Into<Cow<'static, str>>, value: &str) -> Result<DenyRule, DenyRuleError> {
        let name = name.into();
        checked("label's name", &name)?;
        checked("label's value", value)?;
        Ok(DenyRule(DenyKind::Label { name, value: value.to_ascii_uppercase() }))
    }
}

impl DenyRule {
    /// What it goes by, without the content of a key: rules of one kind apply to one caller or another under the same layers.
    pub(crate) fn kind(&self) -> String {
        match &self.0 {
            DenyKind::Key(key) => format!("key {}", key.kind()),
            DenyKind::Network(_) => "network".to_owned(),
            DenyKind::UserAgent(_) => "user agent".to_owned(),
            DenyKind::Label { name, .. } => format!("label {name:?}"),
        }
    }
}

/// The label by which countries are told.
pub(crate) const COUNTRY: &str = "country";

fn checked(what: &str, text: &str) -> Result<(), DenyRuleError> {
    let (length, most) = (text.len(), DenyRule::MAX_LENGTH);
    if text.is_empty() || length > most {
        let text = quoted(text);
        return Err(fault(format!("{what} {text:?}: it is {length} bytes long; it must be 1 to {most} bytes long")));
    }
    Ok(())
}

fn fault(message: String) -> DenyRuleError {
    DenyRuleError { message, cause: None }
}

fn quoted(text: &str) -> String {
    text.chars().take(80).collect()
}

/// What it is about, but for a key's content.
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

/// Why a text is no rule of a deny list: the text, and what would do.
///
/// Its message is whole by itself; where a [`CidrError`](crate::key::CidrError) is behind it, that is the `source()`.
///
/// ```
/// use tollgate::protection::DenyRule;
///
/// let error = DenyRule::country("Germany").unwrap_err();
/// assert_eq!(error.to_string(), r#"country "Germany": write two letters or digits, as in "KP" or "T1""#);
/// ```
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
    fn faults_name_the_value() {
        for (result, part) in [
            (DenyRule::network("10.0.0.0/33"), "\"10.0.0.0/33\" is no network"),
            (DenyRule::network("::ffff:10.0.0.0/90"), "is no network"),
            (
                DenyRule::network("::ffff:10.1.2.3/104"),
                "write \"10.0.0.0/8\" for the network, \"10.1.2.3\" for the address",
            ),
            (DenyRule::user_agent(""), "user agent \"\""),
            (DenyRule::user_agent("**"), "would deny everybody"),
            (DenyRule::user_agent(&"x".repeat(257)), "1 to 256 bytes"),
            (DenyRule::country("PRK"), "country \"PRK\""),
            (DenyRule::label("", "1"), "label's name \"\""),
            (DenyRule::label("asn", ""), "label's value \"\""),
        ] {
            let error = result.expect_err("no rule").to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn one_thing_has_one_rule() {
        assert_eq!(DenyRule::network("::ffff:10.0.0.0/104"), DenyRule::network("10.0.0.0/8"));
        assert_eq!(DenyRule::network("::ffff:10.0.0.1"), Ok(DenyRule::ip(IpAddr::from([10, 0, 0, 1]))));
        assert_eq!(DenyRule::country("kp"), DenyRule::label("country", "KP"));
        assert_eq!(DenyRule::user_agent("Bad*"), DenyRule::user_agent("bad*"));
        assert_eq!(format!("{:?}", DenyRule::key("hunter2")), "DenyRule(key)");
    }
}
