//! Limits for routes in axum: which policy applies, which key is charged, and which requests are exempt.

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
