//! Limits for visitors without an account: a small limit per address, a larger limit per session, and the largest limit
//! after a captcha.
//!
//! Run it with `cargo run --example anonymous_sessions`.
//! Without a session, an address has three requests per hour:
//! ```text
//! $ for i in $(seq 4); do curl -s -o /dev/null -w '%{http_code} ' http://127.0.0.1:3000; done
//! 200 200 200 429
//! ```
//!
//! A session has ten requests per hour (`-c` and `-b` write and read curl's cookies):
//! ```text
//! $ curl -c cookies -X POST http://127.0.0.1:3000/session
//! welcome
//! $ curl -si -b cookies http://127.0.0.1:3000 | grep ratelimit
//! ratelimit-policy: "pages";q=10;w=3600
//! ratelimit: "pages";r=9;t=3240
//! ```
//!
//! A session is bound to the address that opened it. From any other address, its cookie is ignored, just like an
//! invented cookie:
//! ```text
//! $ curl -si -b cookies --interface 127.0.0.2 http://127.0.0.1:3000 | grep ratelimit-policy
//! ratelimit-policy: "pages";q=3;w=3600
//! ```
//!
//! Solving the captcha promotes the session to a limit of 100 requests, but the requests that were already made still
//! count. The last request below is the session's second:
//! ```text
//! $ curl -b cookies -d 'six times nine' http://127.0.0.1:3000/captcha
//! wrong
//! $ curl -b cookies -d 'forty-two' http://127.0.0.1:3000/captcha
//! promoted
//! $ curl -si -b cookies http://127.0.0.1:3000 | grep ratelimit
//! ratelimit-policy: "pages";q=100;w=3600
//! ratelimit: "pages";r=98;t=3528
//! ```
//!
//! Opening sessions and answering captchas share a limit of five requests per hour for each address.

use std::collections::HashMap;
use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{ConnectInfo, State};
use axum::http::header::{COOKIE, HeaderMap, SET_COOKIE};
use axum::http::{StatusCode, request::Parts};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use tokio::net::TcpListener;
use tollgate::key::{self, KeyExtractor};
use tollgate::{HOUR, Policy, Quota, RateLimitLayer};

/// The address and tier of each session. In production, keep sessions in a database and let them expire.
#[derive(Clone, Default)]
struct Sessions(Arc<Mutex<HashMap<String, (IpAddr, &'static str)>>>);

impl Sessions {
    fn tier(&self, headers: &HeaderMap, address: IpAddr) -> Option<&'static str> {
        let (owner, tier) = *self.0.lock().unwrap().get(sid(headers)?)?;
        (owner == address).then_some(tier)
    }
}

fn sid(headers: &HeaderMap) -> Option<&str> {
    headers.get(COOKIE)?.to_str().ok()?.split("; ").find_map(|cookie| cookie.strip_prefix("sid="))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let pages = Policy::new("pages", Quota::token_bucket(3, HOUR))
        .tier("visitor", Quota::token_bucket(10, HOUR))
        .tier("human", Quota::token_bucket(100, HOUR));
    let sessions = Sessions::default();
    let known = sessions.clone();
    let caller = move |request: &Parts| {
        let address = key::client_ip().resolve(request);
        match address.and_then(|address| known.tier(&request.headers, address)) {
            // The session has been checked, so its cookie can be used as the key.
            Some(tier) => {
                key::cookie("sid").and(key::client_ip()).map(move |session| session.tier(tier)).extract(request)
            }
            // Requests without a known session share the limit of their address.
            None => key::client_ip().extract(request),
        }
    };

    let entrance = Policy::new("entrance", Quota::token_bucket(5, HOUR));
    let app = Router::new()
        .route("/session", post(open))
        .route("/captcha", post(captcha))
        .route_layer(RateLimitLayer::new(entrance, key::client_ip()))
        .route("/", get(|| async { "hello\n" }).layer(RateLimitLayer::new(pages, caller)))
        .with_state(sessions);

    let port = std::env::var("PORT").unwrap_or_else(|_| "3000".into());
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    println!("anonymous_sessions: more requests after a captcha, on http://{}", listener.local_addr()?);
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}

async fn open(State(sessions): State<Sessions>, ConnectInfo(peer): ConnectInfo<SocketAddr>) -> impl IntoResponse {
    let mut random = [0; 16];
    getrandom::fill(&mut random).expect("the system should provide random numbers");
    let sid = format!("{:032x}", u128::from_ne_bytes(random));
    sessions.0.lock().unwrap().insert(sid.clone(), (peer.ip(), "visitor"));
    ([(SET_COOKIE, format!("sid={sid}; HttpOnly; SameSite=Lax; Path=/"))], "welcome\n")
}

async fn captcha(
    State(sessions): State<Sessions>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    answer: String,
) -> (StatusCode, &'static str) {
    let mut sessions = sessions.0.lock().unwrap();
    match sid(&headers).and_then(|sid| sessions.get_mut(sid)).filter(|(owner, _)| *owner == peer.ip()) {
        None => (StatusCode::UNAUTHORIZED, "no session\n"),
        Some(_) if answer != "forty-two" => (StatusCode::FORBIDDEN, "wrong\n"),
        Some(session) => {
            session.1 = "human";
            (StatusCode::OK, "promoted\n")
        }
    }
}
