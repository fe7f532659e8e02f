//! Backends that can lease tokens to processes.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Weak;

use super::{BackendFuture, RowId};
use crate::algorithm::{Lease, LeaseReport, Quota};

/// A remote backend that can lease tokens.
///
/// If a row has outstanding tokens, [`acquire`](super::Backend::acquire), [`peek`](super::Backend::peek) and
/// [`settle`](super::Backend::settle) first apply [`settle_leases`](crate::algorithm::settle_leases) to it. Refunds
/// never reduce its spent tokens below its outstanding tokens. [`reset`](super::Backend::reset) also removes the
/// outstanding tokens. A row is kept at least until its leases have ended.
pub trait LeaseBackend: fmt::Debug + Send + Sync + 'static {
    /// Applies the reports and grants a lease. This method sends the request at most once, and sends it even if the
    /// returned future is dropped.
    ///
    /// # Errors
    /// The future fails if the request fails or its outcome is unknown. In that case, the tokens that the request
    /// leased or reported may stay outstanding until their leases end.
    fn lease(&self, request: &LeaseRequest<'_>) -> BackendFuture<Lease>;

    /// Runs a task in the background.
    fn spawn(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>);

    /// Calls [`LeaseHolder::tick`] about ten times per second until the holder is dropped.
    fn watch(&self, holder: Weak<dyn LeaseHolder>);
}

/// A request for a lease on a window of a row, with reports on earlier leases.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_structs)] // A new field would change the contract.
pub struct LeaseRequest<'a> {
    /// The row.
    pub row: RowId<'a>,
    /// The window, as in a [`Take`](super::Take).
    pub window: u8,
    /// The quota, as in a [`Take`](super::Take).
    pub quota: Quota,
    /// Reports on earlier leases. A report of zero tokens has no effect.
    pub reports: [LeaseReport; 2],
    /// The maximum number of tokens to lease. If it is 0, only the reports are applied.
    pub tokens: u64,
}

/// A limiter that holds leases.
pub trait LeaseHolder: Send + Sync {
    /// Gives back leases that have not been used for a while.
    fn tick(&self);
}
