//! Guides: choosing limits, recipes, common mistakes, and the design of the crate.

#[doc = include_str!("choosing/algorithm.md")]
#[doc = ""]
#[doc = include_str!("plots/algorithms.svg")]
#[doc = ""]
#[doc = include_str!("choosing/fixed_windows.md")]
#[doc = include_str!("choosing/worst_window.md")]
#[doc = ""]
#[doc = include_str!("plots/worst_window.svg")]
#[doc = ""]
#[doc = include_str!("choosing/strict.md")]
#[doc = include_str!("choosing/waiting.md")]
#[doc = ""]
#[doc = include_str!("plots/waiting.svg")]
#[doc = ""]
#[doc = include_str!("choosing/numbers.md")]
#[doc = ""]
#[doc = include_str!("plots/burst.svg")]
#[doc = ""]
#[doc = include_str!("choosing/costs.md")]
pub mod choosing {}

#[doc = include_str!("tiers_and_routes.md")]
pub mod tiers_and_routes {}

#[doc = include_str!("several_quotas.md")]
pub mod several_quotas {}

#[doc = include_str!("shards.md")]
#[doc = ""]
#[doc = include_str!("plots/shards.svg")]
#[doc = ""]
#[doc = include_str!("plots/shards_admitted.svg")]
pub mod shards {}

#[doc = include_str!("leases.md")]
#[doc = ""]
#[doc = include_str!("plots/leases.svg")]
#[doc = ""]
#[doc = include_str!("plots/leases_admitted.svg")]
pub mod leases {}

#[doc = include_str!("cookbook.md")]
pub mod cookbook {}

#[doc = include_str!("outgoing.md")]
pub mod outgoing {}

#[cfg(feature = "axum")]
#[doc = include_str!("axum.md")]
pub mod axum {}

#[cfg(feature = "tonic")]
#[doc = include_str!("grpc.md")]
pub mod grpc {}

#[doc = include_str!("hyper.md")]
pub mod hyper {}

#[doc = include_str!("testing.md")]
pub mod testing {}

#[doc = include_str!("proxies.md")]
pub mod proxies {}

#[cfg(feature = "redis")]
#[doc = include_str!("redis.md")]
pub mod redis {}

pub mod migrating;

#[doc = include_str!("restarts.md")]
pub mod restarts {}

#[doc = include_str!("observing.md")]
pub mod observing {}

#[doc = include_str!("operate.md")]
pub mod operate {}

#[doc = include_str!("mistakes.md")]
pub mod mistakes {}

#[doc = include_str!("limitations.md")]
pub mod limitations {}

#[doc = include_str!("glossary.md")]
pub mod glossary {}

#[doc = include_str!("design.md")]
pub mod design {}
