//! Configuration files: formats, errors and reloads.

mod app;
mod bounds;
mod faults;
mod formats;
mod keys;
mod messages;
mod quotas;
mod reload;
mod restart;
mod routes;
mod rules;
mod schema;
mod shared;
