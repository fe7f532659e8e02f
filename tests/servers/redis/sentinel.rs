//! A primary, its replica, and a Sentinel that promotes the replica.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::sentinel::{SentinelClient, SentinelServerType};
use tokio::sync::Mutex;
use tollgate::algorithm::Ask;
use tollgate::backend::{Backend, RedisBackend, RedisBackendBuilder, RowId, Take, conformance};
use tollgate::{
    backend::{Error, ErrorKind},
    key::Digest,
    policy::PolicyName,
};

use super::cluster::{drain, slow, spent};
use crate::support::cluster_server::{ask, info, wait_until, wait_until_synced};
use crate::support::server::{PATIENCE, Server};

const NAME: &str = "limits";

/// Starts a Sentinel with a quorum of one, and waits until it has found the replica.
fn sentinel(primary: &Server) -> Server {
    let sentinel = Server::with(&["--sentinel"]);
    let admin = &mut sentinel.admin();
    ask::<()>(admin, &["SENTINEL", "MONITOR", NAME, "127.0.0.1", &primary.port().to_string(), "1"]);
    ask::<()>(admin, &["SENTINEL", "SET", NAME, "down-after-milliseconds", "500"]);
    wait_until("the Sentinel has discovered the replica", || info(admin, "sentinel").contains("slaves=1"));
    sentinel
}

async fn connect(builder: RedisBackendBuilder, sentinels: Vec<String>, name: String) -> Result<RedisBackend, Error> {
    let client = SentinelClient::build(sentinels, name, None, SentinelServerType::Master).unwrap();
    let client = Arc::new(Mutex::new(client));
    let connect = move || {
        let client = Arc::clone(&client);
        async move { client.lock().await.get_async_connection().await }
    };
    builder.connect_with(connect).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spent_tokens_stay_spent_after_a_sentinel_failover() {
    let (mut primary, replica) = (Server::start(), Server::start());
    ask::<()>(&mut replica.admin(), &["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    wait_until_synced(&primary, &replica);
    let sentinel = sentinel(&primary);
    let builder = RedisBackend::builder().deadline(Duration::from_secs(1));
    let backend = connect(builder, vec![sentinel.url()], NAME.to_owned()).await.unwrap();
    let policy = PolicyName::new("failover");
    let take = Take::new(RowId { policy: &policy, key: Digest::from_bits(7) }, &slow(100), Ask::cost(1));
    assert_eq!(conformance::spend(&backend, &[take], 30).await, 30);
    wait_until_synced(&primary, &replica);

    primary.kill();
    let begin = Instant::now();
    let mut refused = 0;
    while let Err(error) = backend.acquire(&[take]).await {
        assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Timeout), "{error}");
        assert!(begin.elapsed() < PATIENCE, "the new primary was not found: {error}");
        refused += 1;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    println!("{refused} calls failed; calls succeeded again after {:?}", begin.elapsed());
    assert!(refused > 0, "no call failed, although the primary was killed");
    assert!(info(&mut replica.admin(), "replication").contains("role:master"));
    assert_eq!(1 + drain(&backend, &take).await, 70, "all spent tokens must have been replicated");
    assert_eq!(spent(&backend, &take).await, 100.0);
}

#[tokio::test]
async fn connecting_fails_for_a_name_that_no_sentinel_knows() {
    let primary = Server::start();
    let replica = Server::start();
    ask::<()>(&mut replica.admin(), &["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    let sentinel = sentinel(&primary);
    let builder = || RedisBackend::builder().deadline(PATIENCE);
    let error = connect(builder(), vec![sentinel.url()], "limit".to_owned()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("the Sentinels report no running primary by this name"), "{error}");
    assert!(
        connect(builder().lazy(), vec![sentinel.url()], "limit".to_owned()).await.is_ok(),
        "a lazy backend must not connect before the first call"
    );
}
