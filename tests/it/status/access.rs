//! Callers can read only their own state.

use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use axum::middleware::{Next, from_fn};
use axum::routing::{get, post};
use tollgate::key::KeyExtractor;
use tollgate::{MINUTE, Policy, Quota, RateLimitLayer, RateLimiter, Subject, key, status};

use super::app::{ReportedLimit, call, limiter, send, text};

static API: Policy = Policy::new("api", Quota::token_bucket(10, MINUTE));

#[derive(Clone)]
struct User(&'static str);

async fn authenticate(mut request: Request, next: Next) -> axum::response::Response {
    let session = request.headers().get("authorization").map(|value| value.as_bytes());
    match session {
        Some(b"Bearer s-ada") => drop(request.extensions_mut().insert(User("ada"))),
        Some(b"Bearer s-mallory") => drop(request.extensions_mut().insert(User("mallory"))),
        _ => {}
    }
    next.run(request).await
}

async fn app() -> (Router, RateLimiter) {
    let (limiter, _clock) = limiter();
    limiter.acquire(&API, "ada").cost(7).await.unwrap();
    let user = || key::extension(|user: &User| user.0);
    let app = Router::new()
        .route("/rate-limit", status::of(&limiter, &API, user()))
        .route("/users/{user}/rate-limit", status::of(&limiter, &API, user()))
        .route("/chat", post(|| async {}).layer(RateLimitLayer::new(&API, user()).limiter(&limiter)))
        .layer(from_fn(authenticate));
    (app, limiter)
}

async fn spent(app: &Router, line: &str, headers: &[&str]) -> f64 {
    let answer = call(app, line, headers).await;
    assert_eq!(answer.status, 200, "{}", text(&answer));
    ReportedLimit::read(&text(&answer)).spent
}

#[tokio::test]
async fn users_read_their_own_spending() {
    let (app, _) = app().await;
    assert_eq!(spent(&app, "GET /rate-limit", &["authorization: Bearer s-ada"]).await, 7.0);
    assert_eq!(call(&app, "POST /chat", &["authorization: Bearer s-ada"]).await.status, 200);
    assert_eq!(spent(&app, "GET /rate-limit", &["authorization: Bearer s-ada"]).await, 8.0);
}

#[tokio::test]
async fn an_id_sent_by_the_client_is_ignored() {
    let (app, _) = app().await;
    let mallory = "authorization: Bearer s-mallory";
    for line in [
        "GET /rate-limit?key=ada&user=ada&id=ada&subject=ada&policy=ada",
        "GET /rate-limit?key[]=ada&_method=GET",
        "GET /users/ada/rate-limit",
        "GET /users/ada/rate-limit?user=ada",
    ] {
        assert_eq!(spent(&app, line, &[mallory]).await, 0.0, "{line}");
        assert_eq!(spent(&app, line, &[]).await, 0.0, "{line}, unauthenticated");
    }
    for header in [
        "x-user: ada",
        "x-user-id: ada",
        "x-tollgate-key: ada",
        "x-forwarded-user: ada",
        "remote-user: ada",
        "x-http-method-override: POST",
        "x-original-url: /users/ada/rate-limit",
        "cookie: user=ada; session=s-ada",
    ] {
        assert_eq!(spent(&app, "GET /rate-limit", &[mallory, header]).await, 0.0, "{header}");
        assert_eq!(spent(&app, "GET /rate-limit", &[header]).await, 0.0, "{header}, unauthenticated");
    }
    let mut request = Request::get("/rate-limit").header("authorization", "Bearer s-mallory");
    request = request.header("content-type", "application/json");
    let body = Body::from(r#"{"key":"ada","user":"ada","subject":"ada"}"#);
    let answer = send(&app, request.body(body).unwrap()).await;
    assert_eq!(ReportedLimit::read(&text(&answer)).spent, 0.0);
}

#[tokio::test]
async fn anonymous_callers_read_their_shared_bucket() {
    let (app, limiter) = app().await;
    limiter.acquire(&API, Subject::anonymous()).cost(2).await.unwrap();
    assert_eq!(spent(&app, "GET /rate-limit", &[]).await, 2.0);
    assert_eq!(spent(&app, "GET /rate-limit", &["authorization: Bearer invented"]).await, 2.0);
    assert_eq!(spent(&app, "GET /rate-limit", &["authorization: Bearer s-ada"]).await, 7.0);
}

#[tokio::test]
async fn forwarding_headers_do_not_change_the_client_address() {
    let (limiter, _clock) = limiter();
    let layer = RateLimitLayer::new(&API, key::client_ip()).limiter(&limiter);
    let app = Router::new()
        .route("/rate-limit", status::of_layer(&layer))
        .merge(Router::new().route("/chat", get(|| async {})).route_layer(layer));
    let from = |address: &str, target: &str, headers: &[(&'static str, &str)]| {
        let mut request = Request::get(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut request = request.body(Body::empty()).unwrap();
        let peer: SocketAddr = address.parse().unwrap();
        request.extensions_mut().insert(ConnectInfo(peer));
        request
    };
    for _ in 0..4 {
        assert_eq!(send(&app, from("192.0.2.7:1000", "/chat", &[])).await.status, 200);
    }
    let spent_in = |answer| ReportedLimit::read(&text(&answer)).spent;
    assert_eq!(spent_in(send(&app, from("192.0.2.7:2000", "/rate-limit", &[])).await), 4.0);
    for header in ["x-forwarded-for", "x-real-ip", "cf-connecting-ip", "true-client-ip", "x-client-ip"] {
        let answer = send(&app, from("198.51.100.1:1000", "/rate-limit", &[(header, "192.0.2.7")])).await;
        assert_eq!(spent_in(answer), 0.0, "{header}");
    }
    let forwarded = [("forwarded", "for=192.0.2.7")];
    assert_eq!(spent_in(send(&app, from("198.51.100.1:1000", "/rate-limit", &forwarded)).await), 0.0);
}

#[tokio::test]
async fn only_of_any_caller_lets_clients_choose_the_key() {
    let (limiter, _clock) = limiter();
    limiter.acquire(&API, "ada+x@example.com").cost(7).await.unwrap();
    limiter.acquire(&API, 42).cost(3).await.unwrap();
    let app = Router::new()
        .route("/text", status::of_any_caller(&limiter, &API, |name: &str| name.to_owned()))
        .route("/number", status::of_any_caller(&limiter, &API, |name: &str| name.parse::<u64>().ok()))
        .route("/own", status::of(&limiter, &API, key::bearer().or_reject()));
    assert_eq!(spent(&app, "GET /text?key=ada%2Bx%40example.com", &[]).await, 7.0);
    assert_eq!(spent(&app, "GET /number?key=42", &[]).await, 3.0);
    for line in ["GET /text", "GET /text?key=", "GET /text?key=a&key=b", "GET /text?key=%FF", "GET /own?key=42"] {
        let answer = call(&app, line, &[]).await;
        assert_eq!((answer.status, answer.problem()["status"].as_u64()), (400, Some(400)), "{line}");
        assert_eq!(answer.headers["cache-control"], "no-store");
    }
}
