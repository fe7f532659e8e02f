//! Backends that can lease tokens to processes.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Weak;

use super::{BackendFuture, RowId};
use crate::algorithm::{Lease, LeaseReport, Quota};

/// A remote backend that can lease tokens.
///
/// Operations on rows with outstanding tokens follow the rule of [`algorithm::lease`](crate::algorithm::lease()):
/// [`acquire`](super::Backend::acquire), [`peek`](super::Backend::peek) and [`settle`](super::Backend::settle) apply
/// [`settle_leases`](crate::algorithm::settle_leases) first, and refunds never reduce the spent tokens below the
/// outstanding tokens. [`reset`](super::Backend::reset) removes outstanding tokens. Rows outlive their leases.
pub trait LeaseBackend: fmt::Debug + Send + Sync + 'static {
    /// Applies the reports and grants a lease. The request is sent when this method is called, even if the returned
    /// future is dropped, and is sent at most once.
    ///
    /// # Errors
    /// Fails if the request has failed or may have failed. Its tokens then stay outstanding until the leases end.
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
    /// The reports. A report without tokens has no effect.
    pub reports: [LeaseReport; 2],
    /// The maximum number of tokens to lease. If it is 0, only the reports are applied.
    pub tokens: u64,
}

/// A limiter that holds leases.
pub trait LeaseHolder: Send + Sync {
    /// Gives back leases that have not been used for a while.
    fn tick(&self);
}
