//! Charges in hand: kept, or given back.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::future::Answer;
use super::queue::{Queues, Ticket};
use super::waiting::DueTimer;
use super::{DecisionFuture, LimitError, RateLimiter, Receipt};
use crate::algorithm::Micros;
use crate::backend::BackendFuture;
use crate::policy::{DecidedBy, Decision, Decisions};

/// Charges that were made and are still in hand: [kept](Reservation::into_receipt) when the work is done, given back when this
/// is [cancelled](Reservation::cancel).
///
/// Dropped, a charge that was [held](crate::RateLimiter::hold_all) is given back. A turn that was
/// [reserved](super::Acquire::reserve) stays charged, since a caller that slept for the delay and drops it has used it; while
/// its `wait` is awaited, it is given back.
///
/// ```
/// use tollgate::{Policy, Quota, RateLimiter, MINUTE, SECOND};
///
/// static MAIL: Policy = Policy::new("mail", Quota::token_bucket(10, MINUTE).capacity(1).unlimited_reservations());
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::LimitError> {
/// let limiter = RateLimiter::default();
/// let first = limiter.acquire(&MAIL, "team").reserve().await?;
/// let second = limiter.acquire(&MAIL, "team").reserve().await?;
/// assert!(first.delay().is_zero() && second.delay() > 5 * SECOND);
/// assert!(second.decisions().is_allowed());
///
/// assert!(second.cancel().await?); // the next caller gets that turn
/// first.into_receipt();
/// # Ok(()) }
/// ```
///
/// A turn that has not come yet goes back only if nobody reserved after it: those behind keep the times that they were
/// promised, so the turn would be empty. Else it is forfeited. What a charge gives back after its turn is said of
/// [`Receipt`](Receipt#what-can-be-given-back).
#[derive(Debug)]
#[must_use = "call `wait` for its turn; a charge that was held is given back when it is dropped, unless `into_receipt` is called"]
pub struct Reservation {
    limiter: RateLimiter,
    decisions: Decisions,
    /// Whether it was neither kept nor given back.
    open: bool,
    /// Whether it is given back if it is dropped.
    refund_on_drop: bool,
    delay: Duration,
    /// `None` once it has come.
    timer: Option<DueTimer>,
    /// The place among those in this process who wait for the same row; taken when it is first waited for.
    queue: QueueState,
    /// Added to each turn.
    extra_delay: Duration,
    /// The latest turn that a pause may move the charges to, by the limiter's time; `None` if any will do.
    latest_due: Option<Micros>,
    /// The answer to charges that were held by a pause.
    retry: Option<DecisionFuture<Answer>>,
}

#[derive(Debug)]
enum QueueState {
    NotJoined,
    In(Ticket),
    NotQueued,
}

type QueueExit = fn(&Queues, &Ticket) -> Option<Decision>;

impl Reservation {
    /// For decisions that were all granted, or that a pause holds. [`wait`](Reservation::wait) waits `later` than for the
    /// turn, and until `last` if a pause comes in between.
    pub(crate) fn new(
        limiter: &RateLimiter,
        decisions: Decisions,
        extra_delay: Duration,
        latest_due: Option<Micros>,
    ) -> Reservation {
        Reservation {
            limiter: limiter.clone(),
            refund_on_drop: true,
            // A grant by the limiter itself is held by a pause and not charged yet.
            open: decisions.iter().all(|decision| decision.decided_by() != DecidedBy::Limiter),
            delay: decisions.delay(),
            timer: DueTimer::new(limiter, &decisions, extra_delay),
            queue: QueueState::NotJoined,
            decisions,
            extra_delay,
            latest_due,
            retry: None,
        }
    }

    /// The same, which fails if a pause would move the charges past `last`.
    #[cfg(feature = "wait")]
    pub(super) fn until(mut self, latest_due: Micros) -> Reservation {
        self.latest_due = Some(latest_due);
        self
    }

    /// The decisions on the charges, all granted.
    pub fn decisions(&self) -> &Decisions {
        &self.decisions
    }

    /// The time from the decision until the turn, the last of several; zero if there is no need to wait.
    pub const fn delay(&self) -> Duration {
        self.delay
    }

    /// Gives the charges back, as far as that breaks no promise to others. Returns whether they came back: `false` if
    /// all or part of the charges is forfeited, as a turn that others reserved behind.
    ///
    /// It is done when this is called, also if the future is dropped.
    ///
    /// # Errors
    /// If the backend cannot.
    pub fn cancel(mut self) -> BackendFuture<bool> {
        self.give_back()
    }

    /// The charges stay. What is returned can tell their true cost, or be dropped.
    pub fn into_receipt(mut self) -> Receipt {
        self.open = false;
        self.leave(Queues::complete)
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
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::LimitError> {
    /// let limiter = RateLimiter::default();
    /// let turn = limiter.acquire(&CALLS, "their API").reserve().await?;
    /// println!("in {:?}", turn.delay()); // 10 ms
    /// let usage = turn.wait().await?;
    /// usage.settle(2).await?; // it was a large one
    /// # Ok(()) }
    /// ```
    ///
    /// A key that is [paused](RateLimiter::pause) when the turn comes is waited for: the turn is given back, and another
    /// one asked for when the pause ends, however far away.
    ///
    /// # Errors
    /// If the key is [blocked](RateLimiter::block) when the turn comes, or the charges do not fit after a pause, or the
    /// backend cannot decide then.
    ///
    /// # Panics
    /// Outside of a tokio runtime, unless the backend's [clock](crate::clock::Clock) has its own way to wait.
    #[cfg(feature = "wait")]
    pub async fn wait(mut self) -> Result<Receipt, LimitError> {
        self.refund_on_drop = true;
        std::future::poll_fn(|context| self.poll_turn(context)).await?;
        Ok(self.into_receipt())
    }

    /// Ready when the turn has come and the charges are made: a turn that comes during a pause is given back, and the
    /// charges are asked for again when the pause ends. Asked again after the turn has come, it looks for a pause since.
    pub(crate) fn poll_turn(&mut self, context: &mut Context<'_>) -> Poll<Result<(), LimitError>> {
        loop {
            if let Some(retry) = &mut self.retry {
                let answer = ready!(Pin::new(retry).poll(context));
                self.retry = None;
                self.decisions = answer?.into_result()?.into_inner();
                self.open = true;
                self.timer = DueTimer::new(&self.limiter, &self.decisions, self.extra_delay);
                self.queue = QueueState::NotJoined;
            }
            ready!(self.poll_timer(context));
            match self.limiter.pause_or_denial(&self.decisions, self.latest_due)? {
                Some(held) => {
                    // Nothing is lost if the backend cannot: less is free at the end of the pause.
                    drop(self.give_back());
                    self.timer = DueTimer::new(&self.limiter, &held, Duration::ZERO);
                    self.decisions = held;
                }
                None if self.open => return Poll::Ready(Ok(())),
                None => self.retry = Some(self.limiter.ask_again(&self.decisions, self.latest_due)),
            }
        }
    }

    fn poll_timer(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(timer) = &mut self.timer else { return Poll::Ready(()) };
        let queues = &self.limiter.inner.queues;
        match &self.queue {
            QueueState::NotJoined => {
                self.queue =
                    queues.join(&self.decisions, context.waker()).map_or(QueueState::NotQueued, QueueState::In);
            }
            QueueState::In(ticket) => {
                if let Some(decision) = queues.moved(ticket, context.waker()) {
                    timer.move_up(&self.limiter, decision.due());
                }
            }
            QueueState::NotQueued => {}
        }
        ready!(timer.poll(context));
        self.timer = None;
        self.leave_queue(Queues::complete);
        Poll::Ready(())
    }

    fn give_back(&mut self) -> BackendFuture<bool> {
        if !std::mem::take(&mut self.open) {
            return BackendFuture::ready(Ok(false));
        }
        self.leave(Queues::leave).adjust(0)
    }

    /// Out of the queue, in one way or the other, and what is left to settle then.
    fn leave(&mut self, exit: QueueExit) -> Receipt {
        self.leave_queue(exit);
        Receipt::new(&self.limiter, std::mem::replace(&mut self.decisions, Decisions::from_iter([])))
    }

    fn leave_queue(&mut self, exit: QueueExit) {
        if let QueueState::In(ticket) = std::mem::replace(&mut self.queue, QueueState::NotQueued) {
            // It may leave with another decision than it came with.
            if let Some(decision) = exit(&self.limiter.inner.queues, &ticket) {
                self.decisions = Decisions::from_iter([decision]);
            }
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // Nobody is left to tell if the backend cannot.
        if self.refund_on_drop {
            drop(self.give_back());
        } else if self.open {
            self.leave_queue(Queues::complete);
        }
    }
}

/// Charges that are given back if the reservation is dropped.
pub(super) fn held(limiter: &RateLimiter, answer: Answer) -> Result<Reservation, LimitError> {
    Ok(Reservation::new(limiter, answer?.into_result()?.into_inner(), Duration::ZERO, None))
}

/// A turn whose waiting the caller does itself: dropping it keeps the charge.
pub(super) fn reserved(limiter: &RateLimiter, answer: Answer) -> Result<Reservation, LimitError> {
    let mut reservation = held(limiter, answer)?;
    reservation.refund_on_drop = false;
    Ok(reservation)
}
