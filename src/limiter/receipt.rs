//! The receipt of a call, which settles its charges.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use super::observer::Settled;
use super::{Inner, RateLimiter};
use crate::algorithm::ChargeRecord;
use crate::backend::{Adjustment, BackendFuture, RowId};
use crate::policy::{ChargedQuota, DecidedBy, Decision, Decisions};
use crate::sync::atomic::{AtomicBool, Ordering};

/// A handle for settling the charges of a call, that is, for adjusting the charges to their actual cost. Settling is
/// useful if the cost had to be estimated, for example for a stream.
///
/// Dropping a receipt leaves the charges as they are. Clones of a receipt settle the same charges. A charge can be
/// settled only once, so later settlements do nothing. The [layer](crate::RateLimitLayer::with_receipt) puts a receipt
/// into the request's extensions; in other code, use [`Reservation::into_receipt`](super::Reservation::into_receipt).
///
/// ```
/// use tollgate::{Charge, Policy, Quota, RateLimiter, DAY};
/// static TOKENS: Policy = Policy::new("tokens", Quota::token_bucket(10_000, DAY));
/// static CALLS: Policy = Policy::new("calls", Quota::fixed_window(500, DAY));
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = RateLimiter::default();
/// let usage = limiter.acquire(&TOKENS, "team").cost(1000).hold().await?.into_receipt();
/// usage.settle(1700).await?; // the answer was longer than estimated
/// assert_eq!(limiter.remaining(&TOKENS, "team").await?, 8300);
///
/// // Settle the charge under one policy only.
/// let usage = limiter.hold_all([Charge::new(&TOKENS, 7).cost(1000), Charge::new(&CALLS, 7)]).await?.into_receipt();
/// usage.of(TOKENS.name()).unwrap().settle(300).await?;
/// assert_eq!((limiter.remaining(&TOKENS, 7).await?, limiter.remaining(&CALLS, 7).await?), (9700, 499));
/// # Ok(()) }
/// ```
///
/// # What can be given back
/// If the actual cost is higher than the charge, the difference is always charged, even if this takes the key over its
/// capacity. If the actual cost is lower, the difference is given back, with the following exceptions:
/// - Tokens that were refilled in the meantime are not given back a second time. The charges for one key can be settled
///   in any order, but a refill between two settlements may reduce the number of tokens given back.
/// - The difference is forfeited if other calls for the key, such as calls waiting in `wait_up_to`, hold reservations
///   that are not yet due. If calls can wait, estimate their costs closely.
/// - If the key's quota has changed since the charge, nothing is given back.
/// - Tokens that a [credit](crate::RateLimiter::credit) has given back are not given back again. After a credit, the
///   whole difference may be forfeited.
/// - If the key has been reset since the charge, only tokens that were spent after the reset can be given back.
#[derive(Clone)]
pub struct Receipt {
    inner: Arc<ReceiptInner>,
    /// The indices of the decisions that this receipt settles.
    charges: Range<usize>,
}

struct ReceiptInner {
    limiter: RateLimiter,
    decisions: Decisions,
    settled: SmallVec<[AtomicBool; 2]>,
}

type Adjustments<'a> = SmallVec<[Adjustment<'a>; 2]>;

impl Receipt {
    /// All decisions must be grants.
    pub(crate) fn new(limiter: &RateLimiter, decisions: Decisions) -> Receipt {
        let settled: SmallVec<_> = decisions.iter().map(|_| AtomicBool::new(false)).collect();
        let charges = 0..settled.len();
        Receipt { inner: Arc::new(ReceiptInner { limiter: limiter.clone(), decisions, settled }), charges }
    }

    /// Returns the decisions on all charges of the call, even if this receipt was returned by [`of`](Receipt::of).
    pub fn decisions(&self) -> &Decisions {
        &self.inner.decisions
    }

    /// Returns a receipt for the first charge under this policy, or `None` if nothing was charged under it.
    pub fn of(&self, policy: impl AsRef<str>) -> Option<Receipt> {
        let policy = policy.as_ref();
        let is_of = |charge: &[Decision]| charge[0].policy().as_str() == policy;
        let (first, charge) = self.charges().find(|(_, charge)| is_of(charge))?;
        self.charges.contains(&first).then(|| self.at(first, charge))
    }

    /// Returns, for each charge of the call, its decisions and the index of the first one.
    pub(crate) fn charges(&self) -> impl Iterator<Item = (usize, &[Decision])> {
        self.inner.decisions.charges().scan(0, |next, charge| {
            let first = *next;
            *next += charge.len();
            Some((first, charge))
        })
    }

    pub(crate) fn at(&self, first: usize, charge: &[Decision]) -> Receipt {
        Receipt { inner: Arc::clone(&self.inner), charges: first..first + charge.len() }
    }

    /// Adjusts each unsettled charge, under every policy, to `actual` tokens. To settle the charge under only one
    /// policy, use [`of`](Receipt::of).
    ///
    /// Returns `false` if part of the difference is [forfeited](Receipt#what-can-be-given-back), or if all charges are
    /// already settled. The settlement is carried out even if the future is dropped, so `drop(receipt.settle(n))` works
    /// in a `Drop` implementation.
    ///
    /// # Errors
    /// Fails if the backend fails, in which case the charge may or may not have been settled.
    pub fn settle(&self, actual: u64) -> BackendFuture<bool> {
        let inner = &*self.inner.limiter.inner;
        if !self.charges.is_empty() && self.is_settled() {
            return BackendFuture::ready(Ok(false));
        }
        // The order is reversed, because only the last of several charges to a row can be given back in full.
        let (mut charges, mut local, mut leased) = (Adjustments::new(), Adjustments::new(), true);
        for index in self.charges.clone().rev() {
            let Some((decision, receipt)) = self.open(index) else { continue };
            if decision.of().part.is_first() {
                let settled = Settled { decision, actual };
                inner.observers.iter().for_each(|observer| observer.settled(&settled));
            }
            if actual == receipt.cost {
                continue;
            }
            let ChargedQuota { ref policy, row_key: key, window, quota, .. } = *decision.of();
            let charge = Adjustment { row: RowId { policy, key }, window, quota, receipt, actual };
            match decision.decided_by() {
                DecidedBy::Backend => charges.push(charge),
                DecidedBy::Fallback => local.push(charge),
                DecidedBy::Lease => {
                    let (forfeited, overrun) = inner.settle_leased(&charge, decision.of().part.lease);
                    leased &= !forfeited;
                    charges.extend(overrun);
                }
                _ => {}
            }
        }
        let locally = leased && (local.is_empty() || inner.failure.settle(&local));
        if charges.is_empty() {
            return BackendFuture::ready(Ok(locally));
        }
        let done = inner.backend.settle(&charges);
        // Cached denials are removed even if the actual cost is higher than the charge: settling may convert a row to
        // a different quota, and the row may then refill faster.
        inner.forget_denials(charges.iter().map(|charge| charge.row.digest().window(charge.window)));
        done.map(move |done| done && locally)
    }

    /// Gives the charges back, like [`settle(0)`](Receipt::settle), and fails in the same cases.
    pub fn refund(&self) -> BackendFuture<bool> {
        self.settle(0)
    }

    /// Resets the rows of these charges, as [`RateLimiter::reset`](super::RateLimiter::reset) does, and marks the
    /// charges as settled. Returns whether a row was found. The reset is carried out even if the future is dropped.
    ///
    /// # Errors
    /// Fails if the backend fails.
    pub fn reset(&self) -> BackendFuture<bool> {
        let rows: SmallVec<[(RowId<'_>, u8); 2]> = self.charges.clone().filter_map(|index| self.close(index)).collect();
        if rows.is_empty() {
            return BackendFuture::ready(Ok(false));
        }
        self.inner.limiter.inner.reset(&rows)
    }

    /// Returns whether all charges are settled.
    pub fn is_settled(&self) -> bool {
        self.charges.clone().all(|index| self.inner.settled[index].load(Ordering::Relaxed))
    }

    fn open(&self, index: usize) -> Option<(&Decision, ChargeRecord)> {
        let decision = self.inner.decisions.get(index).filter(|decision| !decision.is_shadowed())?;
        let receipt = ChargeRecord::new(decision.cost(), decision.step())?;
        let first = !self.inner.settled[index].swap(true, Ordering::Relaxed);
        first.then_some((decision, receipt))
    }

    /// Marks a decision as settled. If it is the first decision on its charge, returns the charge's row and number of
    /// shards.
    fn close(&self, index: usize) -> Option<(RowId<'_>, u8)> {
        let decision = self.inner.decisions.get(index)?;
        self.inner.settled[index].store(true, Ordering::Relaxed);
        let row = RowId { policy: decision.policy(), key: decision.key() };
        decision.of().part.is_first().then_some((row, decision.of().quota.get_shards() as u8))
    }
}

impl Inner {
    /// Settles a charge that was covered by a lease. Returns whether a refund is forfeited and, if the lease has too
    /// few tokens, the settlement that the backend must make.
    fn settle_leased<'a>(&self, charge: &Adjustment<'a>, sequence: u32) -> (bool, Option<Adjustment<'a>>) {
        let Some(leases) = &self.leases else { return (true, None) };
        let (id, cost) = (charge.row.digest().window(charge.window), charge.receipt.cost);
        if charge.actual < cost {
            return (!leases.refund(id, cost - charge.actual, sequence), None);
        }
        let more = charge.actual - cost;
        if leases.surcharge(id, more) {
            return (false, None);
        }
        let receipt = ChargeRecord { cost: 0, ..charge.receipt };
        (false, Some(Adjustment { receipt, actual: more, ..*charge }))
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
