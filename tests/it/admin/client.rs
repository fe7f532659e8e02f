//! A test server with the admin router, and a client for it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Full};
use serde_json::Value;
use tollgate::admin::{self, Admin, Operator};
use tollgate::clock::ManualClock;
use tollgate::observe::{Audited, Decided, Observer, Top};
use tollgate::protection::DenyList;
use tollgate::{DAY, MINUTE, MemoryBackend, Policy, Quota, RateLimiter};

use crate::support::connections;

pub(crate) static API: Policy = Policy::new("api", Quota::token_bucket(5, MINUTE));

/// A policy with a tier and two quotas.
pub(crate) fn chat() -> Policy {
    Policy::new("chat", Quota::token_bucket(10, MINUTE))
        .and(Quota::fixed_window(100, DAY))
        .tier("premium", Quota::token_bucket(50, MINUTE))
}

pub(crate) const EDITOR: &str = "the token of ada, who may edit";
pub(crate) const READER: &str = "the token of eve, who may read";

pub(crate) struct TestServer {
    pub(crate) limiter: RateLimiter,
    pub(crate) clock: ManualClock,
    pub(crate) denied: DenyList,
    pub(crate) audits: Arc<AuditLog>,
    address: SocketAddr,
}

pub(crate) struct TestResponse {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

impl TestServer {
    pub(crate) async fn start() -> TestServer {
        let (clock, top) = (ManualClock::new(), Arc::new(Top::new().show_keys([&API])));
        let (audits, denied) = (Arc::new(AuditLog::default()), DenyList::new());
        let limiter = RateLimiter::builder(MemoryBackend::builder().clock(clock.clone()).build())
            .observer(Arc::clone(&top))
            .observer(Arc::clone(&audits))
            .deny_list(&denied)
            .build();
        let tokens = [(EDITOR, Operator::editor("ada")), (READER, Operator::reader("eve"))];
        let admin = Admin::new(&limiter, admin::bearer_tokens(tokens)).policies([&API, &chat()]).top(&top);
        let app = Router::new().nest("/admin/limits", admin.into_router());
        let address = connections::serve(app).await;
        TestServer { limiter, clock, denied, audits, address }
    }

    pub(crate) async fn get(&self, path: &str) -> TestResponse {
        self.send("GET", path, &[("authorization", &format!("Bearer {READER}"))], "").await
    }

    /// Returns the body of a successful response.
    pub(crate) async fn read(&self, path: &str) -> Value {
        let response = self.get(path).await;
        assert_eq!(response.status, 200, "{path}: {}", response.body);
        response.body
    }

    pub(crate) async fn post(&self, path: &str, body: &str) -> TestResponse {
        let token = format!("Bearer {EDITOR}");
        self.send("POST", path, &[("authorization", &token), ("content-type", "application/json")], body).await
    }

    /// Makes a change and returns the body of the response.
    pub(crate) async fn change(&self, path: &str, body: &str) -> Value {
        let response = self.post(path, body).await;
        assert_eq!(response.status, 200, "{path} {body}: {}", response.body);
        response.body
    }

    pub(crate) async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> TestResponse {
        let uri = format!("/admin/limits/{path}");
        let mut request = Request::builder().method(method).uri(uri);
        if !headers.iter().any(|(name, _)| *name == "host") {
            request = request.header("host", self.address.to_string());
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::from(body.to_owned()))).unwrap();
        let response = connections::http1(self.address).await.send_request(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let body = serde_json::from_slice(&body).unwrap_or(Value::String(String::from_utf8_lossy(&body).into()));
        TestResponse { status: parts.status.as_u16(), headers: parts.headers, body }
    }

    pub(crate) fn host(&self) -> String {
        self.address.to_string()
    }

    pub(crate) fn digest(&self, key: impl Into<tollgate::Key>) -> String {
        format!("digest:{:?}", self.limiter.digest(Some(&key.into())))
    }
}

#[derive(Default)]
pub(crate) struct AuditLog(Mutex<Vec<String>>);

impl AuditLog {
    /// Returns the events since the last call.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl Observer for AuditLog {
    fn decided(&self, _: &Decided<'_>) {}

    fn audited(&self, audited: &Audited<'_>) {
        let (policy, scope) = (audited.policy().map_or("-", |policy| policy.as_str()), audited.scope().unwrap_or("-"));
        let (operator, action, change) = (audited.operator(), audited.action(), audited.change());
        let outcome = audited.error().map_or("done".to_owned(), |error| format!("failed: {error}"));
        self.0.lock().unwrap().push(format!("{operator} {action} {policy} {scope} [{change}] {outcome}"));
    }
}
