//! The status endpoints with a Redis server.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::request::Parts;
use http_body_util::BodyExt;
use tollgate::algorithm::{Ask, Micros, State, step};
use tollgate::{HOUR, Policy, Quota, RateLimitLayer, RateLimiter, status};
use tower::ServiceExt;

use crate::support::server::{PATIENCE, Server};

const POLICIES: [Policy; 3] = [
    Policy::new("bucket", Quota::token_bucket(10, HOUR)),
    Policy::new("fixed", Quota::fixed_window(10, Duration::from_secs(9 * 86_400)).start(Duration::from_secs(1))),
    Policy::new("sliding", Quota::sliding_window(10, Duration::from_secs(9 * 86_400)).start(Duration::from_secs(1))),
];

async fn get(app: &Router, path: &str) -> (u16, serde_json::Value) {
    let request = Request::get(path).header("x-user", "ada").body(Body::empty()).unwrap();
    let response = app.clone().oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    (status, serde_json::from_slice(&response.into_body().collect().await.unwrap().to_bytes()).unwrap())
}

fn user(req: &Parts) -> Option<String> {
    req.headers.get("x-user").map(|value| value.to_str().unwrap().to_owned())
}

#[tokio::test]
async fn status_endpoints_return_the_rows_and_time_of_the_server() {
    let mut server = Server::start();
    let limiter = RateLimiter::new(server.backend().await);
    let [bucket, fixed, sliding] = POLICIES;
    let layer = RateLimitLayer::new(bucket, user).and(fixed, user).and(sliding, user).limiter(&limiter);
    let app = Router::new().route("/rate-limit", status::of_layer(&layer)).route("/time", status::time(&limiter));

    let elsewhere = RateLimiter::new(server.backend().await);
    for (policy, cost) in POLICIES.iter().zip([10, 7, 4]) {
        assert!(elsewhere.try_acquire(policy, "ada".to_owned()).cost(cost).await.unwrap().is_allowed());
    }
    let keys = |server: &Server| redis::cmd("DBSIZE").query::<u64>(&mut server.admin()).unwrap();
    let before = keys(&server);
    for _ in 0..100 {
        assert_eq!(get(&app, "/rate-limit").await.0, 200);
    }
    let (_, body) = get(&app, "/rate-limit").await;
    assert_eq!(keys(&server), before, "status requests must not write rows");
    let limits = body["limits"].as_array().unwrap();
    assert_eq!(limits.iter().map(|limit| limit["spent"].as_f64().unwrap()).collect::<Vec<_>>(), [10.0, 7.0, 4.0]);

    let (seconds, micros): (u64, u64) = redis::cmd("TIME").query(&mut server.admin()).unwrap();
    let server_now = seconds * 1_000_000 + micros;
    let (status, time) = get(&app, "/time").await;
    assert_eq!(status, 200);
    let (read, asked) = (limits[0]["now"].as_u64().unwrap(), time["now"].as_u64().unwrap());
    assert!(read <= server_now && server_now <= asked && asked - read < PATIENCE.as_micros() as u64);

    let quota = Quota::token_bucket(10, HOUR);
    let (spent, at) = (limits[0]["spent"].as_f64().unwrap(), Micros::new(limits[0]["ts"].as_u64().unwrap()));
    let state = State { spent, at, stamp: tollgate::algorithm::stamp(&quota), ..State::default() };
    let answered = limiter.try_check(&POLICIES[0], "ada".to_owned()).await.unwrap();
    let projected = step(&quota, &state, answered.step().now, Ask::cost(1));
    assert_eq!((projected.verdict, projected.state.spent), (answered.step().verdict, answered.step().state.spent));

    // A quota changed by another limiter appears within about a second.
    elsewhere.set_quota(&POLICIES[0], Quota::token_bucket(20, HOUR)).await.unwrap();
    let changed = async {
        while get(&app, "/rate-limit").await.1["limits"][0]["capacity"] != 20 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, changed).await.unwrap();

    server.kill();
    for path in ["/rate-limit", "/time"] {
        assert_eq!(get(&app, path).await, (503, unavailable()), "{path}");
    }
}

fn unavailable() -> serde_json::Value {
    serde_json::json!({
        "type": "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
        "title": "Service Unavailable",
        "status": 503,
    })
}
