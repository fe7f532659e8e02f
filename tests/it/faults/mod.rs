//! Known faults. Each test asserts today's wrong behavior, and says what is right. Whoever mends a fault turns its test
//! round.

#[cfg(feature = "admin")]
mod admin;
#[cfg(feature = "axum")]
mod layer;
mod policies;
