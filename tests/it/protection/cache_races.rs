//! Backend replies that arrive after the charged row has changed.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tollgate::{Charge, MINUTE, Quota, RateLimiter, SECOND, clock::ManualClock};

use super::app::API;
use crate::support::now;
use crate::support::test_backend::TestBackend;

fn remote_limiter() -> (RateLimiter, Arc<TestBackend>, ManualClock) {
    let clock = ManualClock::new();
    let backend = TestBackend::remote(&clock);
    (RateLimiter::new(Arc::clone(&backend)), backend, clock)
}

/// Sends a call that is denied, runs `meanwhile`, and then releases the reply.
fn receive_denial_after(limiter: &RateLimiter, backend: &TestBackend, meanwhile: impl FnOnce()) {
    backend.hold_replies();
    let mut answer = Box::pin(take_two(limiter));
    assert!(poll(answer.as_mut()).is_pending());
    meanwhile();
    backend.release_replies();
    let Poll::Ready(answer) = poll(answer.as_mut()) else {
        panic!("the call is still pending although its reply was released")
    };
    assert!(!answer.unwrap().is_allowed());
}

/// Tries to take two tokens.
fn take_two(
    limiter: &RateLimiter,
) -> tollgate::limiter::DecisionFuture<Result<tollgate::policy::Decisions, tollgate::backend::Error>> {
    limiter.try_limit_all([Charge::new(&API, "eve").cost(2)])
}

fn take_nine(limiter: &RateLimiter) {
    assert!(now(limiter.try_limit_all([Charge::new(&API, "eve").cost(9)])).is_allowed());
}

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_denial_decided_before_a_reset_or_quota_change_is_not_cached_afterward() {
    // If nothing changes, the denial is cached.
    let (limiter, backend, _clock) = remote_limiter();
    take_nine(&limiter);
    receive_denial_after(&limiter, &backend, || ());
    backend.take_calls();
    assert!(!now(take_two(&limiter)).is_allowed());
    assert_eq!(backend.take_calls(), 0);

    let cases: [fn(&RateLimiter); 4] = [
        |limiter| assert!(now(limiter.reset(&API, "eve"))),
        |limiter| drop(limiter.reset(&API, "eve")),
        |limiter| now(limiter.set_quota(&API, Quota::token_bucket(30, MINUTE))),
        |limiter| now(limiter.set_key_quota(&API, "eve", Quota::token_bucket(30, MINUTE))),
    ];
    for meanwhile in cases {
        let (limiter, backend, _clock) = remote_limiter();
        take_nine(&limiter);
        receive_denial_after(&limiter, &backend, || meanwhile(&limiter));
        assert!(now(take_two(&limiter)).is_allowed());
    }
}

#[test]
fn a_denial_decided_before_a_settlement_is_not_cached_afterward() {
    for cancel in [false, true] {
        let (limiter, backend, _clock) = remote_limiter();
        let held = now(limiter.acquire(&API, "eve").cost(9).hold());
        receive_denial_after(&limiter, &backend, || {
            if cancel {
                drop(held);
            } else {
                now(held.into_receipt().settle(1));
            }
        });
        assert!(now(take_two(&limiter)).is_allowed());
    }
}

#[test]
fn the_later_of_two_decisions_is_cached_whichever_arrives_first() {
    for swapped in [false, true] {
        let (limiter, backend, clock) = remote_limiter();
        backend.hold_replies();
        let mut first = Box::pin(limiter.try_limit_all([Charge::new(&API, "eve").cost(11)]));
        assert!(poll(first.as_mut()).is_pending());
        let first_calls = backend.take_calls();
        clock.advance(SECOND);
        let mut second = Box::pin(limiter.try_limit_all([Charge::new(&API, "eve").cost(10)]));
        assert!(poll(second.as_mut()).is_pending());
        assert_eq!((first_calls, backend.take_calls()), (1, 1));
        backend.release_replies();
        let mut answers = [first, second];
        if swapped {
            answers.reverse();
        }
        for answer in &mut answers {
            assert!(poll(answer.as_mut()).is_ready());
        }
        // The first call, which costs more than the capacity, left the bucket full. The second call emptied the bucket.
        assert!(!now(limiter.try_limit(&API, "eve")).is_allowed());
        assert_eq!(backend.take_calls(), 0, "{swapped}");
    }
}
