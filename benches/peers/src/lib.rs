//! Benchmarks of tollgate and other rate limiters: shared code. `make bench` prints all tables.
//!
//! The contestants are measured in one process, in interleaved rounds. Only servers are separate processes, which run
//! at the same time. Each figure is the median of the rounds. Because machines are noisy, compare ratios.

mod contestants;
mod counting;
mod keys;
mod machine;
#[path = "../../../tests/support/plot.rs"]
mod plot;
mod rounds;
mod stacks;

pub use contestants::{Contestant, Kind, decisions, limiters, ready, refused_to_allowed, rules};
pub use counting::Counting;
pub use keys::{Keys, Random, key};
pub use machine::{described, pin, resident};
pub use plot::{Line, Plot};
pub use rounds::{ROUND, interleaved, median, quick, ratio, rounds, rounds_of, spread};
pub use stacks::{Stack, layers, serve, served};
