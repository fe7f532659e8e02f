//! Limits on password guesses: a small limit for each account, and a larger limit for each address. Each guess is
//! charged before the password is checked.
//!
//! Run it with `cargo run --example login_protection`. Guessing in parallel does not help. If eight guesses are sent
//! together, only five are checked:
//! ```text
//! $ for i in $(seq 8); do curl -s -o /dev/null -w '%{http_code}\n' -d account=ada -d password=guess$i \
//!       http://127.0.0.1:3000/login & done | sort | uniq -c
//!       5 401
//!       3 429
//! ```
//!
//! After that, even the right password is refused:
//! ```text
//! $ curl -i -d account=ada -d password=lovelace http://127.0.0.1:3000/login
//! HTTP/1.1 429 Too Many Requests
//! content-type: application/problem+json
//! ratelimit-policy: "account";q=5;w=3600
//! ratelimit-policy: "address";q=20;w=3600
//! ratelimit: "account";r=0;t=720
//! retry-after: 720
//! ...
//! ```
//!
//! A successful login resets the account's count, but not the address's. Eve therefore gains nothing by logging in to
//! her own account after each guess at another account's password:
//! ```text
//! $ for i in $(seq 11); do for login in "account=user$i&password=123456" 'account=eve&password=polastri'; do
//!       curl -s -o /dev/null -w '%{http_code} ' --interface 127.0.0.2 -d "$login" http://127.0.0.1:3000/login
//!   done; done
//! 401 200 401 200 401 200 401 200 401 200 401 200 401 200 401 200 401 200 401 200 429 429
//! ```
//!
//! Users reset a forgotten password with a code sent by mail. Because the path contains the account, a layer can limit
//! wrong codes to three per account, and the right code resets the count:
//! ```text
//! $ for code in 000000 000001 271828 000002 000003 000004 000005; do
//!       curl -s -o /dev/null -w '%{http_code} ' -d $code http://127.0.0.1:3000/reset/ada; done
//! 403 403 200 403 403 403 429
//! ```

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use axum::extract::{ConnectInfo, Path, State};
use axum::http::StatusCode;
use axum::{Form, Router, routing::post};
use tokio::net::TcpListener;
use tollgate::{Charge, HOUR, LimitError, OnResponse, Policy, Quota, RateLimitLayer, RateLimiter, key};

/// Guesses also lock out the account's owner, because each token takes twelve minutes to refill. Consider a separate
/// policy for browsers that have a cookie from an earlier login.
const ACCOUNT: Policy = Policy::new("account", Quota::token_bucket(5, HOUR));
const ADDRESS: Policy = Policy::new("address", Quota::token_bucket(20, HOUR));
const CODE: Policy = Policy::new("code", Quota::token_bucket(3, HOUR));

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // The key is not the address, because attackers could reset its count with the code for their own account.
    let codes = RateLimitLayer::new(CODE, key::path("account")).on_response(OnResponse::reset_on_success);
    let app = Router::new()
        .route("/reset/{account}", post(reset).layer(codes))
        .route("/login", post(login))
        .with_state(RateLimiter::default());

    let port = std::env::var("PORT").unwrap_or_else(|_| "3000".into());
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    println!("login_protection: five attempts for an account, on http://{}", listener.local_addr()?);
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}

#[derive(serde::Deserialize)]
struct Login {
    account: String,
    password: String,
}

/// Calls the limiter from the handler, because layers do not read the body, which contains the account.
async fn login(
    State(limiter): State<RateLimiter>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Form(login): Form<Login>,
) -> axum::response::Result<&'static str> {
    attempt(&limiter, &login.account, peer.ip()).await?; // 429, or 503 if the limiter's backend is down
    if password_of(&login.account).await != Some(&login.password) {
        return Err(StatusCode::UNAUTHORIZED.into()); // the attempt stays charged
    }
    limiter.reset(&ACCOUNT, login.account).await?;
    Ok("welcome\n")
}

/// Charges an attempt to the account and the address, or to neither if one of their limits denies it. Unknown accounts
/// are charged too, so that responses do not reveal which accounts exist.
///
/// Normalize the account in the same way as the lookup does. If the lookup ignores case, convert the key to lower case;
/// otherwise an attacker gets five more guesses by writing `ADA`.
async fn attempt(limiter: &RateLimiter, account: &str, address: IpAddr) -> Result<(), LimitError> {
    let address = key::client_ip().key(address); // the same key that a layer would use
    limiter.limit_all([Charge::new(&ACCOUNT, account), Charge::new(&ADDRESS, address)]).await?;
    Ok(())
}

/// Looks up the password, which takes as long as checking a password hash. Because other attempts can arrive during
/// that time, counting failures afterwards would be too late.
async fn password_of(account: &str) -> Option<&'static str> {
    tokio::time::sleep(Duration::from_millis(100)).await;
    match account {
        "ada" => Some("lovelace"),
        "eve" => Some("polastri"),
        _ => None,
    }
}

/// Responds with 2xx only for the right code, as `OnResponse::reset_on_success` requires.
async fn reset(Path(account): Path<String>, code: String) -> (StatusCode, &'static str) {
    if account == "ada" && code == "271828" {
        (StatusCode::OK, "choose a new password\n")
    } else {
        (StatusCode::FORBIDDEN, "wrong code\n")
    }
}
