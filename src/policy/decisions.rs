//! The decisions on all charges of a call, and denials as errors.

use std::fmt;
use std::time::Duration;

use smallvec::SmallVec;

use super::allowed::Allowed;
use super::decision::{Decision, ShardRows};
use super::reason::{DecidedBy, Reason};
use crate::algorithm::List;

/// The decisions on all charges of a call, which spends either all of their tokens or none.
///
/// ```
/// # use tollgate::{clock::ManualClock, Charge, MemoryBackend, Policy, Quota, RateLimiter, MINUTE};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::backend::Error> {
/// # let limiter = RateLimiter::new(MemoryBackend::builder().clock(ManualClock::new()).build());
/// static USER: Policy = Policy::new("user", Quota::token_bucket(10, MINUTE));
/// static GLOBAL: Policy = Policy::new("global", Quota::token_bucket(1, MINUTE));
///
/// let both = || [Charge::new(&USER, "ada"), Charge::new(&GLOBAL, "all")];
/// assert!(limiter.try_limit_all(both()).await?.is_allowed());
/// let denied = limiter.try_limit_all(both()).await?;
/// let violated: Vec<_> = denied.violated().map(|decision| decision.policy().as_str()).collect();
/// assert_eq!((violated, denied.retry_after()), (vec!["global"], Some(MINUTE)));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a denial is not an error here: check `is_allowed()`, or call `limit_all`, which fails on a denial"]
pub struct Decisions(List<Decision>);

impl Decisions {
    /// Returns whether the call may proceed, after the [`delay`](Decisions::delay) if there is one. If so, the tokens
    /// were spent, unless this is a check. Charges that [were let through](Decision::is_shadowed) spent nothing.
    pub fn is_allowed(&self) -> bool {
        self.0.iter().all(Decision::is_allowed)
    }

    /// Returns whether any charge would have been denied but [was let through](Decision::is_shadowed).
    pub fn is_shadowed(&self) -> bool {
        self.iter().any(Decision::is_shadowed)
    }

    /// Lets a denied call through by marking its shadow-mode charges as let through.
    pub(crate) fn let_through(self) -> Decisions {
        self.into_iter().map(Decision::let_through).collect()
    }

    /// Replaces the decisions on enforced charges with `enforced`, which was decided without the charges in shadow
    /// mode. If `enforced` allows the call, the charges in shadow mode are let through.
    pub(crate) fn with_enforced(self, enforced: Decisions) -> Decisions {
        let is_allowed = enforced.is_allowed();
        let mut enforced = enforced.into_iter();
        let replaced = |decision: Decision| match decision.is_enforced() {
            true => enforced.next().unwrap_or(decision),
            false if is_allowed => decision.let_through(),
            false => decision,
        };
        self.into_iter().map(replaced).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Iterates over the decisions in the order of the charges, with one decision for each quota of a charge.
    pub fn iter(&self) -> std::slice::Iter<'_, Decision> {
        self.0.iter()
    }

    /// Returns the decision at `index`.
    pub fn get(&self, index: usize) -> Option<&Decision> {
        self.0.get(index)
    }

    #[inline]
    pub(crate) fn of(number: usize, decision: impl FnMut(usize) -> Decision) -> Decisions {
        Decisions(List::of(number, decision))
    }

    pub(crate) fn by(self, decided_by: DecidedBy) -> Decisions {
        self.into_iter().map(|decision| decision.by(decided_by)).collect()
    }

    /// Converts the decisions on a call into the decisions on a check. Charges on the same row were decided in order,
    /// so the costs of a charge and of all earlier charges are subtracted from the row.
    pub(crate) fn uncharged(self) -> Decisions {
        if !self.is_allowed() {
            return self; // A denied call leaves its rows unchanged.
        }
        let tokens = |index: usize| {
            let last = self.0[index].of();
            let is_same = |other: &&Decision| {
                let other = other.of();
                (other.row_key, other.window, &other.policy) == (last.row_key, last.window, &last.policy)
            };
            let charged = self.0[..=index].iter().filter(is_same);
            charged.map(Decision::cost).fold(0, u64::saturating_add)
        };
        let tokens: SmallVec<[u64; 4]> = (0..self.0.len()).map(tokens).collect();
        self.into_iter().zip(tokens).map(|(decision, tokens)| decision.uncharged(tokens)).collect()
    }

    /// Reduces a check that has read several shards to one shard per charge: the one that can grant the charge soonest.
    pub(crate) fn by_best_shards(self) -> Decisions {
        if self.0.iter().all(|decision| decision.of().part.shard == 0) {
            return self;
        }
        let mut best: Vec<(Decision, ShardRows)> = Vec::new();
        for charge in self.charges() {
            let quotas = usize::from(charge[0].of().part.count);
            // A single shard must grant the charge under all of its quotas.
            let wait = |shard: &&[Decision]| shard.iter().map(|decision| decision.step().verdict.wait_order()).max();
            let Some(shard) = charge.chunks(quotas).min_by_key(wait) else { continue };
            for (i, decision) in shard.iter().enumerate() {
                let rows = charge.iter().skip(i).step_by(quotas);
                best.push((decision.clone(), rows.map(|read| (read.of().quota, read.step().state)).collect()));
            }
        }
        let all_granted = best.iter().all(|(decision, _)| decision.step().is_allowed());
        best.into_iter().map(|(decision, rows)| decision.with_shards(rows, all_granted)).collect()
    }

    pub(crate) fn only(&self) -> Option<&Decision> {
        if let [decision] = &self.0[..] { Some(decision) } else { None }
    }

    pub(crate) fn charges(&self) -> impl Iterator<Item = &[Decision]> {
        self.0.chunk_by(|_, next| !next.of().part.is_first())
    }

    pub(crate) fn binding(&self) -> impl Iterator<Item = &Decision> {
        self.charges().filter_map(binding)
    }

    /// The decision under the binding quota of the first charge.
    #[inline]
    pub(crate) fn into_binding(self) -> Option<Decision> {
        match &self.0[..] {
            [_, _, ..] => self.charges().next().and_then(binding).cloned(),
            _ => self.0.into_first(),
        }
    }

    /// Iterates over the decisions that [caused](Decision::is_violated) a denial.
    pub fn violated(&self) -> impl Iterator<Item = &Decision> {
        self.iter().filter(|decision| decision.is_violated())
    }

    /// The longest wait among the decisions that [caused](Decision::is_violated) a denial, even one that was let
    /// through. `None` if there is no denial or if the call can never succeed.
    pub fn retry_after(&self) -> Option<Duration> {
        let mut longest = None;
        for decision in self.violated() {
            longest = longest.max(Some(decision.retry_after()?));
        }
        longest
    }

    /// Returns the decision with the smallest share of its limit left, or `None` if there are no decisions.
    pub fn tightest(&self) -> Option<&Decision> {
        // Compare a / b with c / d without dividing by a limit of 0.
        self.iter().min_by(|one, other| {
            let product = |a: &Decision, b: &Decision| u128::from(a.remaining()) * u128::from(b.capacity());
            product(one, other).cmp(&product(other, one))
        })
    }

    /// The longest delay among the reservations, or zero if there are none.
    pub fn delay(&self) -> Duration {
        self.iter().map(Decision::delay).max().unwrap_or(Duration::ZERO)
    }

    /// Converts the decisions to a `Result`, like [`Decision::into_result`].
    ///
    /// # Errors
    /// Fails if the call was denied.
    pub fn into_result(self) -> Result<Allowed<Decisions>, Denied> {
        if self.is_allowed() { Ok(Allowed::new(self)) } else { Err(Denied::new(self)) }
    }
}

/// Returns the decision that matters most to the caller: the denial with the longest wait, or else the reservation that
/// is due last, or else the decision with the fewest remaining tokens.
fn binding(charge: &[Decision]) -> Option<&Decision> {
    let violated = charge.iter().filter(|decision| decision.is_violated());
    // A missing retry time means that the charge never fits.
    let longest = violated.max_by_key(|decision| decision.retry_after().unwrap_or(Duration::MAX));
    let latest =
        || charge.iter().filter(|decision| !decision.delay().is_zero()).max_by_key(|decision| decision.delay());
    longest.or_else(latest).or_else(|| charge.iter().min_by_key(|decision| decision.remaining()))
}

impl From<Decision> for Decisions {
    fn from(decision: Decision) -> Decisions {
        Decisions(List::One(decision))
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
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a Decisions {
    type Item = &'a Decision;
    type IntoIter = std::slice::Iter<'a, Decision>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// A denial as an error, as in [`LimitError::Denied`](crate::LimitError::Denied). With the `axum` feature, it converts
/// to a response: 429 with the headers and body of a layer's default refusal.
///
/// ```
/// # use tollgate::{clock::ManualClock, LimitError, MemoryBackend, Policy, Quota, RateLimiter, HOUR};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LimitError> {
/// # let limiter = RateLimiter::new(MemoryBackend::builder().clock(ManualClock::new()).build());
/// static LOGIN: Policy = Policy::new("login", Quota::token_bucket(1, HOUR));
///
/// limiter.limit(&LOGIN, "ada").await?;
/// let Err(LimitError::Denied(denied)) = limiter.limit(&LOGIN, "ada").await else {
///     panic!("the second call should be denied");
/// };
/// assert_eq!((denied.retry_after(), denied.retry_after_secs()), (Some(HOUR), Some(3600)));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Denied(Box<Decisions>);

impl Denied {
    pub(super) fn new(decisions: Decisions) -> Denied {
        Denied(Box::new(decisions))
    }

    /// All decisions on the call, including those on charges within their limits.
    pub fn decisions(&self) -> &Decisions {
        &self.0
    }

    /// Converts the error into all decisions on the call.
    pub fn into_decisions(self) -> Decisions {
        *self.0
    }

    /// How long to wait before the same call would succeed if nothing else is spent, or `None` if it never would.
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after()
    }

    /// [`retry_after`](Denied::retry_after) in whole seconds, rounded up, with a minimum of 1, as in the `Retry-After`
    /// header.
    pub fn retry_after_secs(&self) -> Option<u64> {
        self.retry_after().map(|wait| seconds_up(wait).max(1))
    }

    /// [`retry_after`](Denied::retry_after) in whole milliseconds, rounded up, with a minimum of 1.
    pub fn retry_after_millis(&self) -> Option<u64> {
        let millis = |wait: Duration| u64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        self.retry_after().map(|wait| millis(wait).max(1))
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Denied {}

impl fmt::Display for Decisions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_allowed() {
            return f.write_str("within all rate limits");
        }
        f.write_str("rate limit exceeded:")?;
        for (i, decision) in self.violated().enumerate() {
            write!(f, "{} {:?}", if i == 0 { "" } else { "," }, decision.name())?;
            match decision.reason() {
                Reason::CostTooLarge => {
                    write!(
                        f,
                        " cannot grant {} tokens at once ({} at most)",
                        decision.cost(),
                        decision.quota().ceiling()
                    )?;
                }
                Reason::CostAboveShard => {
                    let (quota, cost) = (decision.quota(), decision.cost());
                    let (shards, capacity) = (quota.get_shards(), quota.shard(0).get_capacity());
                    write!(
                        f,
                        " cannot grant {cost} tokens at once: each of its {shards} shards grants {capacity} at most"
                    )?;
                }
                Reason::WaitTooLong => {
                    write!(
                        f,
                        " can grant {} tokens only after a wait (at most {} without waiting): call `reserve()`, or \
                         allow a longer wait with `wait_up_to()`",
                        decision.cost(),
                        decision.capacity()
                    )?;
                }
                _ => {}
            }
        }
        match self.retry_after() {
            Some(wait) => write!(f, "; retry after {}s", seconds_up(wait).max(1)),
            None => f.write_str("; retrying will not help"),
        }
    }
}

/// Rounds up to whole seconds, because a client that retries too early would be refused again.
pub(crate) const fn seconds_up(duration: Duration) -> u64 {
    duration.as_secs().saturating_add((duration.subsec_nanos() > 0) as u64)
}
