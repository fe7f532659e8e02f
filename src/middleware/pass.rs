//! What a request that may go on takes with it, and what its response brings back to.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::request::Parts;
use smallvec::SmallVec;

use super::headers::Report;
use super::settle::Unsettled;
use super::shared::Shared;
use super::status::RateLimitStatus;
use crate::limiter::{Place, Reservation, Settlement};

/// For a request that may go on, at once or at its turn.
pub(super) struct Pass {
    pub(super) report: Report,
    pub(super) status: Option<RateLimitStatus>,
    pub(super) charges: Charges,
    /// The rule of each charge.
    pub(super) rules: SmallVec<[usize; 4]>,
}

/// The charges of a request that may go on.
pub(super) enum Charges {
    /// Nobody will want to settle them.
    Forgotten,
    Kept(Settlement),
    /// Its turn comes later; dropped before, they are given back. A box, since few have to wait.
    Held(Box<Reservation>, Option<Place>),
}

impl Pass {
    /// Whether its turn comes later.
    pub(super) fn waits(&self) -> bool {
        matches!(self.charges, Charges::Held(..))
    }

    /// Ready when its turn has come: others may wait in its place then.
    pub(super) fn poll_turn(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let Charges::Held(reservation, place) = &mut self.charges {
            ready!(reservation.poll_turn(context));
            *place = None;
        }
        Poll::Ready(())
    }

    /// The request goes on now: equips it, and returns what is to be done with its response.
    pub(super) fn apply(self, shared: &Arc<Shared>, parts: &mut Parts) -> After {
        if let Some(status) = self.status {
            parts.extensions.insert(status);
        }
        let charges = match self.charges {
            Charges::Forgotten => return After { report: self.report, unsettled: None },
            Charges::Kept(charges) => charges,
            Charges::Held(reservation, _) => reservation.keep(),
        };
        if shared.settlement {
            parts.extensions.insert(charges.clone());
        }
        let settles = self.rules.iter().any(|rule| shared.settle_of(*rule).is_some());
        let unsettled = settles.then(|| Box::new(Unsettled { shared: Arc::clone(shared), charges, rules: self.rules }));
        After { report: self.report, unsettled }
    }
}

/// What is to be done with the response.
pub(super) struct After {
    pub(super) report: Report,
    pub(super) unsettled: Option<Box<Unsettled>>,
}
