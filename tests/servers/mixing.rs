//! Random histories of two limiters on one server, which are checked against a law: the tokens on the server are the
//! tokens charged, minus those given back, plus or minus what is documented.
//!
//! The limiters are two connections, as two processes have them. A history mixes token buckets, fixed and sliding
//! windows, shards and leases; charges, settlements, credits and resets of keys and policies; pauses; and outages of one
//! of the limiters. All quotas refill in a hundred years, so that time gives nothing back.
//!
//! Where it is documented that tokens may be forfeited, the law is a range. A key is no longer checked after an
//! operation whose effect on leases depends on when other processes notice it.
//!
//! A normal run plays the same histories every time. The environment variables are those of `tests/laws/mixing`.

#[allow(dead_code)] // Only the harness in memory uses the whole adapter.
#[path = "../mixing/mod.rs"]
pub(crate) mod shared;

use std::collections::HashMap;
use std::time::Instant;

use self::shared::known::Finding;
use self::shared::random::Random;
use self::shared::remote::{LEASE_LIFE, Pair, Shape};
use self::shared::run::{self, Played};
use self::shared::terms::{Answer, Kind};
use crate::support::server::Server;

#[derive(Clone, Copy, Debug)]
enum Op {
    Limit { at: usize, policy: usize, key: u8, cost: u64 },
    Hold { at: usize, policy: usize, key: u8, cost: u64 },
    Settle { pick: u64, actual: u64 },
    Credit { at: usize, policy: usize, key: u8, tokens: u64 },
    Reset { at: usize, policy: usize, key: u8 },
    ResetPolicy { at: usize, policy: usize },
    Check { at: usize, policy: usize, key: u8 },
    PauseAndResume { at: usize, policy: usize },
    Fail { at: usize, failing: bool },
}

const KEYS: u64 = 2;

/// Keys that are paused and resumed, but not charged.
const OTHER_KEYS: std::ops::Range<u8> = 100..200;

fn generate(seed: u64) -> (Vec<Shape>, Vec<Op>) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    (0..8).for_each(|_| _ = random.below(2));
    let mut below = |bound: u64| random.below(bound);
    let shapes: Vec<Shape> = (0..2 + below(3))
        .map(|_| Shape {
            kind: [Kind::Bucket, Kind::Fixed, Kind::Sliding][below(3) as usize],
            capacity: 20 + below(200),
            shards: [1, 1, 2, 4][below(4) as usize],
            leases: below(3) == 0,
        })
        .collect();
    let operation = |_| {
        let (at, policy, key) = (below(2) as usize, below(shapes.len() as u64) as usize, 1 + below(KEYS) as u8);
        match below(1000) {
            0..=449 => Op::Limit { at, policy, key, cost: below(5) },
            450..=649 => Op::Hold { at, policy, key, cost: below(8) },
            650..=799 => Op::Settle { pick: below(1 << 20), actual: below(10) },
            800..=849 => Op::Credit { at, policy, key, tokens: below(10) },
            850..=859 => Op::Reset { at, policy, key },
            860..=861 => Op::ResetPolicy { at, policy },
            862..=949 => Op::Check { at, policy, key },
            950..=954 => Op::PauseAndResume { at, policy },
            _ => Op::Fail { at, failing: below(3) == 0 },
        }
    };
    let operations = (0..250).map(operation).collect();
    (shapes, operations)
}

#[test]
fn two_limiters_on_one_server_neither_lose_nor_double_tokens() {
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut history = 0;
    run::histories("mixing on a server", 16, generate, |shapes, operations| {
        history += 1;
        runtime.block_on(play(&server.url(), &format!("mixing{history}:"), shapes, operations))
    });
}

/// The tokens that a key has spent: at least `low` and at most `high`.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    low: u64,
    high: u64,
    /// What settlements have charged beyond the first charge, which may exceed the capacity.
    over: u64,
    /// Whether tokens were credited. A later refund may answer `true` although it gives back only a part (fault 9).
    is_credited: bool,
    /// Whether it is no longer known what the key has spent.
    is_unclear: bool,
}

impl Spent {
    fn known(&self) -> Option<u8> {
        self.is_credited.then_some(9)
    }
}

struct Held {
    policy: usize,
    key: u8,
    cost: u64,
    at: usize,
    is_settled: bool,
    /// Whether the row was reset after the charge.
    is_reset: bool,
    /// Whether the policy was reset after the charge, so that the charge is settled on an old row.
    is_old: bool,
}

async fn play(url: &str, prefix: &str, shapes: &[Shape], operations: &[Op]) -> Played {
    let mut pair = Pair::start(url, prefix, shapes).await;
    // What is held of a lease counts as spent if the lease ends before it is given back: on a machine that is so slow, or
    // in an outage that lasts so long, leased keys are not compared.
    let (mut is_slow, mut last, mut outage) = (false, Instant::now(), None::<Instant>);
    let (mut played, mut spent) = (Played::default(), HashMap::<(usize, u8), Spent>::new());
    let (mut held, mut down) = (Vec::<Held>::new(), [false; 2]);
    let mut find = |known: Option<u8>, text: String| played.findings.push(Finding::of(known, text));
    for operation in operations {
        is_slow |= last.elapsed() > LEASE_LIFE * 3 / 4;
        last = Instant::now();
        let name = match *operation {
            Op::Limit { at, policy, key, cost } => {
                let line = pair.limit(at, policy, key, cost).await;
                let Some(line) = line else {
                    if !down[at] {
                        find(None, format!("{operation:?} failed without an outage"));
                    }
                    continue;
                };
                let of = spent.entry((policy, key)).or_default();
                if line.allowed {
                    charge(of, shapes[policy], cost, &mut find);
                } else if shapes[policy].shards == 1 && !shapes[policy].leases && !of.is_unclear {
                    let left = shapes[policy].capacity.saturating_sub(of.high);
                    // A denial is remembered for a second, whatever the other limiter has given back since.
                    if of.high + cost <= shapes[policy].capacity && line.by != shared::terms::By::Remembered {
                        find(of.known(), format!("{cost} tokens were denied, although {left} are left: {line:?}"));
                    }
                }
                "limit"
            }
            Op::Hold { at, policy, key, cost } => {
                if pair.hold(at, policy, key, cost).await == Some(true) {
                    charge(spent.entry((policy, key)).or_default(), shapes[policy], cost, &mut find);
                    held.push(Held { policy, key, cost, at, is_settled: false, is_reset: false, is_old: false });
                }
                "hold"
            }
            Op::Settle { pick, actual } => {
                if held.is_empty() {
                    continue;
                }
                let number = (pick % held.len() as u64) as usize;
                let answer = pair.settle(number, actual).await;
                let receipt = &mut held[number];
                if receipt.is_old {
                    continue;
                }
                let of = spent.entry((receipt.policy, receipt.key)).or_default();
                if std::mem::replace(&mut receipt.is_settled, true) {
                    if answer != Answer::Flag(false) {
                        find(None, format!("a second settlement answers {answer:?}"));
                    }
                } else if answer == Answer::Failed {
                    // A lease may have taken a part.
                    of.is_unclear |= shapes[receipt.policy].leases || !down[receipt.at];
                } else if actual > receipt.cost {
                    of.low += actual - receipt.cost;
                    of.high += actual - receipt.cost;
                    of.over += actual - receipt.cost;
                } else {
                    let given = receipt.cost - actual;
                    of.low = of.low.saturating_sub(given);
                    // A refund that answers `true` is complete.
                    if answer == Answer::Flag(true) && !receipt.is_reset {
                        of.high = of.high.saturating_sub(given);
                    }
                }
                "settle"
            }
            Op::Credit { at, policy, key, tokens } => {
                let answer = pair.credit(at, policy, key, tokens).await;
                let of = spent.entry((policy, key)).or_default();
                of.is_credited = true;
                if answer == Answer::Flag(true) {
                    of.low = of.low.saturating_sub(tokens);
                    if shapes[policy].shards == 1 && !shapes[policy].leases {
                        of.high = of.high.saturating_sub(tokens);
                    }
                }
                // Leased tokens count as spent on the server, so a credit may give them back, too.
                of.is_unclear |= shapes[policy].leases;
                "credit"
            }
            Op::Reset { at, policy, key } => {
                if pair.reset(at, policy, key).await != Answer::Failed {
                    let of = Spent { is_unclear: shapes[policy].leases, ..Spent::default() };
                    spent.insert((policy, key), of);
                    let same = held.iter_mut().filter(|held| (held.policy, held.key) == (policy, key));
                    same.for_each(|held| held.is_reset = true);
                }
                "reset"
            }
            Op::ResetPolicy { at, policy } => {
                if down[0] || down[1] {
                    continue;
                }
                pair.reset_policy(at, policy).await;
                pair.noticed().await;
                for ((of, _), spent) in &mut spent {
                    if *of == policy {
                        *spent = Spent { is_unclear: shapes[policy].leases, ..Spent::default() };
                    }
                }
                // Charges made before the reset are settled on the old rows.
                held.iter_mut().filter(|held| held.policy == policy).for_each(|held| held.is_old = true);
                "reset_policy"
            }
            Op::Check { at, policy, key } => {
                if let (Some(left), false) = (pair.remaining(at, policy, key).await, shapes[policy].leases) {
                    let of = *spent.entry((policy, key)).or_default();
                    let known = (shapes[policy].shards > 1).then_some(1);
                    compare(of, shapes[policy], left, known, operation, &mut find);
                }
                "check"
            }
            Op::PauseAndResume { at, policy } => {
                if down[0] || down[1] {
                    continue;
                }
                OTHER_KEYS.for_each(|key| pair.pause_and_resume(at, policy, key));
                pair.noticed().await;
                for (at, key) in [0, 1].into_iter().flat_map(|at| OTHER_KEYS.map(move |key| (at, key))) {
                    let line = pair.limit(at, policy, key, 0).await;
                    if line.is_some_and(|line| line.why == shared::terms::Why::Blocked) {
                        find(Some(6), format!("limiter {at} still pauses a key that was resumed"));
                    }
                }
                "pause and resume"
            }
            Op::Fail { at, failing } => {
                pair.fail(at, failing);
                down[at] = failing;
                if down[0] || down[1] {
                    outage.get_or_insert_with(Instant::now);
                } else if let Some(began) = outage.take() {
                    is_slow |= began.elapsed() > LEASE_LIFE / 4;
                }
                "outage"
            }
        };
        played.done.push(name);
    }
    [0, 1].into_iter().for_each(|at| pair.fail(at, false));
    is_slow |= outage.is_some_and(|began| began.elapsed() > LEASE_LIFE / 4);
    pair.shut_down().await;
    for (policy, shape) in shapes.iter().enumerate() {
        for key in 1..=KEYS as u8 {
            let of = spent.get(&(policy, key)).copied().unwrap_or_default();
            // The rows of shards are read by spending what is left, because of fault 1.
            let left = match shape.shards {
                1 => pair.remaining(1, policy, key).await.expect("the server is up"),
                _ => drained(&pair, policy, key).await,
            };
            if !(shape.leases && is_slow) {
                compare(of, *shape, left, None, &"at the end", &mut find);
            }
        }
    }
    played
}

fn charge(of: &mut Spent, shape: Shape, cost: u64, find: &mut impl FnMut(Option<u8>, String)) {
    (of.low, of.high) = (of.low + cost, of.high + cost);
    if of.low > shape.capacity + of.over && cost > 0 && !of.is_unclear {
        find(None, format!("{of:?} tokens are spent of {}: {shape:?}", shape.capacity));
        of.is_unclear = true;
    }
}

/// Checks that what is left and what is spent add up to the capacity.
fn compare(
    of: Spent,
    shape: Shape,
    left: u64,
    known: Option<u8>,
    when: &dyn std::fmt::Debug,
    find: &mut impl FnMut(Option<u8>, String),
) {
    // A settlement may take one shard over its capacity, while others have tokens left.
    let debt = if shape.shards > 1 { of.over } else { 0 };
    let (least, most) = (shape.capacity.saturating_sub(of.high), shape.capacity.saturating_sub(of.low) + debt);
    if !of.is_unclear && !(least..=most).contains(&left) {
        find(known.or(of.known()), format!("{left} tokens are left, expected {least} to {most} ({shape:?}, {when:?})"));
    }
}

/// Spends all tokens that are left, one by one. Returns how many there were.
async fn drained(pair: &Pair, policy: usize, key: u8) -> u64 {
    let (mut tokens, mut denied) = (0, 0);
    while denied < 40 {
        match pair.spend(policy, key).await {
            true => (tokens, denied) = (tokens + 1, 0),
            false => denied += 1,
        }
    }
    tokens
}
