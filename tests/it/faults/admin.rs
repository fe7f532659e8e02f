//! Faults of the router for operators.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tollgate::admin::{Admin, Operator};
use tollgate::clock::ManualClock;
use tollgate::observe::{Audited, Decided, Observer};
use tollgate::{MemoryBackend, Policy, Quota, RateLimiter};
use tower::ServiceExt;

/// The names of operators and the changes in the audit events.
#[derive(Default)]
struct Audits(Mutex<Vec<(String, String)>>);

impl Observer for Audits {
    fn decided(&self, _: &Decided<'_>) {}

    fn audited(&self, audited: &Audited<'_>) {
        self.0.lock().unwrap().push((audited.operator().to_owned(), audited.change().to_owned()));
    }
}

fn router(operator: Operator) -> (Router, RateLimiter, Policy, Arc<Audits>) {
    let audits = Arc::new(Audits::default());
    let policy = Policy::new("api", Quota::per_minute(60)).and(Quota::per_second(10));
    let backend = MemoryBackend::builder().clock(ManualClock::new()).build();
    let limiter = RateLimiter::builder(backend).observer(Arc::clone(&audits)).build();
    let admin = Admin::new(&limiter, move |_| Some(operator.clone())).policies([&policy]);
    (admin.into_router(), limiter, policy, audits)
}

async fn post(app: &Router, path: &str, body: Value) -> (u16, Value) {
    let request = Request::post(path).header("content-type", "application/json");
    let Ok(response) = app.clone().oneshot(request.body(Body::from(body.to_string())).unwrap()).await;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap())
}

/// A name with a line break, which adds a line to a log, and an escape sequence, which erases a line of a terminal.
const NAME: &str = "eve\nada reset api: done\u{1b}[2K";

/// Right: the name is escaped like the other values of the event. Cause: `Change::audit` in `src/admin/change.rs` does
/// not pass the name to `audited`. `authorize` in `src/admin/access.rs` does not either, if the change is refused.
#[tokio::test]
async fn fault_16_the_name_of_an_operator_reaches_audit_events_with_line_breaks_and_escapes() {
    for (operator, status) in [(Operator::editor(NAME), 200), (Operator::reader(NAME), 403)] {
        let (app, _, _, audits) = router(operator);
        let reset = json!({"policy": "api", "key": "7"});
        assert_eq!(post(&app, "/reset", reset).await.0, status);
        assert_eq!(*audits.0.lock().unwrap(), [(NAME.to_owned(), String::new())], "{status}");
    }
}

/// Right: escaped, as the command does. Cause: `audited` in `src/admin/change.rs` replaces only control characters,
/// but U+202E reverses the text after it, and U+2028 separates lines.
#[tokio::test]
async fn fault_16_characters_that_reorder_or_separate_lines_reach_audit_events() {
    let (app, _, _, audits) = router(Operator::editor("ada"));
    let change = "9/min\u{202e}\u{2028}";
    assert_eq!(post(&app, "/quota", json!({"policy": "api", "quota": change})).await.0, 400);
    assert_eq!(*audits.0.lock().unwrap(), [("ada".to_owned(), change.to_owned())]);
}

/// Right: the answer and the audit event name what was replaced (`60/min; 10/s → 9/min`). Cause: `quota` in
/// `src/admin/change.rs` reads no earlier quotas, and `Done` has no field for them.
#[tokio::test]
async fn fault_17_an_operators_quota_removes_the_other_quotas_of_the_policy_in_silence() {
    let (app, limiter, policy, audits) = router(Operator::editor("ada"));
    let answer = post(&app, "/quota", json!({"policy": "api", "quota": "9/min"})).await;
    assert_eq!(answer, (200, json!({"scope": "this_process"})));
    assert_eq!(limiter.quotas(&policy, "ada").to_string(), "9/min");
    assert_eq!(*audits.0.lock().unwrap(), [("ada".to_owned(), "9/min".to_owned())]);
}

/// Right: `"found": false`, as `/reset` and `/unblock` answer. Cause: `quota` and `enforcement` in
/// `src/admin/change.rs` return `None`, and `RateLimiter::set_quota` does not return whether there was a setting.
#[tokio::test]
async fn fault_20_restoring_settings_that_were_never_changed_is_not_reported() {
    let (app, ..) = router(Operator::editor("ada"));
    for (path, body) in [
        ("/quota", json!({"policy": "api", "quota": null})),
        ("/quota", json!({"policy": "api", "quota": null, "key": "7"})),
        ("/enforcement", json!({"policy": "api", "enforce": null})),
    ] {
        assert_eq!(post(&app, path, body).await, (200, json!({"scope": "this_process"})), "{path}");
    }
    assert_eq!(post(&app, "/reset", json!({"policy": "api", "key": "7"})).await.1["found"], false);
}
