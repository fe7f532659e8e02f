//! Tests of observers: notifications, log events, metrics, and the dashboard.

mod audits;
mod backends;
mod counters;
mod dashboard;
mod events;
mod log;
mod mistakes;
mod near_limit;
mod notifications;
mod recorders;
mod sampling;
mod settlements;
mod tiers;
mod top;
