//! The endpoints that list policies, the heaviest keys, limited keys and blocks.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use serde::{Deserialize, Serialize};

use super::key::{Answer, inspect};
use super::problem::Problem;
use super::{Admin, Scope, target};
use crate::limiter::{Block, SetQuota};
use crate::observe::{TopKey, TopKeys};
use crate::policy::{Digest, Key, Policy, PolicyName};

type Asked<T> = Result<Query<T>, QueryRejection>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Selection {
    policy: Option<String>,
    max: Option<usize>,
    after: Option<String>,
}

impl Selection {
    fn max(&self, most: usize) -> Result<usize, Problem> {
        let max = self.max.unwrap_or(DEFAULT_MAX);
        let is_valid = (1..=most).contains(&max);
        is_valid.then_some(max).ok_or_else(|| Problem::invalid(format!("`max`: expected 1 to {most}, found {max}")))
    }

    fn after(&self) -> Result<Option<Digest>, Problem> {
        let Some(text) = &self.after else { return Ok(None) };
        let digest = text.parse::<Key>().ok().and_then(|key| key.as_digest());
        let problem = || Problem::invalid("`after`: expected a digest, such as `next` from the previous page");
        digest.map(Some).ok_or_else(problem)
    }
}

const DEFAULT_MAX: usize = 20;

/// The maximum length of a list, except in responses to `/limited`.
const MAX_LISTED: usize = 1000;

/// The maximum length of a list in a response to `/limited`, which calls the backend for each key.
const MAX_LIMITED: usize = 100;

pub(super) fn shown(digest: Digest) -> String {
    Key::from(digest).to_text()
}

pub(super) fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_micros().div_ceil(1000)).unwrap_or(u64::MAX)
}

#[derive(Serialize)]
pub(super) struct Policies {
    scope: PoliciesScope,
    policies: Vec<PolicyEntry>,
}

#[derive(Serialize)]
struct PoliciesScope {
    settings: Scope,
    rows: Scope,
}

#[derive(Serialize)]
struct PolicyEntry {
    policy: String,
    quotas: String,
    set_quotas: Option<String>,
    tiers: Vec<Tier>,
    enforce: f64,
    set_enforce: bool,
    leases: bool,
    rows: Option<usize>,
    set_keys_total: usize,
    set_keys: Vec<SetKey>,
    next: Option<String>,
}

#[derive(Serialize)]
struct Tier {
    tier: String,
    quotas: String,
    set_quotas: Option<String>,
}

#[derive(Serialize)]
struct SetKey {
    key: String,
    quotas: String,
    age_ms: u64,
}

/// `GET /policies`.
pub(super) async fn policies(
    State(admin): State<Arc<Admin>>,
    selection: Asked<Selection>,
) -> Result<Json<Policies>, Problem> {
    let Query(selection) = selection?;
    let (max, after) = (selection.max(MAX_LISTED)?, selection.after()?);
    let mut set: HashMap<PolicyName, Vec<SetQuota>> = HashMap::new();
    for quota in admin.limiter.set_quotas() {
        set.entry(quota.policy.clone()).or_default().push(quota);
    }
    let enforced: HashSet<_> = admin.limiter.set_enforcements().into_iter().map(|set| set.policy).collect();
    let counts_rows = admin.limiter.stats().rows.is_some();
    let rows: HashMap<_, _> = admin.limiter.rows_by_policy().into_iter().collect();
    let entry = |policy: &Policy| {
        let set = set.get(policy.name()).map_or(&[][..], |set| &set[..]);
        let of = |tier: Option<&str>| set.iter().find(|set| set.key.is_none() && set.tier.as_deref() == tier);
        let tiers = policy.tiers().map(|(tier, quotas)| Tier {
            tier: tier.to_owned(),
            quotas: quotas.to_string(),
            set_quotas: of(Some(tier)).map(|set| set.quotas.to_string()),
        });
        // The limiter lists the keys in the order of their digests.
        let keys = set.iter().filter_map(|set| Some((set.key?, set)));
        let mut page = keys.clone().filter(|(key, _)| after.is_none_or(|after| *key > after));
        let set_keys: Vec<_> = page.by_ref().take(max).collect();
        let next = page.next().and_then(|_| set_keys.last()).map(|(key, _)| shown(*key));
        let set_key = |(key, set): (Digest, &SetQuota)| SetKey {
            key: shown(key),
            quotas: set.quotas.to_string(),
            age_ms: millis(set.age),
        };
        PolicyEntry {
            policy: policy.name().to_string(),
            quotas: policy.quotas().to_string(),
            set_quotas: of(None).map(|set| set.quotas.to_string()),
            tiers: tiers.collect(),
            enforce: admin.limiter.enforcement(policy).share(),
            set_enforce: enforced.contains(policy.name()),
            leases: policy.uses_leases(),
            rows: counts_rows.then(|| rows.get(policy.name()).copied().unwrap_or(0)),
            set_keys_total: keys.count(),
            set_keys: set_keys.into_iter().map(set_key).collect(),
            next,
        }
    };
    let policies = admin.selected(selection.policy.as_deref())?.into_iter().map(entry).collect();
    let scope = PoliciesScope { settings: admin.settings_scope(), rows: Scope::ThisProcess };
    Ok(Json(Policies { scope, policies }))
}

#[derive(Serialize)]
pub(super) struct Tops {
    scope: Scope,
    has_top: bool,
    policies: Vec<TopEntry>,
}

#[derive(Serialize)]
struct TopEntry {
    policy: String,
    requested: Counts,
    refused: Counts,
}

#[derive(Serialize)]
struct Counts {
    total: u64,
    max_error: u64,
    keys: Vec<Counted>,
}

#[derive(Serialize)]
struct Counted {
    key: String,
    text: Option<String>,
    count: u64,
    max_error: u64,
}

impl Counts {
    fn of(keys: &TopKeys) -> Counts {
        let counted = |key: &TopKey| Counted {
            key: shown(key.digest()),
            text: key.text().map(str::to_owned),
            count: key.count(),
            max_error: key.max_error(),
        };
        let counted = keys.keys().iter().map(counted).collect();
        Counts { total: keys.total(), max_error: keys.max_error(), keys: counted }
    }
}

/// `GET /top`.
pub(super) async fn top(State(admin): State<Arc<Admin>>, selection: Asked<Selection>) -> Result<Json<Tops>, Problem> {
    let Query(selection) = selection?;
    let max = selection.max(MAX_LISTED)?;
    let selected = admin.selected(selection.policy.as_deref())?;
    let entry = |policy: &Policy| {
        let (top, policy) = (admin.top.as_ref()?, policy.name());
        let (requested, refused) = (Counts::of(&top.requested(policy, max)), Counts::of(&top.refused(policy, max)));
        Some(TopEntry { policy: policy.to_string(), requested, refused })
    };
    let policies = selected.into_iter().filter_map(entry).collect();
    Ok(Json(Tops { scope: Scope::ThisProcess, has_top: admin.top.is_some(), policies }))
}

#[derive(Serialize)]
pub(super) struct Limited {
    scope: LimitedScope,
    has_top: bool,
    keys: Vec<LimitedKey>,
    blocks_total: usize,
    blocks: Vec<BlockEntry>,
}

#[derive(Serialize)]
struct LimitedScope {
    refused: Scope,
    now: Scope,
    blocks: Scope,
}

#[derive(Serialize)]
struct LimitedKey {
    text: Option<String>,
    refused: u64,
    max_error: u64,
    #[serde(flatten)]
    now: Answer,
}

/// `GET /limited`. Reads each key from the backend, because cached denials may be up to a second old.
pub(super) async fn limited(
    State(admin): State<Arc<Admin>>,
    selection: Asked<Selection>,
) -> Result<Json<Limited>, Problem> {
    let Query(selection) = selection?;
    let max = selection.max(MAX_LIMITED)?;
    let mut heaviest: Vec<(&Policy, u64, Counted)> = Vec::new();
    for policy in admin.selected(selection.policy.as_deref())? {
        let refused = admin.top.as_ref().map(|top| Counts::of(&top.refused(policy.name(), max)));
        let keys = refused.map_or(Vec::new(), |refused| refused.keys);
        heaviest.extend(keys.into_iter().map(|key| (policy, key.count, key)));
    }
    heaviest.sort_by_key(|(_, count, _)| std::cmp::Reverse(*count));
    heaviest.truncate(max);
    let mut keys = Vec::new();
    for (policy, _, Counted { key, text, count, max_error }) in heaviest {
        // A block on an address cannot be looked up by digest, so use the text of the key if it is known. A shortened
        // text may parse as a different key, so compare the digests.
        let shown_key = text.as_deref().and_then(|text| text.parse::<Key>().ok());
        let is_same = |known: &Key| shown(admin.limiter.digest(Some(known))) == key;
        let key = shown_key.filter(is_same).map_or_else(|| target::key(&key), Ok)?;
        let now = inspect(&admin, policy, &key, None).await?;
        keys.push(LimitedKey { text, refused: count, max_error, now });
    }
    let blocks = sorted_blocks(&admin);
    let (blocks_total, blocks) = (blocks.len(), blocks.iter().take(max).map(BlockEntry::of).collect());
    let (now, shared) = (admin.rows_scope(), admin.settings_scope());
    let scope = LimitedScope { refused: Scope::ThisProcess, now, blocks: shared };
    Ok(Json(Limited { scope, has_top: admin.top.is_some(), keys, blocks_total, blocks }))
}

#[derive(Serialize)]
pub(super) struct Blocks {
    scope: Scope,
    total: usize,
    blocks: Vec<BlockEntry>,
    next: Option<String>,
}

#[derive(Serialize)]
pub(super) struct BlockEntry {
    key: String,
    rule: Option<String>,
    manual: bool,
    times: u32,
    age_ms: u64,
    left_ms: u64,
}

impl BlockEntry {
    pub(super) fn of(block: &Block) -> BlockEntry {
        BlockEntry {
            key: shown(block.digest),
            rule: block.rule.as_ref().map(ToString::to_string),
            manual: block.by_hand,
            times: block.times,
            age_ms: millis(block.age),
            left_ms: millis(block.left),
        }
    }
}

/// `GET /blocks`.
pub(super) async fn blocks(
    State(admin): State<Arc<Admin>>,
    selection: Asked<Selection>,
) -> Result<Json<Blocks>, Problem> {
    let Query(selection) = selection?;
    let (max, after) = (selection.max(MAX_LISTED)?, selection.after()?);
    if selection.policy.is_some() {
        return Err(Problem::invalid("`policy`: blocks apply under every policy; omit this parameter"));
    }
    let all = sorted_blocks(&admin);
    let rest = &all[all.partition_point(|block| after.is_some_and(|after| block.digest <= after))..];
    // All blocks on a caller are on the same page, because the next page begins after the caller's digest.
    let last = rest.get(max.saturating_sub(1)).map(|block| block.digest);
    let end = last.map_or(rest.len(), |last| rest.partition_point(|block| block.digest <= last));
    let next = last.filter(|_| end < rest.len()).map(shown);
    let blocks = rest[..end].iter().map(BlockEntry::of).collect();
    Ok(Json(Blocks { scope: admin.settings_scope(), total: all.len(), blocks, next }))
}

fn sorted_blocks(admin: &Admin) -> Vec<Block> {
    let mut blocks = admin.limiter.blocks();
    blocks.sort_unstable_by_key(|block| (block.digest, block.by_hand));
    blocks
}
