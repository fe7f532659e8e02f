//! The rules for automatic blocking.

use std::borrow::Cow;
use std::time::Duration;

use crate::algorithm::{DAY, MINUTE};
use crate::policy::{Policy, PolicyName, Signal, SignalKind};

/// Rules for blocking the key and the address of a caller that is denied too often within a short time. Pass the rules
/// to [`RateLimiterBuilder::auto_block`](crate::limiter::RateLimiterBuilder::auto_block).
///
/// ```
/// use std::net::IpAddr;
/// use tollgate::{protection::AutoBlock, MemoryBackend, Policy, Quota, RateLimiter, Reason, DAY, HOUR, MINUTE};
/// static LOGIN: Policy = Policy::new("login", Quota::token_bucket(5, HOUR));
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::backend::Error> {
/// // Block only addresses. If keys were blocked, anyone could have Ada's account blocked.
/// let rules = AutoBlock::new([&LOGIN]).without_keys().threshold(3).within(10 * MINUTE).block_for(HOUR);
/// let rules = rules.escalate(4, 7 * DAY); // four times as long each time, up to a week
/// let limiter = RateLimiter::builder(MemoryBackend::new()).auto_block(rules).build();
/// let mallory: IpAddr = [192, 0, 2, 7].into();
/// for _ in 0..8 {
///     drop(limiter.try_acquire(&LOGIN, ("ada", mallory)).ip(mallory).await?); // five are allowed, three are denied
/// }
/// let blocked = limiter.try_acquire(&LOGIN, ("grace", mallory)).ip(mallory).await?;
/// assert_eq!(blocked.reason(), Reason::Blocked);
/// # Ok(()) }
/// ```
///
/// - **Policies**: only denials under the given policies count, and a key is blocked only under these policies. Leave
///   out policies with [global](crate::key::global) or anonymous keys. These keys are never blocked, but their denials
///   would get the callers' addresses blocked.
/// - **Keys that a client can choose** (an account, a path, an unverified header) must not be blocked, because an
///   attacker could get a victim blocked. Add [`without_keys`](AutoBlock::without_keys) unless every policy uses keys
///   that are [verified](crate::key#which-keys-a-client-can-invent) or contain the address.
/// - **Addresses**: a block applies to every call with the address in its [`Signals`](crate::protection::Signals), even
///   if many people share the address. IPv6 addresses are compared by their first 64 bits.
/// - **Counts**: a count starts at the first denial and ends after the [time window](AutoBlock::within). A denial
///   counts only if it is enforced and due to a quota. Checks do not count, nor do calls whose future is dropped
///   before a remote backend has answered.
/// - **Processes**: each process counts its own denials. On a shared backend, a block takes effect in all processes
///   within a second. [Escalation](AutoBlock::escalate) also counts the blocks made by other processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AutoBlock {
    pub(super) policies: Vec<PolicyName>,
    pub(super) threshold: u32,
    pub(super) window: Duration,
    pub(super) lasts: Duration,
    pub(super) escalation: Option<(u32, Duration)>,
    pub(super) resets_on_success: bool,
    pub(super) keys: bool,
    pub(super) ips: bool,
    pub(super) user_agents: bool,
    pub(super) labels: Vec<Cow<'static, str>>,
    pub(super) max_entries: usize,
}

impl AutoBlock {
    /// Creates rules that count denials under these policies.
    pub fn new<'a>(policies: impl IntoIterator<Item = &'a Policy>) -> AutoBlock {
        AutoBlock::of_names(policies.into_iter().map(|policy| policy.name().clone()))
    }

    /// Like [`new`](AutoBlock::new), but for policies identified by name.
    pub fn of_names(policies: impl IntoIterator<Item = PolicyName>) -> AutoBlock {
        AutoBlock {
            policies: policies.into_iter().collect(),
            threshold: 30,
            window: 10 * MINUTE,
            lasts: DAY,
            escalation: None,
            resets_on_success: false,
            keys: true,
            ips: true,
            user_agents: false,
            labels: Vec::new(),
            max_entries: 100_000,
        }
    }

    /// Sets how many denials lead to a block. Defaults to 30. The minimum is 1.
    #[must_use]
    pub fn threshold(mut self, denials: u32) -> AutoBlock {
        self.threshold = denials.max(1);
        self
    }

    /// Sets the length of the time window in which denials are counted. Defaults to 10 minutes.
    #[must_use]
    pub fn within(mut self, window: Duration) -> AutoBlock {
        self.window = window;
        self
    }

    /// Sets how long a block lasts. Defaults to 24 hours.
    #[must_use]
    pub fn block_for(mut self, time: Duration) -> AutoBlock {
        self.lasts = time;
        self
    }

    /// Makes each subsequent block on a caller `factor` times as long as the previous one, up to `most`. A `factor` of
    /// 0 counts as 1. The duration is reset once the caller has gone without a block for as long as its last block
    /// lasted. Off by default.
    #[must_use]
    pub fn escalate(mut self, factor: u32, most: Duration) -> AutoBlock {
        self.escalation = Some((factor.max(1), most));
        self
    }

    /// Resets a caller's counts whenever a charge under one of the policies is allowed. This suits quotas that
    /// well-behaved callers rarely exceed. Off by default, because even a caller far over its quota sometimes succeeds.
    #[must_use]
    pub fn reset_on_success(mut self) -> AutoBlock {
        self.resets_on_success = true;
        self
    }

    /// Turns off the blocking of keys, which is on by default but is safe only for [verified keys](AutoBlock).
    #[must_use]
    pub fn without_keys(mut self) -> AutoBlock {
        self.keys = false;
        self
    }

    /// Turns off the blocking of addresses, which is on by default.
    #[must_use]
    pub fn without_ips(mut self) -> AutoBlock {
        self.ips = false;
        self
    }

    /// Also blocks user agents. A block applies to all clients with the same user agent. Off by default.
    #[must_use]
    pub fn user_agents(mut self) -> AutoBlock {
        self.user_agents = true;
        self
    }

    /// Also blocks callers by the value of a label such as `"country"`. Can be called several times to add more labels.
    #[must_use]
    pub fn label(mut self, name: impl Into<Cow<'static, str>>) -> AutoBlock {
        self.labels.push(name.into());
        self
    }

    /// Sets how many keys, addresses and other signals are tracked, at 64 bytes or more each. If there are more, those
    /// with the fewest denials are dropped first. Defaults to 100,000. The minimum is 64.
    #[must_use]
    pub fn max_entries(mut self, entries: usize) -> AutoBlock {
        self.max_entries = entries.max(64);
        self
    }

    /// Returns the fields that differ in `new`, each with its old and new values.
    #[cfg(feature = "serde")]
    pub(crate) fn differences(&self, new: &AutoBlock) -> Vec<(&'static str, String, String)> {
        let escalation = |rules: &AutoBlock| match rules.escalation {
            Some((factor, most)) => format!("{{ factor = {factor}, most = {most:?} }}"),
            None => "off".to_owned(),
        };
        let fields = |rules: &AutoBlock| {
            [
                ("policies", format!("{:?}", rules.policies)),
                ("threshold", rules.threshold.to_string()),
                ("within", format!("{:?}", rules.window)),
                ("block_for", format!("{:?}", rules.lasts)),
                ("escalate", escalation(rules)),
                ("reset_on_success", rules.resets_on_success.to_string()),
                ("keys", rules.keys.to_string()),
                ("ips", rules.ips.to_string()),
                ("user_agents", rules.user_agents.to_string()),
                ("labels", format!("{:?}", rules.labels)),
                ("max_entries", rules.max_entries.to_string()),
            ]
        };
        let pairs = fields(self).into_iter().zip(fields(new));
        pairs.filter(|(old, new)| old != new).map(|((field, old), (_, new))| (field, old, new)).collect()
    }

    pub(super) fn blocks_by(&self, signal: &Signal) -> bool {
        match &signal.0 {
            SignalKind::Key(_) => self.keys,
            SignalKind::Ip(_) => self.ips,
            SignalKind::UserAgent(_) => self.user_agents,
            SignalKind::Label(name, _) => self.labels.contains(name),
        }
    }

    /// Returns how long a block lasts after `times` earlier blocks.
    pub(super) fn lasts(&self, times: u32) -> Duration {
        let Some((factor, most)) = self.escalation else { return self.lasts };
        let factor = factor.checked_pow(times).unwrap_or(u32::MAX);
        self.lasts.checked_mul(factor).unwrap_or(most).min(most.max(self.lasts))
    }
}
