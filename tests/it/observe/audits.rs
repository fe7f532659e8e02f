//! Log events for changes by operators.

use axum::body::Body;
use http::Request;
use tollgate::admin::{Admin, Operator};
use tollgate::observe::Tracing;
use tollgate::{HOUR, MemoryBackend, Policy, Quota, RateLimiter};
use tower::ServiceExt;
use tracing::Level;

use super::log::Log;

static API: Policy = Policy::new("api", Quota::token_bucket(2, HOUR));

#[tokio::test]
async fn each_change_by_an_operator_is_logged_without_the_key() {
    let limiter = RateLimiter::builder(MemoryBackend::new()).observer(Tracing::new().per_second(1)).build();
    let admin = Admin::new(&limiter, |_| Some(Operator::editor("ada"))).policies([&API]);
    let app = admin.into_router::<()>();
    let log = Log::new(Level::WARN);
    let _subscribed = log.subscribe();
    let key = limiter.digest(Some(&"sk_7f3a".into()));
    for quota in ["\"9/h\"", "\"fast\"", "null"] {
        let body = format!(r#"{{"policy":"api","key":"\"sk_7f3a\"","quota":{quota}}}"#);
        let request = Request::post("/quota").header("content-type", "application/json").body(Body::from(body));
        drop(app.clone().oneshot(request.unwrap()).await);
    }
    let lines: Vec<String> = log.take().iter().map(ToString::to_string).collect();
    let line = |change: &str, scope: &str| {
        format!(
            "WARN tollgate audited message=audited operator=\"ada\" action=\"quota\" policy=\"api\"{scope} change=\"{change}\""
        )
    };
    let scope = format!(" scope=\"digest:{key:?}\"");
    assert_eq!((&lines[0], &lines[2]), (&line("9/h", &scope), &line("the program's", &scope)));
    assert!(lines[1].starts_with(&line("fast", &scope)) && lines[1].contains("error=\"`quota`: "), "{}", lines[1]);
    assert!(lines.len() == 3 && !lines.concat().contains("sk_7f3a"), "{lines:?}");
}
