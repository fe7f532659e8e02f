//! Measuring tollgate beside its peers: what the tables have in common. `make bench` prints them all.
//!
//! What is compared is measured in one process (servers: at one time), in turns, again and again; a cell is the median
//! of the rounds. Machines are noisy: the ratio is what to read.

mod contestants;
mod counting;
mod keys;
mod machine;
mod plot;
mod rounds;
mod stacks;

pub use contestants::{Contestant, Kind, decisions, limiters, ready, refused_to_allowed, rules};
pub use counting::Counting;
pub use keys::{Keys, Random, key};
pub use machine::{described, pin, resident};
pub use plot::{Line, Plot};
pub use rounds::{ROUND, interleaved, median, quick, ratio, rounds, spread};
pub use stacks::{Stack, layers, serve, served};
