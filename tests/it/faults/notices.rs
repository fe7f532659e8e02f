//! Faults of a limiter whose notices do not arrive.

use std::sync::{Arc, Weak};

use tollgate::backend::{
    Adjustment, Backend, BackendFuture, Error, ErrorKind, MemoryBackend, Notice, NoticeChannel, NoticeSubscriber,
    RowId, Steps, Take,
};

/// A memory backend whose notice channel fails, or never answers.
#[derive(Debug)]
struct Unheard {
    rows: MemoryBackend,
    answers: bool,
}

#[derive(Debug)]
struct Channel {
    answers: bool,
}

impl Backend for Unheard {
    fn acquire(&self, takes: &[Take<'_>]) -> BackendFuture<Steps> {
        self.rows.acquire(takes)
    }

    fn peek(&self, takes: &[Take<'_>]) -> BackendFuture<Steps> {
        self.rows.peek(takes)
    }

    fn settle(&self, settlements: &[Adjustment<'_>]) -> BackendFuture<bool> {
        self.rows.settle(settlements)
    }

    fn reset(&self, rows: &[RowId<'_>]) -> BackendFuture<usize> {
        self.rows.reset(rows)
    }

    fn notice_channel(&self) -> Option<Arc<dyn NoticeChannel>> {
        Some(Arc::new(Channel { answers: self.answers }))
    }
}

impl NoticeChannel for Channel {
    fn publish(&self, _: Notice) -> BackendFuture<()> {
        if self.answers {
            return BackendFuture::ready(Err(Error::new(ErrorKind::Unavailable, "the server is dead")));
        }
        BackendFuture::boxed(std::future::pending())
    }

    fn subscribe(&self, _: Weak<dyn NoticeSubscriber>) {}
}

fn unheard(answers: bool) -> Unheard {
    Unheard { rows: MemoryBackend::new(), answers }
}

/// Right: the ban works at once, because it is local and cannot fail. Cause: `config/reload.rs` replaces the deny list
/// after all quotas have been published.
#[cfg(feature = "serde")]
#[tokio::test]
async fn fault_04_a_dead_server_keeps_a_reloaded_ban_from_working() {
    use tollgate::Config;
    use tollgate::config::ConfigErrorKind;
    use tollgate::protection::DenyRule;

    let read = |deny: &str| {
        let text = format!(r#"{{"policies": {{"api": {{"quota": "30/min"}}}}, "deny": {{"ips": ["{deny}"]}}}}"#);
        Config::parse("limits.json", &text, |text| serde_json::from_str(text)).unwrap()
    };
    let config = read("198.51.100.7");
    let limiter = config.limiter(unheard(true)).build();
    let error = config.reload(&limiter, &read("192.0.2.0/24")).await.unwrap_err();
    assert_eq!(error.kind(), ConfigErrorKind::Limiter);
    let ban = DenyRule::network("192.0.2.0/24").unwrap();
    assert!(!config.deny_list().contains(&ban));
}

/// Right: the response is ready at once, because a layer never awaits a notice. Cause: `middleware/on_response.rs` adds
/// the publishing of a pause to the futures that the response waits for. (How many exchanges publishing takes:
/// `tests/servers/faults.rs`.)
#[cfg(feature = "axum")]
#[tokio::test]
async fn fault_05_a_response_waits_until_its_pause_is_published() {
    use std::convert::Infallible;
    use std::task::{Context, Waker};

    use http::{Request, Response};
    use tollgate::{MINUTE, OnResponse, Policy, Quota, RateLimitLayer, RateLimiter};
    use tower::{Layer, Service, service_fn};

    let limiter = RateLimiter::new(unheard(false));
    let policy = Policy::new("api", Quota::token_bucket(30, MINUTE));
    let layer = RateLimitLayer::new(policy, |_: &http::request::Parts| 7).limiter(&limiter);
    let mut service = layer
        .on_response(|_| OnResponse::Pause(MINUTE))
        .layer(service_fn(async |_: Request<String>| Ok::<_, Infallible>(Response::new(String::new()))));
    let mut context = Context::from_waker(Waker::noop());
    assert!(service.poll_ready(&mut context).is_ready());
    let mut response = Box::pin(service.call(Request::new(String::new())));
    for _ in 0..10 {
        assert!(response.as_mut().poll(&mut context).is_pending());
    }
}
