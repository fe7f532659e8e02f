//! Decisions as events of `tracing`.

use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;

use tracing::{Level, enabled, event, field};

use super::per_policy::PerPolicy;
use super::sample::Sample;
use crate::clock::{Clock, SystemClock};
use crate::limiter::mistake::Mistake;
use crate::limiter::observer::{Blocked, Decided, Failed, Observer, Reset, Settled};

/// Logs what a limiter decides, as events of [`tracing`](https://docs.rs/tracing) under the target `tollgate`.
///
/// ```
/// use tollgate::observe::Tracing;
/// use tollgate::{MemoryBackend, RateLimiter};
///
/// let limiter = RateLimiter::builder(MemoryBackend::new()).observer(Tracing::new()).build();
///
/// // Louder, rarer, and by a clock that a test moves.
/// let tracing = Tracing::new().level(tracing::Level::WARN).per_second(1).clock(tollgate::clock::ManualClock::new());
/// let limiter = RateLimiter::builder(MemoryBackend::new()).observer(tracing).build();
/// assert_eq!(Tracing::TARGET, "tollgate"); // for filters: `tollgate=warn`
/// ```
///
/// | event | level | fields |
/// | --- | --- | --- |
/// | `denied` | INFO ([`level`](Tracing::level)) | those of a decision, `suppressed` |
/// | `allowed` | TRACE | those of a decision |
/// | `checked` | TRACE, whatever the answer | those of a decision |
/// | `failed` | ERROR | `policy`, `key`, `kind`, `error`, `suppressed`, and `latency_us` |
/// | `blocked` | WARN | `rule`, `lasts_ms`, `times`, `suppressed` |
/// | `settled` | TRACE | `policy`, `decided_by`, `cost` (as charged), `actual` (0: all given back), `key` |
/// | `reset` | DEBUG | `policy`, `key` |
/// | `mistake` | WARN, each once | `kind`, `mistake`: what was found, and how to fix it |
///
/// Those of a decision: `policy`, `outcome`, `reason`, `decided_by`, `cost`, `remaining`, `limit`, `key`, `enforced`,
/// and where there is one `retry_after_ms` (rounded up), `rule` and `latency_us`: only a backend that is waited for has
/// that. Events, fields and their values keep their names; the event's name is its message too.
///
/// - **A request under several policies** is an event for each. If one of them refuses it, all are `denied`: the others
///   with the `reason` `refused_elsewhere`. Leave these out to see each refused request once.
/// - **Keys** show as their digest. A `rule` tells an address, a user agent or a label as it stands on the deny list,
///   or was blocked; of a key only that it is one.
/// - **An attack, or an outage, is no flood of logs**: of denials and of failures, each policy logs ten a second at
///   most ([`per_second`](Tracing::per_second)), and all blocks together as many; `suppressed` tells how many were left
///   out since the last one.
/// - **Levels that nobody listens to** cost next to nothing.
/// - **Bounded**: 512 policies are told apart; any others are counted together.
#[derive(Debug)]
pub struct Tracing {
    level: Level,
    per_second: u32,
    clock: Arc<dyn Clock>,
    denials: PerPolicy<Sample>,
    failures: PerPolicy<Sample>,
    blocks: Sample,
}

impl Tracing {
    /// The target of all events, for filters.
    pub const TARGET: &'static str = "tollgate";

    /// Denials at INFO, ten a second for each policy.
    pub fn new() -> Tracing {
        Tracing {
            level: Level::INFO,
            per_second: PER_SECOND,
            clock: Arc::new(SystemClock::new()),
            denials: PerPolicy::new(),
            failures: PerPolicy::new(),
            blocks: Sample::default(),
        }
    }

    /// The level of denials. Defaults to INFO: to refuse what is too much is what a limiter is for.
    #[must_use]
    pub fn level(mut self, level: Level) -> Tracing {
        self.level = level;
        self
    }

    /// How many denials of a policy are logged in each second of the clock; failures and blocks likewise. Defaults to
    /// 10; `u32::MAX` logs all of them, of an attack and of an outage too.
    #[must_use]
    pub fn per_second(mut self, events: u32) -> Tracing {
        self.per_second = events;
        self
    }

    /// The clock whose seconds these are. Defaults to the system's.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Tracing {
        self.clock = Arc::new(clock);
        self
    }

    /// Whether one more may be logged, and how many were left out before it.
    fn pass(&self, sample: &Sample) -> Option<u64> {
        sample.pass(self.clock.now(), self.per_second)
    }

    fn denied(&self, observed: &Decided<'_>) {
        let policy = observed.decision().policy();
        let Some(suppressed) = self.pass(&self.denials.of(policy, |_| Sample::default())) else { return };
        match self.level {
            Level::ERROR => decision!(Level::ERROR, "denied", observed, suppressed = suppressed),
            Level::WARN => decision!(Level::WARN, "denied", observed, suppressed = suppressed),
            Level::INFO => decision!(Level::INFO, "denied", observed, suppressed = suppressed),
            Level::DEBUG => decision!(Level::DEBUG, "denied", observed, suppressed = suppressed),
            _ => decision!(Level::TRACE, "denied", observed, suppressed = suppressed),
        }
    }
}

/// An event with the fields of a decision; none of them is looked at unless somebody listens. The level of an event has
/// to stand in the program.
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
        } else if observed.decision().is_allowed() {
            decision!(Level::TRACE, "allowed", observed);
        } else if is_enabled(self.level) {
            self.denied(observed);
        }
    }

    fn failed(&self, failed: &Failed<'_>) {
        if !is_enabled(Level::ERROR) {
            return;
        }
        let Some(suppressed) = self.pass(&self.failures.of(failed.policy(), |_| Sample::default())) else { return };
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
            key = ?reset.key(),
            "reset"
        );
    }

    /// At WARN, each once.
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

/// Whether anybody listens.
fn is_enabled(level: Level) -> bool {
    match level {
        Level::ERROR => enabled!(target: Tracing::TARGET, Level::ERROR),
        Level::WARN => enabled!(target: Tracing::TARGET, Level::WARN),
        Level::INFO => enabled!(target: Tracing::TARGET, Level::INFO),
        Level::DEBUG => enabled!(target: Tracing::TARGET, Level::DEBUG),
        _ => enabled!(target: Tracing::TARGET, Level::TRACE),
    }
}

/// Rounded up: after so long the same call succeeds.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Enough to see who and why; no more than a terminal shows.
const PER_SECOND: u32 = 10;
