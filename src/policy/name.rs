//! A policy's name, cheap to clone.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use siphasher::sip128::SipHasher13;

use super::named::PolicyError;
use crate::algorithm::ConstMessage;

/// The name of a policy: 1 to 128 printable ASCII characters, shown in `RateLimit-Policy` and `RateLimit`.
///
/// ```
/// use tollgate::policy::PolicyName;
///
/// const LOGIN: PolicyName = PolicyName::new("login");
/// assert_eq!(LOGIN.as_str(), "login");
/// assert_eq!(PolicyName::try_new(String::from("login"))?, LOGIN);
/// assert!(PolicyName::try_new("two\nlines").is_err());
/// assert!(PolicyName::try_new("x".repeat(PolicyName::MAX_LENGTH + 1)).is_err());
/// # Ok::<(), tollgate::policy::PolicyError>(())
/// ```
#[derive(Clone)]
pub struct PolicyName(Text);

#[derive(Clone)]
enum Text {
    Static(&'static str),
    Shared(Arc<str>),
}

impl PolicyName {
    /// The longest name, in bytes: headers carry it in every response.
    pub const MAX_LENGTH: usize = 128;

    /// A name written in the program.
    ///
    /// # Panics
    /// If it is empty, longer than [`PolicyName::MAX_LENGTH`] or has a character other than printable ASCII, which a
    /// structured header's string cannot hold (RFC 9651, section 3.3.3). As a `const` it does not compile.
    #[track_caller]
    pub const fn new(name: &'static str) -> PolicyName {
        if !is_valid(name) {
            // As much of it as helps to find it.
            let shown = if name.len() > SHOWN { name.as_bytes().split_at(SHOWN).0 } else { name.as_bytes() };
            ConstMessage::new()
                .text("policy name \"")
                .bytes(shown)
                .text("\": it must be 1 to 128 printable ASCII characters, as headers show it")
                .panic();
        }
        PolicyName(Text::Static(name))
    }

    /// A name known only at run time.
    ///
    /// # Errors
    /// Where [`PolicyName::new`] panics; the error shows the name.
    pub fn try_new(name: impl Into<Arc<str>>) -> Result<PolicyName, PolicyError> {
        let name = name.into();
        if is_valid(&name) { Ok(PolicyName(Text::Shared(name))) } else { Err(PolicyError::name(&name)) }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Text::Static(text) => text,
            Text::Shared(text) => text,
        }
    }

    /// 128 bits that stand for the name, the same in every process: its SipHash under a fixed key. Two names have the
    /// same with a chance of 2^-128.
    pub(crate) fn bits(&self) -> u128 {
        SipHasher13::new_with_key(HASHED_UNDER).hash(self.as_str().as_bytes()).as_u128()
    }
}

impl fmt::Debug for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl AsRef<str> for PolicyName {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Eq for PolicyName {}

impl PartialEq for PolicyName {
    fn eq(&self, other: &PolicyName) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Hash for PolicyName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

const fn is_valid(name: &str) -> bool {
    let bytes = name.as_bytes();
    if bytes.is_empty() || bytes.len() > PolicyName::MAX_LENGTH {
        return false;
    }
    let mut i = 0;
    while i < bytes.len() {
        if !matches!(bytes[i], 0x20..=0x7e) {
            return false;
        }
        i += 1;
    }
    true
}

/// Bytes of a name that a panic shows.
const SHOWN: usize = 80;

/// The key under which names are hashed: rows on a shared store depend on it.
const HASHED_UNDER: &[u8; 16] = b"etagllot1.ycilop";

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::hash_map::DefaultHasher;

    #[test]
    fn names_are_printable_ascii_of_1_to_128_characters() {
        for name in [" ", "~", "a", &"x".repeat(PolicyName::MAX_LENGTH)] {
            assert_eq!(PolicyName::try_new(name).expect("a name").to_string(), name);
        }
        for name in ["", "a\n", "\u{7f}", "caf\u{e9}", &"x".repeat(PolicyName::MAX_LENGTH + 1)] {
            assert!(PolicyName::try_new(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn a_name_is_its_text_however_it_came() {
        const WRITTEN: PolicyName = PolicyName::new("login");
        let read = PolicyName::try_new(String::from("login")).expect("a name");
        let hash = |value: &dyn Fn(&mut DefaultHasher)| {
            let mut hasher = DefaultHasher::new();
            value(&mut hasher);
            hasher.finish()
        };
        for name in [&WRITTEN, &read] {
            assert_eq!((name.as_str(), name.as_ref()), ("login", "login"));
            assert_eq!((format!("{name}"), format!("{name:?}")), ("login".into(), "\"login\"".into()));
            assert_eq!(hash(&|hasher| name.hash(hasher)), hash(&|hasher| "login".hash(hasher)));
        }
        assert_eq!(WRITTEN, read);
        assert_ne!(WRITTEN, PolicyName::new("logout"));
    }

    #[test]
    fn names_with_one_fnv_1a_hash_have_rows_of_their_own() {
        // A published collision: policies were identified by that hash, and these two shared their rows.
        let [one, other] = ["8yn0iYCKYHlIj4-BwPqk", "GReLUrM4wMqfg9yzV3KQ"].map(PolicyName::new);
        assert_ne!(one.bits(), other.bits());
        assert_ne!(one, other);
    }
}
