//! Decisions as counters and histograms.

use std::sync::atomic::{AtomicBool, Ordering};

use metrics::{Counter, Gauge, Key, KeyName, Label, Recorder, SharedString, Unit, with_recorder};

use super::handles::{Handle, Handles, METADATA, is_installed};
use super::names;
use super::per_policy::PerPolicy;
use crate::limiter::{Blocked, Failed, Observed, Observer, RateLimiter, Stats};

/// Counts and times what a limiter decides, by the facade [`metrics`](https://docs.rs/metrics): for Prometheus, or
/// whatever exporter the program installs.
///
/// ```
/// use std::sync::Arc;
/// use tollgate::observe::Metrics;
/// use tollgate::{MemoryBackend, RateLimiter};
///
/// // First the exporter: PrometheusBuilder::new().install_recorder()?, say; all of it in `docs::observing`.
/// let metrics = Arc::new(Metrics::new());
/// let limiter = RateLimiter::builder(MemoryBackend::new()).observer(Arc::clone(&metrics)).build();
/// // Whenever it is scraped:
/// metrics.sample(&limiter);
/// ```
///
/// What is measured, and with which labels, stands in [`names`]; `examples/observability` has a dashboard for Grafana.
/// No label has anything of a key. 512 policies are told apart; any others are labelled `(others)`.
///
/// - **Counters add up**: each charge is in [`DECISIONS`](names::DECISIONS) once, or, if nobody decided it, in
///   [`BACKEND_ERRORS`](names::BACKEND_ERRORS) alone. One whose future is dropped before a remote backend answers is in
///   neither.
/// - **The exporter** may be installed before or after; what is counted before is lost, as the facade has it. From then
///   on each series is looked up once, so it stays with the exporter that was there first. One that drops series which
///   have been silent for long needs [`look_up_each_time`](Metrics::look_up_each_time).
#[derive(Debug)]
pub struct Metrics {
    limiter: Option<SharedString>,
    keep: bool,
    described: AtomicBool,
    policies: PerPolicy<Handles>,
    blocks: Handle<Counter>,
}

impl Metrics {
    /// For the limiter of a program, or for several of which nobody asks which is which.
    pub fn new() -> Metrics {
        Metrics::of(None)
    }

    /// For one of several limiters: each series has its name in the label `limiter`. Without it their gauges would be
    /// one another's.
    ///
    /// ```
    /// use tollgate::observe::Metrics;
    /// use tollgate::{MemoryBackend, RateLimiter};
    ///
    /// let (api, mail) = (Metrics::named("api"), Metrics::named("mail"));
    /// let limiter = RateLimiter::builder(MemoryBackend::new()).observer(api).build();
    /// let other = RateLimiter::builder(MemoryBackend::new()).observer(mail).build();
    /// ```
    pub fn named(limiter: impl Into<String>) -> Metrics {
        Metrics::of(Some(limiter.into().into()))
    }

    fn of(limiter: Option<SharedString>) -> Metrics {
        Metrics {
            blocks: Handle::new(names::BLOCKS, limiter.as_ref(), []),
            limiter,
            keep: true,
            described: AtomicBool::new(false),
            policies: PerPolicy::new(),
        }
    }

    /// Looks each series up whenever it is written to: for exporters that drop a series when it has been silent for
    /// long (`idle_timeout` of Prometheus'), which else would not see it again. It costs more than a decision in
    /// memory.
    ///
    /// ```
    /// use tollgate::observe::Metrics;
    ///
    /// let metrics = Metrics::new().look_up_each_time();
    /// ```
    #[must_use]
    pub fn look_up_each_time(mut self) -> Metrics {
        self.keep = false;
        self
    }

    /// Sets the gauges to how the limiter is now. To be called whenever they are read: for each scrape, or every few
    /// seconds. It is cheap.
    pub fn sample(&self, limiter: &RateLimiter) {
        let Stats { rows, evictions, overflowed, is_broken, waiting, blocked, changed_quotas, .. } = limiter.stats();
        let by_policy = limiter.rows_by_policy();
        with_recorder(|recorder| {
            self.describe(recorder);
            let set = |name, value: f64| {
                let gauge = Handle::<Gauge>::new(name, self.limiter.as_ref(), []);
                recorder.register_gauge(gauge.key(), &METADATA).set(value);
            };
            set(names::WAITING, waiting as f64);
            set(names::BLOCKED, blocked as f64);
            set(names::CHANGED_QUOTAS, changed_quotas as f64);
            if let Some(rows) = rows {
                set(names::ROWS, rows as f64);
            }
            for (policy, rows) in by_policy {
                let label = Label::new("policy", policy.as_str().to_owned());
                let gauge = Handle::<Gauge>::new(names::POLICY_ROWS, self.limiter.as_ref(), [label]);
                recorder.register_gauge(gauge.key(), &METADATA).set(rows as f64);
            }
            for (name, total) in [(names::EVICTIONS, evictions), (names::OVERFLOWED, overflowed)] {
                if let Some(total) = total {
                    let counter = Handle::<Counter>::new(name, self.limiter.as_ref(), []);
                    recorder.register_counter(counter.key(), &METADATA).absolute(total);
                }
            }
            if let Some(is_broken) = is_broken {
                set(names::BACKEND_BROKEN, f64::from(u8::from(is_broken)));
            }
        });
    }

    fn increment(&self, counter: &Handle<Counter>) {
        counter.with(self.keep, |recorder, key| self.counter(recorder, key), |counter| counter.increment(1));
    }

    fn counter(&self, recorder: &dyn Recorder, key: &Key) -> Counter {
        self.describe(recorder);
        recorder.register_counter(key, &METADATA)
    }

    /// Tells an exporter what it is about, once.
    fn describe(&self, recorder: &dyn Recorder) {
        if !is_installed(recorder) || self.described.swap(true, Ordering::Relaxed) {
            return;
        }
        let counter = |name, text: &'static str| {
            recorder.describe_counter(KeyName::from_const_str(name), Some(Unit::Count), text.into());
        };
        counter(names::DECISIONS, "Charges that were decided.");
        counter(names::CHECKS, "Charges that were only asked for.");
        counter(names::BACKEND_ERRORS, "Charges that the backend could not decide.");
        counter(names::BLOCKS, "Callers who were blocked in this process.");
        counter(names::EVICTIONS, "Rows dropped before they were repaid, to make room.");
        counter(names::OVERFLOWED, "Charges of callers without a row of their own, for want of room.");
        let gauge = |name, text: &'static str| {
            recorder.describe_gauge(KeyName::from_const_str(name), Some(Unit::Count), text.into());
        };
        gauge(names::ROWS, "Rows that the backend holds in this process.");
        gauge(names::POLICY_ROWS, "Rows that the backend holds in this process for each policy.");
        gauge(names::WAITING, "Requests that wait for their turns.");
        gauge(names::BLOCKED, "Callers who are blocked.");
        gauge(names::CHANGED_QUOTAS, "Quotas that are changed at run time.");
        gauge(names::BACKEND_BROKEN, "1 while the backend is out of reach and calls fail at once.");
        let (name, text) = (names::DECISION_DURATION, "The time from the call to the decision.");
        recorder.describe_histogram(KeyName::from_const_str(name), Some(Unit::Seconds), text.into());
    }
}

impl Observer for Metrics {
    fn decided(&self, observed: &Observed<'_>) {
        let handles = self.policies.of(observed.decision().policy(), |name| Handles::new(self.limiter.as_ref(), name));
        if observed.is_check() {
            return self.increment(handles.checks(observed.outcome()));
        }
        self.increment(handles.decisions(observed));
        let seconds = observed.latency().as_secs_f64();
        let register = |recorder: &dyn Recorder, key: &Key| recorder.register_histogram(key, &METADATA);
        handles.duration().with(self.keep, register, |duration| duration.record(seconds));
    }

    fn failed(&self, failed: &Failed<'_>) {
        let handles = self.policies.of(failed.policy(), |name| Handles::new(self.limiter.as_ref(), name));
        self.increment(handles.errors(failed.error().kind()));
    }

    fn blocked(&self, _: &Blocked<'_>) {
        self.increment(&self.blocks);
    }
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}
