//! Changes by operators, their effects, and their audit events.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::Request;
use serde_json::{Value, json};
use tollgate::admin::{Admin, Operator};
use tollgate::policy::Quotas;
use tollgate::protection::Signal;
use tollgate::{MINUTE, Quota, RateLimiter, Reason, Subject};
use tower::ServiceExt;

use super::client::{API, AuditLog, TestServer, chat};
use crate::support::backends::SilentBackend;

const DONE: &str = "this_process";

#[tokio::test]
async fn a_key_or_a_whole_policy_can_be_reset() {
    let server = TestServer::start().await;
    let limiter = &server.limiter;
    for key in [7, 8] {
        limiter.acquire(&API, key).cost(5).await.unwrap();
    }
    let answer = server.change("reset", r#"{"policy":"api","key":"7"}"#).await;
    assert_eq!(answer, json!({"scope": DONE, "found": true}));
    assert_eq!((limiter.remaining(&API, 7).await.unwrap(), limiter.remaining(&API, 8).await.unwrap()), (5, 0));
    let again = server.change("reset", r#"{"policy":"api","key":"7"}"#).await;
    assert_eq!(again["found"], false);
    assert_eq!(server.change("reset", r#"{"policy":"api","all":true}"#).await, json!({"scope": DONE}));
    assert_eq!(limiter.remaining(&API, 8).await.unwrap(), 5);

    for (body, detail) in [
        (r#"{"policy":"api"}"#, "expected either `key`, or `all: true`"),
        (r#"{"policy":"api","key":"7","all":true}"#, "expected either `key`, or `all: true`"),
        (r#"{"policy":"apy","key":"7"}"#, r#"there is no policy "apy" (did you mean "api"?)"#),
        (r#"{"policy":"api","key":"ada"}"#, "`key`: expected a key at byte 0: write \"ada\" in quotes"),
    ] {
        refused(&server, "reset", body, detail).await;
    }
    let (seven, audits) = (server.digest(7), server.audits.take());
    assert_eq!(
        audits[..3],
        [
            format!("ada reset api {seven} [] done"),
            format!("ada reset api {seven} [] done"),
            "ada reset api - [] done".to_owned(),
        ]
    );
    assert_eq!(audits.len(), 3 + 4, "refused changes must be audited too: {audits:?}");
}

/// Regression: only the rows of the policy's own quota were deleted, but the response reported `found`.
#[tokio::test]
async fn a_reset_covers_all_shards_of_a_tiers_quota_or_of_a_keys_own_quota() {
    let server = TestServer::start().await;
    let (limiter, policy) = (&server.limiter, chat());
    let sharded = Quota::token_bucket(80, MINUTE).shards(8);
    limiter.set_tier_quota(&policy, "premium", Quotas::from(sharded)).await.unwrap();
    for subject in [Subject::new(7).tier("premium"), Subject::new(8).quota(sharded)] {
        while limiter.try_limit(&policy, subject.clone()).await.unwrap().is_allowed() {}
        let key = subject.key().unwrap().to_text();
        let answer = server.change("reset", &json!({"policy": "chat", "key": key}).to_string()).await;
        assert_eq!((&answer["found"], limiter.remaining(&policy, subject).await.unwrap()), (&json!(true), 80));
    }
}

async fn refused(server: &TestServer, path: &str, body: &str, detail: &str) {
    let response = server.post(path, body).await;
    assert!((400..500).contains(&response.status), "{path} {body}: {}", response.status);
    let found = response.body["detail"].as_str().unwrap();
    assert!(found.contains(detail), "{path} {body}: expected {detail:?} in {found:?}");
}

#[tokio::test]
async fn a_credit_uses_the_tier_stored_in_the_row() {
    let server = TestServer::start().await;
    let (limiter, policy) = (&server.limiter, chat());
    let premium = || Subject::new(7).tier("premium");
    limiter.acquire(&policy, premium()).cost(50).await.unwrap();
    let answer = server.change("credit", r#"{"policy":"chat","key":"7","tokens":20}"#).await;
    assert_eq!((&answer["found"], limiter.remaining(&policy, premium()).await.unwrap()), (&json!(true), 20));
    let body = r#"{"policy":"chat","key":"8","tokens":20,"tier":"premium"}"#;
    assert_eq!(server.change("credit", body).await["found"], false);
    refused(&server, "credit", r#"{"policy":"chat","key":"7","tokens":0}"#, "at least 1").await;
    refused(&server, "credit", r#"{"policy":"chat","key":"7","tokens":-1}"#, "tokens").await;
    refused(&server, "credit", r#"{"policy":"chat","key":"7","tokens":1,"tier":"gold"}"#, "unknown tier").await;
    let audits = server.audits.take();
    assert_eq!(audits[0], format!("ada credit chat {} [20 tokens] done", server.digest(7)));
    assert_eq!(audits.len(), 5);
}

#[tokio::test]
async fn keys_addresses_agents_and_labels_can_be_blocked_and_unblocked() {
    let server = TestServer::start().await;
    let limiter = &server.limiter;
    for (target, rule) in [
        (r#""key":"\"mallory\"""#.to_owned(), server.digest("mallory")),
        (format!(r#""key":"{}""#, server.digest(7)), server.digest(7)),
        (r#""ip":"192.0.2.7""#.to_owned(), "network 192.0.2.7/32".to_owned()),
        (r#""user_agent":"curl/8.5.0""#.to_owned(), "user agent \"curl/8.5.0\"".to_owned()),
        (r#""label":{"name":"asn","value":"64496"}"#.to_owned(), "asn \"64496\"".to_owned()),
    ] {
        assert_eq!(server.change("block", &format!(r#"{{{target},"lasts":"2h"}}"#)).await, json!({"scope": DONE}));
        assert_eq!(limiter.blocks().len(), 1, "{target}");
        assert_eq!(server.audits.take(), [format!("ada block - {rule} [2h] done")]);
        let answer = server.change("unblock", &format!("{{{target}}}")).await;
        assert_eq!((&answer["found"], limiter.blocks().len()), (&json!(true), 0), "{target}");
        assert_eq!(server.change("unblock", &format!("{{{target}}}")).await["found"], false);
        assert_eq!(server.audits.take(), vec![format!("ada unblock - {rule} [] done"); 2]);
    }
    for (body, detail) in [
        (r#"{"lasts":"1h"}"#, "expected exactly one of `key`, `ip`, `user_agent` and `label`"),
        (r#"{"key":"7","ip":"192.0.2.7","lasts":"1h"}"#, "expected exactly one of"),
        (r#"{"key":"7"}"#, "`lasts`: expected a duration, such as \"15min\""),
        (r#"{"key":"7","lasts":"soon"}"#, "`lasts`: expected a duration"),
        (r#"{"key":"7","lasts":"0s"}"#, "`lasts`: expected a duration"),
        (r#"{"ip":"192.0.2.0/24","lasts":"1h"}"#, "IP address"),
        (r#"{"user_agent":"","lasts":"1h"}"#, "expected a string of 1 to"),
    ] {
        refused(&server, "block", body, detail).await;
    }
    refused(&server, "unblock", r#"{"key":"7","lasts":"1h"}"#, "omit this field").await;
    assert!(limiter.blocks().is_empty());
}

/// Regression: the change was made, but no event was sent.
#[tokio::test]
async fn a_change_is_audited_even_if_the_client_disconnects() {
    let audits = Arc::new(AuditLog::default());
    let limiter = RateLimiter::builder(SilentBackend).observer(Arc::clone(&audits)).build();
    let admin = Admin::new(&limiter, |_| Some(Operator::editor("ada"))).policies([&API]);
    let request = Request::post("/reset").header("content-type", "application/json");
    let request = request.body(Body::from(r#"{"policy":"api","key":"7"}"#)).unwrap();
    let answer = admin.into_router::<()>().oneshot(request);
    assert!(tokio::time::timeout(Duration::from_millis(50), answer).await.is_err());
    let [audit] = &audits.take()[..] else { panic!("expected one event") };
    let digest = format!("{:?}", limiter.digest(Some(&7.into())));
    assert!(audit.starts_with(&format!("ada reset api digest:{digest} [] failed: the client disconnected")), "{audit}");
}

#[tokio::test]
async fn an_audit_event_is_one_short_line() {
    let server = TestServer::start().await;
    for (path, body) in [
        ("block", json!({"key": "7", "lasts": "1h\nada reset api".repeat(500)})),
        ("quota", json!({"policy": "api", "quota": "9/min\r\n".repeat(500)})),
        ("quota", json!({"policy": "api", "tier": "\n".repeat(5000), "quota": "9/min"})),
    ] {
        assert_eq!(server.post(path, &body.to_string()).await.status, 400);
    }
    for audit in server.audits.take() {
        let (before, _) = audit.split_once("failed: ").unwrap();
        assert!(before.len() < 1000 && !audit.contains(['\n', '\r']), "{audit}");
    }
}

/// Regression: line breaks in the name of a label or of an unknown field could add lines to a log.
#[tokio::test]
async fn an_audit_event_with_an_error_or_a_label_is_one_short_line() {
    let server = TestServer::start().await;
    let text = "x\nada reset api - [] done ".repeat(500);
    let unknown = json!({"policy": "api", text: 1}).to_string();
    assert_eq!(server.post("reset", &unknown).await.status, 422);
    server.change("block", r#"{"label":{"name":"x\nada reset api - [] done","value":"y"},"lasts":"1h"}"#).await;
    let audits = server.audits.take();
    assert!(audits.iter().all(|audit| audit.len() < 1000 && !audit.contains('\n')), "{audits:?}");
    assert_eq!(audits.len(), 2);
}

#[tokio::test]
async fn any_listed_block_can_be_lifted_by_its_digest() {
    let server = TestServer::start().await;
    for signal in [Signal::ip([192, 0, 2, 7].into()), Signal::user_agent("curl"), Signal::key("mallory")] {
        server.limiter.block(signal, MINUTE).await.unwrap();
    }
    for block in server.read("blocks").await["blocks"].as_array().unwrap() {
        assert_eq!(server.change("unblock", &json!({"key": block["key"]}).to_string()).await["found"], true);
    }
    assert!(server.limiter.blocks().is_empty());
    assert_eq!(server.limiter.try_limit(&API, "mallory").await.unwrap().reason(), Reason::WithinQuota);
}

#[tokio::test]
async fn quotas_can_be_set_and_restored_for_all_callers_for_a_tier_and_for_a_key() {
    let server = TestServer::start().await;
    let (limiter, policy) = (&server.limiter, chat());
    let of = |subject: Subject| limiter.quotas(&policy, subject).to_string();
    for (scope, subject, audited) in [
        ("", Subject::new(8), "-".to_owned()),
        (r#""tier":"premium","#, Subject::new(8).tier("premium"), "tier \"premium\"".to_owned()),
        (r#""key":"7","#, Subject::new(7), server.digest(7)),
    ] {
        let before = of(subject.clone());
        let set = |quota: &str| format!(r#"{{"policy":"chat",{scope}"quota":{quota}}}"#);
        assert_eq!(server.change("quota", &set("\"33/min\"")).await, json!({"scope": DONE}));
        assert_eq!(of(subject.clone()), "33/min");
        server.change("quota", &set("null")).await;
        assert_eq!(of(subject), before);
        let audits = server.audits.take();
        let done = |change| format!("ada quota chat {audited} [{change}] done");
        assert_eq!(audits, [done("33/min"), done("the program's")]);
    }
    for (body, detail) in [
        (r#"{"policy":"chat"}"#, "missing field `quota`"),
        (r#"{"policy":"chat","quota":"fast"}"#, "`quota`: "),
        (r#"{"policy":"chat","quota":"10/min sliding"}"#, "different algorithm"),
        (r#"{"policy":"chat","quota":"0/min"}"#, ""),
        (r#"{"policy":"chat","tier":"premum","quota":"1/min"}"#, "did you mean \"premium\"?"),
        (r#"{"policy":"chat","tier":"premium","key":"7","quota":"1/min"}"#, "found both"),
    ] {
        refused(&server, "quota", body, detail).await;
    }
    assert_eq!((limiter.set_quotas().len(), server.audits.take().len()), (0, 6));
}

#[tokio::test]
async fn enforcement_can_be_set_and_restored() {
    let server = TestServer::start().await;
    let share = async || server.read("policies?policy=api").await["policies"][0]["enforce"].clone();
    for (enforce, shown) in [("0.25", json!(0.25)), ("0", json!(0.0)), ("1.0", json!(1.0)), ("null", json!(1.0))] {
        server.change("enforcement", &format!(r#"{{"policy":"api","enforce":{enforce}}}"#)).await;
        assert_eq!(share().await, shown);
    }
    assert!(server.limiter.set_enforcements().is_empty());
    for enforce in ["1.5", "-0.1", "\"all\""] {
        refused(&server, "enforcement", &format!(r#"{{"policy":"api","enforce":{enforce}}}"#), "").await;
    }
    refused(&server, "enforcement", r#"{"policy":"api"}"#, "missing field `enforce`").await;
    assert_eq!(server.audits.take().len(), 8);
    assert_eq!(share().await, Value::from(1.0));
}
