//! How the calls are divided among the limiters, which share one backend, and what the calls cost.

use tollgate_peers::Random;

/// The number of limiters that share a backend. Each remembers only the shards that it saw.
pub const LIMITERS: usize = 4;

#[derive(Clone, Copy, PartialEq)]
pub enum Demand {
    /// All limiters make the same number of calls.
    Uniform,
    /// One limiter makes 85 % of the calls, so the others know little about the shards.
    Skewed,
    /// Skewed, and one call in fifty costs as many tokens as one of 16 shards contains.
    Costs,
}

impl Demand {
    pub fn name(self) -> &'static str {
        match self {
            Demand::Uniform => "uniform",
            Demand::Skewed => "skewed",
            Demand::Costs => "skewed, costs vary",
        }
    }

    /// Draws the limiter that makes the next call.
    pub fn limiter(self, random: &mut Random) -> usize {
        match self {
            Demand::Uniform => random.below(LIMITERS as u64) as usize,
            Demand::Skewed | Demand::Costs => (random.below(20) as usize).saturating_sub(16),
        }
    }

    /// Draws the cost of the next call.
    pub fn cost(self, random: &mut Random, largest: u64) -> u64 {
        if self == Demand::Costs && random.below(ONE_IN) == 0 { largest } else { 1 }
    }

    pub fn mean_cost(self, largest: u64) -> f64 {
        match self {
            Demand::Costs => (ONE_IN - 1 + largest) as f64 / ONE_IN as f64,
            Demand::Uniform | Demand::Skewed => 1.0,
        }
    }
}

const ONE_IN: u64 = 50;
