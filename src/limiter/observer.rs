//! Observers of a limiter, and the events that they receive.

use std::sync::Arc;
use std::time::Duration;

use super::mistake::Mistake;
use crate::algorithm::Verdict;
use crate::backend::Error;
use crate::policy::{Decision, DenyRule, Digest, Key, PolicyName};

/// Receives the decisions and events of a limiter. The module `tollgate::observe` provides observers for `tracing` and
/// `metrics`.
///
/// Methods are called in the middle of a request, on the thread that makes the decision. They must not block, and
/// should be fast. By default, a limiter has no observers and spends no time on events. If a call's future is dropped
/// before a remote backend has answered, the charges are made, but observers are not notified of the decision.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use tollgate::observe::{Blocked, Credited, Decided, Failed, Observer, Reset, Settled};
/// use tollgate::{protection::Signal, MemoryBackend, Policy, Quota, RateLimiter, DAY, MINUTE};
///
/// #[derive(Default)]
/// struct Audit(Mutex<Vec<String>>);
///
/// impl Observer for Audit {
///     fn decided(&self, observed: &Decided<'_>) {
///         let (decision, outcome) = (observed.decision(), observed.outcome().as_str());
///         if !observed.is_check() && observed.is_enforced() && observed.latency() < Some(MINUTE) {
///             self.0.lock().unwrap().push(format!("{}: {} {outcome}", decision.policy(), decision.cost()));
///         }
///     }
///     fn failed(&self, failed: &Failed<'_>) {
///         let (policy, key, latency) = (failed.policy(), failed.key(), failed.latency());
///         self.0.lock().unwrap().push(format!("{policy} {key:?}: {} ({latency:?})", failed.error()));
///     }
///     fn settled(&self, settled: &Settled<'_>) {
///         let (policy, cost) = (settled.decision().policy(), settled.decision().cost());
///         self.0.lock().unwrap().push(format!("{policy}: {cost} settled to {}", settled.actual()));
///     }
///     fn reset(&self, reset: &Reset<'_>) {
///         self.0.lock().unwrap().push(format!("{}: reset", reset.policy()));
///     }
///     fn credited(&self, credited: &Credited<'_>) {
///         self.0.lock().unwrap().push(format!("{}: credited {}", credited.policy(), credited.tokens()));
///     }
///     fn blocked(&self, blocked: &Blocked<'_>) {
///         let (rule, lasts, times) = (blocked.rule(), blocked.lasts(), blocked.times());
///         self.0.lock().unwrap().push(format!("{rule} for {lasts:?}, {times} times"));
///     }
/// }
///
/// static TOKENS: Policy = Policy::new("tokens", Quota::token_bucket(10_000, MINUTE));
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let audit = Arc::new(Audit::default());
/// let limiter = RateLimiter::builder(MemoryBackend::new()).observer(Arc::clone(&audit)).build();
/// limiter.acquire(&TOKENS, "team").cost(1000).hold().await?.into_receipt().settle(1700).await?;
/// assert!(limiter.try_acquire(&TOKENS, "team").cost(9000).await?.retry_after().is_some());
/// limiter.credit(&TOKENS, "team", 500).await?;
/// limiter.reset(&TOKENS, "team").await?;
/// limiter.block(Signal::ip([192, 0, 2, 7].into()), DAY).await?;
/// assert_eq!(*audit.0.lock().unwrap(), [
///     "tokens: 1000 allowed",
///     "tokens: 1000 settled to 1700",
///     "tokens: 9000 denied",
///     "tokens: credited 500",
///     "tokens: reset",
///     "network 192.0.2.7/32 for 86400s, 0 times",
/// ]);
/// # Ok(()) }
/// ```
pub trait Observer: Send + Sync + 'static {
    /// Called for each charge of a call, after the decision.
    fn decided(&self, observed: &Decided<'_>);

    /// Called for each charge of a call, before the decision, if [`needs_keys`](Observer::needs_keys) returns true. Not
    /// called for checks. Only this method receives keys; all other methods receive digests. Default: does nothing.
    fn requested(&self, requested: &Requested<'_>) {
        let _ = requested;
    }

    /// Returns whether [`requested`](Observer::requested) should be called. The answer must not change after the
    /// limiter has been built. Default: false.
    fn needs_keys(&self) -> bool {
        false
    }

    /// Called if the backend cannot decide a charge. If the [failure mode](crate::FailureMode) decides instead,
    /// [`decided`](Observer::decided) is called too. Default: does nothing.
    fn failed(&self, failed: &Failed<'_>) {
        let _ = failed;
    }

    /// Called when a caller is blocked in this process, automatically or manually. Default: does nothing.
    fn blocked(&self, blocked: &Blocked<'_>) {
        let _ = blocked;
    }

    /// Called when a charge is settled or given back in this process. Default: does nothing.
    fn settled(&self, settled: &Settled<'_>) {
        let _ = settled;
    }

    /// Called when a [row](crate::RateLimiter::reset) or a [policy](crate::RateLimiter::reset_policy) is reset in this
    /// process. Default: does nothing.
    fn reset(&self, reset: &Reset<'_>) {
        let _ = reset;
    }

    /// Called when a key is [credited](crate::RateLimiter::credit) in this process. Default: does nothing.
    fn credited(&self, credited: &Credited<'_>) {
        let _ = credited;
    }

    /// Called when an operator has made or tried to make a change through `tollgate::admin` (feature `admin`). Default:
    /// does nothing.
    fn audited(&self, audited: &Audited<'_>) {
        let _ = audited;
    }

    /// Called when the limiter notices a mistake in the program for the first time. Default: does nothing. See
    /// [`Mistake`] for an example.
    fn mistake(&self, mistake: &Mistake) {
        let _ = mistake;
    }
}

impl<O: Observer + ?Sized> Observer for Arc<O> {
    fn decided(&self, observed: &Decided<'_>) {
        (**self).decided(observed);
    }

    fn requested(&self, requested: &Requested<'_>) {
        (**self).requested(requested);
    }

    fn needs_keys(&self) -> bool {
        (**self).needs_keys()
    }

    fn failed(&self, failed: &Failed<'_>) {
        (**self).failed(failed);
    }

    fn blocked(&self, blocked: &Blocked<'_>) {
        (**self).blocked(blocked);
    }

    fn settled(&self, settled: &Settled<'_>) {
        (**self).settled(settled);
    }

    fn reset(&self, reset: &Reset<'_>) {
        (**self).reset(reset);
    }

    fn credited(&self, credited: &Credited<'_>) {
        (**self).credited(credited);
    }

    fn audited(&self, audited: &Audited<'_>) {
        (**self).audited(audited);
    }

    fn mistake(&self, mistake: &Mistake) {
        (**self).mistake(mistake);
    }
}

/// A decision, passed to [`Observer::decided`]. See [`Observer`] for an example.
#[derive(Clone, Copy, Debug)]
pub struct Decided<'a> {
    pub(super) decision: &'a Decision,
    pub(super) latency: Option<Duration>,
    pub(super) check: bool,
    pub(super) tier: Option<&'a str>,
}

impl<'a> Decided<'a> {
    /// Returns the decision.
    pub const fn decision(&self) -> &'a Decision {
        self.decision
    }

    /// Returns the outcome of the charge.
    pub fn outcome(&self) -> Outcome {
        match self.decision.step().verdict {
            _ if !self.decision.is_allowed() || self.decision.is_shadowed() => Outcome::Denied,
            Verdict::Reserve { wait } if !wait.is_zero() => Outcome::Reserved,
            _ => Outcome::Allowed,
        }
    }

    /// Returns the time from the call to its decision, or `None` for a backend in this process.
    pub const fn latency(&self) -> Option<Duration> {
        self.latency
    }

    /// Returns whether the call was a check, which spends nothing.
    pub const fn is_check(&self) -> bool {
        self.check
    }

    /// Returns the caller's [tier](crate::Subject::tier), if the policy has this tier. Of the tiers that a limiter
    /// encounters, only the first 64 are distinguished, and all others are reported as `(others)`.
    pub const fn tier(&self) -> Option<&'a str> {
        self.tier
    }

    /// Returns whether the charge took the key's spent tokens from below `share` of the capacity to at least this
    /// share, for example 0.8. Returns false for a check and for a denied charge.
    ///
    /// A key may pass the share repeatedly, because tokens are refilled. If the policy has several quotas, the quota
    /// with the fewest remaining tokens is considered. If the quota has [shards](crate::Quota::shards), the shard that
    /// was charged is considered.
    pub fn passes(&self, share: f64) -> bool {
        !self.check && self.outcome() != Outcome::Denied && self.decision.passes(share)
    }

    /// Returns whether a denial is enforced. If the [policy](crate::policy::Enforce) or the
    /// [layer](crate::RateLimitLayer::shadow) is in shadow mode, denials are not enforced, and a
    /// [denied](Outcome::Denied) charge does not stop the call.
    pub const fn is_enforced(&self) -> bool {
        self.decision.is_enforced()
    }
}

/// A charge that is about to be decided, passed to [`Observer::requested`].
///
/// ```
/// use tollgate::observe::{Decided, Observer, Requested};
/// struct ShowKeys;
///
/// impl Observer for ShowKeys {
///     fn decided(&self, _: &Decided<'_>) {}
///     fn requested(&self, requested: &Requested<'_>) {
///         println!("{} {} {:?}", requested.policy(), requested.key().to_text(), requested.digest());
///     }
///     fn needs_keys(&self) -> bool {
///         true
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Requested<'a> {
    pub(super) policy: &'a PolicyName,
    pub(super) key: &'a Key,
    pub(super) digest: Digest,
}

impl<'a> Requested<'a> {
    /// Returns the policy.
    pub const fn policy(&self) -> &'a PolicyName {
        self.policy
    }

    /// Returns the key, which may be a credential.
    pub const fn key(&self) -> &'a Key {
        self.key
    }

    /// Returns the key's digest.
    pub const fn digest(&self) -> Digest {
        self.digest
    }
}

/// The outcome of a charge. See [`Observer`] for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// The charge was made, or, for a check, would have been made.
    Allowed,
    /// The charge was made, or, for a check, would have been made, but its tokens are due later.
    Reserved,
    /// The charge was not made.
    Denied,
}

impl Outcome {
    /// Returns a stable name for logs and metrics: `allowed`, `reserved`, `denied`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Outcome::Allowed => "allowed",
            Outcome::Reserved => "reserved",
            Outcome::Denied => "denied",
        }
    }
}

/// A charge that the backend could not decide, passed to [`Observer::failed`]. See [`Observer`] for an example.
#[derive(Clone, Copy, Debug)]
pub struct Failed<'a> {
    pub(super) policy: &'a PolicyName,
    pub(super) key: Digest,
    pub(super) error: &'a Error,
    pub(super) latency: Option<Duration>,
}

impl<'a> Failed<'a> {
    /// Returns the policy.
    pub const fn policy(&self) -> &'a PolicyName {
        self.policy
    }

    /// Returns the key's digest.
    pub const fn key(&self) -> Digest {
        self.key
    }

    /// Returns the backend's error.
    pub const fn error(&self) -> &'a Error {
        self.error
    }

    /// Returns the time from the call to the error, or `None` for a backend in this process.
    pub const fn latency(&self) -> Option<Duration> {
        self.latency
    }
}

/// A settled charge, passed to [`Observer::settled`].
///
/// A remote backend may still fail to settle the charge, or may give back only some of the tokens; see [what can be
/// given back](crate::Receipt#what-can-be-given-back). See [`Observer`] for an example.
#[derive(Clone, Copy, Debug)]
pub struct Settled<'a> {
    pub(super) decision: &'a Decision,
    pub(super) actual: u64,
}

impl<'a> Settled<'a> {
    /// Returns the decision on the charge, with the original cost.
    pub const fn decision(&self) -> &'a Decision {
        self.decision
    }

    /// Returns the actual cost in tokens, which is 0 for a refund.
    pub const fn actual(&self) -> u64 {
        self.actual
    }
}

/// A reset of a row or of a policy, passed to [`Observer::reset`]. See [`Observer`] for an example.
#[derive(Clone, Copy, Debug)]
pub struct Reset<'a> {
    pub(super) policy: &'a PolicyName,
    pub(super) key: Option<Digest>,
}

impl<'a> Reset<'a> {
    /// Returns the policy.
    pub const fn policy(&self) -> &'a PolicyName {
        self.policy
    }

    /// Returns the key's digest. `None` if all keys of the policy were reset.
    pub const fn key(&self) -> Option<Digest> {
        self.key
    }
}

/// A credit, passed to [`Observer::credited`]. See [`Observer`] for an example.
///
/// If the key has spent fewer tokens than are credited, only the spent tokens are returned. A remote backend may still
/// fail to apply the credit.
#[derive(Clone, Copy, Debug)]
pub struct Credited<'a> {
    pub(super) policy: &'a PolicyName,
    pub(super) key: Digest,
    pub(super) tokens: u64,
}

impl<'a> Credited<'a> {
    /// Returns the policy.
    pub const fn policy(&self) -> &'a PolicyName {
        self.policy
    }

    /// Returns the key's digest.
    pub const fn key(&self) -> Digest {
        self.key
    }

    /// Returns the number of tokens credited, which is more than zero.
    pub const fn tokens(&self) -> u64 {
        self.tokens
    }
}

/// A new block, passed to [`Observer::blocked`]. See [`Observer`] for an example.
#[derive(Clone, Copy, Debug)]
pub struct Blocked<'a> {
    pub(super) rule: &'a DenyRule,
    pub(super) lasts: Duration,
    pub(super) times: u32,
}

impl<'a> Blocked<'a> {
    /// Returns the rule for the blocked key or signal.
    pub const fn rule(&self) -> &'a DenyRule {
        self.rule
    }

    /// Returns how long the block lasts.
    pub const fn lasts(&self) -> Duration {
        self.lasts
    }

    /// Returns the position of this block among the caller's successive blocks, starting at 1. It is 0 for a manual
    /// block.
    pub const fn times(&self) -> u32 {
        self.times
    }
}

/// A change that an operator has made or tried to make through `tollgate::admin`, passed to [`Observer::audited`].
///
/// ```
/// use tollgate::observe::{Audited, Decided, Observer};
/// struct AuditLog;
///
/// impl Observer for AuditLog {
///     fn decided(&self, _: &Decided<'_>) {}
///     fn audited(&self, audited: &Audited<'_>) {
///         // ada: quota of api for 294e0d5fb181c1cb9574defe851b4208: 20/min, denied: None
///         println!("{}: {} of {:?} for {:?}: {}, denied: {:?}", audited.operator(), audited.action(),
///             audited.policy(), audited.scope(), audited.change(), audited.error());
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Audited<'a> {
    pub(crate) operator: &'a str,
    pub(crate) action: &'static str,
    pub(crate) policy: Option<&'a PolicyName>,
    pub(crate) scope: Option<&'a str>,
    pub(crate) change: &'a str,
    pub(crate) error: Option<&'a str>,
}

impl<'a> Audited<'a> {
    /// Returns the name of the operator, as returned by the program's authorization.
    pub const fn operator(&self) -> &'a str {
        self.operator
    }

    /// Returns a stable name for the change: `reset`, `credit`, `block`, `unblock`, `quota` or `enforcement`.
    pub const fn action(&self) -> &'static str {
        self.action
    }

    /// Returns the policy to which the change applies. `None` for blocks, which apply under every policy.
    pub const fn policy(&self) -> Option<&'a PolicyName> {
        self.policy
    }

    /// Returns the callers to which the change applies: the digest of a key, a tier, or the rule of a block. `None` if
    /// the change applies to all callers. Never contains a key.
    pub const fn scope(&self) -> Option<&'a str> {
        self.scope
    }

    /// Returns the new value, such as `20/min`, `500 tokens` or `1h`. Empty if the change has no value.
    pub const fn change(&self) -> &'a str {
        self.change
    }

    /// Returns why the change was not made, or `None` if it was made.
    pub const fn error(&self) -> Option<&'a str> {
        self.error
    }
}
