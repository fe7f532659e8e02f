//! Backends that can lease tokens to processes.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Weak;

use super::{BackendFuture, RowId};
use crate::algorithm::{Lease, LeaseReport, Quota};

/// A remote backend that can lease tokens. [`Backend::lease_backend`](super::Backend::lease_backend) returns it.
///
/// All operations on rows with outstanding tokens must follow the rule that
/// [`algorithm::lease`](crate::algorithm::lease()) describes. [`acquire`](super::Backend::acquire),
/// [`peek`](super::Backend::peek) and [`settle`](super::Backend::settle) apply
/// [`settle_leases`](crate::algorithm::settle_leases) first, and a refund never leaves fewer spent tokens than
/// outstanding ones. [`reset`](super::Backend::reset) removes outstanding tokens. A row must be kept at least until its
/// leases have ended.
pub trait LeaseBackend: fmt::Debug + Send + Sync + 'static {
    /// Applies the reports of a request, and grants a lease. The request is sent when this method is called, even if
    /// the future is dropped. It must be sent at most once.
    ///
    /// # Errors
    /// The future fails if the backend does not know whether the request was carried out. The tokens of the request
    /// then stay outstanding until the leases end.
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
    /// Returns leases that have not been used for a while.
    fn tick(&self);
}
