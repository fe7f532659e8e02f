//! Limits for routes in axum: which policy applies, which key is charged, and which requests are exempt.

#![cfg(feature = "axum")]
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[allow(dead_code)] // Shared with other tests.
#[path = "../http/answer.rs"]
mod answer;
mod app;
mod chosen;
mod exempt;
mod failing_backend;
mod groups;
mod keys;
mod mistakes;
mod names;
mod nested;
mod path_matching;
mod shadow;
mod share;
mod stacked;
mod table;
mod tiers;
