//! Credits to keys, and resets of whole policies.

use smallvec::SmallVec;

use super::observer::{Credited, Reset};
use super::overrides::Setting;
use super::{RateLimiter, SetQuotaError};
use crate::algorithm::ChargeRecord;
use crate::backend::{Adjustment, BackendFuture, RowId};
use crate::policy::{Policy, Subject, random};

impl RateLimiter {
    /// Gives tokens back to a key, for example to compensate a customer for an outage. A key never has more tokens than
    /// its capacity, so it gets back no more tokens than it has spent. If several quotas apply, each of them is
    /// credited. Returns whether any tokens were given back.
    ///
    /// ```
    /// # use tollgate::{Policy, Quota, RateLimiter, DAY};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// static REPORTS: Policy = Policy::new("reports", Quota::token_bucket(100, DAY));
    /// let limiter = RateLimiter::default();
    /// limiter.acquire(&REPORTS, "ada").cost(60).await?;
    /// assert!(limiter.credit(&REPORTS, "ada", 20).await?);
    /// assert_eq!(limiter.remaining(&REPORTS, "ada").await?, 60);
    ///
    /// limiter.reset_policy(&REPORTS).await?; // resets all keys
    /// assert_eq!(limiter.remaining(&REPORTS, "ada").await?, 100);
    /// # Ok(()) }
    /// ```
    ///
    /// If a quota has [shards](crate::Quota::shards), each shard is credited with an equal share of the tokens. Blocks
    /// stay in effect, and waiting calls keep their due times. In a memory backend whose table is full, keys that share
    /// a row cannot be credited. The credit takes effect even if the future is dropped. See
    /// [`remaining`](RateLimiter::remaining) for how to identify a client that is limited by a layer.
    ///
    /// # Errors
    /// Fails if the backend fails. In this case, the credit may still have been made.
    pub fn credit(&self, policy: &Policy, subject: impl Into<Subject>, tokens: u64) -> BackendFuture<bool> {
        let (inner, subject) = (&*self.inner, subject.into());
        if tokens == 0 {
            return BackendFuture::ready(Ok(false));
        }
        let name = inner.overrides.current(policy.name());
        let row = RowId { policy: &name, key: self.row_key(subject.key()) };
        let quotas = self.quotas(policy, subject);
        let mut credits: SmallVec<[Adjustment<'_>; 1]> = SmallVec::new();
        for (quota, window) in quotas.iter().zip(policy.windows(&quotas)) {
            let whole = row.seeded(quota);
            for index in 0..whole.get_shards() as u8 {
                let (row, quota) = (RowId { key: row.key.shard(index), ..row }, whole.shard(index));
                let receipt = ChargeRecord::credit(whole.share(tokens, index));
                credits.push(Adjustment { row, window, quota, receipt, actual: 0 });
            }
        }
        credits.retain(|credit| credit.receipt.cost > 0);
        if let Some(leases) = &inner.leases {
            leases.report(credits.iter().map(|credit| credit.row.digest().window(credit.window)));
        }
        // Each window is settled separately, because a joint result would not show whether any credit took effect.
        let settle =
            |credit: Adjustment<'_>| (inner.backend.settle(&[credit]), credit.row.digest().window(credit.window));
        let (pending, windows): (Vec<_>, SmallVec<[_; 1]>) = credits.into_iter().map(settle).unzip();
        inner.forget_denials(windows.into_iter());
        let credited = Credited { policy: row.policy, key: row.key, tokens };
        inner.observers.iter().for_each(|observer| observer.credited(&credited));
        BackendFuture::boxed(async move {
            let mut took_effect = false;
            for credit in pending {
                took_effect |= credit.await?;
            }
            Ok(took_effect)
        })
    }

    /// Resets all keys of a policy, so that each key has its whole quota again. The policy is identified by its name.
    /// Blocks and pauses stay in effect, and so do quotas and enforcement settings that were changed at run time.
    ///
    /// After the reset, the policy uses rows of a new *generation*. The old rows stay in the backend until they expire.
    /// Charges made before the reset are settled on the old rows. If a memory backend's table is full, tokens spent by
    /// keys that share rows may stay spent.
    ///
    /// Other limiters on a shared backend learn of the reset within a second. Until then, they charge the old rows, so
    /// a key can spend tokens from both its old and its new row. If the server loses the notice of the reset, old rows
    /// that have not expired are used again.
    ///
    /// # Errors
    /// Fails if 100,000 changes are already in effect, or if the backend cannot publish the reset. If publishing fails,
    /// the reset may still have been made.
    pub async fn reset_policy(&self, policy: &Policy) -> Result<(), SetQuotaError> {
        // The generation is random, so that it is new even if this process has not received the last reset.
        let generation = random() | 1;
        self.change(policy, Setting::Generation(Some(generation))).await?;
        let reset = Reset { policy: policy.name(), key: None };
        self.inner.observers.iter().for_each(|observer| observer.reset(&reset));
        Ok(())
    }
}
