//! The exact rate-limit headers of each family, as sent over HTTP and as read by clients.

mod app;
mod clients;
mod draft11;
mod grammar;
mod older;
mod parsed;
mod refusals;
mod stacked;
