//! Snapshots of rows, from which later decisions can be computed.

use smallvec::SmallVec;

use crate::algorithm::{Algorithm, Ask, Micros, Quota, State, Step, Verdict};
use crate::algorithm::{available, is_foreign, roll, roll_if_own, step, writer};
use crate::policy::{Decision, PolicyName, Reason};

/// A copy of a row, with its quota and the instant at which the row was read.
///
/// ```
/// use tollgate::algorithm::{Ask, Verdict};
/// use tollgate::{Policy, Quota, RateLimiter, MINUTE, SECOND};
/// static API: Policy = Policy::new("api", Quota::token_bucket(10, MINUTE));
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::LimitError> {
/// let limiter = RateLimiter::default();
/// limiter.acquire(&API, "ada").cost(10).await?;
/// let snapshots = limiter.snapshot(&API, "ada").await?; // one for each of the policy's quotas
/// let snapshot = &snapshots[0];
/// assert_eq!(snapshot.available(snapshot.now()), 0);
/// assert_eq!(snapshot.available(snapshot.now() + MINUTE / 2), 5);
///
/// // Compute how long to wait for three tokens.
/// let later = snapshot.project(snapshot.state().at, Ask::cost(3));
/// assert_eq!(later.verdict, Verdict::Deny { retry: Some(18 * SECOND) });
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    policy: PolicyName,
    name: String,
    quota: Quota,
    /// There are several rows only if the quota has shards.
    rows: SmallVec<[(Quota, State); 1]>,
    now: Micros,
    not_before: Option<Micros>,
}

impl Snapshot {
    pub(crate) fn of(decision: &Decision) -> Snapshot {
        let (quota, now) = (decision.quota(), decision.step().now);
        let not_before = match decision.reason() {
            Reason::DenyList => Some(Micros::MAX),
            Reason::Blocked => decision.retry_after().map(|retry| now + retry),
            _ => None,
        };
        Snapshot {
            policy: decision.policy().clone(),
            name: decision.name().into_owned(),
            quota,
            rows: decision.rows().map(|(quota, state)| (*quota, refilled(quota, state, now))).collect(),
            now,
            not_before,
        }
    }

    /// Returns the policy's name.
    pub const fn policy(&self) -> &PolicyName {
        &self.policy
    }

    /// Returns the name of the limit, as [`Decision::name`] does.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the quota, with this key's window boundaries.
    pub const fn quota(&self) -> &Quota {
        &self.quota
    }

    /// Returns the state of the first [row](Snapshot::rows). If the caller is blocked or on a deny list, the row is
    /// reported as fully spent without being read.
    pub fn state(&self) -> &State {
        &self.rows[0].1
    }

    /// Returns each row that was read, with its quota. Only a quota with [shards](Quota::shards) has several rows.
    pub fn rows(&self) -> &[(Quota, State)] {
        &self.rows
    }

    /// Returns the instant at which the row was read, by the backend's clock.
    pub const fn now(&self) -> Micros {
        self.now
    }

    /// Returns the instant at which the caller's [block](crate::protection::AutoBlock) or
    /// [pause](crate::RateLimiter::pause) ends, [`Micros::MAX`] if the caller is on a [deny
    /// list](crate::protection::DenyList), or `None` otherwise.
    pub const fn not_before(&self) -> Option<Micros> {
        self.not_before
    }

    /// Returns the number of whole tokens that can be spent at `instant`, if no tokens are spent until then. If the
    /// quota has [shards](Quota::shards), this is the total of all shards, although each charge can spend tokens from
    /// only one shard. The total is an estimate if only a
    /// [sample](crate::limiter::RateLimiterBuilder::sample_shards) of the shards was read.
    pub fn available(&self, instant: Micros) -> u64 {
        if self.not_before.is_some_and(|until| instant < until) {
            return 0;
        }
        let tokens = self.rows.iter().map(|(quota, state)| available(quota, &roll(quota, state, instant), instant));
        self.rows.first().map_or(0, |(quota, _)| quota.across_shards(tokens.sum(), self.rows.len()))
    }

    /// Returns the answer to `ask` at `instant`, if nothing is spent until then. If the quota has
    /// [shards](Quota::shards), this is the answer from the shard that can grant `ask` first.
    pub fn project(&self, instant: Micros, ask: Ask) -> Step {
        let steps = self.rows.iter().map(|(quota, state)| self.project_row(quota, state, instant, ask));
        let denied = Step { verdict: Verdict::Deny { retry: None }, state: State::default(), now: instant };
        steps.min_by_key(|step| step.verdict.wait_order()).unwrap_or(denied)
    }

    fn project_row(&self, quota: &Quota, state: &State, instant: Micros, ask: Ask) -> Step {
        let Some(until) = self.not_before.filter(|until| instant < *until) else {
            return step(quota, state, instant, ask);
        };
        let fits = match step(quota, state, until, ask).verdict {
            Verdict::Deny { retry } => retry.map(|retry| until + retry),
            _ => Some(until),
        };
        let retry = fits.filter(|_| until < Micros::MAX).map(|fits| fits.since(instant));
        Step { verdict: Verdict::Deny { retry }, state: roll_if_own(quota, state, instant), now: instant }
    }

    /// Returns JSON from which clients can compute later answers, in the format that `tollgate::status` serves.
    ///
    /// ```json
    /// {"policy":"chat","algorithm":"token_bucket","rate":10,"period":60000000,"capacity":20,"start":0,
    ///  "max_reserved":0,"spent":3.5,"previous":0,"ts":1767225600000000,"now":1767225600123456}
    /// ```
    ///
    /// Durations are in whole microseconds, and instants are in microseconds since the Unix epoch. Every number can be
    /// represented exactly as an `f64`.
    /// - `algorithm`: `token_bucket`, `fixed_window` or `sliding_window`, with `rate` tokens per `period`.
    /// - `capacity`: [`Quota::get_capacity`]. `max_reserved`: [`Quota::get_max_reserved`], `null` if unlimited.
    /// - `start`: the offset of window boundaries, modulo `period`; 0 for a bucket.
    /// - `spent` and `ts`: [`State::spent`] and [`State::at`]. `spent` still includes tokens refilled after `ts`.
    /// - `previous`: the count of the previous window ([`State::carry`]) for a sliding window, otherwise 0.
    /// - `now` and `not_before`: [`now`](Snapshot::now), and [`not_before`](Snapshot::not_before) if it is not `None`.
    /// - `clear` and `written_by`: [`State::clear`] and the algorithm of the quota that wrote the row. They are present
    ///   only if that was another quota and some of the tokens spent under it still count. If so, `previous` also
    ///   belongs to that quota.
    /// - `shards` and `rows`: the number of shards and a list of the shards that were read. They are present only if
    ///   the quota has [shards](Quota::shards), in which case the outer object has no row fields. Each item of the list
    ///   has its own `rate`, `capacity` and `max_reserved`, and the fields of its row (`spent`, `previous`, `ts`, and
    ///   possibly `clear` and `written_by`).
    pub fn to_json(&self) -> String {
        let Snapshot { name, quota, rows, now, not_before, .. } = self;
        let algorithm = quota.algorithm().name();
        let start = if quota.algorithm().has_windows() { quota.start_micros() } else { 0 };
        // Names are printable ASCII, for which Rust and JSON use the same escapes.
        let mut json = format!(
            r#"{{"policy":{:?},"algorithm":"{algorithm}","rate":{},"period":{},"capacity":{},"start":{start},"#,
            name,
            quota.rate(),
            quota.period_micros(),
            quota.get_capacity(),
        );
        json += &format!(r#""max_reserved":{},"#, max_reserved(quota));
        match &rows[..] {
            [(only, state)] if only.shard_index().is_none() => {
                let (numbers, foreign) = row(only, state, *now);
                json += &format!(r#"{numbers},"now":{}{foreign}"#, now.get());
            }
            rows => {
                let rows: Vec<String> = rows.iter().map(|(quota, state)| shard(quota, state, *now)).collect();
                let (shards, rows) = (quota.get_shards(), rows.join(","));
                json += &format!(r#""shards":{shards},"rows":[{rows}],"now":{}"#, now.get());
            }
        }
        if let Some(until) = not_before {
            json += &format!(r#","not_before":{}"#, until.get());
        }
        json + "}"
    }
}

/// Drops tokens that were spent under another quota and have been refilled since.
fn refilled(quota: &Quota, state: &State, now: Micros) -> State {
    if state.stamp == quota.stamp() { *state } else { roll_if_own(quota, state, now) }
}

fn shard(quota: &Quota, state: &State, now: Micros) -> String {
    let (rate, capacity, max_reserved) = (quota.rate(), quota.get_capacity(), max_reserved(quota));
    let (numbers, foreign) = row(quota, state, now);
    format!(r#"{{"rate":{rate},"capacity":{capacity},"max_reserved":{max_reserved},{numbers}{foreign}}}"#)
}

fn max_reserved(quota: &Quota) -> String {
    quota.get_max_reserved().map_or("null".to_owned(), |tokens| tokens.to_string())
}

/// Returns the fields that every row has, and the additional fields of a row that another quota wrote.
fn row(quota: &Quota, state: &State, now: Micros) -> (String, String) {
    let writer = if is_foreign(quota, state, now) { writer(state) } else { None };
    // Clients need the carry only for algorithms that use it as a count.
    let counts = writer.unwrap_or(quota.algorithm()).carries_a_count();
    let previous = if counts { state.carry } else { 0.0 };
    // Rust writes the shortest decimal number that parses to the same value.
    let numbers = format!(r#""spent":{},"previous":{previous},"ts":{}"#, state.spent, state.at.get());
    let foreign = |writer: Algorithm| format!(r#","clear":{},"written_by":"{}""#, state.clear.get(), writer.name());
    (numbers, writer.map_or(String::new(), foreign))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::MINUTE;

    /// This crate's backends write whole tokens, but other backends may write fractions.
    #[test]
    fn fractions_of_tokens_are_exact_in_json() {
        let quota = Quota::sliding_window(10, MINUTE);
        let mut bits = 0x9e37_79b9_7f4a_7c15_u64;
        let mut numbers = vec![0.0, 0.1 + 0.2, 3.5, 1e-6, f64::MIN_POSITIVE, 5e-324, 9_007_199_254_740_991.0, 1e15];
        for _ in 0..100_000 {
            bits ^= bits << 13;
            bits ^= bits >> 7;
            bits ^= bits << 17;
            // The numbers range from 2^-21 to 2^53 and have arbitrary mantissas.
            numbers.push(f64::from_bits((1002 + bits % 74) << 52 | bits >> 12));
        }
        for number in numbers {
            let state = State { spent: number, carry: number, ..State::default() };
            let now = Micros::MAX;
            let (policy, name) = (PolicyName::new("p"), "p".to_owned());
            let snapshot =
                Snapshot { policy, name, quota, rows: SmallVec::from_iter([(quota, state)]), now, not_before: None };
            let json = snapshot.to_json();
            for name in ["\"spent\":", "\"previous\":"] {
                let text = json.split_once(name).expect("a field").1.split(',').next().expect("a value");
                assert_eq!(text.parse::<f64>().map(f64::to_bits), Ok(number.to_bits()), "{text}");
                assert!(text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') && !text.ends_with('.'));
            }
        }
    }
}
