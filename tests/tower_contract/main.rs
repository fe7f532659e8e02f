//! The layer as Tower wants services to be: readiness, permits, cancellation, clones; with a backend that answers at
//! once, and with one that takes its time.

#![allow(clippy::unwrap_used, clippy::expect_used)] // A test fails by panicking, its helpers too.

mod backends;
mod cancellation;
mod readiness;
mod shadow;
mod sharing;
mod strict;
mod unavailable;
