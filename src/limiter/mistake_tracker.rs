//! Counts mistakes in the program, and reports each mistake to the observers once.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
// These types are not from `crate::sync`, because the models in `proof/` do not cover them.
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use super::mistake::{Mistake, MistakeKind, Mistakes};
use super::{Inner, RateLimiter};
use crate::policy::{Decision, Policy, PolicyName, Quotas, Reason, nearest, suggestion};

#[derive(Debug, Default)]
pub(super) struct MistakeTracker {
    counts: [AtomicU64; 8],
    /// Hashes of the reported mistakes; 0 marks a free slot.
    reported: Slots,
    /// The identities of policies that have been compared with all others of the same name.
    compared: Slots,
    comparisons: AtomicU64,
    policies: Mutex<HashMap<PolicyName, PolicyVersions>>,
}

#[derive(Debug)]
struct PolicyVersions {
    quotas: Quotas,
    hashes: Vec<u64>,
}

#[derive(Debug)]
struct Slots(Box<[AtomicU64]>);

impl Default for Slots {
    fn default() -> Slots {
        Slots((0..SLOTS).map(|_| AtomicU64::new(0)).collect())
    }
}

impl MistakeTracker {
    pub(super) fn counts(&self) -> Mistakes {
        let of = |kind: MistakeKind| self.counts[kind as usize].load(Relaxed);
        Mistakes {
            policy_conflicts: of(MistakeKind::PolicyConflict),
            unknown_tiers: of(MistakeKind::UnknownTier),
            missing_extensions: of(MistakeKind::MissingExtension),
            impossible_costs: of(MistakeKind::ImpossibleCost),
            plain_grpc_refusals: of(MistakeKind::PlainGrpcRefusal),
            unmatched_deny_rules: of(MistakeKind::UnmatchedDenyRule),
            missing_peers: of(MistakeKind::MissingPeer),
            unknown_policies: of(MistakeKind::UnknownPolicy),
        }
    }

    /// Counts a mistake. Returns whether it must be reported, that is, whether it is new and could be remembered.
    fn count(&self, kind: MistakeKind, which: impl Hash) -> bool {
        self.counts[kind as usize].fetch_add(1, Relaxed);
        let hash = hash_of(&(kind, which)) | 1;
        for probe in 0..PROBES {
            let slot = &self.reported.0[(hash >> SHIFT).wrapping_add(probe) as usize % SLOTS];
            // The slot is read first, because even a failed write makes other threads wait for the cache line.
            let known = match slot.load(Relaxed) {
                0 => slot.compare_exchange(0, hash, Relaxed, Relaxed).err(),
                known => Some(known),
            };
            match known {
                None => return true,
                Some(known) if known == hash => return false,
                Some(_) => {}
            }
        }
        false
    }

    /// Adds a policy. If other policies with its name are known, and it differs from all of them, returns the quotas of
    /// the first one, unless [`MAX_PER_NAME`] are known.
    fn add(&self, policy: &Policy) -> Option<Quotas> {
        let hash = hash_of(&policy.content());
        let mut policies = self.policies.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = policies.get_mut(policy.name()) else {
            if policies.len() < MAX_NAMES {
                policies.insert(policy.name().clone(), PolicyVersions { quotas: *policy.quotas(), hashes: vec![hash] });
            }
            return None;
        };
        if known.hashes.contains(&hash) || known.hashes.len() >= MAX_PER_NAME {
            return None;
        }
        known.hashes.push(hash);
        Some(known.quotas)
    }
}

impl Inner {
    #[inline]
    pub(super) fn check_conflicts(&self, policy: &Policy) {
        let identity = policy.identity();
        let slot = &self.mistakes.compared.0[(identity >> SHIFT) as usize % SLOTS];
        if slot.load(Relaxed) != identity {
            self.compare(policy, slot, identity);
        }
    }

    #[cold]
    fn compare(&self, policy: &Policy, slot: &AtomicU64, identity: u64) {
        // The limit bounds the work for a program that creates a policy for each call.
        if self.mistakes.comparisons.fetch_add(1, Relaxed) < MAX_COMPARISONS {
            slot.store(identity, Relaxed);
            self.register(policy);
        }
    }

    fn register(&self, policy: &Policy) {
        let Some(other) = self.mistakes.add(policy) else { return };
        let (name, quotas) = (policy.name(), policy.quotas());
        let differ = if other == *quotas {
            "different tiers".to_owned()
        } else {
            format!("different quotas ({other} and {quotas})")
        };
        self.mistake(MistakeKind::PolicyConflict, name.as_str(), || {
            format!("two policies named {name:?} have {differ}, but share the same rows; rename one of them")
        });
    }

    #[cold]
    pub(super) fn mistake(&self, kind: MistakeKind, which: impl Hash, message: impl FnOnce() -> String) {
        if self.mistakes.count(kind, which) && !self.observers.is_empty() {
            let mistake = Mistake { kind, message: message() };
            self.observers.iter().for_each(|observer| observer.mistake(&mistake));
        }
    }

    #[cold]
    pub(super) fn unknown_tier(&self, policy: &Policy, tier: &str) {
        if policy.tiers().next().is_none() {
            return; // A policy without tiers treats all tiers alike.
        }
        let name = policy.name();
        self.mistake(MistakeKind::UnknownTier, (name.as_str(), tier), || {
            let known = policy.tiers().map(|(known, _)| known);
            let hint = match nearest(tier, known.clone()) {
                Some(near) => format!("did you mean {near:?}?"),
                None => format!("its tiers are {:?}", known.take(MAX_TIERS_LISTED).collect::<Vec<_>>()),
            };
            let tier: String = tier.chars().take(MAX_TIER_LEN).collect();
            let quota = policy.quotas();
            format!(
                "policy {name:?} has no tier {tier:?}, so callers with this tier get the policy's own quota, {quota}; \
                 {hint}"
            )
        });
    }

    pub(super) fn denied(&self, decision: &Decision) {
        if matches!(decision.reason(), Reason::CostTooLarge | Reason::CostAboveShard | Reason::WaitTooLong) {
            self.mistake(MistakeKind::ImpossibleCost, (decision.policy(), decision.quota().stamp()), || {
                let holds =
                    if decision.reason() == Reason::CostAboveShard { "has shards that each hold" } else { "holds" };
                let (name, quota, cost) = (decision.policy(), decision.quota(), decision.cost());
                let limit = quota.shard(0).get_capacity();
                format!(
                    "policy {name:?} can never grant a cost of {cost}: its quota {quota} {holds} at most {limit}; \
                     raise its capacity, or lower the cost"
                )
            });
        }
    }
}

impl RateLimiter {
    pub(crate) fn register<'p>(&self, policies: impl Iterator<Item = &'p Policy>) {
        policies.for_each(|policy| self.inner.register(policy));
    }

    /// Adds reloaded policies. They do not conflict with the policies that they replace.
    #[cfg(feature = "serde")]
    pub(crate) fn succeed<'p>(&self, policies: impl Iterator<Item = &'p Policy>) {
        for policy in policies {
            let _ = self.inner.mistakes.add(policy);
        }
    }

    #[cold]
    pub(crate) fn missing_extension(&self, wanted: &'static str) {
        self.inner.mistake(MistakeKind::MissingExtension, wanted, || {
            format!(
                "a request has no extension of type `{wanted}`, so it is counted under the anonymous key; put the \
                 layer that inserts the extension outside of the rate limiter (on an axum `Router`, add it after \
                 the limiter), or use `.or(..)`, `.or_reject()` or `.or_skip()` for callers without the extension"
            )
        });
    }

    #[cold]
    pub(crate) fn unknown_policy<'n>(&self, name: &str, known: impl Iterator<Item = &'n str>) {
        self.inner.mistake(MistakeKind::UnknownPolicy, name, || {
            let near = suggestion(name, known);
            format!(
                "the closure of `RouteLimits::choose` returned {name:?}, which is not the name of a policy or a \
                 group{near}; a request with an unknown name gets the default policy, or no limit if there is none"
            )
        });
    }

    #[cold]
    pub(crate) fn missing_peer(&self) {
        self.inner.mistake(MistakeKind::MissingPeer, (), || {
            "a request has no peer address, which `key::client_ip()` needs; with axum (the `axum` feature), serve \
             `app.into_make_service_with_connect_info::<SocketAddr>()`; with tonic, enable tollgate's `tonic` feature; \
             with another server, insert `tollgate::key::PeerAddr` into the request's extensions; in tests, add an \
             `axum::extract::connect_info::MockConnectInfo` layer outside of the limiter"
                .to_owned()
        });
    }

    pub(crate) fn unmatched_deny_rule(&self, kind: &str, reason: String) {
        self.inner.mistake(MistakeKind::UnmatchedDenyRule, kind, || reason);
    }

    #[cold]
    pub(crate) fn plain_grpc_refusal(&self) {
        self.inner.mistake(MistakeKind::PlainGrpcRefusal, (), || {
            "a gRPC request over HTTP/2 was refused with a plain HTTP status, which gRPC clients report as INTERNAL or \
             UNAVAILABLE; add `.grpc()` to the rate limit layer of gRPC services"
                .to_owned()
        });
    }
}

fn hash_of(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

const SLOTS: usize = 256;

/// Shifting a hash right by this many bits leaves its highest eight bits, which select one of 256 slots.
const SHIFT: u32 = 56;

const PROBES: u64 = 8;

const MAX_NAMES: usize = 10_000;

const MAX_PER_NAME: usize = 16;

/// This many comparisons take about ten milliseconds in total.
const MAX_COMPARISONS: u64 = 65_536;

const MAX_TIERS_LISTED: usize = 20;

const MAX_TIER_LEN: usize = 80;
