//! Resets report whether a row existed, even in a batch and even if the row is damaged.

use tollgate::algorithm::Ask;
use tollgate::backend::{Backend, RowId, Take};
use tollgate::{
    HOUR, Policy, Quota, RateLimiter,
    key::{self, Digest},
    policy::PolicyName,
};

use super::rows::OURS;
use super::set_clock::Window;
use crate::support::server::Server;

static API: Policy = Policy::new("api", Quota::token_bucket(10, HOUR));

#[tokio::test]
async fn a_reset_reports_whether_any_process_had_written_the_row() {
    let server = Server::start();
    let (one, other) = (RateLimiter::new(server.backend().await), RateLimiter::new(server.backend().await));
    let address: std::net::IpAddr = "2001:db8::7".parse().unwrap();
    one.limit(&API, 1).await.unwrap();
    one.limit(&API, key::client_ip().key(address)).await.unwrap();
    assert!(!other.reset(&API, "1").await.unwrap(), "the number 1 and the string \"1\" must be different keys");
    assert!(!other.reset(&API, address).await.unwrap(), "an address and its network must be different keys");
    assert!(other.reset(&API, 1).await.unwrap());
    assert!(!one.reset(&API, 1).await.unwrap(), "the first reset must have removed the row");
    assert!(other.reset(&API, key::client_ip().key(address)).await.unwrap());
}

#[tokio::test]
async fn resets_in_a_batch_see_the_effects_of_earlier_operations() {
    let server = Server::start();
    let (backend, mut window) = (server.backend().await, Window::to(&server));
    let row = RowId { policy: &PolicyName::new("resets"), key: Digest::from_bits(7) };
    let take = Take::new(row, &Quota::token_bucket(10, HOUR), Ask::cost(1));
    let first = backend.reset(&[row]);
    let charge = backend.acquire(&[take]);
    let (second, third) = (backend.reset(&[row, row]), backend.reset(&[row]));
    charge.await.unwrap();
    let found = [first.await.unwrap(), second.await.unwrap(), third.await.unwrap()];
    assert_eq!(found, [0, 1, 0]);

    let name = backend.row_key(row.policy, row.key);
    window.write(&name, &[&OURS[..], &[0xff; 36]].concat());
    assert_eq!(backend.reset(&[row]).await.unwrap(), 1, "the reset must remove a damaged row");
    assert_eq!(backend.reset(&[row]).await.unwrap(), 0);
}
