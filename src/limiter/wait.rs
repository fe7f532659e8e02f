//! A call that waits for its turn.

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
    /// `None` once it has answered.
    decision: Option<HoldFuture>,
    /// Waits for its turn.
    reservation: Option<Reservation>,
    /// Free again as soon as there is nothing to wait for.
    place: Option<Place>,
}

impl WaitFuture {
    pub(super) fn new(decision: HoldFuture, place: Option<Place>) -> WaitFuture {
        WaitFuture { decision: Some(decision), reservation: None, place }
    }
}

impl Future for WaitFuture {
    type Output = Result<Settlement, LimitError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(decision) = &mut self.decision {
            let answer = ready!(Pin::new(decision).poll(context));
            self.decision = None;
            match answer {
                Ok(reservation) => self.reservation = Some(reservation),
                Err(error) => {
                    self.place = None;
                    return Poll::Ready(Err(error));
                }
            }
        }
        let Some(mut reservation) = self.reservation.take() else {
            panic!("a WaitFuture was polled after it had answered")
        };
        let Poll::Ready(turn) = reservation.poll_turn(context) else {
            self.reservation = Some(reservation);
            return Poll::Pending;
        };
        self.place = None;
        Poll::Ready(turn.map(|()| reservation.keep()))
    }
}
