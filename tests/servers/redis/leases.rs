//! Leases on a real server. The script and the algebra must compute the same decisions, leases and rows, bit for bit.

use std::time::Duration;

use tollgate::algorithm::{
    Ask, ChargeRecord, Lease, LeaseReport, Micros, Outstanding, State, lease, settle, settle_leases, stamp, step,
};
use tollgate::backend::{
    Adjustment, Backend, BackendFuture, LeaseBackend, LeaseRequest, RedisBackend, RowId, Steps, Take,
};
use tollgate::{Quota, key::Digest, policy::PolicyName};

use super::rows::{bytes, or_none};
use super::set_clock::{SetClock, Window};
use crate::support::random::Random;
use crate::support::server::Server;

const BEGIN: Micros = Micros::new(1_700_000_000_000_000);
const ROWS: usize = 3;

static POLICY: PolicyName = PolicyName::new("leased");

fn id(row: usize) -> RowId<'static> {
    RowId { policy: &POLICY, key: Digest::from_bits(row as u128 + 1) }
}

enum Sent {
    Steps(bool, BackendFuture<Steps>),
    Settled(BackendFuture<bool>),
    Reset(BackendFuture<usize>),
    Lease(usize, Lease, BackendFuture<Lease>),
}

struct History {
    backend: RedisBackend,
    quotas: [Quota; ROWS],
    model: [(State, Outstanding); ROWS],
    granted: Vec<(usize, Lease)>,
    receipts: Vec<(usize, Quota, ChargeRecord)>,
    random: Random,
    now: Micros,
}

impl History {
    /// Returns a row's quota or, sometimes, another row's quota.
    fn quota(&mut self, row: usize) -> Quota {
        let other = usize::from(self.random.below(6) == 0);
        Take::new(id(row), &self.quotas[(row + other) % ROWS], Ask::cost(0)).quota
    }

    fn settled(&mut self, row: usize, quota: &Quota) -> (State, Outstanding) {
        settle_leases(quota, &self.model[row].0, &self.model[row].1, self.now)
    }

    fn send(&mut self) -> Sent {
        let row = self.random.below(ROWS as u64) as usize;
        let quota = self.quota(row);
        match self.random.below(16) {
            0..=6 => self.lease(row, quota),
            7..=11 => self.take(row, quota),
            12 | 13 if !self.receipts.is_empty() => self.settle(),
            14 if self.random.below(3) == 0 => {
                self.model[row] = Default::default();
                Sent::Reset(self.backend.reset(&[id(row)]))
            }
            _ => self.credit(row, quota),
        }
    }

    fn lease(&mut self, row: usize, quota: Quota) -> Sent {
        let mut reports = [LeaseReport::default(); 2];
        for report in &mut reports {
            let of_row: Vec<Lease> =
                self.granted.iter().rev().filter(|it| it.0 == row).take(4).map(|it| it.1).collect();
            if !of_row.is_empty() {
                let lease = of_row[self.random.below(of_row.len() as u64) as usize];
                let spent = self.random.below(lease.tokens + 1);
                *report = LeaseReport { id: lease.id, spent, unused: self.random.below(lease.tokens - spent + 1) };
            }
        }
        let tokens = self.random.below(2 * quota.get_capacity() + 2);
        let request = LeaseRequest { row: id(row), window: 0, quota, reports, tokens };
        let (state, outstanding) = self.model[row];
        let expected = lease(&quota, &state, &outstanding, self.now, &reports, tokens);
        self.model[row] = (or_none(expected.state), expected.outstanding);
        if expected.tokens > 0 {
            self.granted.push((row, expected));
        }
        Sent::Lease(row, expected, self.backend.lease(&request))
    }

    fn take(&mut self, row: usize, quota: Quota) -> Sent {
        let ask = Ask::cost(self.random.below(quota.get_capacity() + 2));
        let ask = if self.random.below(3) == 0 { ask.reserve() } else { ask };
        let (state, outstanding) = self.settled(row, &quota);
        let step = step(&quota, &state, self.now, ask);
        let store = self.random.below(4) > 0;
        // A charge of 0 does not change a row that was written under another quota.
        if step.is_allowed() && store && step.state.stamp == stamp(&quota) {
            self.model[row] = (or_none(step.state), outstanding);
        }
        if let Some(receipt) = ChargeRecord::new(ask.tokens(), &step).filter(|_| store) {
            self.receipts.push((row, quota, receipt));
        }
        let take = [Take::new(id(row), &quota, ask)];
        let answer = if store { self.backend.acquire(&take) } else { self.backend.peek(&take) };
        Sent::Steps(step.is_allowed(), answer)
    }

    fn settle(&mut self) -> Sent {
        let i = self.random.below(self.receipts.len() as u64) as usize;
        let (row, quota, receipt) = self.receipts[i];
        self.adjust(row, quota, receipt, [0, receipt.cost / 2, receipt.cost + 3][i % 3])
    }

    fn credit(&mut self, row: usize, quota: Quota) -> Sent {
        let receipt = ChargeRecord::credit(1 + self.random.below(quota.get_capacity()));
        self.adjust(row, quota, receipt, 0)
    }

    fn adjust(&mut self, row: usize, quota: Quota, receipt: ChargeRecord, actual: u64) -> Sent {
        let (state, outstanding) = self.settled(row, &quota);
        let settled = settle(&quota, &state, &receipt, self.now, actual);
        let is_own = settled.stamp == stamp(&quota);
        let floored = if is_own { settle_leases(&quota, &settled, &outstanding, self.now).0 } else { settled };
        if is_own || settled != state {
            self.model[row] = (or_none(floored), outstanding);
        }
        Sent::Settled(self.backend.settle(&[Adjustment { row: id(row), window: 0, quota, receipt, actual }]))
    }
}

async fn compare(sent: Vec<Sent>, context: &str) {
    for sent in sent {
        match sent {
            Sent::Steps(expected, steps) => assert_eq!(steps.await.unwrap().all_granted(), expected, "{context}"),
            Sent::Settled(settled) => _ = settled.await.unwrap(),
            Sent::Reset(found) => _ = found.await.unwrap(),
            Sent::Lease(row, expected, lease) => assert_eq!(lease.await.unwrap(), expected, "{context}, row {row}"),
        }
    }
}

fn quota(random: &mut Random) -> Quota {
    let period = Duration::from_millis([9, 250, 1000, 1700, 60_000][random.below(5) as usize]);
    let rate = 1 + random.below(120);
    let quota = match random.below(3) {
        0 => Quota::token_bucket(rate, period).capacity(3 + random.below(200)),
        1 => Quota::fixed_window(rate, period).capacity(rate + random.below(50)),
        _ => return Quota::sliding_window(rate, period),
    };
    if random.below(4) == 0 { quota.max_reserved(random.below(50)) } else { quota }
}

#[test]
fn random_histories_of_leases_match_the_algebra() {
    let histories = std::env::var("TOLLGATE_LEASE_HISTORIES").map_or(5000, |number| number.parse().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = Server::start();
    let clock = runtime.block_on(SetClock::on(&server));
    let _entered = runtime.enter();
    let (mut leases, mut rows) = (0, 0);
    for seed in 1..=histories {
        let mut random = Random(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        let quotas = std::array::from_fn(|_| quota(&mut random));
        let backend = clock.backend();
        let names: Vec<String> = (0..ROWS).map(|row| backend.row_key(&POLICY, id(row).key)).collect();
        let (model, granted, receipts) = (Default::default(), Vec::new(), Vec::new());
        let mut history = History { backend, quotas, model, granted, receipts, random, now: BEGIN };
        let mut window = Window::to(&server);
        window.clear();
        for _ in 0..30 {
            clock.set(history.now);
            let sent: Vec<Sent> = (0..=history.random.below(3)).map(|_| history.send()).collect();
            let context = format!("seed {seed}, {:?}", history.quotas);
            runtime.block_on(compare(sent, &context));
            for (row, stored) in window.rows(&names).into_iter().enumerate() {
                let (state, outstanding) = history.model[row];
                rows += usize::from(outstanding != Outstanding::default());
                assert_eq!(stored_row(&stored), (bytes(&state), outstanding), "row {row}, {context}");
            }
            let most = [1, 40_000, 1_500_000, 5_000_000][history.random.below(4) as usize];
            let micros = history.random.below(most);
            let is_set_back = history.random.below(12) == 0;
            history.now = if is_set_back {
                Micros::new(history.now.get() - micros)
            } else {
                Micros::new(history.now.get() + micros)
            };
        }
        leases += history.granted.len();
    }
    println!("{histories} histories, {leases} leases, {rows} rows with leases compared");
    assert!(leases as u64 > 10 * histories && rows as u64 > 20 * histories);
}

/// Decodes a row with one window.
fn stored_row(stored: &Option<Vec<u8>>) -> (Vec<u8>, Outstanding) {
    let Some(row) = stored else { return (bytes(&State::default()), Outstanding::default()) };
    let number = |at: usize| f64::from_le_bytes(row[at..at + 8].try_into().unwrap()) as u64;
    let outstanding = match (row.len(), row[2]) {
        (40, 0) => Outstanding::default(),
        (72, 1) => Outstanding {
            since: Micros::new(number(40)),
            turn: Micros::new(number(48)),
            current: number(56),
            last: number(64),
        },
        layout => panic!("expected a row with one window, found {layout:?}"),
    };
    (row[8..36].to_vec(), outstanding)
}
