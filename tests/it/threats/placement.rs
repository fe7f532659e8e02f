//! Threat 19: requests that bypass the layer.

use axum::Router;
use axum::routing::get;
use tollgate::{RateLimitLayer, key};

use super::client::{self, ONE, limiter};

const PEER: &str = "198.51.100.1";

fn layer() -> RateLimitLayer {
    RateLimitLayer::new(ONE, key::client_ip()).limiter(&limiter().0)
}

async fn statuses(app: &Router, paths: &[&str]) -> Vec<u16> {
    let mut statuses = Vec::new();
    for path in paths {
        statuses.push(client::get(app, PEER, path).await.status);
    }
    statuses
}

fn one_route() -> Router {
    Router::new().route("/", get(|| async { "hello" }))
}

#[tokio::test]
async fn t19_a_layer_that_wraps_the_router_limits_floods_of_404s() {
    let app = one_route().layer(layer());
    assert_eq!(statuses(&app, &["/nothing", "/here", "/either", "/"]).await, [404, 429, 429, 429]);
    let app = one_route().fallback(|| async { "found nothing" }).layer(layer());
    assert_eq!(statuses(&app, &["/nothing", "/here"]).await, [200, 429]);
}

#[tokio::test]
async fn t19_a_route_layer_lets_404s_through() {
    let app = one_route().route_layer(layer());
    assert_eq!(statuses(&app, &["/nothing", "/here", "/", "/", "/either"]).await, [404, 404, 200, 429, 404]);
}

#[tokio::test]
async fn t19_routes_added_after_the_layer_are_not_covered() {
    let app = one_route().layer(layer()).route("/later", get(|| async { "free" }));
    assert_eq!(statuses(&app, &["/", "/", "/later", "/later"]).await, [200, 429, 200, 200]);
    let app = one_route().route("/later", get(|| async { "limited" })).layer(layer());
    assert_eq!(statuses(&app, &["/", "/later"]).await, [200, 429]);
}

#[tokio::test]
async fn t19_an_outer_layer_covers_nested_and_merged_routers() {
    let nested = Router::new().nest("/in", one_route()).merge(Router::new().route("/beside", get(|| async { "b" })));
    let app = nested.clone().layer(layer());
    assert_eq!(statuses(&app, &["/in", "/beside", "/in/nothing"]).await, [200, 429, 429]);
    let app = Router::new().nest("/in", one_route().layer(layer())).route("/beside", get(|| async { "b" }));
    assert_eq!(statuses(&app, &["/in", "/in", "/beside", "/beside"]).await, [200, 429, 200, 200]);
}
