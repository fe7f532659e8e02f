//! Charges that were made, and can still be settled.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use super::RateLimiter;
use super::observer::Settled;
use crate::algorithm::ChargeRecord;
use crate::backend::{Adjustment, BackendFuture, RowId};
use crate::policy::{DecidedBy, Decision, Decisions};
use crate::sync::atomic::{AtomicBool, Ordering};

/// A charge that was made for an estimate, and can be told its true cost: at the end of a stream, say.
///
/// Dropped, it keeps the charge as it is. Clones settle the same charge, and a charge is settled once: whatever comes
/// after that does nothing. From the [layer](crate::RateLimitLayer::with_receipt) it comes among the request's
/// extensions; from a limiter by [`Reservation::into_receipt`](super::Reservation::into_receipt).
///
/// ```
/// use tollgate::{Policy, Quota, RateLimiter, MINUTE};
///
/// static TOKENS: Policy = Policy::new("tokens", Quota::token_bucket(10_000, MINUTE));
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = RateLimiter::default();
/// let usage = limiter.acquire(&TOKENS, "team").cost(1000).hold().await?.into_receipt();
/// // ... the answer was longer than estimated:
/// usage.settle(1700).await?;
/// assert_eq!(limiter.remaining(&TOKENS, "team").await?, 8300);
/// # Ok(()) }
/// ```
///
/// # What can be given back
/// More than estimated is always charged, into debt if need be; it is paid back like anything else. Less is given back
/// as far as nobody has built on it: what the time has paid back already is not given twice; while others hold promised
/// turns it is forfeited. Charges of a key that are open at once may be settled in any order: while nothing of them has
/// been paid back, nothing is lost; a refill in between may cost some of what is given back, never more. After a change
/// of the key's quota nothing is given back; after a reset, nothing unless as much was spent anew since. The bound of
/// the quota holds in any case.
#[derive(Clone)]
pub struct Receipt {
    inner: Arc<ReceiptInner>,
    /// The charges that this settles: one, or all.
    charges: Range<usize>,
}

struct ReceiptInner {
    limiter: RateLimiter,
    decisions: Decisions,
    /// Of each charge, whether it was settled.
    settled: SmallVec<[AtomicBool; 2]>,
}

type Adjustments<'a> = SmallVec<[Adjustment<'a>; 2]>;

impl Receipt {
    /// For decisions that were all granted.
    pub(crate) fn new(limiter: &RateLimiter, decisions: Decisions) -> Receipt {
        let settled: SmallVec<_> = decisions.iter().map(|_| AtomicBool::new(false)).collect();
        let charges = 0..settled.len();
        Receipt { inner: Arc::new(ReceiptInner { limiter: limiter.clone(), decisions, settled }), charges }
    }

    /// The decisions on the charges that were made together. [`of`](Receipt::of) does not narrow them.
    pub fn decisions(&self) -> &Decisions {
        &self.inner.decisions
    }

    /// The same for the charge under one policy only, the first if it charged several keys; `None` if there is none of
    /// that name: its rule did not apply. `TOKENS.name()` is a name that cannot be misspelt.
    ///
    /// ```
    /// # use tollgate::{Charge, Policy, Quota, RateLimiter, DAY, MINUTE};
    /// # static TOKENS: Policy = Policy::new("tokens", Quota::token_bucket(10_000, MINUTE));
    /// # static CALLS: Policy = Policy::new("calls", Quota::fixed_window(500, DAY));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let limiter = RateLimiter::default();
    /// let charges = [Charge::new(&TOKENS, "team").cost(1000), Charge::new(&CALLS, "team")];
    /// let usage = limiter.hold_all(charges).await?.into_receipt();
    /// if let Some(tokens) = usage.of(TOKENS.name()) {
    ///     tokens.settle(300).await?;
    /// }
    /// assert_eq!(limiter.remaining(&TOKENS, "team").await?, 9700);
    /// assert_eq!(limiter.remaining(&CALLS, "team").await?, 499);
    /// # Ok(()) }
    /// ```
    pub fn of(&self, policy: impl AsRef<str>) -> Option<Receipt> {
        let policy = policy.as_ref();
        let index = self.inner.decisions.iter().position(|decision| decision.policy().as_str() == policy)?;
        self.charges.contains(&index).then(|| self.at(index))
    }

    /// The same for the charge of one rule.
    pub(crate) fn at(&self, index: usize) -> Receipt {
        Receipt { inner: Arc::clone(&self.inner), charges: index..index + 1 }
    }

    /// The true cost: each charge becomes one of `actual` tokens, unless it was settled before. Where several rules
    /// charged, settle [the one](Receipt::of) that counts tokens: this would make as many calls of 1,700 tokens.
    ///
    /// It is settled when this is called, also if the future is dropped; awaiting it tells whether the backend has it.
    ///
    /// # Errors
    /// If the backend cannot. Then the charge stays as it was estimated, or not: it may have got through.
    pub fn settle(&self, actual: u64) -> BackendFuture<()> {
        self.adjust(actual).map(drop)
    }

    /// [`settle`](Receipt::settle); returns whether every charge became one of `actual` tokens as far as the rules
    /// allow: `false` if what one of them was to give back is forfeited.
    pub(super) fn adjust(&self, actual: u64) -> BackendFuture<bool> {
        let inner = &*self.inner.limiter.inner;
        // Newest first: of two charges on one row, only the last can be given back whole.
        let (mut charges, mut local) = (Adjustments::new(), Adjustments::new());
        for index in self.charges.clone().rev() {
            let Some((decision, receipt)) = self.open(index) else { continue };
            let settled = Settled { decision, actual };
            inner.observers.iter().for_each(|observer| observer.settled(&settled));
            if actual == receipt.cost {
                continue;
            }
            let row = RowId { policy: decision.policy(), key: decision.key() };
            let charge = Adjustment { row, quota: *decision.quota(), receipt, actual };
            match decision.decided_by() {
                DecidedBy::Backend => charges.push(charge),
                DecidedBy::Fallback => local.push(charge),
                _ => {}
            }
        }
        let locally = local.is_empty() || inner.failure.settle(&local);
        if charges.is_empty() {
            return BackendFuture::ready(Ok(locally));
        }
        let done = inner.backend.settle(&charges);
        // Also where more is charged: a row that another quota wrote may become this one's, and be paid back faster.
        inner.forget_denials(charges.iter().map(|charge| charge.row));
        done.map(move |done| done && locally)
    }

    /// The charge was for nothing: as [`settle(0)`](Receipt::settle).
    ///
    /// ```
    /// # use tollgate::{Policy, Quota, RateLimiter, MINUTE};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # static TOKENS: Policy = Policy::new("tokens", Quota::token_bucket(10_000, MINUTE));
    /// # let limiter = RateLimiter::default();
    /// let usage = limiter.acquire(&TOKENS, "team").cost(1000).hold().await?.into_receipt();
    /// assert!(!usage.is_settled());
    /// usage.refund().await?;
    /// assert_eq!((usage.is_settled(), limiter.remaining(&TOKENS, "team").await?), (true, 10_000));
    /// assert_eq!(usage.decisions().iter().map(|decision| decision.cost()).sum::<u64>(), 1000); // as it was charged
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// If the backend cannot.
    pub fn refund(&self) -> BackendFuture<()> {
        self.settle(0)
    }

    /// Forgets all that the key has spent under the policy, this charge and any other. That settles it. Returns whether a
    /// row was there, as [`RateLimiter::reset`](super::RateLimiter::reset).
    ///
    /// It is done when this is called, also if the future is dropped.
    ///
    /// ```
    /// # use tollgate::{Policy, Quota, RateLimiter, HOUR};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// static LOGIN: Policy = Policy::new("login", Quota::token_bucket(5, HOUR));
    ///
    /// let limiter = RateLimiter::default();
    /// limiter.limit(&LOGIN, "ada@example.com").await?; // wrong
    /// let attempt = limiter.acquire(&LOGIN, "ada@example.com").hold().await?.into_receipt();
    /// attempt.reset().await?; // right
    /// assert_eq!(limiter.remaining(&LOGIN, "ada@example.com").await?, 5);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// If the backend cannot.
    pub fn reset(&self) -> BackendFuture<bool> {
        let rows: SmallVec<[RowId<'_>; 2]> = self.charges.clone().filter_map(|index| self.close(index)).collect();
        if rows.is_empty() {
            return BackendFuture::ready(Ok(false));
        }
        self.inner.limiter.inner.reset(&rows)
    }

    /// Whether nothing is left to settle.
    pub fn is_settled(&self) -> bool {
        self.charges.clone().all(|index| self.inner.settled[index].load(Ordering::Relaxed))
    }

    /// The charge to settle, for the first call that settles it.
    fn open(&self, index: usize) -> Option<(&Decision, ChargeRecord)> {
        let decision = self.inner.decisions.get(index)?;
        let receipt = ChargeRecord::new(decision.cost(), decision.step())?;
        let first = !self.inner.settled[index].swap(true, Ordering::Relaxed);
        first.then_some((decision, receipt))
    }

    fn close(&self, index: usize) -> Option<RowId<'_>> {
        let decision = self.inner.decisions.get(index)?;
        self.inner.settled[index].store(true, Ordering::Relaxed);
        Some(RowId { policy: decision.policy(), key: decision.key() })
    }
}

impl fmt::Debug for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receipt")
            .field("decisions", self.decisions())
            .field("is_settled", &self.is_settled())
            .finish_non_exhaustive()
    }
}
