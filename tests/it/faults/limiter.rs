//! Faults of the limiter: pauses, receipts, reservations and waiting calls.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use tollgate::algorithm::Micros;
use tollgate::clock::{Clock, ManualClock};
use tollgate::observe::{Decided, Observer, Settled};
use tollgate::protection::{DenyList, DenyRule};
use tollgate::{HOUR, LimitError, MINUTE, MemoryBackend, Policy, Quota, RateLimiter, Receipt, SECOND};

const HELD: usize = 200;

static HELD_CALLS: Policy = Policy::new("held", Quota::token_bucket(1000, HOUR).max_reserved(10));

type Call = Pin<Box<dyn Future<Output = Result<Receipt, LimitError>> + Send>>;

/// Right: 5. Cause: `limiter/pause.rs`, `ask_again` repeats the takes that were resolved before the pause.
#[tokio::test]
async fn fault_02_calls_held_by_a_pause_are_decided_under_the_quota_from_before_it() {
    let (clock, limiter) = limiter(&DenyList::new());
    let calls = held_calls(&limiter).await;
    limiter.set_quota(&HELD_CALLS, Quota::token_bucket(5, HOUR).max_reserved(10)).await.unwrap();
    assert_eq!(admitted_after_the_pause(&clock, calls), HELD);
}

/// Right: 0. Cause: as above, `decide_again` skips the step `blocked` of `limiter/decide.rs`, and only manual blocks
/// are checked at the end of a pause.
#[tokio::test]
async fn fault_02_calls_held_by_a_pause_pass_a_deny_rule_that_was_added_meanwhile() {
    let denied = DenyList::new();
    let (clock, limiter) = limiter(&denied);
    let calls = held_calls(&limiter).await;
    denied.insert(DenyRule::network("192.0.2.0/24").unwrap());
    let new = limiter.try_acquire(&HELD_CALLS, "ada").ip([192, 0, 2, 1].into()).check().await.unwrap();
    assert!(!new.is_allowed(), "a new call is denied");
    assert_eq!(admitted_after_the_pause(&clock, calls), HELD);
}

fn limiter(denied: &DenyList) -> (ManualClock, RateLimiter) {
    let clock = ManualClock::new();
    let backend = MemoryBackend::builder().clock(clock.clone()).build();
    (clock, RateLimiter::builder(backend).deny_list(denied).build())
}

async fn held_calls(limiter: &RateLimiter) -> Vec<Call> {
    limiter.pause(&HELD_CALLS, "ada", MINUTE).await.unwrap();
    let call = || limiter.acquire(&HELD_CALLS, "ada").ip([192, 0, 2, 1].into()).wait_up_to(2 * MINUTE);
    let mut calls: Vec<Call> = (0..HELD).map(|_| Box::pin(call()) as Call).collect();
    assert!(calls.iter_mut().all(|call| poll(call, Waker::noop()).is_pending()));
    calls
}

fn admitted_after_the_pause(clock: &ManualClock, calls: Vec<Call>) -> usize {
    clock.advance(MINUTE);
    let ends = calls.into_iter().map(|mut call| poll(&mut call, Waker::noop()));
    ends.filter(|end| matches!(end, Poll::Ready(Ok(_)))).count()
}

fn poll<F: Future + ?Sized>(future: &mut Pin<Box<F>>, waker: &Waker) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(waker))
}

/// Right: 5. Cause: a row's `clear` is `Micros::MAX` there, which means never, but `backend/memory/row.rs` takes the row
/// as expired, because the clock has reached that instant. (The pure step holds.)
#[tokio::test]
async fn fault_10_no_quota_holds_at_the_last_instant() {
    for quota in [Quota::token_bucket(5, MINUTE), Quota::fixed_window(5, MINUTE), Quota::sliding_window(5, MINUTE)] {
        let (clock, limiter) = limiter(&DenyList::new());
        clock.set(Micros::MAX);
        assert_eq!(admitted(&limiter, &Policy::new("api", quota), 1000).await, 1000, "{quota}");
    }
}

/// Right: at most 15, as documented: 5 before the jump, and one capacity more for each step of the clock.
#[tokio::test]
async fn fault_10_a_jump_to_the_last_instant_and_back_admits_everything() {
    let (clock, limiter) = limiter(&DenyList::new());
    let (policy, begin) = (Policy::new("api", Quota::token_bucket(5, MINUTE)), clock.now());
    let mut all = Vec::new();
    for at in [begin, Micros::MAX, begin] {
        clock.set(at);
        all.push(admitted(&limiter, &policy, 100).await);
    }
    assert_eq!((all.iter().sum(), all), (110, vec![5, 100, 5]));
}

async fn admitted(limiter: &RateLimiter, policy: &Policy, calls: usize) -> usize {
    let mut admitted = 0;
    for _ in 0..calls {
        admitted += usize::from(limiter.try_limit(policy, "ada").await.unwrap().is_allowed());
    }
    admitted
}

static API: Policy = Policy::new("api", Quota::token_bucket(60, MINUTE).capacity(100));

async fn charged(limiter: &RateLimiter, cost: u64) -> Receipt {
    limiter.acquire(&API, "ada").cost(cost).hold().await.unwrap().into_receipt()
}

/// Right: 40 are left, because the credit has given the first charge back. Cause: `algorithm/give_back.rs`, `credited`
/// does not count in `carry` what it gives back.
#[tokio::test]
async fn fault_09_credited_tokens_are_given_back_again_by_a_refund() {
    let (_clock, limiter) = limiter(&DenyList::new());
    let first = charged(&limiter, 60).await;
    limiter.credit(&API, "ada", 60).await.unwrap();
    charged(&limiter, 60).await;
    assert_eq!(limiter.remaining(&API, "ada").await.unwrap(), 40);
    first.refund().await.unwrap();
    assert_eq!(limiter.remaining(&API, "ada").await.unwrap(), 100);
}

/// Right: `false`, as documented at `Receipt::settle`, because part of the refund is forfeited. Cause: `takes_effect`
/// asks only whether the row changes.
#[tokio::test]
async fn fault_09_a_half_forfeited_refund_answers_true() {
    let (clock, limiter) = limiter(&DenyList::new());
    let receipt = charged(&limiter, 10).await;
    clock.advance(5 * SECOND);
    charged(&limiter, 20).await;
    assert_eq!(limiter.remaining(&API, "ada").await.unwrap(), 75);
    assert!(receipt.refund().await.unwrap());
    assert_eq!(limiter.remaining(&API, "ada").await.unwrap(), 80, "5 of the 10 tokens are given back");
}

/// Right: the first refund does nothing and answers `false`, and the second gives 10 tokens back. Cause: a row does not
/// say whether a charge was made before a reset; `settle_own` sees only enough spent tokens.
#[tokio::test]
async fn fault_09_a_receipt_from_before_a_reset_uses_up_the_refund_of_a_new_charge() {
    let (_clock, limiter) = limiter(&DenyList::new());
    let old = charged(&limiter, 10).await;
    limiter.reset(&API, "ada").await.unwrap();
    let new = charged(&limiter, 10).await;
    assert!(old.refund().await.unwrap());
    assert_eq!(limiter.remaining(&API, "ada").await.unwrap(), 100);
    assert!(!new.refund().await.unwrap());
}

struct Panics;

impl Observer for Panics {
    fn decided(&self, _: &Decided<'_>) {}

    fn settled(&self, _: &Settled<'_>) {
        panic!("an observer fails");
    }
}

/// Right: 10 are left. Cause: `limiter/receipt.rs`, `settle` observes before it settles. (During unwinding, the same
/// panic aborts the process: `tests/servers/faults.rs`.)
#[tokio::test]
async fn fault_12_a_panicking_observer_loses_the_refund() {
    static SMALL: Policy = Policy::new("small", Quota::token_bucket(10, HOUR));
    let backend = MemoryBackend::builder().clock(ManualClock::new()).build();
    let limiter = RateLimiter::builder(backend).observer(Panics).build();
    let held = limiter.acquire(&SMALL, "ada").cost(4).hold().await.unwrap();
    catch_unwind(AssertUnwindSafe(|| drop(held))).unwrap_err();
    assert_eq!(limiter.remaining(&SMALL, "ada").await.unwrap(), 6);
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Right: only the head of the queue is woken, whatever the length. Cause: `limiter/queue/mod.rs`, `Queue::leave` wakes
/// all callers behind the one that hangs up.
#[tokio::test]
async fn fault_13_a_hang_up_wakes_all_calls_behind_it() {
    static SPACED: Policy = Policy::new("spaced", Quota::token_bucket(10, SECOND).capacity(1).unlimited_reservations());
    for waiting in [10, 100, 1000] {
        let (_clock, limiter) = limiter(&DenyList::new());
        limiter.limit(&SPACED, "ada").await.unwrap();
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let call = || Box::pin(limiter.acquire(&SPACED, "ada").wait_up_to(HOUR)) as Call;
        let mut calls: Vec<Call> = (0..waiting).map(|_| call()).collect();
        assert!(calls.iter_mut().all(|call| poll(call, &waker).is_pending()));
        assert_eq!(wakes.0.load(Ordering::Relaxed), 0);
        drop(calls.remove(0));
        assert_eq!(wakes.0.load(Ordering::Relaxed), waiting - 1);
    }
}
