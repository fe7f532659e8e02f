//! Policies and callers with several quotas that apply together.

mod calls;
mod choosing;
mod files;
mod headers;
mod histories;
mod own_quotas;

mod tiers;
