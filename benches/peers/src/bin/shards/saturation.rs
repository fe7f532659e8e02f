//! The share of a saturated limit that is admitted, in virtual time.

use std::fmt::Write;
use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use tollgate::algorithm::Algorithm;
use tollgate::clock::ManualClock;
use tollgate::key::Secret;
use tollgate::{MemoryBackend, Policy, Quota, RateLimiter, SECOND};
use tollgate_peers::{Line, Random, quick, ready};

use crate::SHARDS;
use crate::demand::{Demand, LIMITERS};

pub const ABOUT: &str = "The calls ask for twice the limit, at random (Poisson) times, in memory with a manual clock. Four limiters share the\n\
    backend, and each remembers only the shards that it saw. \"Uniform\": all limiters make the same number of calls.\n\
    \"Skewed\": one of them makes 85 % of the calls. \"Costs vary\": one call in fifty costs as many tokens as one of 16 shards\n\
    contains. The first periods are not counted.";

struct Case {
    quota: Quota,
    demand: Demand,
    /// The name of this case's line in the plot, if there is one.
    line: Option<&'static str>,
}

/// Returns the table and the lines of the plot.
pub fn measure() -> (String, Vec<Line>) {
    let bucket = |rate| Quota::token_bucket(rate, SECOND);
    let case = |quota, demand, line| Case { quota, demand, line };
    let cases = [
        case(bucket(1000), Demand::Uniform, Some("1000/s, uniform")),
        case(bucket(1000), Demand::Skewed, Some("1000/s, skewed")),
        case(bucket(1000), Demand::Costs, Some("1000/s, costs vary")),
        case(Quota::fixed_window(1000, SECOND), Demand::Uniform, None),
        case(Quota::fixed_window(1000, SECOND), Demand::Skewed, None),
        case(Quota::sliding_window(1000, SECOND), Demand::Uniform, None),
        case(Quota::sliding_window(1000, SECOND), Demand::Skewed, None),
        case(bucket(160), Demand::Uniform, None),
        case(bucket(160), Demand::Skewed, Some("160/s, skewed")),
        case(bucket(16), Demand::Uniform, None),
        case(bucket(16), Demand::Skewed, Some("16/s, skewed")),
        case(Quota::fixed_window(16, SECOND), Demand::Skewed, None),
    ];
    let heads = SHARDS.map(|shards| if shards == 1 { "1 shard".to_owned() } else { format!("{shards} shards") });
    let mut table =
        format!("| quota | demand | {} |\n| --- | --- |{}\n", heads.join(" | "), " ---: |".repeat(heads.len()));
    let (mut lines, mut low) = (Vec::new(), String::new());
    for Case { quota, demand, line } in cases {
        let results = SHARDS.map(|shards| simulate(quota, demand, shards));
        let cells = results.each_ref().map(Admitted::text);
        let name = format!("{}, {}/s", algorithm(&quota), quota.rate());
        let _ = writeln!(table, "| {name} | {} | {} |", demand.name(), cells.join(" | "));
        if let Some(line) = line {
            lines.push(Line { name: line.into(), values: results.iter().map(|it| it.share).collect() });
        }
        for (shards, admitted) in SHARDS.iter().zip(&results).filter(|(_, admitted)| admitted.share < 0.95) {
            let why = admitted.why(quota.get_capacity() / shards);
            let _ = writeln!(
                low,
                "- {name}, {}, {shards} shard{}: {why}",
                demand.name(),
                if *shards == 1 { "" } else { "s" }
            );
        }
    }
    if !low.is_empty() {
        let _ = write!(table, "\nShares below 0.95:\n\n{low}");
    }
    (table, lines)
}

fn algorithm(quota: &Quota) -> &'static str {
    match quota.algorithm() {
        Algorithm::FixedWindow => "fixed window",
        Algorithm::SlidingWindow => "sliding window",
        _ => "token bucket",
    }
}

/// The outcome of a simulation.
struct Admitted {
    /// The number of admitted tokens relative to the number of refilled tokens.
    share: f64,
    /// The share that was admitted of the calls with the largest cost.
    of_large: Option<f64>,
    /// The mean number of tokens in all shards when a call is denied.
    left: f64,
}

impl Admitted {
    fn text(&self) -> String {
        match self.of_large {
            Some(of_large) => format!("{:.3} ({:.0}% of the large)", self.share, of_large * 100.0),
            None => format!("{:.3}", self.share),
        }
    }

    /// Describes why less than the limit was admitted.
    fn why(&self, capacity: u64) -> String {
        let (share, left) = (self.share, self.left);
        format!(
            "{share:.3}. A shard holds {capacity} token(s), and a full shard refills nothing until a call tries it. When a \
             call was denied, {left:.1} tokens were left in other shards"
        )
    }
}

fn simulate(quota: Quota, demand: Demand, shards: u64) -> Admitted {
    let clock = ManualClock::new();
    let backend = Arc::new(MemoryBackend::builder().clock(clock.clone()).build());
    let limiters: Vec<_> = (0..LIMITERS)
        .map(|_| RateLimiter::builder(Arc::clone(&backend)).secret(Secret::new([7; 16])).build())
        .collect();
    let policy = Policy::new("hot", quota.shards(shards));
    let largest = quota.get_capacity() / SHARDS[SHARDS.len() - 1];
    // Make the same number of calls for each quota, but run for at least 40 periods.
    let calls = if quick() { 2_000 } else { 100_000 };
    let periods = (calls / quota.rate()).max(40);
    let mean = quota.period().as_secs_f64() / quota.rate() as f64 * demand.mean_cost(largest) / 2.0;
    let (mut random, mut now) = (Random(1), 0.0);
    let (mut admitted, mut large, mut left, mut denials) = (0, [0u64; 2], 0, 0u64);
    let until = (WARM_UP + periods) as f64 * quota.period().as_secs_f64();
    loop {
        let wait = -mean * (1.0 - random.below(1 << 52) as f64 / (1u64 << 52) as f64).ln();
        clock.advance(Duration::from_micros((wait * 1e6) as u64));
        now += (wait * 1e6).floor() / 1e6;
        if now >= until {
            break;
        }
        let (limiter, cost) = (&limiters[demand.limiter(&mut random)], demand.cost(&mut random, largest));
        let allowed =
            ready(limiter.try_acquire(&policy, "all").cost(cost).into_future()).expect("decided").is_allowed();
        if now < WARM_UP as f64 * quota.period().as_secs_f64() {
            continue;
        }
        admitted += if allowed { cost } else { 0 };
        if demand == Demand::Costs && cost == largest {
            large[usize::from(allowed)] += 1;
        }
        if !allowed {
            left += ready(limiter.remaining(&policy, "all")).expect("decided");
            denials += 1;
        }
    }
    let calls = large[0] + large[1];
    Admitted {
        share: admitted as f64 / (quota.rate() * periods) as f64,
        of_large: (calls > 0).then(|| large[1] as f64 / calls as f64),
        left: left as f64 / denials.max(1) as f64,
    }
}

/// The number of periods until a full quota is saturated.
const WARM_UP: u64 = 3;
