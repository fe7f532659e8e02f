//! The lease logic for one window of a row. It performs no I/O and reads no clock.

use std::time::Duration;

use crate::algorithm::{Ask, Lease, LeaseId, LeaseReport, Micros, Quota, State, Step, Verdict, roll, step};

/// The leases that this process holds on one window of a row.
#[derive(Debug)]
pub(super) struct Holder {
    pub(super) quota: Quota,
    /// The older lease is spent first.
    held: [Option<HeldLease>; 2],
    row: Option<KnownRow>,
    demand: Demand,
    /// The number of tokens that were held after the last grant.
    full: u64,
    pub(super) is_asking: bool,
    asked: u64,
    /// Whether the backend granted less than a quarter of the tokens that were last requested.
    is_short: bool,
    /// Until this time, the backend is not asked again, because it had only a few tokens left.
    paused_until: Micros,
    /// Changes with each report. A charge can be refunded to a lease only until the charge has been reported.
    pub(super) sequence: u32,
    pub(super) used: Micros,
}

#[derive(Clone, Copy, Debug)]
struct HeldLease {
    id: LeaseId,
    tokens: u64,
    /// The number of tokens that have been spent but not yet reported.
    spent: u64,
    deadline: Micros,
}

/// The row from the last answer. `seen` is when the server read the row, on its clock. `answered` is when the answer
/// arrived, on the local clock.
#[derive(Clone, Copy, Debug)]
struct KnownRow {
    state: State,
    seen: Micros,
    answered: Micros,
}

/// An estimate of the number of tokens requested per second.
#[derive(Clone, Copy, Debug)]
struct Demand {
    tokens: u64,
    since: Micros,
    per_second: f64,
}

/// How long the tokens of a lease should last.
const REFRESH: Duration = Duration::from_millis(500);

/// The period over which demand is measured.
const MEASURED: Duration = Duration::from_millis(100);

/// Because clocks may drift apart, this process stops using a lease when 1/100 of the lease's lifetime is left.
const DRIFT_DIVISOR: u32 = 100;

/// The longest pause after the backend has granted few tokens or none. Without pauses, a process would contact the
/// backend for every refilled token.
const MAX_PAUSE: Duration = Duration::from_millis(100);

impl Holder {
    pub(super) fn new(quota: Quota, sequence: u32, now: Micros) -> Holder {
        let demand = Demand { tokens: 0, since: now, per_second: 0.0 };
        Holder {
            quota,
            held: [None; 2],
            row: None,
            demand,
            full: 0,
            is_asking: false,
            asked: 0,
            is_short: false,
            paused_until: now,
            sequence,
            used: now,
        }
    }

    /// Records a request for `cost` tokens, whether or not they are granted.
    #[inline]
    pub(super) fn demand(&mut self, cost: u64, now: Micros) {
        self.used = now;
        self.demand.add(cost, now);
    }

    /// Returns the number of tokens that can be spent without asking the backend.
    #[inline]
    pub(super) fn tokens(&self, now: Micros) -> u64 {
        self.held.iter().flatten().filter(|lease| now < lease.deadline).map(|lease| lease.tokens).sum()
    }

    /// Returns whether the leases cover a charge. Even a charge with a cost of 0 needs a lease that has tokens left.
    #[inline]
    pub(super) fn covers(&self, cost: u64, now: Micros) -> bool {
        self.row.is_some() && self.tokens(now) >= cost.max(1)
    }

    /// Spends tokens from the leases. Returns whether there were enough.
    #[inline]
    pub(super) fn spend(&mut self, cost: u64, now: Micros) -> bool {
        if !self.covers(cost, now) {
            return false;
        }
        let mut rest = cost;
        for lease in self.held.iter_mut().flatten().filter(|lease| now < lease.deadline) {
            let spent = lease.tokens.min(rest);
            lease.tokens -= spent;
            lease.spent += spent;
            rest -= spent;
        }
        true
    }

    /// Gives a charge's tokens back to the leases. Returns `false` if the charge has been reported.
    pub(super) fn refund(&mut self, tokens: u64, sequence: u32, now: Micros) -> bool {
        let spent: u64 = self.held.iter().flatten().map(|lease| lease.spent).sum();
        if sequence != self.sequence || spent < tokens {
            return false;
        }
        let mut rest = tokens;
        for lease in self.held.iter_mut().rev().flatten() {
            let given = lease.spent.min(rest);
            lease.spent -= given;
            // Tokens that are given back to an ended lease are lost.
            lease.tokens += if now < lease.deadline { given } else { 0 };
            rest -= given;
        }
        true
    }

    /// Returns whether so few tokens are left that another lease should be requested.
    #[inline]
    pub(super) fn is_low(&self, now: Micros) -> bool {
        !self.is_asking && !self.is_paused(now) && self.tokens(now) <= self.full / 4
    }

    /// Returns whether the backend has recently granted only a few of the tokens that this process needs.
    #[inline]
    pub(super) fn is_paused(&self, now: Micros) -> bool {
        now < self.paused_until
    }

    /// Returns the number of tokens to request, or 0 if a lease would not save any requests to the backend.
    pub(super) fn wanted(&self) -> u64 {
        let tokens = (self.demand.per_second * REFRESH.as_secs_f64()) as u64;
        if tokens < 2 { 0 } else { tokens.min(self.quota.get_capacity() / 2) }
    }

    /// Prepares a request for the next lease, unless a request is already in flight or no tokens are wanted.
    pub(super) fn ask(&mut self, sequence: u32, now: Micros) -> Option<([LeaseReport; 2], u64)> {
        let tokens = self.wanted();
        if self.is_asking || tokens == 0 {
            return None;
        }
        (self.is_asking, self.asked) = (true, tokens);
        if self.is_short {
            // Until the answer arrives, the backend probably has no tokens for other calls.
            self.paused_until = now + self.pause(now);
        }
        Some((self.report(false, sequence, now), tokens))
    }

    /// Returns the duration of a pause, which varies so that processes do not always ask in the same order.
    pub(super) fn pause(&self, now: Micros) -> Duration {
        if self.wanted() < 2 {
            return Duration::ZERO;
        }
        let part = now.get().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 57;
        MAX_PAUSE.min(Duration::from_micros(self.quota.fill_micros() / 8)) * (128 + part as u32) / 256
    }

    /// Returns whether there are no tokens to give back or to report.
    pub(super) fn is_empty(&self) -> bool {
        self.held.iter().flatten().all(|lease| lease.tokens + lease.spent == 0)
    }

    /// Creates the reports to send with a request. The unused tokens of a lease are given back if `all` is true, if the
    /// lease has expired, or if there is a newer lease. In the last case, this makes room for another lease.
    pub(super) fn report(&mut self, all: bool, sequence: u32, now: Micros) -> [LeaseReport; 2] {
        let (mut reports, is_full) = ([LeaseReport::default(); 2], self.held.iter().all(Option::is_some));
        for (i, (report, held)) in reports.iter_mut().zip(&mut self.held).enumerate() {
            let Some(lease) = held else { continue };
            let gives_back = all || is_full && i == 0 || now >= lease.deadline;
            let unused = if gives_back { lease.tokens } else { 0 };
            *report = LeaseReport { id: lease.id, spent: lease.spent, unused };
            (lease.spent, lease.tokens) = (0, lease.tokens - unused);
            if lease.tokens == 0 {
                *held = None;
            }
        }
        if self.held[0].is_none() {
            self.held.swap(0, 1);
        }
        self.sequence = sequence;
        reports
    }

    /// Adds a lease requested at `sent`. If no slot is free, returns a report that gives the lease back.
    pub(super) fn granted(&mut self, lease: &Lease, sent: Micros, now: Micros) -> Option<LeaseReport> {
        self.row = Some(KnownRow { state: lease.state, seen: lease.now, answered: now });
        self.is_short = lease.tokens < self.asked / 4;
        self.paused_until = if self.is_short { sent + self.pause(now) } else { sent };
        let deadline = sent + lease.life.saturating_sub(lease.life / DRIFT_DIVISOR);
        if lease.tokens == 0 {
            return None;
        }
        let same = self.held.iter_mut().flatten().find(|held| held.id == lease.id);
        if let Some(held) = same {
            // Leases with the same ID belong to the same generation, so they end together.
            (held.tokens, held.deadline) = (held.tokens + lease.tokens, held.deadline.max(deadline));
        } else if let Some(free) = self.held.iter_mut().find(|held| held.is_none()) {
            *free = Some(HeldLease { id: lease.id, tokens: lease.tokens, spent: 0, deadline });
        } else {
            return Some(LeaseReport { id: lease.id, spent: 0, unused: lease.tokens });
        }
        self.full = self.tokens(now);
        None
    }

    /// Returns the denial for a charge during a pause.
    pub(super) fn denial(&self, ask: Ask, now: Micros) -> Option<Step> {
        let estimated = self.step(now)?;
        let (pause, decided) = (self.paused_until.since(now), step(&self.quota, &estimated.state, estimated.now, ask));
        let retry = match decided.verdict {
            Verdict::Deny { retry } => retry?.max(pause),
            _ => pause,
        };
        Some(Step { verdict: Verdict::Deny { retry: Some(retry) }, ..estimated })
    }

    /// Estimates the step for a charge that the leases covered, based on the row in the last answer. Tokens that are
    /// still held count as unspent.
    #[inline]
    pub(super) fn step(&self, now: Micros) -> Option<Step> {
        let KnownRow { state, seen, answered } = self.row?;
        let server = seen.plus(now.micros_since(answered));
        let row = roll(&self.quota, &state, server);
        let spent = (row.spent - self.tokens(now) as f64).max(0.0);
        Some(Step { verdict: Verdict::Allow, state: State { spent, ..row }, now: server })
    }
}

impl Demand {
    #[inline]
    fn add(&mut self, cost: u64, now: Micros) {
        self.tokens = self.tokens.saturating_add(cost);
        let elapsed = now.since(self.since);
        if elapsed >= MEASURED {
            let measured = self.tokens as f64 / elapsed.as_secs_f64();
            let smoothed = (self.per_second + measured) / 2.0;
            self.per_second = if self.per_second == 0.0 { measured } else { smoothed };
            (self.tokens, self.since) = (0, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::{LEASE_LIFE, Outstanding, SECOND, lease};

    const NOW: Micros = Micros::new(5_000_000_000);
    const SERVER: Micros = Micros::new(1_700_000_000_000_000);
    const QUOTA: Quota = Quota::token_bucket(100, SECOND).capacity(200);

    fn leased(tokens: u64) -> (Holder, Lease) {
        let answer = lease(&QUOTA, &State::default(), &Outstanding::default(), SERVER, &[], tokens);
        let mut holder = Holder::new(QUOTA, 1, NOW);
        assert_eq!(holder.granted(&answer, NOW, NOW + SECOND / 10), None);
        (holder, answer)
    }

    #[test]
    fn a_lease_can_be_spent_until_its_deadline() {
        let (mut holder, _) = leased(10);
        assert!(holder.spend(4, NOW));
        assert!(!holder.spend(7, NOW));
        let deadline = NOW + (2 * LEASE_LIFE - 2 * LEASE_LIFE / DRIFT_DIVISOR);
        assert!(holder.spend(1, Micros::new(deadline.get() - 1)));
        assert!(!holder.spend(1, deadline));
    }

    #[test]
    fn a_reported_charge_cannot_be_refunded_to_its_lease() {
        let (mut holder, answer) = leased(10);
        assert!(holder.spend(8, NOW) && holder.refund(3, 1, NOW));
        assert_eq!(holder.tokens(NOW), 5);
        let report = LeaseReport { id: answer.id, spent: 5, unused: 0 };
        assert_eq!(holder.report(false, 2, NOW), [report, LeaseReport::default()]);
        assert!(!holder.refund(1, 1, NOW) && !holder.refund(1, 2, NOW));
        assert_eq!(holder.tokens(NOW), 5);
    }

    #[test]
    fn tokens_are_reported_or_given_back_only_once() {
        let (mut holder, answer) = leased(10);
        assert!(holder.spend(8, NOW));
        let report = LeaseReport { id: answer.id, spent: 8, unused: 2 };
        assert_eq!(holder.report(true, 2, NOW), [report, LeaseReport::default()]);
        assert_eq!(holder.report(true, 3, NOW), [LeaseReport::default(); 2]);
        assert!(holder.is_empty() && holder.tokens(NOW) == 0);
    }

    /// Regression: a grant was compared with the demand at its arrival rather than with the number of requested tokens.
    /// After a surge in demand, calls were denied for up to 100 ms although most of the row's tokens were available.
    #[test]
    fn a_full_grant_causes_no_pause_after_a_surge_in_demand() {
        let mut holder = Holder::new(QUOTA, 1, NOW);
        (0..=10).for_each(|i| holder.demand(1, NOW + i * (SECOND / 25)));
        let (_, asked) = holder.ask(2, NOW + 2 * SECOND / 5).unwrap();
        let grant = |tokens| lease(&QUOTA, &State::default(), &Outstanding::default(), SERVER, &[], tokens);
        (0..=100).for_each(|i| holder.demand(4, NOW + 2 * SECOND / 5 + i * (SECOND / 500)));
        let now = NOW + SECOND;
        assert!(holder.wanted() >= 4 * asked, "{} {asked}", holder.wanted());
        assert_eq!(holder.granted(&grant(asked), now, now), None);
        assert!(!holder.is_paused(now));
        assert_eq!(holder.granted(&grant(asked / 5), now, now), None);
        assert!(holder.is_paused(now));
    }

    #[test]
    fn the_size_of_a_lease_follows_the_demand() {
        let mut holder = Holder::new(QUOTA, 1, NOW);
        assert_eq!((holder.wanted(), holder.pause(NOW)), (0, Duration::ZERO));
        (0..=20).for_each(|i| holder.demand(1, NOW + i * (SECOND / 100)));
        assert!((40..=60).contains(&holder.wanted()), "{}", holder.wanted());
        assert!((MAX_PAUSE / 2..=MAX_PAUSE).contains(&holder.pause(NOW)));
        holder.demand(1, NOW + 60 * SECOND);
        assert!((20..=30).contains(&holder.wanted()), "{}", holder.wanted());
    }
}
