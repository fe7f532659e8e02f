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
/// should be fast. An observer receives only the events of its own process. All methods except `decided` and
/// `needs_keys` do nothing by default. If a call's future is dropped before a remote backend has answered, the charges
/// are made, but observers are not notified of the decision. A limiter without observers, which is the default, spends
/// no time on events.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use tollgate::observe::{Blocked, Decided, Observer, Settled};
/// use tollgate::{protection::Signal, MemoryBackend, Policy, Quota, RateLimiter, DAY, MINUTE};
///
/// #[derive(Default)]
/// struct Log(Mutex<Vec<String>>);
///
/// impl Observer for Log {
///     fn decided(&self, observed: &Decided<'_>) {
///         let (decision, outcome) = (observed.decision(), observed.outcome().as_str());
///         self.0.lock().unwrap().push(format!("{}: {} {outcome}", decision.policy(), decision.cost()));
///     }
///     fn settled(&self, settled: &Settled<'_>) {
///         let policy = settled.decision().policy();
///         self.0.lock().unwrap().push(format!("{policy}: settled to {}", settled.actual()));
///     }
///     fn blocked(&self, blocked: &Blocked<'_>) {
///         self.0.lock().unwrap().push(format!("{} for {:?}", blocked.rule(), blocked.lasts()));
///     }
/// }
///
/// static TOKENS: Policy = Policy::new("tokens", Quota::token_bucket(10_000, MINUTE));
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let log = Arc::new(Log::default());
/// let limiter = RateLimiter::builder(MemoryBackend::new()).observer(Arc::clone(&log)).build();
/// limiter.acquire(&TOKENS, "team").cost(1000).hold().await?.into_receipt().settle(1700).await?;
/// limiter.block(Signal::ip([192, 0, 2, 7].into()), DAY).await?;
/// let expected = ["tokens: 1000 allowed", "tokens: settled to 1700", "network 192.0.2.7/32 for 86400s"];
/// assert_eq!(*log.0.lock().unwrap(), expected);
/// # Ok(()) }
/// ```
pub trait Observer: Send + Sync + 'static {
    /// Called for each charge of a call, after the decision.
    fn decided(&self, observed: &Decided<'_>);

    /// Called for each charge before it is decided, if [`needs_keys`](Observer::needs_keys) returns true. Not called
    /// for checks. Only this method receives keys; all other methods receive digests.
    fn requested(&self, requested: &Requested<'_>) {
        let _ = requested;
    }

    /// Returns whether [`requested`](Observer::requested) is called. The result must not change. The default is false.
    fn needs_keys(&self) -> bool {
        false
    }

    /// Called if the backend cannot decide a charge. If the [failure mode](crate::FailureMode) decides instead,
    /// [`decided`](Observer::decided) is called too.
    fn failed(&self, failed: &Failed<'_>) {
        let _ = failed;
    }

    /// Called when a caller is blocked, automatically or manually.
    fn blocked(&self, blocked: &Blocked<'_>) {
        let _ = blocked;
    }

    /// Called when a charge is settled or given back.
    fn settled(&self, settled: &Settled<'_>) {
        let _ = settled;
    }

    /// Called when a [row](crate::RateLimiter::reset) or a [policy](crate::RateLimiter::reset_policy) is reset.
    fn reset(&self, reset: &Reset<'_>) {
        let _ = reset;
    }

    /// Called when a key is [credited](crate::RateLimiter::credit).
    fn credited(&self, credited: &Credited<'_>) {
        let _ = credited;
    }

    /// Called for each change that an operator makes or tries to make through `tollgate::admin` (feature `admin`).
    fn audited(&self, audited: &Audited<'_>) {
        let _ = audited;
    }

    /// Called when the limiter notices a mistake in the program for the first time.
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

/// A decision, passed to [`Observer::decided`].
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

    /// Returns the time between the call to a remote backend and the decision, or `None` if no remote backend was
    /// called.
    pub const fn latency(&self) -> Option<Duration> {
        self.latency
    }

    /// Returns whether the call was a check, which spends nothing.
    pub const fn is_check(&self) -> bool {
        self.check
    }

    /// Returns the caller's [tier](crate::Subject::tier), if the policy defines that tier. Only the first 64 tiers that
    /// a limiter encounters are distinguished. All others are reported as `(others)`.
    pub const fn tier(&self) -> Option<&'a str> {
        self.tier
    }

    /// Returns whether this charge raised the key's usage from below `share` of the capacity to `share` or more. A
    /// share of 0.8 means 80% of the capacity. Returns false for checks and denied charges. A key can reach the share
    /// repeatedly, because tokens are refilled. If there are several quotas, only the quota with the fewest remaining
    /// tokens counts. If that quota has [shards](crate::Quota::shards), only the charged shard counts.
    pub fn passes(&self, share: f64) -> bool {
        !self.check && self.outcome() != Outcome::Denied && self.decision.passes(share)
    }

    /// Returns whether a denial is enforced. In [shadow mode](crate::policy::Enforce), a
    /// [denied](Outcome::Denied) charge does not stop the call.
    pub const fn is_enforced(&self) -> bool {
        self.decision.is_enforced()
    }
}

/// A charge that is about to be decided, passed to [`Observer::requested`].
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

/// The outcome of a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// The charge was made (or, for a check, would have been made).
    Allowed,
    /// Like `Allowed`, but the caller may proceed only after a wait.
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

/// A charge that the backend could not decide, passed to [`Observer::failed`].
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

    /// Returns the time between the call to a remote backend and the error, or `None` for a backend in this process.
    pub const fn latency(&self) -> Option<Duration> {
        self.latency
    }
}

/// A charge that is settled or given back, passed to [`Observer::settled`]. The settlement may give back only some of
/// the tokens, and may still fail on a remote backend; see [what can be given
/// back](crate::Receipt#what-can-be-given-back).
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

/// A reset of a row or of a policy, passed to [`Observer::reset`].
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

    /// Returns the key's digest, or `None` if all keys of the policy were reset.
    pub const fn key(&self) -> Option<Digest> {
        self.key
    }
}

/// A credit, passed to [`Observer::credited`]. If the key has spent fewer tokens than are credited, only the spent
/// tokens are given back. A remote backend may still fail to apply the credit.
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

/// A new block, passed to [`Observer::blocked`].
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

    /// Returns how many times in a row the caller has been blocked automatically, including this block; 0 for a manual
    /// block.
    pub const fn times(&self) -> u32 {
        self.times
    }
}

/// A change that an operator has made or tried to make through `tollgate::admin`, passed to [`Observer::audited`].
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
    /// Returns the operator's name, which the program's authorization function provides.
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

    /// Returns the callers to which the change applies: the digest of a key (never the key itself), a tier, or the rule
    /// of a block. `None` if the change applies to all callers.
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
