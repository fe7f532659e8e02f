//! Each mistake is logged once, at WARN.

use tollgate::observe::Tracing;
use tollgate::{MINUTE, Policy, Quota, Subject};
use tracing::Level;

use super::backends::FlakyBackend;
use super::log::Log;

#[tokio::test]
async fn a_mistake_is_logged_once_at_warn_and_counted_each_time() {
    let limiter = FlakyBackend::new().limiter().observer(Tracing::new()).build();
    let log = Log::new(Level::WARN);
    let _subscribed = log.subscribe();
    let api = Policy::new("api", Quota::token_bucket(10, MINUTE)).tier("free", Quota::token_bucket(20, MINUTE));
    for _ in 0..4 {
        limiter.limit(&api, Subject::new("ada").tier("fere")).await.unwrap();
    }
    let lines: Vec<_> = log.take().iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "WARN tollgate mistake message=mistake kind=\"unknown_tier\" mistake=policy \"api\" has no tier \"fere\", so \
          callers with this tier get the policy's own quota, 10/min; did you mean \"free\"?"
        ]
    );
    assert_eq!(limiter.stats().mistakes.unknown_tiers, 4);
}
