//! Charges in hand: kept, or given back.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::queue::{Queues, Ticket};
use super::turn::Turn;
use super::{DecisionsFuture, LimitError, RateLimiter, Settlement};
use crate::backend::{BackendFuture, Error};
use crate::policy::{Decision, Decisions};

/// Charges that were made and are still in hand: [kept](Reservation::keep) when the work is done, given back when this
/// is [cancelled](Reservation::cancel) or dropped.
///
/// ```
/// use tollgate::{Policy, Quota, RateLimiter, MINUTE, SECOND};
///
/// static MAIL: Policy = Policy::new("mail", Quota::token_bucket(10, MINUTE).capacity(1).unlimited_reservations());
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tollgate::LimitError> {
/// let limiter = RateLimiter::default();
/// let first = limiter.acquire(&MAIL, "team").reserve().hold().await?;
/// let second = limiter.acquire(&MAIL, "team").reserve().hold().await?;
/// assert!(first.delay().is_zero() && second.delay() > 5 * SECOND);
/// assert!(second.decisions().is_allowed());
///
/// second.cancel().await?; // whoever comes next gets that turn
/// first.keep();
/// # Ok(())
/// # }
/// ```
///
/// A turn that has not come yet goes back only if nobody reserved after it: those behind keep the times that they were
/// promised, so the turn would be empty. Else it is forfeited. What a charge gives back after its turn is said of
/// [`Settlement`](Settlement#what-can-be-given-back).
#[derive(Debug)]
#[must_use = "a reservation that is dropped is given back at once"]
pub struct Reservation {
    limiter: RateLimiter,
    decisions: Decisions,
    /// Whether it was neither kept nor given back.
    open: bool,
    delay: Duration,
    /// `None` once it has come.
    turn: Option<Turn>,
    /// The place among those in this process who wait for the same row; taken when it is first waited for.
    queued: Queued,
}

#[derive(Debug)]
enum Queued {
    NotYet,
    In(Ticket),
    None,
}

type Way = fn(&Queues, &Ticket) -> Option<Decision>;

impl Reservation {
    /// For decisions that were all granted. [`wait`](Reservation::wait) waits `later` than for the turn.
    pub(crate) fn new(limiter: &RateLimiter, decisions: Decisions, later: impl FnOnce() -> Duration) -> Reservation {
        Reservation {
            limiter: limiter.clone(),
            open: true,
            delay: decisions.delay(),
            turn: Turn::new(limiter, &decisions, later),
            queued: Queued::NotYet,
            decisions,
        }
    }

    /// The decisions on the charges, all granted.
    pub fn decisions(&self) -> &Decisions {
        &self.decisions
    }

    /// The time from the decision until the turn, the last of several; zero if there is no need to wait.
    pub const fn delay(&self) -> Duration {
        self.delay
    }

    /// Gives the charges back, as far as that breaks no promise to others.
    ///
    /// It is done when this is called, also if the future is dropped.
    ///
    /// # Errors
    /// If the backend cannot.
    pub fn cancel(mut self) -> BackendFuture<()> {
        self.give_back()
    }

    /// The charges stay. What is returned can tell their true cost, or be dropped.
    pub fn keep(mut self) -> Settlement {
        self.open = false;
        self.leave(Queues::go)
    }

    /// Waits for the turn, and keeps the charges. Dropped before, it gives them back.
    ///
    /// The turn may come earlier than [`delay`](Reservation::delay) said, when others in this process who wait for the
    /// same key leave.
    ///
    /// ```
    /// use tollgate::{Policy, Quota, RateLimiter, SECOND};
    ///
    /// const EVENLY: Quota = Quota::token_bucket(100, SECOND).capacity(0).unlimited_reservations();
    /// static CALLS: Policy = Policy::new("calls", EVENLY);
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::LimitError> {
    /// let limiter = RateLimiter::default();
    /// let turn = limiter.acquire(&CALLS, "their API").reserve().hold().await?;
    /// println!("in {:?}", turn.delay()); // 10 ms
    /// let usage = turn.wait().await;
    /// usage.settle(2).await?; // it was a large one
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// Outside of a tokio runtime, unless the backend's [clock](crate::Clock) has its own way to wait.
    #[cfg(feature = "wait")]
    pub async fn wait(mut self) -> Settlement {
        std::future::poll_fn(|context| self.poll_turn(context)).await;
        self.keep()
    }

    /// Ready when the turn has come.
    pub(crate) fn poll_turn(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(turn) = &mut self.turn else { return Poll::Ready(()) };
        let queues = &self.limiter.inner.queues;
        match &self.queued {
            Queued::NotYet => {
                self.queued = queues.join(&self.decisions, context.waker()).map_or(Queued::None, Queued::In);
            }
            Queued::In(ticket) => {
                if let Some(decision) = queues.moved(ticket, context.waker()) {
                    turn.move_up(&self.limiter, decision.due());
                }
            }
            Queued::None => {}
        }
        ready!(turn.poll(context));
        self.turn = None;
        self.leave_queue(Queues::go);
        Poll::Ready(())
    }

    fn give_back(&mut self) -> BackendFuture<()> {
        if !std::mem::take(&mut self.open) {
            return BackendFuture::ready(Ok(()));
        }
        self.leave(Queues::leave).refund()
    }

    /// Out of the queue, in one way or the other, and what is left to settle then.
    fn leave(&mut self, way: Way) -> Settlement {
        self.leave_queue(way);
        Settlement::new(&self.limiter, std::mem::replace(&mut self.decisions, Decisions::from_iter([])))
    }

    fn leave_queue(&mut self, way: Way) {
        if let Queued::In(ticket) = std::mem::replace(&mut self.queued, Queued::None) {
            // It may leave with another decision than it came with.
            if let Some(decision) = way(&self.limiter.inner.queues, &ticket) {
                self.decisions = Decisions::from_iter([decision]);
            }
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // Nobody is left to tell if the backend cannot.
        drop(self.give_back());
    }
}

/// Charges in hand, on their way: see [`Acquire::hold`](super::Acquire::hold).
///
/// The charges are made when the call is, not when this is awaited. Dropped with the answer inside, it gives them back;
/// dropped while a remote backend decides, it does not, since nobody knows whether there is something to give back.
///
/// ```
/// # use tollgate::{HoldFuture, Policy, Quota, RateLimiter, MINUTE};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # static API: Policy = Policy::new("api", Quota::token_bucket(10, MINUTE));
/// # let limiter = RateLimiter::default();
/// let answer: HoldFuture = limiter.acquire(&API, "ada").hold();
/// drop(answer); // in memory it was there already: given back
/// assert_eq!(limiter.remaining(&API, "ada").await?, 10);
/// # Ok(())
/// # }
/// ```
///
/// Polled again after it has answered, it panics, as futures may.
#[derive(Debug)]
#[must_use = "a reservation that is dropped is given back at once"]
pub struct HoldFuture(Kind);

#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // The future moves once.
enum Kind {
    /// `None` once it was taken.
    Ready(Option<Result<Reservation, LimitError>>),
    Pending(RateLimiter, DecisionsFuture),
}

impl HoldFuture {
    pub(super) fn new(limiter: &RateLimiter, decisions: DecisionsFuture) -> HoldFuture {
        HoldFuture(match decisions.try_ready() {
            Ok(answer) => Kind::Ready(Some(held(limiter, answer))),
            Err(decisions) => Kind::Pending(limiter.clone(), decisions),
        })
    }
}

impl Future for HoldFuture {
    type Output = Result<Reservation, LimitError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Kind::Ready(answer) => {
                Poll::Ready(answer.take().unwrap_or_else(|| panic!("a HoldFuture was polled after it had answered")))
            }
            Kind::Pending(limiter, decisions) => Pin::new(decisions).poll(context).map(|answer| held(limiter, answer)),
        }
    }
}

fn held(limiter: &RateLimiter, answer: Result<Decisions, Error>) -> Result<Reservation, LimitError> {
    Ok(Reservation::new(limiter, answer?.into_result()?, || Duration::ZERO))
}
