//! The permissions listed in `docs::redis` are sufficient and necessary.

use std::io::Read;
use std::time::Duration;

use redis::{Connection, cmd};
use tollgate::backend::{Error, ErrorKind, RedisBackend, conformance};
use tollgate::{Charge, HOUR, Policy, Quota, RateLimiter, limiter::SetQuotaError, protection::Signal};

use super::keys::wait_for_slots;
use super::outage::{SLOW, fresh};
use crate::support::cluster_server::{SLOTS, add_slots, node};
use crate::support::server::{PATIENCE, Server, is_redis_7_0};

const COMMANDS: [&str; 8] = ["evalsha", "eval", "get", "mget", "set", "setrange", "del", "time"];

const NOTICES: [&str; 11] =
    ["hmget", "hset", "hdel", "hlen", "zadd", "zrem", "zcard", "zscore", "zrange", "pexpireat", "persist"];

fn all() -> impl Iterator<Item = &'static str> {
    COMMANDS.into_iter().chain(NOTICES)
}

fn allow<'a>(admin: &mut Connection, commands: impl Iterator<Item = &'a str>) {
    let mut user = cmd("ACL");
    user.arg("SETUSER").arg("limits").arg("reset").arg("on").arg(">hunter2").arg("~tollgate:*");
    for command in commands {
        user.arg(format!("+{command}"));
    }
    user.exec(admin).unwrap();
}

fn url(server: &Server) -> String {
    format!("redis://limits:hunter2@127.0.0.1:{}", server.port())
}

async fn connect(server: &Server) -> Result<RedisBackend, Error> {
    RedisBackend::builder().deadline(PATIENCE).connect(&url(server)).await
}

#[tokio::test]
async fn the_documented_permissions_suffice() {
    let server = Server::start();
    let mut admin = server.admin();
    allow(&mut admin, all());
    cmd("ACL").arg("LOG").arg("RESET").exec(&mut admin).unwrap();
    let backend = connect(&server).await.unwrap();
    conformance::all(&backend, tokio::time::sleep).await;
    use_operations(&mut admin, &backend).await.unwrap();
    // The backend sends a test command before the first charge on an idle or new connection.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    use_operations(&mut admin, &backend).await.unwrap();
    use_notices(&backend, server.url()).await.unwrap();
    let refused: Vec<redis::Value> = cmd("ACL").arg("LOG").query(&mut admin).unwrap();
    assert!(refused.is_empty(), "{refused:?}");
}

/// The client must not send `CLIENT SETINFO`, because the documented permissions do not include it. In Redis 7.2 and
/// later, each connection would add an entry to `ACL LOG`. Redis 7.0 even rejects an ACL rule that allows the command.
#[tokio::test]
async fn a_connection_starts_with_an_allowed_command() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://127.0.0.1:{}", listener.local_addr().unwrap().port());
    let first = std::thread::spawn(move || {
        let mut bytes = [0; 1024];
        let read = listener.accept().unwrap().0.read(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..read]).into_owned()
    });
    assert!(RedisBackend::connect(&url).await.is_err(), "connecting must fail if the server hangs up");
    assert_eq!(first.join().unwrap(), "*1\r\n$4\r\nTIME\r\n");
}

/// The cluster client runs additional commands to find the nodes and to follow moving slots.
#[tokio::test]
async fn a_cluster_needs_a_few_more_permissions() {
    let server = Server::with(node());
    let mut admin = server.admin();
    add_slots(&mut admin, 0..SLOTS);
    wait_for_slots(&mut admin);
    // The cluster client sends `CLIENT SETINFO`, which Redis 7.0 does not support.
    let more = ["cluster|slots", "cluster|shards", "asking", "readonly", "ping", "client|setinfo"];
    let more = if is_redis_7_0() { &more[..5] } else { &more };
    allow(&mut admin, all().chain(more.iter().copied()));
    cmd("ACL").arg("LOG").arg("RESET").exec(&mut admin).unwrap();
    let backend = RedisBackend::builder().deadline(PATIENCE).connect_cluster([url(&server)]).await.unwrap();
    use_operations(&mut admin, &backend).await.unwrap();
    use_notices(&backend, server.url()).await.unwrap();
    let refused: Vec<redis::Value> = cmd("ACL").arg("LOG").query(&mut admin).unwrap();
    assert!(refused.is_empty(), "{refused:?}");
    allow(&mut admin, COMMANDS.into_iter());
    assert!(RedisBackend::connect_cluster([url(&server)]).await.is_err());
}

#[tokio::test]
async fn without_a_notice_permission_run_time_changes_fail_but_decisions_succeed() {
    let server = Server::start();
    let mut admin = server.admin();
    for without in NOTICES {
        cmd("FLUSHALL").exec(&mut admin).unwrap();
        allow(&mut admin, all().filter(|command| *command != without));
        let backend = connect(&server).await.unwrap();
        let error = use_notices(&backend, server.url()).await.expect_err(without);
        assert!(error.to_string().contains("permission"), "without {without}: {error}");
        use_operations(&mut admin, &backend).await.unwrap();
    }
}

#[tokio::test]
async fn reading_notices_needs_only_four_permissions() {
    let server = Server::start();
    let mut admin = server.admin();
    RateLimiter::new(server.backend().await).set_quota(&SLOW, Quota::token_bucket(3, HOUR)).await.unwrap();
    let read = ["hmget", "hlen", "zcard", "zrange"];
    for (without, limit) in [("", 3), ("hmget", 10), ("hlen", 10), ("zcard", 10), ("zrange", 10)] {
        allow(&mut admin, COMMANDS.into_iter().chain(read.into_iter().filter(|command| *command != without)));
        cmd("ACL").arg("LOG").arg("RESET").exec(&mut admin).unwrap();
        let limiter = RateLimiter::new(connect(&server).await.unwrap());
        tokio::time::sleep(Duration::from_millis(700)).await;
        // Without permission to read notices, the limiter applies the quotas that are defined in code.
        assert_eq!(limiter.try_limit(&SLOW, fresh()).await.unwrap().capacity(), limit, "without {without:?}");
        assert_eq!(limiter.stats().poll_failed, Some(!without.is_empty()));
        let refused: Vec<redis::Value> = cmd("ACL").arg("LOG").query(&mut admin).unwrap();
        assert_eq!(format!("{refused:?}").contains(&format!("{without:?}")), !without.is_empty(), "{refused:?}");
    }
}

#[tokio::test]
async fn the_key_pattern_must_match_the_prefix() {
    let server = Server::start();
    allow(&mut server.admin(), all());
    let error = RedisBackend::builder().prefix("shop").connect(&url(&server)).await.unwrap_err();
    assert!(error.to_string().contains("its key pattern does not match the backend's prefix"), "{error}");
    // An error reply does not open the circuit breaker.
    let backend = RedisBackend::builder().prefix("shop").lazy().connect(&url(&server)).await.unwrap();
    let limiter = RateLimiter::new(backend);
    for _ in 0..20 {
        assert_eq!(limiter.try_limit(&SLOW, 1).await.unwrap_err().kind(), ErrorKind::Protocol);
    }
    assert_eq!(limiter.stats().circuit_open, Some(false));
}

#[tokio::test]
async fn every_permission_is_needed() {
    let server = Server::start();
    let mut admin = server.admin();
    for without in COMMANDS {
        allow(&mut admin, COMMANDS.into_iter().filter(|command| *command != without).chain(NOTICES));
        let worked = match connect(&server).await {
            Ok(backend) => use_operations(&mut admin, &backend).await,
            Err(error) => Err(error),
        };
        assert!(worked.unwrap_err().to_string().contains("permission"), "without {without}");
    }
}

/// Runs every operation of the notice channel.
async fn use_notices(backend: &RedisBackend, admin_url: String) -> Result<(), SetQuotaError> {
    let limiter = RateLimiter::new(backend.clone());
    let block = async |lasts: u64| {
        let signal = Signal::key(fresh());
        limiter.block(signal, Duration::from_millis(lasts)).await.map_err(SetQuotaError::Backend)
    };
    block(1).await?;
    tokio::time::sleep(Duration::from_millis(5)).await;
    limiter.set_quota(&SLOW, SLOW.quotas()[0]).await?;
    limiter.set_quota(&SLOW, None).await?;
    // Pretend that the withdrawal has expired. The script then also runs the commands that remove it.
    let mut admin = redis::Client::open(admin_url).unwrap().get_connection().unwrap();
    cmd("ZADD").arg("tollgate:1:{notices}:ends").arg("XX").arg(1).arg("quota\0slow").exec(&mut admin).unwrap();
    block(60_000).await
}

/// Runs every operation of the backend.
async fn use_operations(admin: &mut Connection, backend: &RedisBackend) -> Result<(), Error> {
    static OTHER: Policy = Policy::new("other", Quota::token_bucket(10, HOUR));
    let limiter = RateLimiter::new(backend.clone());
    let key = fresh();
    cmd("SCRIPT").arg("FLUSH").exec(admin).unwrap();
    for _ in 0..3 {
        drop(limiter.try_limit(&SLOW, key).await?);
    }
    let both = || [Charge::new(&SLOW, key), Charge::new(&OTHER, key)];
    drop(limiter.try_limit_all(both()).await?);
    drop(limiter.try_check_all(both()).await?);
    let held = match limiter.hold_all(both()).await {
        Ok(held) => held.into_receipt(),
        Err(tollgate::LimitError::Backend(error)) => return Err(error),
        Err(denied) => panic!("{denied}"),
    };
    held.settle(3).await?;
    limiter.reset(&SLOW, key).await.map(|_| ())
}
