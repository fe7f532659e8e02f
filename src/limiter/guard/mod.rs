//! Denies blocked callers (step 2 of a decision), and blocks callers with too many denials (step 7).

mod auto_block;
mod manual_blocks;
#[cfg(all(test, tollgate_models))]
mod models;
mod offenders;
mod pauses;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use smallvec::SmallVec;

use self::manual_blocks::ManualBlocks;
use self::offenders::Offenders;
use self::pauses::Pauses;
use super::deny::DenyList;
use super::listing::Block;
use crate::algorithm::{MINUTE, Micros};
use crate::policy::{DenyRule, Digest, Key, PolicyName, Secret, Signal, Signals};

pub use auto_block::AutoBlock;

pub(super) struct Guard {
    deny: Option<DenyList>,
    auto: Option<AutoBlock>,
    pub(super) manual: ManualBlocks,
    pub(super) pauses: Pauses,
    offenders: OnceLock<Offenders>,
}

/// The rule that blocks a caller, and the end of the block, which is `None` for a deny rule.
pub(super) struct BlockedBy {
    pub(super) rule: Arc<DenyRule>,
    pub(super) until: Option<Micros>,
}

pub(super) struct NewBlock {
    pub(super) id: Digest,
    pub(super) signal: Signal,
    pub(super) lasts: Duration,
    pub(super) times: u32,
}

/// When a block was made, and its rule. Only the process that made the block knows the rule.
#[derive(Clone)]
pub(super) struct BlockOrigin {
    pub(super) since: Micros,
    pub(super) rule: Option<DenyRule>,
}

impl BlockOrigin {
    /// Creates an entry for the list of blocks. `times` is `None` for a manual block.
    fn listed(origin: Option<BlockOrigin>, digest: Digest, now: Micros, until: Micros, times: Option<u32>) -> Block {
        // A block that another thread is still adding has no origin yet.
        let (since, rule) = origin.map_or((now, None), |origin| (origin.since, origin.rule));
        let (left, by_hand) = (until.since(now), times.is_none());
        Block { digest, rule, age: now.since(since), left, times: times.unwrap_or(0), by_hand }
    }

    /// Replaces the known origin of a block, but keeps its rule if the new origin has none.
    fn replace(self, known: Option<BlockOrigin>) -> BlockOrigin {
        BlockOrigin { rule: self.rule.or(known.and_then(|known| known.rule)), ..self }
    }
}

/// The signals by which a caller can be blocked, each with its digest.
pub(super) type SignalIds = SmallVec<[(Digest, Signal); 2]>;

impl Guard {
    /// Allocates the table of offenders if denials are counted.
    pub(super) fn new(deny: Option<DenyList>, auto: Option<AutoBlock>) -> Guard {
        let guard = Guard {
            deny,
            auto,
            manual: ManualBlocks::default(),
            pauses: Pauses::default(),
            offenders: OnceLock::new(),
        };
        if guard.auto.is_some() {
            guard.offenders();
        }
        guard
    }

    pub(super) fn deny(&self) -> Option<&DenyList> {
        self.deny.as_ref()
    }

    pub(super) fn is_needed(&self) -> bool {
        self.deny.is_some()
            || self.auto.is_some()
            || self.manual.any()
            || self.pauses.any()
            || self.offenders.get().is_some()
    }

    pub(super) fn wants_signals(&self) -> bool {
        self.deny.as_ref().is_some_and(|deny| !deny.is_empty()) || self.auto.is_some() || self.has_blocks()
    }

    /// Returns `false` only if there are no active blocks.
    fn has_blocks(&self) -> bool {
        self.manual.any() || self.offenders.get().is_some_and(Offenders::has_blocks)
    }

    pub(super) fn counts(&self) -> bool {
        self.auto.is_some()
    }

    /// Step 2: finds the deny rule or the block that applies to a call.
    pub(super) fn blocked_by<'k>(
        &self,
        keys: impl Iterator<Item = (&'k PolicyName, Option<&'k Key>, Digest)> + Clone,
        signals: &Signals,
        signal_ids: &SignalIds,
        now: Micros,
    ) -> Option<BlockedBy> {
        if let Some(deny) = self.deny.as_ref().filter(|deny| !deny.is_empty()) {
            let anonymous = Key::anonymous();
            let of = |key: Option<&Key>| deny.find(Some(key.unwrap_or(&anonymous)), &Signals::default());
            let found = deny.find(None, signals).or_else(|| keys.clone().find_map(|(_, key, _)| of(key)));
            if let Some(rule) = found {
                return Some(BlockedBy { rule, until: None });
            }
        }
        if !self.has_blocks() {
            return None;
        }
        let offenders = self.offenders.get().filter(|offenders| offenders.has_blocks());
        let by_signal = signal_ids.iter().map(|(id, signal)| (*id, signal.clone(), true));
        let keys = keys.filter_map(|(policy, key, digest)| {
            // Manual blocks on keys apply under every policy, automatic ones only under the policies in `auto`.
            let by_denials = self.auto.as_ref().is_some_and(|auto| auto.keys && auto.policies.contains(policy));
            Some((digest, Signal::key(key?.clone()), by_denials))
        });
        let blocks = by_signal.chain(keys).filter_map(|(id, signal, by_denials)| {
            // Every lookup counts an attempt by the blocked caller, so the search does not stop at the first block.
            let automatic = offenders.filter(|_| by_denials).and_then(|offenders| offenders.blocked(id, now));
            Some((self.manual.blocked(id, now).max(automatic)?, signal))
        });
        let (until, signal) = blocks.reduce(|longest, next| if next.0 > longest.0 { next } else { longest })?;
        Some(BlockedBy { rule: Arc::new(signal.to_rule()), until: Some(until) })
    }

    pub(super) fn signal_ids(&self, signals: &Signals, hash: &Secret) -> SignalIds {
        if self.auto.is_none() && !self.has_blocks() {
            return SignalIds::new();
        }
        let address = signals.ip.map(Signal::ip).into_iter();
        let labels = signals.labels().map(|(name, value)| Signal::label(name.to_owned(), value));
        let all = address.chain(signals.user_agent.as_deref().map(Signal::user_agent)).chain(labels);
        all.map(|signal| (hash.digest(&signal.to_key()), signal)).collect()
    }

    /// Step 7: counts a denial for these keys and signals. Returns the new blocks.
    pub(super) fn denied<'k>(
        &self,
        keys: impl Iterator<Item = (&'k PolicyName, Option<&'k Key>, Digest)>,
        signal_ids: &SignalIds,
        now: Micros,
    ) -> SmallVec<[NewBlock; 1]> {
        let mut new_blocks = SmallVec::new();
        let Some(auto) = &self.auto else { return new_blocks };
        let mut counts = false;
        let mut counted: SmallVec<[Digest; 2]> = SmallVec::new();
        let mut count = |id: Digest, signal: Signal| {
            if let Some((lasts, times)) = self.offenders().denied(id, now, auto) {
                self.offenders().describe(id, BlockOrigin { since: now, rule: signal.to_listed() });
                new_blocks.push(NewBlock { id, signal, lasts, times });
            }
        };
        for (_, key, digest) in keys.filter(|(policy, ..)| auto.policies.contains(policy)) {
            counts = true;
            let is_shared = |key: &Key| *key == Key::global() || *key == Key::anonymous();
            let Some(key) = key.filter(|key| auto.keys && !is_shared(key)) else { continue };
            // A call that charges a key under two policies counts as one denial.
            if !counted.contains(&digest) {
                counted.push(digest);
                count(digest, Signal::key(key.clone()));
            }
        }
        if counts {
            for (id, signal) in signal_ids.iter().filter(|(_, signal)| auto.blocks_by(signal)) {
                count(*id, signal.clone());
            }
        }
        new_blocks
    }

    /// Step 7: resets the counts of a caller whose charge was granted, if the rules require a reset.
    pub(super) fn allowed<'k>(&self, keys: impl Iterator<Item = (&'k PolicyName, Digest)>, signal_ids: &SignalIds) {
        let Some(auto) = self.auto.as_ref().filter(|auto| auto.resets_on_success) else { return };
        let Some(offenders) = self.offenders.get() else { return };
        let mut counts = false;
        for (_, digest) in keys.filter(|(policy, _)| auto.policies.contains(policy)) {
            counts = true;
            offenders.succeeded(digest);
        }
        if counts {
            signal_ids.iter().for_each(|(id, _)| offenders.succeeded(*id));
        }
    }

    /// Applies an automatic block that this or another process made at `since`.
    pub(super) fn block(&self, id: Digest, now: Micros, since: Micros, lasts: Duration, times: u32) {
        self.offenders().block(id, now, now + lasts, times);
        self.offenders().describe(id, BlockOrigin { since, rule: None });
    }

    pub(super) fn unblock(&self, id: Digest) {
        if let Some(offenders) = self.offenders.get() {
            offenders.forget(id);
        }
    }

    pub(super) fn list(&self, now: Micros) -> Vec<Block> {
        let mut blocks = Vec::new();
        self.manual.list(now, &mut blocks);
        if let Some(offenders) = self.offenders.get() {
            offenders.list(now, &mut blocks);
        }
        blocks
    }

    pub(super) fn len(&self, now: Micros) -> (usize, usize) {
        let (counted, blocked) = self.offenders.get().map_or((0, 0), |offenders| offenders.len(now));
        (counted, blocked + self.manual.len(now))
    }

    fn offenders(&self) -> &Offenders {
        self.offenders.get_or_init(|| match &self.auto {
            Some(auto) => Offenders::new(auto.max_entries, auto.window, auto.threshold),
            // This limiter counts no denials, but other limiters on the backend may publish blocks.
            None => Offenders::new(MAX_FOREIGN_BLOCKS, MINUTE, 0),
        })
    }
}

const MAX_FOREIGN_BLOCKS: usize = 100_000;

pub(super) const MAX_MANUAL_BLOCKS: usize = manual_blocks::MAX_MANUAL_BLOCKS;

pub(super) const MAX_PAUSES: usize = pauses::MAX_PAUSES;

debug_fields!(Guard, |guard| deny: guard.deny, auto: guard.auto);
