//! Checks what limiters decide during and after outages, and how long calls take.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tollgate::backend::{ErrorKind, RedisBackend};
use tollgate::{FailureMode, HOUR, Policy, Quota, RateLimiter, policy::DecidedBy};

pub(crate) static SLOW: Policy = Policy::new("slow", Quota::token_bucket(LIMIT, HOUR));
pub(crate) const LIMIT: u64 = 10;

static WIDE: Policy = Policy::new("wide", Quota::token_bucket(1_000_000, HOUR));

pub(crate) const DEADLINE: Duration = Duration::from_millis(100);

const MAX_RECOVERY: Duration = Duration::from_secs(1);

/// The allowance for a busy machine. A call that hung would take longer.
const SLACK: Duration = Duration::from_secs(60);

/// An application with a limiter for each failure mode.
pub(crate) struct Application {
    pub(crate) deny: RateLimiter,
    pub(crate) allow: RateLimiter,
    pub(crate) fallback: RateLimiter,
}

impl Application {
    pub(crate) async fn on(url: &str) -> Application {
        let backend = RedisBackend::builder().deadline(DEADLINE).connect(url).await.unwrap();
        // Without the block cache, the backend makes every decision.
        let with = |mode| RateLimiter::builder(backend.clone()).on_failure(mode).block_cache(0).build();
        let application = Application {
            deny: with(FailureMode::Deny),
            allow: with(FailureMode::Allow),
            fallback: with(FailureMode::fallback(0.5)),
        };
        application.assert_exact().await;
        application
    }

    /// Calls the `deny` limiter for `duration`, and checks that no call exceeds the deadline. Then checks that the
    /// other failure modes apply. Returns the distinct kinds of errors.
    pub(crate) async fn call_during_outage(&self, duration: Duration) -> Vec<ErrorKind> {
        let kinds = self.call_repeatedly(duration).await;
        let allowed = self.allow.try_limit(&SLOW, "ada").await.unwrap();
        assert_eq!((allowed.is_allowed(), allowed.decided_by()), (true, DecidedBy::FailOpen));
        let local = self.fallback.try_limit(&SLOW, fresh()).await.unwrap();
        assert_eq!((local.capacity(), local.decided_by()), (LIMIT / 2, DecidedBy::Fallback));
        kinds
    }

    pub(crate) async fn call_repeatedly(&self, duration: Duration) -> Vec<ErrorKind> {
        let begin = Instant::now();
        let callers: Vec<_> = (0..4)
            .map(|_| {
                let deny = self.deny.clone();
                tokio::spawn(async move {
                    let (mut slowest, mut kinds) = (Duration::ZERO, Vec::new());
                    while begin.elapsed() < duration {
                        let asked = Instant::now();
                        let answer = deny.try_limit(&WIDE, 1).await;
                        slowest = slowest.max(asked.elapsed());
                        kinds.extend(answer.err().map(|error| error.kind()));
                        tokio::time::sleep(Duration::from_millis(2)).await;
                    }
                    (slowest, kinds)
                })
            })
            .collect();
        let mut all = Vec::new();
        for caller in callers {
            let (slowest, kinds) = caller.await.expect("a task panicked");
            assert!(slowest < DEADLINE + SLACK, "a call took {slowest:?}, but the deadline is {DEADLINE:?}");
            all.extend(kinds);
        }
        assert!(!all.is_empty(), "no call failed");
        let mut kinds = Vec::new();
        all.into_iter().for_each(|kind| {
            if !kinds.contains(&kind) {
                kinds.push(kind)
            }
        });
        kinds
    }

    /// Checks that calls fail immediately while the breaker is open.
    pub(crate) async fn assert_fails_immediately(&self) {
        for _ in 0..501 {
            let error = self.deny.try_limit(&WIDE, 1).await.expect_err("expected an error during the outage");
            // A call that waited for the server would time out.
            assert_eq!(error.kind(), ErrorKind::Unavailable);
        }
    }

    /// Checks that the server decides again within a second, and that its decisions are exact.
    pub(crate) async fn assert_recovers(&self) {
        let begin = Instant::now();
        while let Err(error) = self.deny.try_limit(&WIDE, 1).await {
            assert!(begin.elapsed() < MAX_RECOVERY + SLACK, "no recovery after {:?}: {error}", begin.elapsed());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        self.assert_exact().await;
    }

    /// Checks that decisions are exact. Begins again with a fresh key if a call fails, because the deadline is short and
    /// the machine may be busy.
    pub(crate) async fn assert_exact(&self) {
        let begin = Instant::now();
        for limiter in [&self.deny, &self.allow, &self.fallback] {
            while !is_exact(limiter).await {
                assert!(begin.elapsed() < SLACK, "the server does not decide");
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
    }
}

pub(crate) fn fresh() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1_000_000);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Spends a fresh key's tokens. Returns `false` if the server did not decide every call.
async fn is_exact(limiter: &RateLimiter) -> bool {
    let key = fresh();
    for i in 0..2 * LIMIT {
        match limiter.try_limit(&SLOW, key).await {
            Ok(decision) if decision.decided_by() == DecidedBy::Backend => {
                assert_eq!(decision.is_allowed(), i < LIMIT, "call {i}");
            }
            _ => return false,
        }
    }
    true
}
