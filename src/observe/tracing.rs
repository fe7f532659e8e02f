//! Logs decisions as `tracing` events.

use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;

use tracing::{Level, enabled, event, field};

use super::per_policy::PerPolicy;
use super::sample::Sampler;
use crate::clock::{Clock, SystemClock};
use crate::limiter::mistake::Mistake;
use crate::limiter::observer::{Audited, Blocked, Credited, Decided, Failed, Observer, Outcome, Reset, Settled};
use crate::policy::PolicyName;

/// Logs the decisions of a limiter as [`tracing`](https://docs.rs/tracing) events with the target `tollgate`.
///
/// ```
/// use tollgate::{MemoryBackend, RateLimiter, observe::Tracing};
/// // Log at most one denial per second at WARN, and report keys that have spent 80% of their limit.
/// let tracing = Tracing::new().level(tracing::Level::WARN).per_second(1).near_limit(0.8);
/// let limiter = RateLimiter::builder(MemoryBackend::new()).observer(tracing).build();
/// ```
///
/// | event | level | fields |
/// | --- | --- | --- |
/// | `denied` | INFO ([`level`](Tracing::level)) | decision fields, `suppressed` |
/// | `allowed` | TRACE | decision fields |
/// | `near_limit` | WARN, if [turned on](Tracing::near_limit) | decision fields, `share`, `suppressed` |
/// | `checked` | TRACE, whether allowed or denied | decision fields |
/// | `failed` | ERROR | `policy`, `key`, `kind`, `error`, `suppressed`, `latency_us` (remote backends only) |
/// | `blocked` | WARN | `rule`, `lasts_ms`, `times`, `suppressed` |
/// | `settled` | TRACE | `policy`, `decided_by`, `cost` (as charged), `actual` (0 for a refund), `key` |
/// | `reset` | DEBUG | `policy`, `key` (absent if the whole policy was reset) |
/// | `credited` | DEBUG | `policy`, `tokens`, `key` |
/// | `audited` | WARN, for each change by an operator | `operator`, `action`, `change`, and `policy`, `scope` and `error` if present |
/// | `mistake` | WARN, once for each mistake | `kind`, `mistake` (what was found, and how to fix it) |
///
/// The decision fields are `policy`, `outcome`, `reason`, `decided_by`, `cost`, `remaining`, `limit`, `key`, `enforced`
/// and, if present, `tier`, `retry_after_ms` (rounded up), `rule` and `latency_us` (remote backends only). Event names,
/// field names and fixed field values are stable. The message of an event is its name.
///
/// - **Several policies**: a request causes one event for each policy. If any policy denies the request, all of these
///   events are `denied`, and the `reason` is `refused_elsewhere` for policies that did not deny it. Exclude this
///   reason to see only the policies that did.
/// - **Keys** appear only as digests. A `rule` contains an address, user agent or label, but never a key.
/// - **Rate**: [`per_second`](Tracing::per_second) limits the events that have the field `suppressed`, which is the
///   number of events omitted since the last logged event. Policies after the first 512
///   share one limit for each kind of event.
#[derive(Debug)]
pub struct Tracing {
    level: Level,
    per_second: u32,
    share: Option<f64>,
    clock: Arc<dyn Clock>,
    denials: PerPolicy<Sampler>,
    near_limits: PerPolicy<Sampler>,
    failures: PerPolicy<Sampler>,
    blocks: Sampler,
}

impl Tracing {
    /// The target of all events, for filters such as `tollgate=warn`.
    pub const TARGET: &'static str = "tollgate";

    /// Creates an observer that logs denials at INFO, at most ten per second for each policy.
    pub fn new() -> Tracing {
        Tracing {
            level: Level::INFO,
            per_second: DEFAULT_PER_SECOND,
            share: None,
            clock: Arc::new(SystemClock::new()),
            denials: PerPolicy::new(),
            near_limits: PerPolicy::new(),
            failures: PerPolicy::new(),
            blocks: Sampler::default(),
        }
    }

    /// Sets the level at which denials are logged. Defaults to INFO.
    #[must_use]
    pub fn level(mut self, level: Level) -> Tracing {
        self.level = level;
        self
    }

    /// Sets the maximum number of events of each kind that are logged per second: denials, failures and `near_limit`
    /// events for each policy, and blocks across all policies. Defaults to 10. With `u32::MAX`, all of these events are
    /// logged.
    #[must_use]
    pub fn per_second(mut self, events: u32) -> Tracing {
        self.per_second = events;
        self
    }

    /// Logs a `near_limit` event when a key reaches this share of its limit, such as 0.8. Off by default. See
    /// [`Decided::passes`] for the exact condition.
    ///
    /// # Panics
    /// Panics unless the share is greater than 0 and at most 1.
    #[must_use]
    #[track_caller]
    pub fn near_limit(mut self, share: f64) -> Tracing {
        assert!(share > 0.0 && share <= 1.0, "tollgate: expected a share greater than 0 and at most 1, found {share}");
        self.share = Some(share);
        self
    }

    /// Sets the clock for [`per_second`](Tracing::per_second). Defaults to the system clock.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Tracing {
        self.clock = Arc::new(clock);
        self
    }

    fn pass(&self, sample: &Sampler) -> Option<u64> {
        sample.pass(self.clock.now(), self.per_second)
    }

    fn near(&self, observed: &Decided<'_>, share: f64) {
        let policy = observed.decision().policy();
        let Some(suppressed) = self.pass(&self.near_limits.of(policy, |_| Sampler::default())) else { return };
        decision!(Level::WARN, "near_limit", observed, share = share, suppressed = suppressed);
    }

    fn denied(&self, observed: &Decided<'_>) {
        let policy = observed.decision().policy();
        let Some(suppressed) = self.pass(&self.denials.of(policy, |_| Sampler::default())) else { return };
        match self.level {
            Level::ERROR => decision!(Level::ERROR, "denied", observed, suppressed = suppressed),
            Level::WARN => decision!(Level::WARN, "denied", observed, suppressed = suppressed),
            Level::INFO => decision!(Level::INFO, "denied", observed, suppressed = suppressed),
            Level::DEBUG => decision!(Level::DEBUG, "denied", observed, suppressed = suppressed),
            _ => decision!(Level::TRACE, "denied", observed, suppressed = suppressed),
        }
    }
}

/// Emits an event with the decision fields. This is a macro because `event!` needs a constant level.
macro_rules! decision {
    ($level:expr, $name:literal, $observed:ident $(, $($more:tt)+)?) => {{
        let decision = $observed.decision();
        event!(
            name: $name,
            target: Tracing::TARGET,
            $level,
            policy = decision.policy().as_str(),
            outcome = $observed.outcome().as_str(),
            reason = decision.reason().as_str(),
            decided_by = decision.decided_by().as_str(),
            cost = decision.cost(),
            remaining = decision.remaining(),
            limit = decision.capacity(),
            retry_after_ms = decision.retry_after().map(millis),
            latency_us = $observed.latency().map(micros),
            key = ?decision.key(),
            rule = decision.denied_rule().map(field::display),
            tier = $observed.tier(),
            enforced = $observed.is_enforced(),
            $($($more)+,)?
            $name
        )
    }};
}
use decision;

impl Observer for Tracing {
    fn decided(&self, observed: &Decided<'_>) {
        if observed.is_check() {
            decision!(Level::TRACE, "checked", observed);
        } else if observed.outcome() != Outcome::Denied {
            decision!(Level::TRACE, "allowed", observed);
            match self.share {
                Some(share) if is_enabled(Level::WARN) && observed.passes(share) => self.near(observed, share),
                _ => {}
            }
        } else if is_enabled(self.level) {
            self.denied(observed);
        }
    }

    fn failed(&self, failed: &Failed<'_>) {
        if !is_enabled(Level::ERROR) {
            return;
        }
        let Some(suppressed) = self.pass(&self.failures.of(failed.policy(), |_| Sampler::default())) else { return };
        event!(
            name: "failed",
            target: Tracing::TARGET,
            Level::ERROR,
            policy = failed.policy().as_str(),
            key = ?failed.key(),
            kind = failed.error().kind().as_str(),
            error = failed.error() as &(dyn StdError + 'static),
            latency_us = failed.latency().map(micros),
            suppressed,
            "failed"
        );
    }

    fn blocked(&self, blocked: &Blocked<'_>) {
        if !is_enabled(Level::WARN) {
            return;
        }
        let Some(suppressed) = self.pass(&self.blocks) else { return };
        event!(
            name: "blocked",
            target: Tracing::TARGET,
            Level::WARN,
            rule = %blocked.rule(),
            lasts_ms = millis(blocked.lasts()),
            times = blocked.times(),
            suppressed,
            "blocked"
        );
    }

    fn settled(&self, settled: &Settled<'_>) {
        let decision = settled.decision();
        event!(
            name: "settled",
            target: Tracing::TARGET,
            Level::TRACE,
            policy = decision.policy().as_str(),
            decided_by = decision.decided_by().as_str(),
            cost = decision.cost(),
            actual = settled.actual(),
            key = ?decision.key(),
            "settled"
        );
    }

    fn reset(&self, reset: &Reset<'_>) {
        event!(
            name: "reset",
            target: Tracing::TARGET,
            Level::DEBUG,
            policy = reset.policy().as_str(),
            key = reset.key().map(field::debug),
            "reset"
        );
    }

    fn credited(&self, credited: &Credited<'_>) {
        event!(
            name: "credited",
            target: Tracing::TARGET,
            Level::DEBUG,
            policy = credited.policy().as_str(),
            tokens = credited.tokens(),
            key = ?credited.key(),
            "credited"
        );
    }

    fn audited(&self, audited: &Audited<'_>) {
        event!(
            name: "audited",
            target: Tracing::TARGET,
            Level::WARN,
            operator = audited.operator(),
            action = audited.action(),
            policy = audited.policy().map(PolicyName::as_str),
            scope = audited.scope(),
            change = audited.change(),
            error = audited.error(),
            "audited"
        );
    }

    fn mistake(&self, mistake: &Mistake) {
        event!(
            name: "mistake",
            target: Tracing::TARGET,
            Level::WARN,
            kind = mistake.kind().as_str(),
            mistake = %mistake,
            "mistake"
        );
    }
}

impl Default for Tracing {
    fn default() -> Tracing {
        Tracing::new()
    }
}

fn is_enabled(level: Level) -> bool {
    match level {
        Level::ERROR => enabled!(target: Tracing::TARGET, Level::ERROR),
        Level::WARN => enabled!(target: Tracing::TARGET, Level::WARN),
        Level::INFO => enabled!(target: Tracing::TARGET, Level::INFO),
        Level::DEBUG => enabled!(target: Tracing::TARGET, Level::DEBUG),
        _ => enabled!(target: Tracing::TARGET, Level::TRACE),
    }
}

/// Returns whole milliseconds, rounded up so that a retry after this time is not too early.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

const DEFAULT_PER_SECOND: u32 = 10;
