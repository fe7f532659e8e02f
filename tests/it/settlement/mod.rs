//! Costs of requests, and how a response or a receipt settles a charge once the actual cost is known.

mod app;
mod async_keys;
mod bound;
mod changes;
mod costs;
mod debts;
mod errors;
mod histories;
mod logins;
mod remote;
mod rules;
mod settle_once;
mod streams;
mod unanswered;
mod uncharged;
