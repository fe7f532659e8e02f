//! The endpoints that make changes. Each attempted change is reported as an audit event, even if it fails.

use std::sync::Arc;

use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::{Extension, Json};
use serde::{Deserialize, Deserializer, Serialize};

use super::access::Operator;
use super::key::inspect;
use super::lists::shown;
use super::problem::Problem;
use super::target::{self, BlockTarget};
use super::{Admin, Scope};
use crate::algorithm::Quota;
use crate::limiter::observer::Audited;
use crate::policy::{Enforce, Key, Policy, Quotas, Signal, SignalKind, Subject};

/// The names of the endpoints in this file, also used in audit events.
pub(super) const ACTIONS: [&str; 6] = ["reset", "credit", "block", "unblock", "quota", "enforcement"];

type Body<T> = Result<Json<T>, JsonRejection>;
type Changed = Result<Json<Done>, Problem>;
/// Whether there was something to change, or `None` if this is unknown.
type Made = Result<Option<bool>, Problem>;

#[derive(Serialize)]
pub(super) struct Done {
    /// The processes in which the change takes effect within a second.
    scope: Scope,
    #[serde(skip_serializing_if = "Option::is_none")]
    found: Option<bool>,
}

/// A change in progress, which ends with an audit event. If the client disconnects before the backend has answered,
/// this value is dropped, and the event states that the change may have been made.
struct Change<'a> {
    admin: &'a Admin,
    operator: &'a Operator,
    action: &'static str,
    policy: Option<&'a Policy>,
    scope: Option<String>,
    value: String,
    is_audited: bool,
}

impl<'a> Change<'a> {
    fn new(admin: &'a Admin, operator: &'a Operator, action: &'static str) -> Change<'a> {
        Change { admin, operator, action, policy: None, scope: None, value: String::new(), is_audited: false }
    }

    fn policy(&mut self, name: &str) -> Result<&'a Policy, Problem> {
        let policy = self.admin.policy(name)?;
        self.policy = Some(policy);
        Ok(policy)
    }

    fn key(&mut self, text: &str) -> Result<Key, Problem> {
        let key = target::key(text)?;
        self.scope = Some(shown(self.admin.limiter.digest(Some(&key))));
        Ok(key)
    }

    fn end(mut self, done: Made, scope: Scope) -> Changed {
        self.audit(done.as_ref().err().map(Problem::detail));
        Ok(Json(Done { scope, found: done? }))
    }

    fn audit(&mut self, error: Option<&str>) {
        self.is_audited = true;
        let (scope, error) = (self.scope.as_deref().map(audited), error.map(audited));
        self.admin.limiter.audit(&Audited {
            operator: self.operator.name(),
            action: self.action,
            policy: self.policy.map(Policy::name),
            scope: scope.as_deref(),
            change: &self.value,
            error: error.as_deref(),
        });
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        if !self.is_audited {
            self.audit(Some("the client disconnected before the backend answered; the change may have been made"));
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Reset {
    policy: String,
    key: Option<String>,
    #[serde(default)]
    all: bool,
}

/// `POST /reset`: restores the full quota of one key, or of every key under a policy.
pub(super) async fn reset(
    State(admin): State<Arc<Admin>>,
    Extension(operator): Extension<Operator>,
    body: Body<Reset>,
) -> Changed {
    let mut change = Change::new(&admin, &operator, "reset");
    let done: Made = async {
        let Json(Reset { policy, key, all }) = body?;
        let policy = change.policy(&policy)?;
        match (key, all) {
            (Some(key), false) => {
                let key = change.key(&key)?;
                // The caller's quota and thus its number of shards are unknown, so assume the maximum.
                Ok(Some(admin.limiter.reset(policy, Subject::new(key).quota(MOST_SHARDS)).await?))
            }
            (None, true) => {
                admin.limiter.reset_policy(policy).await?;
                Ok(None)
            }
            _ => Err(Problem::invalid("expected either `key`, or `all: true` to reset every key")),
        }
    }
    .await;
    change.end(done, admin.rows_scope())
}

const MOST_SHARDS: Quota = Quota::per_second(Quota::MAX_SHARDS).shards(Quota::MAX_SHARDS);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Credit {
    policy: String,
    key: String,
    tier: Option<String>,
    tokens: u64,
}

/// `POST /credit`: gives tokens back to a key.
pub(super) async fn credit(
    State(admin): State<Arc<Admin>>,
    Extension(operator): Extension<Operator>,
    body: Body<Credit>,
) -> Changed {
    let mut change = Change::new(&admin, &operator, "credit");
    let done: Made = async {
        let Json(Credit { policy, key, tier, tokens }) = body?;
        change.value = format!("{tokens} tokens");
        let policy = change.policy(&policy)?;
        let key = change.key(&key)?;
        if tokens == 0 {
            return Err(Problem::invalid("`tokens`: expected at least 1"));
        }
        policy.check_change(tier.as_deref(), None).map_err(|error| Problem::invalid(error.to_string()))?;
        // How many tokens are left depends on the quota, and therefore on the tier.
        let tier = inspect(&admin, policy, &key, tier.as_deref()).await?.into_tier();
        let subject = tier.into_iter().fold(Subject::new(key), |subject, tier| subject.tier(tier));
        Ok(Some(admin.limiter.credit(policy, subject, tokens).await?))
    }
    .await;
    change.end(done, admin.rows_scope())
}

/// `POST /block`: blocks a caller under every policy.
pub(super) async fn block(
    State(admin): State<Arc<Admin>>,
    Extension(operator): Extension<Operator>,
    body: Body<BlockTarget>,
) -> Changed {
    let mut change = Change::new(&admin, &operator, "block");
    let done: Made = async {
        let Json(target) = body?;
        change.value = target.lasts.as_deref().map(audited).unwrap_or_default();
        let lasts = target::lasts(target.lasts.as_deref());
        let signal = target.signal()?;
        change.scope = Some(name(&admin, &signal.0, signal.to_rule()));
        admin.limiter.block(signal, lasts?).await?;
        Ok(None)
    }
    .await;
    change.end(done, admin.settings_scope())
}

/// `POST /unblock`: lifts all blocks on a caller.
pub(super) async fn unblock(
    State(admin): State<Arc<Admin>>,
    Extension(operator): Extension<Operator>,
    body: Body<BlockTarget>,
) -> Changed {
    let mut change = Change::new(&admin, &operator, "unblock");
    let done: Made = async {
        let Json(target) = body?;
        if target.lasts.is_some() {
            return Err(Problem::invalid("`lasts`: only `POST /block` accepts a duration; omit this field"));
        }
        let signal = target.signal()?;
        change.scope = Some(name(&admin, &signal.0, signal.to_rule()));
        let signals: Vec<Signal> = match &signal.0 {
            SignalKind::Key(key) => target::signals(key).collect(),
            _ => vec![signal],
        };
        let mut found = false;
        for signal in signals {
            let digest = admin.limiter.digest(Some(&signal.to_key()));
            found |= admin.limiter.blocks().iter().any(|block| block.digest == digest);
            admin.limiter.unblock(signal).await?;
        }
        Ok(Some(found))
    }
    .await;
    change.end(done, admin.settings_scope())
}

/// Returns a caller's name for audit events. For a key, this is its digest.
fn name(admin: &Admin, signal: &SignalKind, rule: impl ToString) -> String {
    match signal {
        SignalKind::Key(key) => shown(admin.limiter.digest(Some(key))),
        _ => rule.to_string(),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SetQuota {
    policy: String,
    tier: Option<String>,
    key: Option<String>,
    #[serde(deserialize_with = "given")]
    quota: Option<String>,
}

/// `POST /quota`: sets the quota of a key, a tier or all callers. `null` restores the program's quota.
pub(super) async fn quota(
    State(admin): State<Arc<Admin>>,
    Extension(operator): Extension<Operator>,
    body: Body<SetQuota>,
) -> Changed {
    let mut change = Change::new(&admin, &operator, "quota");
    let done: Made = async {
        let Json(SetQuota { policy, tier, key, quota }) = body?;
        change.value = quota.as_deref().map_or_else(|| "the program's".to_owned(), audited);
        let policy = change.policy(&policy)?;
        let key = key.map(|key| change.key(&key)).transpose()?;
        let parse =
            |text: String| text.parse::<Quotas>().map_err(|error| Problem::invalid(format!("`quota`: {error}")));
        let quotas = quota.map(parse).transpose()?;
        match (tier, key) {
            (None, None) => admin.limiter.set_quota(policy, quotas).await?,
            (Some(tier), None) => {
                change.scope = Some(format!("tier {:?}", audited(&tier)));
                admin.limiter.set_tier_quota(policy, &tier, quotas).await?;
            }
            (None, Some(key)) => admin.limiter.set_key_quota(policy, key, quotas).await?,
            _ => return Err(Problem::invalid("expected at most one of `tier` and `key`, found both")),
        }
        Ok(None)
    }
    .await;
    change.end(done, admin.settings_scope())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SetEnforce {
    policy: String,
    #[serde(deserialize_with = "given")]
    enforce: Option<f64>,
}

/// `POST /enforcement`: sets the share of keys for which a policy is enforced, or restores the program's share.
pub(super) async fn enforcement(
    State(admin): State<Arc<Admin>>,
    Extension(operator): Extension<Operator>,
    body: Body<SetEnforce>,
) -> Changed {
    let mut change = Change::new(&admin, &operator, "enforcement");
    let done: Made = async {
        let Json(SetEnforce { policy, enforce }) = body?;
        change.value = enforce.map_or("the program's".to_owned(), |share| share.to_string());
        let policy = change.policy(&policy)?;
        let expected = |share| Problem::invalid(format!("`enforce`: expected a share from 0.0 to 1.0, found {share}"));
        let parse = |share| Enforce::of_share(share).ok_or_else(|| expected(share));
        let enforce = enforce.map(parse).transpose()?;
        admin.limiter.set_enforcement(policy, enforce).await?;
        Ok(None)
    }
    .await;
    change.end(done, admin.settings_scope())
}

/// Reads a field that may be null but must be present.
fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    Option::deserialize(deserializer)
}

/// Shortens text for an audit event, and replaces control characters, which could add lines to a log.
fn audited(text: &str) -> String {
    text.chars().take(MAX_AUDITED).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

const MAX_AUDITED: usize = 256;
