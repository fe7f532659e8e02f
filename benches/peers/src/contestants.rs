//! The compared limiters, behind a common interface.

use std::collections::HashMap;
use std::hint::black_box;
use std::num::{NonZeroU32, NonZeroU64};
use std::pin::pin;
use std::sync::Barrier;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use actix_extensible_rate_limit::backend::memory::InMemoryBackend;
use actix_extensible_rate_limit::backend::{Backend as _, SimpleInput};
use limitador::limit::{Context as Variables, Limit, Namespace};
use tollgate::{Charge, HOUR, MemoryBackend, Policy, Quota, RateLimiter, SECOND};

use crate::keys::Keys;
use crate::rounds::{ROUND, interleaved, median, rounds, rounds_of};

/// The kind of limit.
#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    /// A limit that never denies. No key is fully refilled during the run, so limiters must keep all state.
    Allowed,
    /// A limit of one, which is spent while the table is filled.
    Denied,
}

impl Kind {
    /// Returns the time in which one token is refilled, and the burst. governor stores their product in 64 bits, in
    /// nanoseconds. If there are few keys, each is used often, and if there are many keys, each is used rarely.
    fn quota(self, keys: usize) -> (Duration, u32) {
        match self {
            Kind::Denied => (HOUR, 1),
            Kind::Allowed if keys <= 10_000 => (SECOND, 4_000_000_000),
            Kind::Allowed => (HOUR, 1_000_000),
        }
    }
}

/// A limiter with its own table.
pub struct Contestant {
    pub name: &'static str,
    calls: Box<Calls>,
}

/// Calls the limiter for each key, and returns the number of allowed calls.
type Calls = dyn Fn(&[String]) -> usize + Send + Sync;

impl Contestant {
    pub fn new(name: &'static str, call: impl Fn(&String) -> bool + Send + Sync + 'static) -> Contestant {
        // The call is inlined here, so that only its cost is measured.
        Contestant {
            name,
            calls: Box::new(move |keys| keys.iter().filter(|key| black_box(call(black_box(key)))).count()),
        }
    }

    pub fn allowed(&self, keys: &[String]) -> usize {
        (self.calls)(keys)
    }

    /// Returns the nanoseconds per call, after cycling through the keys from `cursor` on for about `length`.
    pub fn time(&self, kind: Kind, keys: &[String], cursor: &mut usize, length: Duration) -> f64 {
        let begin = Instant::now();
        let (mut calls, mut allowed) = (0, 0);
        while begin.elapsed() < length {
            let end = (*cursor + 500).min(keys.len());
            allowed += self.allowed(&keys[*cursor..end]);
            calls += end - *cursor;
            *cursor = if end == keys.len() { 0 } else { end };
        }
        let nanos = begin.elapsed().as_nanos() as f64;
        let expected = if kind == Kind::Allowed { calls } else { 0 };
        assert!(allowed == expected, "{}: {allowed} of {calls} allowed, not {expected}", self.name);
        nanos / calls as f64
    }

    /// Returns the wall-clock nanoseconds per call, with one thread for each cursor.
    pub fn time_on(&self, kind: Kind, keys: &[String], cursors: &mut [usize], length: Duration) -> f64 {
        if let [cursor] = cursors {
            return self.time(kind, keys, cursor, length);
        }
        let together = Barrier::new(cursors.len());
        let rates = thread::scope(|scope| {
            let together = &together;
            let run = |cursor| {
                scope.spawn(move || {
                    together.wait();
                    1.0 / self.time(kind, keys, cursor, length)
                })
            };
            let running: Vec<_> = cursors.iter_mut().map(run).collect();
            running.into_iter().map(|it| it.join().expect("measured")).sum::<f64>()
        });
        1.0 / rates
    }

    /// Charges each key once.
    pub fn fill(&self, keys: &Keys) {
        let allowed: usize = keys.shuffled().map(|key| self.allowed(std::slice::from_ref(key))).sum();
        let distinct = keys.shuffled().count();
        assert!(allowed == distinct, "{}: only {allowed} of the first {distinct} calls were allowed", self.name);
    }
}

/// Returns the nanoseconds per decision for each kind, number of threads and limiter, beginning with tollgate. All are
/// measured in the same rounds, so that a slow phase of the machine affects all of them.
pub fn decisions(kinds: &[Kind], keys: usize, threads: &[usize], few: bool) -> Vec<Vec<(&'static str, f64)>> {
    let tables: Vec<_> = kinds.iter().map(|kind| (*kind, limiters(*kind, keys, few))).collect();
    let keys = Keys::new(keys);
    tables.iter().for_each(|(_, all)| all.iter().for_each(|it| it.fill(&keys)));
    // Each thread continues from its own position.
    let apart = |threads: usize| (0..threads).map(|i| keys.len() * i / threads).collect::<Vec<_>>();
    let mut cells = Vec::new();
    for (kind, all) in &tables {
        for threads in threads {
            cells.extend(all.iter().map(|it| (it, *kind, apart(*threads))));
        }
    }
    let times = interleaved(rounds(), cells.len(), |i| {
        let (it, kind, cursors) = &mut cells[i];
        it.time_on(*kind, &keys, cursors, ROUND)
    });
    let named: Vec<_> = cells.iter().map(|(it, ..)| it.name).zip(times).collect();
    named.chunks(tables[0].1.len()).map(<[_]>::to_vec).collect()
}

/// Returns, for some limiters and each round, the ratio of a denial's cost to that of an allowed call. Because a
/// table's location in memory matters, each limiter has several tables of each kind, and the ratio is that of their
/// medians.
pub fn refused_to_allowed(keys: usize, tables: usize) -> Vec<(&'static str, Vec<f64>)> {
    // Alternate the kinds, so that neither is always filled first.
    let kinds = [Kind::Allowed, Kind::Denied].into_iter().cycle().take(2 * tables);
    let all: Vec<(Kind, Contestant)> = kinds
        .flat_map(|kind| {
            let (period, burst) = kind.quota(keys);
            let compared =
                [tollgate(period, burst, keys), tollgate_awaited(period, burst, keys), governor(period, burst)];
            compared.map(|it| (kind, it))
        })
        .collect();
    let keys = Keys::new(keys);
    all.iter().for_each(|(_, it)| it.fill(&keys));
    let mut cursors = vec![0; all.len()];
    let times = rounds_of(rounds(), all.len(), |i| all[i].1.time(all[i].0, &keys, &mut cursors[i], ROUND));
    let compared = all.len() / (2 * tables);
    let ratios = (0..compared).map(|which| {
        let of = |round: usize, kind: Kind| {
            let tables = (which..all.len()).step_by(compared).filter(|i| all[*i].0 == kind);
            median(tables.map(|i| times[i][round]).collect())
        };
        let ratios = (0..rounds()).map(|round| of(round, Kind::Denied) / of(round, Kind::Allowed));
        (all[which].1.name, ratios.collect())
    });
    ratios.collect()
}

/// Returns the limiters, in the order tollgate, governor, and then the others. If `few` is set, returns only those
/// whose tables have a reasonable size with many keys.
pub fn limiters(kind: Kind, keys: usize, few: bool) -> Vec<Contestant> {
    let (period, burst) = kind.quota(keys);
    let mut all = vec![tollgate(period, burst, keys), governor(period, burst), ahash(period, burst)];
    if !few {
        all.push(tollgate_awaited(period, burst, keys));
        all.extend([axum_gcra(period, burst), actix(burst)]);
        #[cfg(feature = "tower-rate-limiter")]
        all.extend([tower_rate_limiter_gcra(kind), tower_rate_limiter(burst)]);
        all.push(limitador(burst, keys));
    }
    all
}

fn tollgate(period: Duration, burst: u32, keys: usize) -> Contestant {
    let (limiter, policy) = ours(period, burst, keys);
    Contestant::new("tollgate", move |key| limiter.limit_now(&policy, key).is_ok())
}

/// Makes the same call through a future, which is ready immediately.
fn tollgate_awaited(period: Duration, burst: u32, keys: usize) -> Contestant {
    let (limiter, policy) = ours(period, burst, keys);
    Contestant::new("tollgate, awaited", move |key| {
        ready(limiter.try_limit(&policy, key)).expect("in memory").is_allowed()
    })
}

fn ours(period: Duration, burst: u32, keys: usize) -> (RateLimiter, Policy) {
    let limiter = RateLimiter::new(MemoryBackend::builder().max_rows((2 * keys).max(100_000)).build());
    (limiter, Policy::new("bench", Quota::token_bucket(1, period).capacity(burst.into())))
}

/// Makes several charges in one call, either all or none. governor needs a limiter for each charge, and the limiters
/// are called in order.
pub fn rules(count: usize, keys: usize) -> [Contestant; 2] {
    const NAMES: [&str; 8] = ["one", "two", "three", "four", "five", "six", "seven", "eight"];
    let (period, burst) = Kind::Allowed.quota(keys);
    let quota = Quota::token_bucket(1, period).capacity(burst.into());
    let policies: Vec<Policy> = NAMES.into_iter().take(count).map(|name| Policy::new(name, quota)).collect();
    let limiter = RateLimiter::new(MemoryBackend::builder().max_rows(4 * keys * count).build());
    let ours = Contestant::new("tollgate", move |key| {
        let charges = policies.iter().map(|policy| Charge::new(policy, key));
        ready(limiter.try_limit_all(charges)).expect("in memory").is_allowed()
    });
    let limiters: Vec<_> = (0..count).map(|_| governor::RateLimiter::keyed(governor_quota(period, burst))).collect();
    let theirs = Contestant::new("governor", move |key: &String| limiters.iter().all(|it| it.check_key(key).is_ok()));
    [ours, theirs]
}

fn governor(period: Duration, burst: u32) -> Contestant {
    let limiter = governor::RateLimiter::keyed(governor_quota(period, burst));
    Contestant::new("governor", move |key: &String| limiter.check_key(key).is_ok())
}

fn ahash(period: Duration, burst: u32) -> Contestant {
    let limiter = governor::RateLimiter::dashmap_with_hasher(governor_quota(period, burst), ahash::RandomState::new());
    Contestant::new("governor, ahash", move |key: &String| limiter.check_key(key).is_ok())
}

fn governor_quota(period: Duration, burst: u32) -> governor::Quota {
    governor::Quota::with_period(period).expect("a period").allow_burst(NonZeroU32::new(burst).expect("a burst"))
}

/// Takes ownership of the key.
fn axum_gcra(period: Duration, burst: u32) -> Contestant {
    let quota = axum_gcra::gcra::Quota::new(period, NonZeroU64::new(burst.into()).expect("a burst"));
    let limiter = axum_gcra::gcra::RateLimiter::new(8192, ahash::RandomState::new());
    Contestant::new("axum_gcra", move |key: &String| limiter.req_sync(key.clone(), quota, Instant::now()).is_ok())
}

/// Uses a fixed window, and takes ownership of the key.
fn actix(burst: u32) -> Contestant {
    let backend = InMemoryBackend::builder().with_gc_interval(None).build();
    Contestant::new("actix-extensible-rate-limit", move |key: &String| {
        let input = SimpleInput { interval: HOUR, max_requests: burst.into(), key: key.clone() };
        ready(backend.request(input)).expect("in memory").0.is_allowed()
    })
}

/// Uses a fixed window. The key is a variable of an expression.
fn limitador(burst: u32, keys: usize) -> Contestant {
    let limiter = limitador::RateLimiter::new(2 * keys as u64);
    limiter.add_limit(Limit::new("bench", burst.into(), 3600, [], ["user".try_into().expect("an expression")]));
    let namespace = Namespace::from("bench");
    Contestant::new("limitador", move |key: &String| {
        let variables = Variables::from(HashMap::from([("user".to_owned(), key.clone())]));
        !limiter.check_rate_limited_and_update(&namespace, &variables, 1).expect("in memory").limited
    })
}

#[cfg(feature = "tower-rate-limiter")]
fn tower_rate_limiter_gcra(kind: Kind) -> Contestant {
    use tower_rate_limiter::{DecisionOutcome, GcraQuota, MemoryGcra, RateLimitPolicy};
    // A full refill must take less than a year. This limiter never drops keys.
    let (period, burst) = if kind == Kind::Allowed { (SECOND / 1000, 4_000_000_000) } else { (HOUR, 1) };
    let quota = GcraQuota::new(1, period, burst).expect("a quota");
    let policy = MemoryGcra::new(quota);
    Contestant::new("tower-rate-limiter, GCRA", move |key: &String| {
        ready(policy.check(key.clone())).expect("in memory").outcome() == DecisionOutcome::Allowed
    })
}

/// Uses a fixed window on a cache, which is the default.
#[cfg(feature = "tower-rate-limiter")]
fn tower_rate_limiter(burst: u32) -> Contestant {
    use tower_rate_limiter::{DecisionOutcome, FixedWindow, MemoryStore, RateLimitPolicy};
    let policy = FixedWindow::new(MemoryStore::new(), burst.into(), HOUR).expect("a quota");
    Contestant::new("tower-rate-limiter, default", move |key: &String| {
        ready(policy.check(key.clone())).expect("in memory").outcome() == DecisionOutcome::Allowed
    })
}

/// The output of a future that is ready immediately.
pub fn ready<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("in memory"),
    }
}
