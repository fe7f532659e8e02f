//! Exports decisions as counters and histograms.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use metrics::{Counter, Key, KeyName, Label, Level, Metadata, Recorder, SharedString, Unit, with_recorder};

use super::names;
use super::per_policy::PerPolicy;
use super::series::{Change, Count, Series};
use crate::limiter::observer::{Blocked, Credited, Decided, Failed, Observer, Reset, Settled};
use crate::limiter::{RateLimiter, Stats};
use crate::policy::PolicyName;

/// Records the number and duration of a limiter's decisions with the [`metrics`](https://docs.rs/metrics) facade, for
/// Prometheus or any other exporter that the program installs.
///
/// ```
/// use std::sync::Arc;
/// use tollgate::observe::Metrics;
/// use tollgate::{MemoryBackend, RateLimiter};
/// // First install an exporter, such as `PrometheusBuilder::new().install_recorder()?`; see `docs::observing`.
/// let metrics = Arc::new(Metrics::new());
/// let limiter = RateLimiter::builder(MemoryBackend::new()).observer(Arc::clone(&metrics)).build();
/// // Do this at each scrape.
/// metrics.sample(&limiter);
/// ```
///
/// [`names`] lists the metrics and their labels, which never contain a key or its digest. `examples/observability`
/// contains a Grafana dashboard. A [tier](crate::Subject::tier) that the policy does not define never becomes a label.
/// If a call's future is dropped before a remote backend replies, its charges may take effect without being counted.
///
/// Counts recorded before the exporter is installed are lost. Each series is registered once, and stays with the
/// exporter that was installed at that time. For an exporter that drops idle series, use
/// [`look_up_each_time`](Metrics::look_up_each_time).
#[derive(Debug)]
pub struct Metrics {
    limiter: Option<SharedString>,
    cache_handles: bool,
    described: AtomicBool,
    policies: PerPolicy<Series>,
    blocks: OnceLock<Counter>,
}

impl Metrics {
    /// Creates metrics without the label `limiter`, for a program with one limiter.
    pub fn new() -> Metrics {
        Metrics::with_label(None)
    }

    /// Creates metrics for one of several limiters. The label `limiter` distinguishes their series.
    pub fn named(limiter: impl Into<String>) -> Metrics {
        Metrics::with_label(Some(limiter.into().into()))
    }

    fn with_label(limiter: Option<SharedString>) -> Metrics {
        let described = AtomicBool::new(false);
        Metrics { limiter, cache_handles: true, described, policies: PerPolicy::new(), blocks: OnceLock::new() }
    }

    /// Registers a series again at each write. This is needed for exporters that drop idle series (such as the
    /// Prometheus exporter with an `idle_timeout`), because otherwise a dropped series would not reappear.
    #[must_use]
    pub fn look_up_each_time(mut self) -> Metrics {
        self.cache_handles = false;
        self
    }

    /// Sets the gauges from the limiter's current state. Call this at each scrape, or every few seconds. It is cheap.
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
                (names::CIRCUIT_OPEN, circuit_open.map(|circuit_open| f64::from(u8::from(circuit_open)))),
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

    fn increment(&self, policy: &PolicyName, tier: Option<&str>, count: Count) {
        let series = self.policies.of(policy, Series::new);
        let counter = series.counters_of(tier).get_or_insert(&count, OnceLock::new);
        let key = || {
            let (name, labels) = count.name_and_labels();
            let tier = tier.map(|tier| ("tier", SharedString::from(tier.to_owned())));
            self.key(name, std::iter::once(("policy", series.policy.clone())).chain(labels).chain(tier))
        };
        self.write_to(counter, key, register_counter, |counter| counter.increment(1));
    }

    fn write_to<H>(
        &self,
        cached: &OnceLock<H>,
        key: impl FnOnce() -> Key,
        register: fn(&dyn Recorder, &Key) -> H,
        write: impl FnOnce(&H),
    ) {
        if let Some(handle) = cached.get() {
            return write(handle);
        }
        with_recorder(|recorder| {
            if !is_installed(recorder) {
                return;
            }
            self.describe(recorder);
            let handle = register(recorder, &key());
            write(&handle);
            if self.cache_handles {
                let _ = cached.set(handle);
            }
        });
    }

    fn key(&self, name: &'static str, labels: impl IntoIterator<Item = (&'static str, SharedString)>) -> Key {
        let limiter = self.limiter.clone().map(|limiter| ("limiter", limiter));
        let labels = limiter.into_iter().chain(labels).map(|(name, value)| Label::new(name, value));
        Key::from_parts(name, labels.collect::<Vec<_>>())
    }

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
            (names::DECISION_DURATION, "Time between calling a remote backend and receiving its decision.");
        recorder.describe_histogram(KeyName::from_const_str(name), Some(Unit::Seconds), text.into());
    }
}

impl Observer for Metrics {
    fn decided(&self, observed: &Decided<'_>) {
        let policy = observed.decision().policy();
        self.increment(policy, observed.tier(), Count::of(observed));
        if let Some(latency) = observed.latency().filter(|_| !observed.is_check()) {
            let series = self.policies.of(policy, Series::new);
            let key = || self.key(names::DECISION_DURATION, [("policy", series.policy.clone())]);
            let register = |recorder: &dyn Recorder, key: &Key| recorder.register_histogram(key, &METADATA);
            self.write_to(&series.duration, key, register, |duration| duration.record(latency.as_secs_f64()));
        }
    }

    fn failed(&self, failed: &Failed<'_>) {
        self.increment(failed.policy(), None, Count::Error(failed.error().kind()));
    }

    fn blocked(&self, _: &Blocked<'_>) {
        let key = || self.key(names::BLOCKS, []);
        self.write_to(&self.blocks, key, register_counter, |counter| counter.increment(1));
    }

    fn settled(&self, settled: &Settled<'_>) {
        self.increment(settled.decision().policy(), None, Count::Settlement(Change::of(settled)));
    }

    fn reset(&self, reset: &Reset<'_>) {
        self.increment(reset.policy(), None, Count::Reset);
    }

    fn credited(&self, credited: &Credited<'_>) {
        self.increment(credited.policy(), None, Count::Credit);
    }
}

fn register_counter(recorder: &dyn Recorder, key: &Key) -> Counter {
    recorder.register_counter(key, &METADATA)
}

/// Returns whether an exporter is installed. The no-op recorder has size 0, and its handles must not be cached.
fn is_installed(recorder: &dyn Recorder) -> bool {
    size_of_val(recorder) > 0
}

const METADATA: Metadata<'static> = Metadata::new("tollgate", Level::INFO, Some(module_path!()));

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}

const COUNTERS: [(&str, &str); 10] = [
    (names::DECISIONS, "Decided charges."),
    (names::CHECKS, "Checks, which decide without charging."),
    (names::BACKEND_ERRORS, "Charges and checks that the backend could not decide."),
    (names::BLOCKS, "Temporary blocks made in this process."),
    (names::SETTLEMENTS, "Charges settled at their actual cost or refunded."),
    (names::RESETS, "Resets of rows and policies."),
    (names::CREDITS, "Credits to keys."),
    (names::MISTAKES, "Mistakes found while requests were handled."),
    (names::EVICTIONS, "Rows evicted before they expired."),
    (names::OVERFLOWED, "Charges decided on a shared row because the table was full."),
];

const GAUGES: [(&str, &str); 6] = [
    (names::ROWS, "Rows that the backend holds in this process."),
    (names::POLICY_ROWS, "Rows that the backend holds in this process for each policy."),
    (names::WAITING, "Requests waiting for a reservation."),
    (names::BLOCKED, "Blocked keys and signals."),
    (names::CHANGED_QUOTAS, "Quotas changed at run time."),
    (names::CIRCUIT_OPEN, "1 while the circuit breaker is open and calls fail immediately."),
];
