//! What is answered to a call: the decisions of all its charges together, and the error that a denial makes.

use std::fmt;
use std::time::Duration;

use smallvec::{SmallVec, smallvec};

use super::decision::Decision;
use super::reason::{DecidedBy, Reason};

/// The answers to several charges that were decided together: all of them were spent, or none.
///
/// ```
/// # use tollgate::{Charge, ManualClock, MemoryBackend, Policy, Quota, RateLimiter, MINUTE, SECOND};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tollgate::Error> {
/// static USER: Policy = Policy::new("user", Quota::token_bucket(10, MINUTE));
/// static GLOBAL: Policy = Policy::new("global", Quota::token_bucket(1, MINUTE));
///
/// let limiter = RateLimiter::new(MemoryBackend::builder().clock(ManualClock::new()).build());
/// let both = || [Charge::new(&USER, "ada"), Charge::new(&GLOBAL, "all")];
/// assert!(limiter.limit_all(both()).await?.is_allowed());
///
/// let denied = limiter.limit_all(both()).await?;
/// let violated: Vec<_> = denied.violated().map(|decision| decision.policy().as_str()).collect();
/// assert_eq!((denied.is_allowed(), violated), (false, vec!["global"]));
/// assert_eq!(denied.iter().map(|decision| decision.remaining()).collect::<Vec<_>>(), [9, 0]);
/// assert_eq!(denied.get(0).map(|decision| decision.is_violated()), Some(false));
/// assert_eq!(denied.tightest().map(|decision| decision.policy().as_str()), Some("global"));
/// assert_eq!((denied.retry_after(), denied.delay()), (Some(MINUTE), 0 * SECOND));
/// assert_eq!(denied.to_string(), "rate limit exceeded: \"global\"; retry after 60s");
/// assert!(denied.into_result().is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Decisions(SmallVec<[Decision; 1]>);

impl Decisions {
    /// Whether all tokens were spent: go ahead, after [`delay`](Decisions::delay) if there is one.
    pub fn is_allowed(&self) -> bool {
        self.0.iter().all(Decision::is_allowed)
    }

    /// Each decision, in the order of the charges.
    pub fn iter(&self) -> std::slice::Iter<'_, Decision> {
        self.0.iter()
    }

    /// The decision on the charge with this number, from 0.
    pub fn get(&self, index: usize) -> Option<&Decision> {
        self.0.get(index)
    }

    /// The decisions with the numbers from 0 to `number`.
    pub(crate) fn of(number: usize, decision: impl FnMut(usize) -> Decision) -> Decisions {
        (0..number).map(decision).collect()
    }

    /// The same, decided by somebody else.
    pub(crate) fn by(self, decided_by: DecidedBy) -> Decisions {
        self.into_iter().map(|decision| decision.by(decided_by)).collect()
    }

    /// The decision, if there is just one.
    pub(crate) fn only(&self) -> Option<&Decision> {
        if let [decision] = &self.0[..] { Some(decision) } else { None }
    }

    /// The one decision, if there is one.
    pub(crate) fn into_only(self) -> Option<Decision> {
        self.0.into_iter().next()
    }

    /// The decisions that stood in the way.
    pub fn violated(&self) -> impl Iterator<Item = &Decision> {
        self.iter().filter(|decision| decision.is_violated())
    }

    /// After a denial: the longest wait of the violated policies. `None` if all is allowed, or one of them can never
    /// fit.
    pub fn retry_after(&self) -> Option<Duration> {
        let mut longest = None;
        for decision in self.violated() {
            longest = longest.max(Some(decision.retry_after()?));
        }
        longest
    }

    /// The decision with the smallest share of its limit left; `None` if there is none at all.
    pub fn tightest(&self) -> Option<&Decision> {
        // a / b < c / d, without dividing by a limit of 0.
        self.iter().min_by(|one, other| {
            let product = |a: &Decision, b: &Decision| u128::from(a.remaining()) * u128::from(b.limit());
            product(one, other).cmp(&product(other, one))
        })
    }

    /// The time until all reserved turns have come; zero if there are none.
    pub fn delay(&self) -> Duration {
        self.iter().map(Decision::delay).max().unwrap_or(Duration::ZERO)
    }

    /// `Ok` if allowed, else the error to return from a handler.
    ///
    /// # Errors
    /// If it is a denial.
    pub fn into_result(self) -> Result<Decisions, Denied> {
        if self.is_allowed() { Ok(self) } else { Err(Denied::new(self)) }
    }
}

impl From<Decision> for Decisions {
    fn from(decision: Decision) -> Decisions {
        Decisions(smallvec![decision])
    }
}

impl FromIterator<Decision> for Decisions {
    fn from_iter<I: IntoIterator<Item = Decision>>(decisions: I) -> Decisions {
        Decisions(decisions.into_iter().collect())
    }
}

impl IntoIterator for Decisions {
    type Item = Decision;
    type IntoIter = std::iter::Chain<std::option::IntoIter<Decision>, std::vec::IntoIter<Decision>>;

    fn into_iter(self) -> Self::IntoIter {
        let mut decisions = self.0.into_iter();
        decisions.next().into_iter().chain(decisions.collect::<Vec<_>>())
    }
}

impl<'a> IntoIterator for &'a Decisions {
    type Item = &'a Decision;
    type IntoIter = std::slice::Iter<'a, Decision>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// A denial as an error: `limiter.limit(..).await?.into_result()?`.
///
/// With feature `axum` it is a response too: 429 with the same headers and body as the layer's.
///
/// ```
/// # use tollgate::{Denied, ManualClock, MemoryBackend, Policy, Quota, RateLimiter, HOUR};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tollgate::Error> {
/// static LOGIN: Policy = Policy::new("login", Quota::token_bucket(1, HOUR));
///
/// let limiter = RateLimiter::new(MemoryBackend::builder().clock(ManualClock::new()).build());
/// limiter.limit(&LOGIN, "ada").await?;
/// let denied: Denied = limiter.limit(&LOGIN, "ada").await?.into_result().unwrap_err();
/// assert_eq!(denied.to_string(), "rate limit exceeded: \"login\"; retry after 3600s");
/// assert_eq!(denied.retry_after(), Some(HOUR));
/// assert_eq!(denied.decisions().tightest().map(|decision| decision.limit()), Some(1));
/// assert_eq!(denied.into_decisions().iter().count(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Denied(Box<Decisions>);

impl Denied {
    pub(super) fn new(decisions: Decisions) -> Denied {
        Denied(Box::new(decisions))
    }

    /// Every decision of the call, in the order of its charges: those that fitted included.
    pub fn decisions(&self) -> &Decisions {
        &self.0
    }

    /// [`decisions`](Denied::decisions), to keep.
    pub fn into_decisions(self) -> Decisions {
        *self.0
    }

    /// The time after which the same call succeeds if nobody else spends, to the microsecond; `None` if it never will.
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after()
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Denied {}

/// In words: what was exceeded, and when to come back.
impl fmt::Display for Decisions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_allowed() {
            return f.write_str("within all rate limits");
        }
        f.write_str("rate limit exceeded:")?;
        for (i, decision) in self.violated().enumerate() {
            write!(f, "{} {:?}", if i == 0 { "" } else { "," }, decision.policy())?;
            match decision.reason() {
                Reason::CostTooLarge => {
                    write!(
                        f,
                        " never has {} tokens at once ({} at most)",
                        decision.cost(),
                        decision.quota().ceiling()
                    )?;
                }
                Reason::WaitTooLong => write!(f, " has no turn for {} tokens soon enough", decision.cost())?,
                _ => {}
            }
        }
        match self.retry_after() {
            Some(wait) => write!(f, "; retry after {wait:?}"),
            None => f.write_str("; retrying will not help"),
        }
    }
}
