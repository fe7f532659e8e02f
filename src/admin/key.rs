//! The endpoint that explains why a key is limited, and which actions would help its caller.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Query, State};
use serde::{Deserialize, Serialize};

use super::lists::{BlockEntry, millis, shown};
use super::problem::Problem;
use super::{Admin, Scope, target};
use crate::algorithm::{Ask, Verdict};
use crate::limiter::{Acquire, Block, Snapshot};
use crate::policy::{Decision, Digest, Key, Policy, Reason, Signals, Subject};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Question {
    key: String,
    policy: Option<String>,
    tier: Option<String>,
}

/// How one policy treats a key.
#[derive(Serialize)]
pub(super) struct Answer {
    policy: String,
    key: String,
    tier: Option<String>,
    /// One of `asked`, `row` and `none`.
    tier_from: &'static str,
    quotas_from: &'static str,
    quotas: String,
    /// Whether one more token could be spent now.
    allowed: bool,
    enforced: bool,
    reason: &'static str,
    decided_by: &'static str,
    retry_after_ms: Option<u64>,
    windows: Vec<Window>,
    helps: Vec<Help>,
}

#[derive(Serialize)]
struct Window {
    name: String,
    quota: String,
    capacity: u64,
    spent: u64,
    left: u64,
    full_in_ms: u64,
    retry_after_ms: Option<u64>,
    /// Whether the row was last charged under another quota, for example the [caller's own](Subject::quota).
    other_quota: bool,
}

/// An action that helps a caller whose requests are denied.
#[derive(Serialize)]
#[serde(tag = "action", rename_all = "snake_case")]
enum Help {
    /// Waiting.
    Wait { ms: u64 },
    /// `POST /reset`.
    Reset,
    /// `POST /credit` with at least this many tokens.
    Credit { tokens: u64 },
    /// `POST /quota` with a larger quota.
    Quota,
    /// `POST /unblock`.
    Unblock,
    /// Removing a rule from the program's deny list.
    DenyList,
}

#[derive(Serialize)]
pub(super) struct Answers {
    key: String,
    scope: AnswersScope,
    blocks: Vec<BlockEntry>,
    /// Whether the key is on the deny list; `None` if only its digest is known.
    on_deny_list: Option<bool>,
    policies: Vec<Answer>,
}

#[derive(Serialize)]
struct AnswersScope {
    rows: Scope,
    blocks: Scope,
    deny_list: Scope,
}

/// `GET /key`. Refuses credentials, because servers log URLs.
pub(super) async fn by_query(
    State(admin): State<Arc<Admin>>,
    question: Result<Query<Question>, QueryRejection>,
) -> Result<Json<Answers>, Problem> {
    let Query(question) = question?;
    let key = target::key(&question.key)?;
    if key.may_be_credential() {
        return Err(Problem::invalid(
            "`key` may be a credential, and servers log URLs; send it with `POST /key` as JSON, or send its digest",
        ));
    }
    answer(&admin, &key, &question).await
}

/// `POST /key`. Changes nothing.
pub(super) async fn by_body(
    State(admin): State<Arc<Admin>>,
    question: Result<Json<Question>, JsonRejection>,
) -> Result<Json<Answers>, Problem> {
    let Json(question) = question?;
    answer(&admin, &target::key(&question.key)?, &question).await
}

async fn answer(admin: &Admin, key: &Key, question: &Question) -> Result<Json<Answers>, Problem> {
    let selected = admin.selected(question.policy.as_deref())?;
    if let Some(tier) = &question.tier {
        if !selected.iter().any(|policy| policy.quotas_of_tier(tier).is_some()) {
            return Err(Problem::invalid(format!("`tier`: no selected policy has the tier {tier:?}")));
        }
    }
    let mut policies = Vec::new();
    for policy in selected {
        policies.push(inspect(admin, policy, key, question.tier.as_deref()).await?);
    }
    let digest = admin.limiter.digest(Some(key));
    let blocked: Vec<Digest> =
        target::signals(key).map(|signal| admin.limiter.digest(Some(&signal.to_key()))).collect();
    let blocks: Vec<Block> =
        admin.limiter.blocks().into_iter().filter(|block| blocked.contains(&block.digest)).collect();
    let deny_list = admin.limiter.deny_list();
    let signals = key.address().into_iter().fold(Signals::new(), Signals::ip);
    let is_denied = deny_list.is_some_and(|list| list.find(Some(key), &signals).is_some());
    let is_unknown = key.as_digest().is_some() && deny_list.is_some();
    let scope =
        AnswersScope { rows: admin.rows_scope(), blocks: admin.settings_scope(), deny_list: Scope::ThisProcess };
    Ok(Json(Answers {
        key: shown(digest),
        scope,
        blocks: blocks.iter().map(BlockEntry::of).collect(),
        on_deny_list: (!is_unknown).then_some(is_denied),
        policies,
    }))
}

/// Reads a key's rows under a policy. Unless `asked_tier` is a tier of this policy, takes the tier from the row.
pub(super) async fn inspect(
    admin: &Admin,
    policy: &Policy,
    key: &Key,
    asked_tier: Option<&str>,
) -> Result<Answer, Problem> {
    let limiter = &admin.limiter;
    let mut subject = Subject::new(key.clone());
    let mut tier_from = "none";
    if let Some(tier) = asked_tier.filter(|tier| policy.quotas_of_tier(tier).is_some()) {
        (subject, tier_from) = (subject.tier(tier.to_owned()), "asked");
    }
    let mut inspected = limiter.inspect(policy, &subject).await?;
    if tier_from == "none" {
        if let Some(tier) = limiter.tier_of(policy, &subject, &inspected) {
            (subject, tier_from) = (subject.tier(tier), "row");
            inspected = limiter.inspect(policy, &subject).await?;
        }
    }
    let (quotas, source) = limiter.quota_source(policy, &subject);
    let enforced = limiter.enforces(policy, &subject);
    let check = limiter.try_acquire(policy, subject.clone());
    let decision = key.address().into_iter().fold(check, Acquire::ip).check().await?;
    let windows: Vec<Window> = inspected.iter().map(Window::of).collect();
    Ok(Answer {
        policy: policy.name().to_string(),
        key: shown(limiter.digest(subject.key())),
        tier: subject.tier_name().map(str::to_owned),
        tier_from,
        quotas_from: source.as_str(),
        quotas: quotas.to_string(),
        allowed: decision.is_allowed(),
        enforced,
        reason: decision.reason().as_str(),
        decided_by: decision.decided_by().as_str(),
        retry_after_ms: decision.retry_after().map(millis),
        helps: helps(&decision, &windows),
        windows,
    })
}

impl Answer {
    pub(super) fn into_tier(self) -> Option<String> {
        self.tier
    }
}

impl Window {
    fn of(decision: &Decision) -> Window {
        let (quota, stamp) = (decision.quota(), decision.rows().next().map(|(quota, row)| (quota.stamp(), row.stamp)));
        let snapshot = Snapshot::of(decision);
        let retry = match snapshot.project(snapshot.now(), Ask::cost(1)).verdict {
            Verdict::Deny { retry } => retry.map(millis),
            _ => None,
        };
        Window {
            name: decision.name().into_owned(),
            quota: quota.whole().to_string(),
            capacity: decision.capacity(),
            spent: decision.spent(),
            left: decision.remaining(),
            full_in_ms: millis(decision.reset()),
            retry_after_ms: retry,
            other_quota: stamp.is_some_and(|(own, wrote)| wrote != 0 && wrote != own),
        }
    }
}

/// Returns the actions that help a caller. Actions that end a block precede actions that restore tokens.
fn helps(decision: &Decision, windows: &[Window]) -> Vec<Help> {
    let mut helps = Vec::new();
    match decision.reason() {
        Reason::DenyList => helps.push(Help::DenyList),
        Reason::Blocked => {
            helps.extend(decision.retry_after().map(|wait| Help::Wait { ms: millis(wait) }));
            // A pause has no rule, so there is no block to lift.
            helps.extend(decision.denied_rule().map(|_| Help::Unblock));
        }
        _ => {}
    }
    let spent = || windows.iter().filter(|window| window.left == 0);
    let lacking = |window: &Window| window.spent.saturating_add(1).saturating_sub(window.capacity);
    let Some(tokens) = spent().map(lacking).max() else { return helps };
    if spent().all(|window| window.capacity > 0) {
        if helps.is_empty() {
            helps.extend(spent().filter_map(|window| window.retry_after_ms).max().map(|ms| Help::Wait { ms }));
        }
        helps.extend([Help::Reset, Help::Credit { tokens }]);
    }
    helps.push(Help::Quota);
    helps
}
