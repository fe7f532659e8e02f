//! Known faults. Each test asserts today's wrong behavior, and says what is right. Whoever mends a fault turns its test
//! round.

mod algebra;
#[cfg(feature = "wait")]
mod limiter;
mod notices;
