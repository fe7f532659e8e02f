//! A call that waits for its turn.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::turn::Place;
use super::{HoldFuture, LimitError, Reservation, Settlement};

/// A turn on its way: see [`Acquire::wait_up_to`](super::Acquire::wait_up_to).
///
/// ```
/// # use tollgate::{Policy, Quota, RateLimiter, WaitFuture, SECOND};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tollgate::LimitError> {
/// static CALLS: Policy = Policy::new("calls", Quota::token_bucket(100, SECOND).capacity(1).max_reserved(50));
///
/// let limiter = RateLimiter::default();
/// let turn: WaitFuture = limiter.acquire(&CALLS, "their API").wait_up_to(SECOND);
/// let usage = turn.await?;
/// assert!(usage.decisions().is_allowed());
/// # Ok(())
/// # }
/// ```
///
/// Polled again after it has answered, it panics, as futures may.
#[derive(Debug)]
#[must_use = "the turn is given back if nobody waits for it"]
pub struct WaitFuture {
    state: State,
    place: Option<Place>,
}

#[allow(clippy::large_enum_variant)] // It is moved once, and a box would be an allocation.
enum State {
    Deciding(HoldFuture),
    Waiting(Reservation),
    Done,
}

impl WaitFuture {
    pub(super) fn new(decision: HoldFuture, place: Option<Place>) -> WaitFuture {
        WaitFuture { state: State::Deciding(decision), place }
    }
}

impl Future for WaitFuture {
    type Output = Result<Settlement, LimitError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        loop {
            match &mut this.state {
                State::Deciding(decision) => {
                    let answer = ready!(Pin::new(decision).poll(context));
                    this.state = State::Done;
                    match answer {
                        Ok(reservation) => this.state = State::Waiting(reservation),
                        Err(error) => {
                            this.place = None;
                            return Poll::Ready(Err(error));
                        }
                    }
                }
                State::Waiting(reservation) => {
                    ready!(reservation.poll_turn(context));
                    this.place = None;
                    if let State::Waiting(reservation) = std::mem::replace(&mut this.state, State::Done) {
                        return Poll::Ready(Ok(reservation.keep()));
                    }
                }
                State::Done => panic!("a WaitFuture was polled after it had answered"),
            }
        }
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            State::Deciding(decision) => decision.fmt(f),
            State::Waiting(reservation) => reservation.fmt(f),
            State::Done => f.write_str("Done"),
        }
    }
}
