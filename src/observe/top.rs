//! Finds the keys with the most requested and refused charges.

use super::per_policy::PerPolicy;
use super::sketch::{Counted, Heaviest, SHARDS, Sketch};
use crate::limiter::observer::{Decided, Observer, Outcome, Requested};
use crate::policy::{Digest, Policy, PolicyName, Reason};

/// For each policy, counts the charges of the heaviest keys (those with the most charges) in bounded memory.
///
/// ```
/// use std::sync::Arc;
/// use tollgate::{Key, MINUTE, MemoryBackend, Policy, Quota, RateLimiter, observe::Top};
///
/// static API: Policy = Policy::new("api", Quota::token_bucket(2, MINUTE));
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::backend::Error> {
/// let top = Arc::new(Top::new().show_keys([&API]));
/// let limiter = RateLimiter::builder(MemoryBackend::new()).observer(Arc::clone(&top)).build();
/// for key in ["ada", "ada", "ada", "ada", "ada", "eve", "eve", "eve"] {
///     drop(limiter.try_limit(&API, key).await?);
/// }
/// let refused = top.refused(API.name(), 10);
/// let first = &refused.keys()[0];
/// assert_eq!((first.count(), first.max_error(), first.text()), (3, 0, Some("\"ada\"")));
/// // Without `show_keys`, compare this digest with the digests of your customers' keys.
/// assert_eq!(first.digest(), limiter.digest(Some(&Key::from("ada"))));
/// assert_eq!(top.requested(API.name(), 1).total(), 8);
/// # Ok(()) }
/// ```
///
/// A key is reported as its [digest](TopKey::digest) and, under policies that you pass to
/// [`show_keys`](Top::show_keys), also as [text](TopKey::text).
///
/// # What is counted
/// Counts are in charges, not tokens. A charge is *requested* if it was decided, and *refused* if its own policy denied
/// it: by a quota, a deny list or a block. This includes denials in [shadow mode](crate::policy::Enforce), but not
/// denials caused solely by another policy. Checks are not counted, and neither are charges that the backend failed to
/// decide. Counts include only the charges of this process since the observer was created or last
/// [cleared](Top::clear).
///
/// # Memory and error bound
/// For each policy, there are two sketches (one for requested and one for refused charges), with up to
/// [`max_keys`](Top::max_keys) counters each. A counter takes about 100 bytes, plus the key's text if it is shown.
/// Policies after the first 512 share two sketches, so all of these policies have the same results.
///
/// While [`TopKeys::max_error`] is 0, counts are exact. Otherwise, a count is never too low, and it is too high by at
/// most [`TopKey::max_error`]. A key without a counter has had at most [`TopKeys::max_error`] charges. This bound is
/// about the total divided by `max_keys`, or less if a few keys account for most of the total. Keys are assigned to
/// groups of counters at random, so callers cannot craft keys that push out a particular one.
#[derive(Debug)]
pub struct Top {
    max_keys: usize,
    shown: Vec<PolicyName>,
    policies: PerPolicy<Sketches>,
}

#[derive(Debug)]
struct Sketches {
    requested: Sketch,
    refused: Sketch,
}

impl Top {
    /// Creates an observer with [`DEFAULT_MAX_KEYS`](Top::DEFAULT_MAX_KEYS) counters in each sketch.
    pub fn new() -> Top {
        Top { max_keys: Top::DEFAULT_MAX_KEYS, shown: Vec::new(), policies: PerPolicy::new() }
    }

    /// The default for [`max_keys`](Top::max_keys).
    pub const DEFAULT_MAX_KEYS: usize = 1024;

    /// Sets the number of counters in each sketch, clamped to `8..=1_048_576` and rounded up to a multiple of 8.
    #[must_use]
    pub fn max_keys(mut self, keys: usize) -> Top {
        self.max_keys = keys.clamp(SHARDS, MAX_KEYS);
        self
    }

    /// Also shows the keys of these policies as [text](TopKey::text). May be called repeatedly. By default, only
    /// digests are shown. Keys that contain a bearer token or the value of a header or cookie are never shown as text,
    /// because they may be credentials.
    #[must_use]
    pub fn show_keys<'a>(mut self, policies: impl IntoIterator<Item = &'a Policy>) -> Top {
        self.shown.extend(policies.into_iter().map(|policy| policy.name().clone()));
        self
    }

    /// Returns up to `max` keys with the most requested charges under a policy, heaviest first.
    pub fn requested(&self, policy: &PolicyName, max: usize) -> TopKeys {
        self.heaviest(policy, max, |sketches| &sketches.requested)
    }

    /// Returns up to `max` keys with the most refused charges under a policy, heaviest first.
    pub fn refused(&self, policy: &PolicyName, max: usize) -> TopKeys {
        self.heaviest(policy, max, |sketches| &sketches.refused)
    }

    /// Sets all counts to 0.
    pub fn clear(&self) {
        self.policies.for_each(|sketches| {
            sketches.requested.clear();
            sketches.refused.clear();
        });
    }

    fn heaviest(&self, policy: &PolicyName, max: usize, sketch: fn(&Sketches) -> &Sketch) -> TopKeys {
        let Some(sketches) = self.policies.get(policy) else {
            return TopKeys { keys: Vec::new(), total: 0, max_error: 0 };
        };
        let Heaviest { mut keys, total, max_error } = sketch(&sketches).heaviest(max);
        if !self.shown.contains(policy) {
            // The texts may be stored because another policy that shares these sketches shows its keys.
            keys.iter_mut().for_each(|counted| counted.text = None);
        }
        TopKeys { keys: keys.into_iter().map(TopKey).collect(), total, max_error }
    }
}

impl Default for Top {
    fn default() -> Top {
        Top::new()
    }
}

impl Observer for Top {
    fn decided(&self, observed: &Decided<'_>) {
        if observed.is_check() {
            return;
        }
        let decision = observed.decision();
        let new = |_: &str| Sketches { requested: Sketch::new(self.max_keys), refused: Sketch::new(self.max_keys) };
        let (sketches, key) = (self.policies.of(decision.policy(), new), decision.key());
        sketches.requested.count(key);
        if observed.outcome() == Outcome::Denied && decision.reason() != Reason::RefusedElsewhere {
            sketches.refused.count(key);
        }
    }

    /// Stores the text of a key that is already counted. A key that is charged only once needs no text.
    fn requested(&self, requested: &Requested<'_>) {
        if !self.shown.contains(requested.policy()) || requested.key().may_be_credential() {
            return;
        }
        if let Some(sketches) = self.policies.get(requested.policy()) {
            let text = || shortened(requested.key().to_text()).into_boxed_str();
            sketches.requested.name(requested.digest(), text);
            sketches.refused.name(requested.digest(), text);
        }
    }

    fn needs_keys(&self) -> bool {
        !self.shown.is_empty()
    }
}

fn shortened(mut text: String) -> String {
    if text.len() > MAX_TEXT_LEN {
        text.truncate((0..=MAX_TEXT_LEN).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0));
        text.push('…');
    }
    text
}

/// The maximum length of a key's text in bytes, without the ellipsis.
const MAX_TEXT_LEN: usize = 128;

const MAX_KEYS: usize = 1 << 20;

/// The heaviest keys of a policy, returned by [`Top::requested`] and [`Top::refused`].
#[derive(Debug)]
pub struct TopKeys {
    keys: Vec<TopKey>,
    total: u64,
    max_error: u64,
}

impl TopKeys {
    /// Returns the keys, heaviest first.
    pub fn keys(&self) -> &[TopKey] {
        &self.keys
    }

    /// Returns the exact number of charges under the policy, across all keys.
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// Returns the maximum number of charges that a key without a counter can have had. This is 0 until one group of
    /// the sketch is full.
    pub const fn max_error(&self) -> u64 {
        self.max_error
    }
}

/// A key and its count. See [`Top`] for an example.
pub struct TopKey(Counted);

impl TopKey {
    /// Returns the key's digest, as returned by [`RateLimiter::digest`](crate::RateLimiter::digest).
    pub const fn digest(&self) -> Digest {
        self.0.key
    }

    /// Returns the [text form](crate::Key#text-form) of the key if the policy was passed to
    /// [`show_keys`](Top::show_keys) and the key has been charged again since it got a counter. A text of more than 128
    /// bytes is shortened and ends with `…`.
    pub fn text(&self) -> Option<&str> {
        self.0.text.as_deref()
    }

    /// Returns the number of charges, which is never too low, and too high by at most [`max_error`](TopKey::max_error).
    pub const fn count(&self) -> u64 {
        self.0.count
    }

    /// Returns the maximum number of charges by which the count can be too high.
    pub const fn max_error(&self) -> u64 {
        self.0.error
    }
}

/// Shows the digest, but not the text.
impl std::fmt::Debug for TopKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Counted { key, count, error, .. } = &self.0;
        f.debug_struct("TopKey").field("digest", key).field("count", count).field("max_error", error).finish()
    }
}
