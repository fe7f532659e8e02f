//! Regressions: mostly cases in which the script and the algebra disagreed.

use tollgate::algorithm::{Ask, ChargeRecord, Micros, State, settle, step};
use tollgate::backend::{Adjustment, Backend, RedisBackend, RowId, Take};
use tollgate::{HOUR, MINUTE, Policy, Quota, RateLimiter, SECOND, key::Digest, policy::PolicyName};

use super::rows::{self, or_none};
use super::set_clock::{SetClock, Window};
use crate::support::server::Server;

pub(crate) const NOW: Micros = Micros::new(1_700_000_000_000_000);

static POLICY: PolicyName = PolicyName::new("found");

static ROW: RowId<'_> = RowId { policy: &POLICY, key: Digest::from_bits(7) };

/// A row on a dedicated server, and the row's state according to the algebra.
pub(crate) struct Row {
    _server: Server,
    clock: SetClock,
    backend: RedisBackend,
    window: Window,
    pub(crate) model: State,
    now: Micros,
}

impl Row {
    pub(crate) async fn at(now: Micros) -> Row {
        let server = Server::start();
        let clock = SetClock::on(&server).await;
        clock.set(now);
        let (backend, window) = (clock.backend(), Window::to(&server));
        Row { _server: server, clock, backend, window, model: State::default(), now }
    }

    pub(crate) fn later(&mut self, now: Micros) {
        self.now = now;
        self.clock.set(now);
    }

    pub(crate) async fn take(&mut self, quota: &Quota, ask: Ask) -> Option<ChargeRecord> {
        let take = Take::new(ROW, quota, ask);
        let answer = self.backend.acquire(&[take]).await.unwrap()[0];
        let expected = step(&take.quota, &self.model, self.now, ask);
        assert_eq!((answer.verdict, answer.now), (expected.verdict, expected.now));
        assert_eq!(rows::bytes(&answer.state), rows::bytes(&expected.state));
        if answer.is_allowed() {
            self.model = or_none(expected.state);
        }
        self.compare();
        ChargeRecord::new(ask.tokens(), &answer)
    }

    pub(crate) async fn settle(&mut self, quota: &Quota, receipt: ChargeRecord, actual: u64) {
        let quota = Take::new(ROW, quota, Ask::cost(0)).quota;
        self.backend.settle(&[Adjustment { row: ROW, window: 0, quota, receipt, actual }]).await.unwrap();
        self.model = or_none(settle(&quota, &self.model, &receipt, self.now, actual));
        self.compare();
    }

    fn compare(&mut self) {
        let stored = self.window.rows(&[self.backend.row_key(ROW.policy, ROW.key)]);
        let stored = stored[0].as_deref().map_or(State::default(), |bytes| rows::row(bytes).0);
        assert_eq!(stored, self.model);
    }
}

/// Regression: the script first converted the row to the new quota, and only then compared the receipt's stamp with the
/// row's stamp.
#[tokio::test]
async fn a_refund_is_forfeited_after_another_tier_writes_the_row() {
    let (small, large) = (Quota::token_bucket(10, HOUR), Quota::token_bucket(20, HOUR));
    let mut row = Row::at(NOW).await;
    let receipt = row.take(&small, Ask::cost(4)).await.unwrap();
    row.take(&large, Ask::cost(1)).await;
    row.settle(&small, receipt, 0).await;
    assert_eq!(row.model.spent, 5.0);
}

/// Regression: during a rolling deployment, two quotas alternated. Each change capped the spent tokens at the new
/// capacity, so 56,519 requests were admitted in a minute.
#[tokio::test]
async fn alternating_quotas_admit_no_more_than_the_larger_quota() {
    let quotas = [Quota::token_bucket(60, MINUTE), Quota::token_bucket(1000, MINUTE)];
    let mut row = Row::at(NOW).await;
    let mut admitted = 0;
    for second in 0..60 {
        row.later(NOW + second * SECOND);
        let quota = &quotas[second as usize % 2];
        for cost in [512, 256, 128, 64, 32, 16, 8, 4, 2, 1, 1] {
            while row.take(quota, Ask::cost(cost)).await.is_some() {
                admitted += cost;
            }
        }
    }
    assert!(admitted <= 2000 + 1000, "{admitted} tokens were granted");
    assert!(admitted >= 1900, "only {admitted} tokens were granted");
}

/// Regression: the actual cost was rounded to a double before the charged cost was subtracted from it.
#[tokio::test]
async fn a_settlement_too_large_for_a_double_is_exact() {
    let quota = Quota::token_bucket(10, HOUR);
    let mut row = Row::at(NOW).await;
    let receipt = row.take(&quota, Ask::cost(1)).await.unwrap();
    row.later(NOW + HOUR);
    row.settle(&quota, receipt, u64::MAX).await;
}

/// Regression: the script granted reservations beyond the last representable instant.
#[tokio::test]
async fn a_reservation_too_many_windows_away_is_denied() {
    let quota = Quota::fixed_window(1, Quota::MAX_PERIOD).unlimited_reservations().start(HOUR);
    let mut row = Row::at(Micros::EPOCH).await;
    assert!(row.take(&quota, Ask::cost(3).reserve()).await.is_some());
    assert!(row.take(&quota, Ask::cost(1).reserve()).await.is_none());
}

/// Regression: the sum of an instant and a period was too large for a double to represent exactly.
#[tokio::test]
async fn windows_are_exact_up_to_the_last_instant() {
    for quota in
        [Quota::sliding_window(5, MINUTE), Quota::fixed_window(5, MINUTE), Quota::sliding_window(5, 7 * SECOND)]
    {
        for before in 1..4 {
            let mut row = Row::at(Micros::new(Micros::MAX.get() - 100 - before)).await;
            row.take(&quota.start(std::time::Duration::from_micros(1)), Ask::cost(3)).await;
            row.later(Micros::new(Micros::MAX.get() - before));
            row.take(&quota.start(std::time::Duration::from_micros(1)), Ask::cost(2)).await;
        }
    }
}

/// Regression: a call was denied if the caller had not awaited the preceding refund. With two script calls in flight,
/// the second sometimes reached the server first.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_refund_is_available_to_the_next_call() {
    static ONE: Policy = Policy::new("one", Quota::token_bucket(1, HOUR));
    let server = Server::start();
    let limiter = RateLimiter::builder(server.backend().await).block_cache(0).build();
    for i in 0..20_000 {
        let held = limiter.acquire(&ONE, "ada").hold().await;
        drop(held.unwrap_or_else(|error| panic!("attempt {i}: {error}")));
    }
}
