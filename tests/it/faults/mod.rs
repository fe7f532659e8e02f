//! Known faults. Each test asserts today's wrong behavior, and says what is right. Whoever mends a fault turns its test
//! round.

#[cfg(feature = "admin")]
mod admin;
mod algebra;
#[cfg(feature = "axum")]
mod layer;
#[cfg(feature = "wait")]
mod limiter;
mod notices;
mod policies;
