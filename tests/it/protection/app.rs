//! Policies, layers, and an observer shared by several tests.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::request::Parts;
use tollgate::{
    MINUTE, Policy, Quota, RateLimitLayer, RateLimiter, Subject, key,
    observe::{Blocked, Decided, Observer},
};

use crate::support::client::{Client, hello, serve};

pub(crate) const US: Duration = Duration::from_micros(1);

pub(crate) static API: Policy = Policy::new("api", Quota::token_bucket(10, MINUTE));
/// A policy with a capacity of one token. Calls that cost 2 are always denied.
pub(crate) static ONE: Policy = Policy::new("one", Quota::token_bucket(1, MINUTE));

pub(crate) fn user(req: &Parts) -> Subject {
    let user = req.headers.get("x-user").and_then(|value| value.to_str().ok());
    user.map_or(Subject::anonymous(), Subject::new)
}

/// Creates a per-user layer that reads client addresses and countries from headers set by a local proxy.
pub(crate) fn layer(limiter: &RateLimiter, policy: &Policy) -> RateLimitLayer {
    RateLimitLayer::new(policy, user)
        .limiter(limiter)
        .client_ip(key::client_ip().trust(["127.0.0.1"]))
        .label_from_header("country", "cf-ipcountry")
}

pub(crate) async fn behind(limiter: &RateLimiter, policy: &Policy) -> Client {
    serve(hello().layer(layer(limiter, policy))).await
}

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// An observer that records the events it receives.
#[derive(Default)]
pub(crate) struct Spy {
    pub(crate) decided: Mutex<Vec<(&'static str, Option<String>)>>,
    /// For each block: its rule, its duration, and how many times in a row the caller has been blocked automatically.
    pub(crate) blocked: Mutex<Vec<(String, Duration, u32)>>,
}

impl Spy {
    pub(crate) fn new() -> Arc<Spy> {
        Arc::default()
    }

    pub(crate) fn last(&self) -> (&'static str, Option<String>) {
        self.decided.lock().unwrap().last().cloned().expect("expected a decision")
    }

    pub(crate) fn take_blocked(&self) -> Vec<(String, Duration, u32)> {
        let mut blocked = std::mem::take(&mut *self.blocked.lock().unwrap());
        blocked.sort();
        blocked
    }
}

impl Observer for Spy {
    fn decided(&self, observed: &Decided<'_>) {
        let decision = observed.decision();
        let rule = decision.denied_rule().map(ToString::to_string);
        self.decided.lock().unwrap().push((decision.reason().as_str(), rule));
    }

    fn blocked(&self, blocked: &Blocked<'_>) {
        self.blocked.lock().unwrap().push((blocked.rule().to_string(), blocked.lasts(), blocked.times()));
    }
}
