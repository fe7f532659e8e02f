//! Policy names.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use siphasher::sip128::SipHasher13;

use super::named::PolicyError;
use crate::algorithm::ConstMessage;

/// The name of a policy, which appears in the `RateLimit-Policy` and `RateLimit` headers.
///
/// ```
/// use tollgate::policy::PolicyName;
/// const LOGIN: PolicyName = PolicyName::new("login");
/// assert_eq!(PolicyName::try_new(String::from("login")), Ok(LOGIN));
/// ```
///
/// A name also contains the generation of the policy's rows, which [`reset_policy`](crate::RateLimiter::reset_policy)
/// changes. The generation does not affect comparisons, hashes or the text of the name.
#[derive(Clone)]
pub struct PolicyName {
    text: Text,
    generation: u64,
}

#[derive(Clone)]
enum Text {
    Static(&'static str),
    Shared(Arc<str>),
}

impl PolicyName {
    /// The maximum length in bytes.
    pub const MAX_LENGTH: usize = 128;

    /// Creates a policy name from a string that is known at compile time.
    ///
    /// # Panics
    /// Panics if the name is not 1 to 128 printable ASCII characters. Structured headers allow only these characters in
    /// strings (RFC 9651, section 3.3.3). In a `const`, this is a compile error.
    #[track_caller]
    pub const fn new(name: &'static str) -> PolicyName {
        if !is_valid(name) {
            let shown =
                if name.len() > MAX_SHOWN_LEN { name.as_bytes().split_at(MAX_SHOWN_LEN).0 } else { name.as_bytes() };
            ConstMessage::new()
                .text("policy name \"")
                .bytes(shown)
                .text("\": expected 1 to 128 printable ASCII characters, because the name is sent in headers")
                .panic();
        }
        PolicyName { text: Text::Static(name), generation: 0 }
    }

    /// Creates a policy name from a string that is known only at run time.
    ///
    /// # Errors
    /// Fails if [`PolicyName::new`] would panic.
    pub fn try_new(name: impl Into<Arc<str>>) -> Result<PolicyName, PolicyError> {
        let name = name.into();
        if !is_valid(&name) {
            return Err(PolicyError::name(&name));
        }
        Ok(PolicyName { text: Text::Shared(name), generation: 0 })
    }

    /// The name as a string.
    pub fn as_str(&self) -> &str {
        match &self.text {
            Text::Static(text) => text,
            Text::Shared(text) => text,
        }
    }

    /// Returns the generation of the policy's rows, which is 0 until the policy is reset.
    #[inline]
    pub(crate) const fn generation(&self) -> u64 {
        self.generation
    }

    pub(crate) fn at_generation(&self, generation: u64) -> PolicyName {
        PolicyName { text: self.text.clone(), generation }
    }

    /// Returns a 128-bit SipHash of the name, which is the same in every process.
    pub(crate) fn bits(&self) -> u128 {
        SipHasher13::new_with_key(HASH_KEY).hash(self.as_str().as_bytes()).as_u128()
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

const MAX_SHOWN_LEN: usize = 80;

/// The SipHash key with which names are hashed. Stored rows depend on this key.
const HASH_KEY: &[u8; 16] = b"etagllot1.ycilop";

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::hash_map::DefaultHasher;

    #[test]
    fn valid_names_are_1_to_128_printable_ascii_characters() {
        for name in [" ", "~", "a", &"x".repeat(PolicyName::MAX_LENGTH)] {
            assert_eq!(PolicyName::try_new(name).expect("a name").to_string(), name);
        }
        for name in ["", "a\n", "\u{7f}", "caf\u{e9}", &"x".repeat(PolicyName::MAX_LENGTH + 1)] {
            assert!(PolicyName::try_new(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn names_of_different_generations_are_equal() {
        let (name, later) = (PolicyName::new("login"), PolicyName::new("login").at_generation(7));
        assert_eq!((&name, name.to_string(), name.bits()), (&later, later.to_string(), later.bits()));
        assert_eq!((name.generation(), later.generation()), (0, 7));
    }

    #[test]
    fn static_and_owned_names_are_equal() {
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
    fn names_with_equal_fnv_1a_hashes_have_separate_rows() {
        // These names are a published FNV-1a collision.
        let [one, other] = ["8yn0iYCKYHlIj4-BwPqk", "GReLUrM4wMqfg9yzV3KQ"].map(PolicyName::new);
        assert_ne!(one.bits(), other.bits());
        assert_ne!(one, other);
    }
}
