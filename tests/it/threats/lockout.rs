//! Threat 23: an attacker who spends another user's limit to lock them out. See `docs::limitations`.

use std::net::IpAddr;

use tollgate::{HOUR, Policy, Quota, RateLimiter};

use super::client::limiter;

const ACCOUNT: Policy = Policy::new("account", Quota::token_bucket(5, HOUR));
const EVE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(198, 51, 100, 66));
const ADA: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(198, 51, 100, 1));

#[tokio::test]
async fn t23_anyone_can_exhaust_a_key_that_anyone_can_name() {
    let (limiter, _backend, _clock) = limiter();
    for _ in 0..6 {
        guess(&limiter, "ada").await;
    }
    assert!(!guess(&limiter, "ada").await, "expected the owner of the key to be locked out");
}

#[tokio::test]
async fn t23_an_attacker_can_exhaust_only_keys_that_include_their_own_address() {
    let (limiter, _backend, _clock) = limiter();
    for _ in 0..6 {
        guess(&limiter, ("ada", EVE)).await;
    }
    assert!(!guess(&limiter, ("ada", EVE)).await);
    assert!(guess(&limiter, ("ada", ADA)).await);
}

async fn guess(limiter: &RateLimiter, subject: impl Into<tollgate::Subject>) -> bool {
    limiter.try_limit(&ACCOUNT, subject).await.unwrap().is_allowed()
}
