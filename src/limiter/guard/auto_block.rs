//! Whom to block for being denied again and again, and for how long.

use std::borrow::Cow;
use std::time::Duration;

use crate::algorithm::{DAY, MINUTE};
use crate::policy::{Policy, PolicyName, Signal, SignalKind};

/// Blocks callers who are denied again and again: whoever is denied `threshold` times within a time is blocked for a
/// longer one, by key and by address. Off unless a limiter is [given one](crate::limiter::RateLimiterBuilder::auto_block).
///
/// ```
/// use std::net::IpAddr;
/// use tollgate::{protection::AutoBlock, MemoryBackend, Policy, Quota, RateLimiter, Reason, HOUR, MINUTE};
///
/// static LOGIN: Policy = Policy::new("login", Quota::token_bucket(5, HOUR));
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::backend::Error> {
/// let limiter = RateLimiter::builder(MemoryBackend::new())
///     // By address alone: anybody can name Ada's account, and would have it blocked.
///     .auto_block(AutoBlock::new([&LOGIN]).without_keys().threshold(3).within(10 * MINUTE).block_for(HOUR))
///     .build();
/// let mallory: IpAddr = [192, 0, 2, 7].into();
/// for _ in 0..8 {
///     drop(limiter.try_acquire(&LOGIN, ("ada", mallory)).ip(mallory).await?); // five are allowed, three denied
/// }
/// let blocked = limiter.try_acquire(&LOGIN, ("grace", mallory)).ip(mallory).await?;
/// assert_eq!(blocked.reason(), Reason::Blocked);
/// assert!(blocked.retry_after() > Some(59 * MINUTE));
/// // Her own attempts, from her own address, are not blocked.
/// let ada: IpAddr = [198, 51, 100, 1].into();
/// assert!(limiter.try_acquire(&LOGIN, ("ada", ada)).ip(ada).await?.is_allowed());
/// # Ok(()) }
/// ```
///
/// Everything that can be said:
///
/// ```
/// use tollgate::{policy::PolicyName, protection::AutoBlock, Policy, Quota, DAY, HOUR, MINUTE};
///
/// let login = Policy::new("login", Quota::token_bucket(5, HOUR));
/// let rules = AutoBlock::new([&login])
///     .threshold(30)
///     .within(10 * MINUTE)
///     .block_for(HOUR)
///     .escalate(4, 7 * DAY) // an hour, four, sixteen ... a week
///     .reset_on_success()
///     .without_keys() // by address alone, and by these:
///     .user_agents()
///     .label("asn")
///     .max_entries(50_000);
/// assert_eq!(AutoBlock::of_names([PolicyName::new("login")]), AutoBlock::new([&login]));
/// assert_ne!(AutoBlock::new([&login]).without_ips(), AutoBlock::new([&login]));
/// ```
///
/// - **Which denials** count is told by policy, and a key is blocked under these policies. A limit on everybody
///   together ([`key::global`](crate::key::global)), or on those without a key, blocks nobody by key, but their
///   addresses, so it had better not be among them.
/// - **Keys that anybody can name** (an account, a path, an unchecked header) must not be blocked: an attacker would run into
///   the limit in the name of a victim, and have the victim blocked. Add
///   [`without_keys`](AutoBlock::without_keys) unless every policy here counts by a key that was
///   [verified](crate::key#which-keys-a-client-can-invent), or has the address in it.
/// - **An address** is blocked for every call that tells it (see [`Signals`](crate::protection::Signals)): many people may share
///   one. IPv6 counts by the first 64 bits.
/// - A count begins with a denial and ends a window later; what is denied for being blocked, asked for by a
///   [`check`](crate::RateLimiter::check), or not enforced does not count.
/// - **Bounded**: at most [`max_entries`](AutoBlock::max_entries) are remembered; when there are more, those who are
///   denied least, or have been silent, are forgotten first, and a block that nobody runs into counts as half the
///   denials that earn one. Each denial costs the same, whatever there is.
/// - A denial counts when its answer is there: a call that is dropped before a remote backend has answered does not.
/// - In [shadow mode](crate::RateLimitLayer::shadow) nobody is kept out, whether blocked or on a deny list.
/// - **Shared**: counts are each process's own; on a backend that processes share, a block that one earned holds in all
///   of them, within a second, and the next one is longer in all of them if blocks [escalate](AutoBlock::escalate).
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
    /// Denials under these policies count: 30 within 10 minutes block key and address for 24 hours.
    pub fn new<'a>(policies: impl IntoIterator<Item = &'a Policy>) -> AutoBlock {
        AutoBlock::of_names(policies.into_iter().map(|policy| policy.name().clone()))
    }

    /// The same for policies that are known by name.
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

    /// How many denials it takes, at least 1. Defaults to 30.
    #[must_use]
    pub fn threshold(mut self, denials: u32) -> AutoBlock {
        self.threshold = denials.max(1);
        self
    }

    /// Within which time. Defaults to 10 minutes.
    #[must_use]
    pub fn within(mut self, window: Duration) -> AutoBlock {
        self.window = window;
        self
    }

    /// How long a block lasts. Defaults to 24 hours.
    #[must_use]
    pub fn block_for(mut self, time: Duration) -> AutoBlock {
        self.lasts = time;
        self
    }

    /// Each block of the same caller lasts `factor` (at least 1) times as long as the one before, up to `most`. Whoever
    /// has been free for as long as they were blocked begins anew. Off by default.
    #[must_use]
    pub fn escalate(mut self, factor: u32, most: Duration) -> AutoBlock {
        self.escalation = Some((factor.max(1), most));
        self
    }

    /// A charge that is allowed sets the counts of its key and address to 0: for policies under which a good caller is
    /// told apart by succeeding. Off by default: whoever may do ten things a minute and tries a hundred succeeds every
    /// now and then.
    #[must_use]
    pub fn reset_on_success(mut self) -> AutoBlock {
        self.resets_on_success = true;
        self
    }

    /// Does not block by key. It does by default, which is right for verified keys only: see [above](AutoBlock).
    #[must_use]
    pub fn without_keys(mut self) -> AutoBlock {
        self.keys = false;
        self
    }

    /// Does not block by address. It does by default.
    #[must_use]
    pub fn without_ips(mut self) -> AutoBlock {
        self.ips = false;
        self
    }

    /// Blocks by user agent too: everybody who has the same. Off by default.
    #[must_use]
    pub fn user_agents(mut self) -> AutoBlock {
        self.user_agents = true;
        self
    }

    /// Blocks by a label too, such as `"country"`: everybody who has the same value. By none by default; said several
    /// times, by each.
    #[must_use]
    pub fn label(mut self, name: impl Into<Cow<'static, str>>) -> AutoBlock {
        self.labels.push(name.into());
        self
    }

    /// How many callers are remembered at most, at least 64: counted or blocked, 64 bytes
    /// each, and for each block [what it shows](crate::protection::Block) besides. Defaults to 100,000.
    #[must_use]
    pub fn max_entries(mut self, entries: usize) -> AutoBlock {
        self.max_entries = entries.max(64);
        self
    }

    /// The fields of a configuration that `new` changes, each with its old and its new value.
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

    /// Whether it blocks by this signal, which is no key.
    pub(super) fn blocks_by(&self, signal: &Signal) -> bool {
        match &signal.0 {
            SignalKind::Key(_) => self.keys,
            SignalKind::Ip(_) => self.ips,
            SignalKind::UserAgent(_) => self.user_agents,
            SignalKind::Label(name, _) => self.labels.contains(name),
        }
    }

    /// How long the block after so many others lasts.
    pub(super) fn lasts(&self, times: u32) -> Duration {
        let Some((factor, most)) = self.escalation else { return self.lasts };
        let factor = factor.checked_pow(times).unwrap_or(u32::MAX);
        self.lasts.checked_mul(factor).unwrap_or(most).min(most.max(self.lasts))
    }
}
