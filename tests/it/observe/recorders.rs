//! Tests of metrics when the exporter is missing, is installed late, is replaced, or drops idle series.

use std::time::Duration;

use metrics::{NoopRecorder, with_local_recorder};
use metrics_util::MetricKindMask;
use tollgate::observe::{Metrics, names};
use tollgate::{MINUTE, Policy, Quota, RateLimiter, SECOND};

use super::backends::FlakyBackend;
use crate::support::exporter::{Page, builder};
use crate::support::now;

static API: Policy = Policy::new("api", Quota::token_bucket(100, MINUTE));

fn limiter(metrics: Metrics) -> RateLimiter {
    FlakyBackend::new().limiter().observer(metrics).build()
}

#[test]
fn decisions_work_without_an_exporter() {
    let limiter = limiter(Metrics::new());
    with_local_recorder(&NoopRecorder, || {
        assert!(now(limiter.try_limit(&API, 7)).is_allowed());
        Metrics::new().sample(&limiter);
    });
}

#[test]
fn an_exporter_that_is_installed_later_counts_only_later_decisions() {
    // Handles created without an exporter never record anything, so they must not be cached.
    let limiter = limiter(Metrics::new());
    with_local_recorder(&NoopRecorder, || (0..3).for_each(|_| drop(now(limiter.try_limit(&API, 7)))));
    let recorder = builder().build_recorder();
    with_local_recorder(&recorder, || (0..2).for_each(|_| drop(now(limiter.try_limit(&API, 7)))));
    let text = recorder.handle().render();
    let page = Page::read(&text);
    assert_eq!(page.sum(names::DECISIONS, &[]), Some(2.0));
    assert_eq!(page.sum(&format!("{}_count", names::DECISION_DURATION), &[]), Some(2.0));
    assert!(
        text.contains(&format!("# HELP {} ", names::DECISIONS)),
        "an exporter that is installed later must receive the descriptions"
    );
}

#[test]
fn series_stay_with_the_first_exporter_unless_looked_up_each_time() {
    for (metrics, expected) in [(Metrics::new(), None), (Metrics::new().look_up_each_time(), Some(1.0))] {
        let limiter = limiter(metrics);
        let (first, second) = (builder().build_recorder(), builder().build_recorder());
        drop(with_local_recorder(&first, || now(limiter.try_limit(&API, 7))));
        drop(with_local_recorder(&second, || now(limiter.try_limit(&API, 7))));
        assert_eq!(Page::read(&second.handle().render()).sum(names::DECISIONS, &[]), expected);
    }
}

/// This test runs in real time because the exporter always uses the system clock.
#[test]
fn dropped_idle_series_reappear_if_looked_up_each_time() {
    let idle = Duration::from_millis(200);
    let recorder = builder().idle_timeout(MetricKindMask::ALL, Some(idle)).build_recorder();
    let limiter = limiter(Metrics::new().look_up_each_time());
    let counted = || Page::read(&recorder.handle().render()).sum(names::DECISIONS, &[]);
    with_local_recorder(&recorder, || {
        drop(now(limiter.try_limit(&API, 7)));
        assert_eq!(counted(), Some(1.0));
        let begin = std::time::Instant::now();
        while counted().is_some() {
            assert!(begin.elapsed() < 60 * SECOND, "the idle series was not dropped");
            std::thread::sleep(idle / 4);
        }
        drop(now(limiter.try_limit(&API, 7)));
        assert_eq!(counted(), Some(1.0));
    });
}
