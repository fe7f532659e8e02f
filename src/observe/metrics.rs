//! Decisions as counters and histograms.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use metrics::{Counter, Key, KeyName, Label, Level, Metadata, Recorder, SharedString, Unit, with_recorder};

use super::names;
use super::per_policy::PerPolicy;
use super::series::{Change, Count, Series};
use crate::limiter::observer::{Blocked, Decided, Failed, Observer, Reset, Settled};
use crate::limiter::{RateLimiter, Stats};
use crate::policy::PolicyName;

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
///   [`BACKEND_ERRORS`](names::BACKEND_ERRORS) alone. One whose future is dropped before a remote backend answers is
///   charged and in neither.
/// - **The exporter** may be installed before or after; what is counted before is lost, as the facade has it. From then
///   on each series is looked up once, so it stays with the exporter that was there first. One that drops series which
///   have been silent for long needs [`look_up_each_time`](Metrics::look_up_each_time).
#[derive(Debug)]
pub struct Metrics {
    limiter: Option<SharedString>,
    keep: bool,
    described: AtomicBool,
    policies: PerPolicy<Series>,
    blocks: OnceLock<Counter>,
}

impl Metrics {
    /// For the limiter of a program, or for several of which nobody asks which is which.
    pub fn new() -> Metrics {
        Metrics::with_label(None)
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
        Metrics::with_label(Some(limiter.into().into()))
    }

    fn with_label(limiter: Option<SharedString>) -> Metrics {
        let described = AtomicBool::new(false);
        Metrics { limiter, keep: true, described, policies: PerPolicy::new(), blocks: OnceLock::new() }
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
        let Stats { rows, evictions, overflowed, circuit_open, waiting, blocked, changed_quotas, mistakes, .. } =
            limiter.stats();
        let by_policy = limiter.rows_by_policy();
        with_recorder(|recorder| {
            self.describe(recorder);
            let gauges = [
                (names::WAITING, Some(waiting as f64)),
                (names::BLOCKED, Some(blocked as f64)),
                (names::CHANGED_QUOTAS, Some(changed_quotas as f64)),
                (names::ROWS, rows.map(|rows| rows as f64)),
                (names::BACKEND_BROKEN, circuit_open.map(|circuit_open| f64::from(u8::from(circuit_open)))),
            ];
            for (name, value) in gauges {
                if let Some(value) = value {
                    recorder.register_gauge(&self.key(name, []), &METADATA).set(value);
                }
            }
            for (policy, rows) in by_policy {
                let key = self.key(names::POLICY_ROWS, [("policy", policy.as_str().to_owned().into())]);
                recorder.register_gauge(&key, &METADATA).set(rows as f64);
            }
            for (name, total) in [(names::EVICTIONS, evictions), (names::OVERFLOWED, overflowed)] {
                if let Some(total) = total {
                    recorder.register_counter(&self.key(name, []), &METADATA).absolute(total);
                }
            }
            for (kind, total) in mistakes.by_kind() {
                let key = self.key(names::MISTAKES, [("kind", kind.as_str().into())]);
                recorder.register_counter(&key, &METADATA).absolute(total);
            }
        });
    }

    fn increment(&self, policy: &PolicyName, count: Count) {
        let series = self.policies.of(policy, Series::new);
        let counter = series.counters.get_or_insert(&count, OnceLock::new);
        let key = || {
            let (name, labels) = count.name_and_labels();
            self.key(name, std::iter::once(("policy", series.policy.clone())).chain(labels))
        };
        self.with(counter, key, register_counter, |counter| counter.increment(1));
    }

    /// Writes to a series, by the handle that is known or by the exporter's own look-up.
    fn with<H>(
        &self,
        known: &OnceLock<H>,
        key: impl FnOnce() -> Key,
        register: fn(&dyn Recorder, &Key) -> H,
        write: impl FnOnce(&H),
    ) {
        if let Some(handle) = known.get() {
            return write(handle);
        }
        with_recorder(|recorder| {
            if !is_installed(recorder) {
                return;
            }
            self.describe(recorder);
            let handle = register(recorder, &key());
            write(&handle);
            if self.keep {
                let _ = known.set(handle);
            }
        });
    }

    /// The name and labels of a series.
    fn key(&self, name: &'static str, labels: impl IntoIterator<Item = (&'static str, SharedString)>) -> Key {
        let limiter = self.limiter.clone().map(|limiter| ("limiter", limiter));
        let labels = limiter.into_iter().chain(labels).map(|(name, value)| Label::new(name, value));
        Key::from_parts(name, labels.collect::<Vec<_>>())
    }

    /// Tells an exporter what it is about, once.
    fn describe(&self, recorder: &dyn Recorder) {
        if !is_installed(recorder) || self.described.swap(true, Ordering::Relaxed) {
            return;
        }
        for (name, text) in COUNTERS {
            recorder.describe_counter(KeyName::from_const_str(name), Some(Unit::Count), text.into());
        }
        for (name, text) in GAUGES {
            recorder.describe_gauge(KeyName::from_const_str(name), Some(Unit::Count), text.into());
        }
        let (name, text) =
            (names::DECISION_DURATION, "The time from the call to the decision of a backend that is waited for.");
        recorder.describe_histogram(KeyName::from_const_str(name), Some(Unit::Seconds), text.into());
    }
}

impl Observer for Metrics {
    fn decided(&self, observed: &Decided<'_>) {
        let policy = observed.decision().policy();
        self.increment(policy, Count::of(observed));
        if let Some(latency) = observed.latency().filter(|_| !observed.is_check()) {
            let series = self.policies.of(policy, Series::new);
            let key = || self.key(names::DECISION_DURATION, [("policy", series.policy.clone())]);
            let register = |recorder: &dyn Recorder, key: &Key| recorder.register_histogram(key, &METADATA);
            self.with(&series.duration, key, register, |duration| duration.record(latency.as_secs_f64()));
        }
    }

    fn failed(&self, failed: &Failed<'_>) {
        self.increment(failed.policy(), Count::Error(failed.error().kind()));
    }

    fn blocked(&self, _: &Blocked<'_>) {
        let key = || self.key(names::BLOCKS, []);
        self.with(&self.blocks, key, register_counter, |counter| counter.increment(1));
    }

    fn settled(&self, settled: &Settled<'_>) {
        self.increment(settled.decision().policy(), Count::Receipt(Change::of(settled)));
    }

    fn reset(&self, reset: &Reset<'_>) {
        self.increment(reset.policy(), Count::Reset);
    }
}

fn register_counter(recorder: &dyn Recorder, key: &Key) -> Counter {
    recorder.register_counter(key, &METADATA)
}

/// Whether this is not the recorder that stands in for none, so that what it hands out is worth keeping: that one has
/// no size. (One of an exporter's without a size would be asked each time.)
fn is_installed(recorder: &dyn Recorder) -> bool {
    size_of_val(recorder) > 0
}

/// Of all of them.
const METADATA: Metadata<'static> = Metadata::new("tollgate", Level::INFO, Some(module_path!()));

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}

/// What exporters show of the counters.
const COUNTERS: [(&str, &str); 9] = [
    (names::DECISIONS, "Charges that were decided."),
    (names::CHECKS, "Charges that were only asked for."),
    (names::BACKEND_ERRORS, "Charges that the backend could not decide."),
    (names::BLOCKS, "Callers who were blocked in this process."),
    (names::SETTLEMENTS, "Charges that were settled at their true cost, or given back."),
    (names::RESETS, "Rows that were reset."),
    (names::MISTAKES, "Mistakes of the program that requests showed."),
    (names::EVICTIONS, "Rows dropped before they were repaid, to make room."),
    (names::OVERFLOWED, "Charges of callers without a row of their own, for want of room."),
];

/// And of the gauges.
const GAUGES: [(&str, &str); 6] = [
    (names::ROWS, "Rows that the backend holds in this process."),
    (names::POLICY_ROWS, "Rows that the backend holds in this process for each policy."),
    (names::WAITING, "Requests that wait for their turns."),
    (names::BLOCKED, "Callers who are blocked."),
    (names::CHANGED_QUOTAS, "Quotas that are changed at run time."),
    (names::BACKEND_BROKEN, "1 while the backend is out of reach and calls fail at once."),
];
