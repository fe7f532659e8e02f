//! Reservations, which are charges that can be kept or given back.

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

/// Charges that can still be given back. [Keep](Reservation::into_receipt) them when the work is done, or
/// [cancel](Reservation::cancel) them.
///
/// The effect of dropping a reservation depends on the method that created it:
/// - [`hold`](super::Acquire::hold) and [`hold_all`](crate::RateLimiter::hold_all): the charge is given back.
/// - [`reserve`](super::Acquire::reserve): the charge is kept, because the caller may already have waited and used the
///   tokens. Dropping the future that `wait` returns gives the charge back.
///
/// ```
/// # use tollgate::{Policy, Quota, RateLimiter, MINUTE, SECOND};
/// static MAIL: Policy = Policy::new("mail", Quota::token_bucket(10, MINUTE).capacity(1).unlimited_reservations());
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::LimitError> {
/// # let limiter = RateLimiter::default();
/// let first = limiter.acquire(&MAIL, "team").reserve().await?;
/// let second = limiter.acquire(&MAIL, "team").reserve().await?;
/// assert!(first.delay().is_zero() && second.delay() > 5 * SECOND);
/// assert!(second.cancel().await?); // the tokens can be reserved again
/// first.into_receipt();
/// # Ok(()) }
/// ```
///
/// A reservation that is given back before its due time forfeits its tokens if later reservations exist. For a
/// reservation that is already due, see [what can be given back](Receipt#what-can-be-given-back).
#[derive(Debug)]
#[must_use = "dropping it may give the charge back; call `wait`, `into_receipt` or `cancel`"]
pub struct Reservation {
    limiter: RateLimiter,
    decisions: Decisions,
    open: bool,
    refund_on_drop: bool,
    delay: Duration,
    /// `None` if there is no need to wait.
    timer: Option<DueTimer>,
    queue: QueueState,
    extra_delay: Duration,
    /// The latest due time that is accepted after a pause, on the limiter's clock. `None` accepts any due time.
    latest_due: Option<Micros>,
    /// The pending retry of the charges after a pause.
    retry: Option<DecisionFuture<Answer>>,
}

#[derive(Debug)]
enum QueueState {
    NotJoined,
    Joined(Ticket),
    NotQueued,
}

type QueueExit = fn(&Queues, &Ticket) -> Option<Decision>;

impl Reservation {
    pub(crate) fn new(
        limiter: &RateLimiter,
        decisions: Decisions,
        extra_delay: Duration,
        latest_due: Option<Micros>,
    ) -> Reservation {
        Reservation {
            limiter: limiter.clone(),
            refund_on_drop: true,
            // The charges of a call that is held by a pause have not been made yet.
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

    #[cfg(feature = "wait")]
    pub(super) fn until(mut self, latest_due: Micros) -> Reservation {
        self.latest_due = Some(latest_due);
        self
    }

    /// Keeps the charges if the reservation is dropped, for callers that wait for the due time themselves.
    pub(super) fn kept(mut self) -> Reservation {
        self.refund_on_drop = false;
        self
    }

    /// Returns the decisions on the charges. Every charge was granted.
    pub fn decisions(&self) -> &Decisions {
        &self.decisions
    }

    /// Returns the time from the decision until the last charge is due, or zero if there is no need to wait.
    pub const fn delay(&self) -> Duration {
        self.delay
    }

    /// Gives the charges back, even if the returned future is dropped. Returns `false` if some tokens are forfeited.
    ///
    /// # Errors
    /// Fails if the backend fails.
    pub fn cancel(mut self) -> BackendFuture<bool> {
        self.give_back()
    }

    /// Keeps the charges. The returned receipt can be used to settle them.
    pub fn into_receipt(mut self) -> Receipt {
        self.open = false;
        self.leave(Queues::complete)
    }

    /// Waits until the charges are due, and keeps them. Dropping the future before then gives the charges back.
    ///
    /// The wait can be shorter than [`delay`](Reservation::delay) if other calls for the key in this process stop
    /// waiting. It can be longer if the key is [paused](RateLimiter::pause) at the due time, because the charges are
    /// then made again when the pause ends.
    ///
    /// # Errors
    /// Fails if the key is [blocked](RateLimiter::block) at the due time, or if a retry after a pause fails.
    ///
    /// # Panics
    /// Panics outside of a tokio runtime, unless the backend's [clock](crate::clock::Clock) provides its own timers.
    #[cfg(feature = "wait")]
    pub async fn wait(mut self) -> Result<Receipt, LimitError> {
        self.refund_on_drop = true;
        std::future::poll_fn(|context| self.poll_turn(context)).await?;
        Ok(self.into_receipt())
    }

    /// Completes when the charges have been made and are due. If the key is paused at the due time, gives the charges
    /// back and retries at the end of the pause. If polled again after completion, checks for a new pause.
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
                    // An error is ignored, because it only means that fewer tokens are available after the pause.
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
                    queues.join(&self.decisions, context.waker()).map_or(QueueState::NotQueued, QueueState::Joined);
            }
            QueueState::Joined(ticket) => {
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
        self.leave(Queues::leave).settle(0)
    }

    fn leave(&mut self, exit: QueueExit) -> Receipt {
        self.leave_queue(exit);
        Receipt::new(&self.limiter, std::mem::replace(&mut self.decisions, Decisions::from_iter([])))
    }

    fn leave_queue(&mut self, exit: QueueExit) {
        if let QueueState::Joined(ticket) = std::mem::replace(&mut self.queue, QueueState::NotQueued) {
            // The decision differs from the original one if the caller has moved up in the queue.
            if let Some(decision) = exit(&self.limiter.inner.queues, &ticket) {
                self.decisions = Decisions::from_iter([decision]);
            }
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // A destructor cannot report a backend error, so the result is ignored.
        if self.refund_on_drop {
            drop(self.give_back());
        } else if self.open {
            self.leave_queue(Queues::complete);
        }
    }
}

/// Creates a reservation whose charges are given back when it is dropped.
pub(super) fn held(limiter: &RateLimiter, answer: Answer) -> Result<Reservation, LimitError> {
    Ok(Reservation::new(limiter, answer?.into_result()?.into_inner(), Duration::ZERO, None))
}
