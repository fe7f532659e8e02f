//! Errors reported by the backend. An error's kind shows whether a retry might help, its message gives advice, and its
//! source is the underlying error. No error contains credentials.

use std::error::Error as _;
use std::time::{Duration, Instant};

use tollgate::backend::{Error, ErrorKind, RedisBackend};
use tollgate::{Charge, Key, RateLimiter};

use super::outage::{SLOW, fresh};
use crate::support::cluster_server::node;
use crate::support::ports::free_port;
use crate::support::server::{PATIENCE, Server, is_redis_6};

async fn start(arguments: &[&str]) -> (Server, RateLimiter) {
    let user = ["--user", "app", "on", ">hunter2", "~*", "&*", "+@all"];
    let server = Server::with(&[&user, arguments].concat());
    let limiter = RateLimiter::new(connect(&server, "app:hunter2").await.unwrap());
    drop(limiter.try_limit(&SLOW, fresh()).await.unwrap());
    (server, limiter)
}

async fn connect(server: &Server, user: &str) -> Result<RedisBackend, Error> {
    let url = format!("redis://{user}@127.0.0.1:{}", server.port());
    RedisBackend::builder().deadline(Duration::from_secs(10)).connect(&url).await
}

fn run(server: &Server, command: &str) {
    let mut parts = command.split(' ');
    let mut cmd = redis::cmd(parts.next().unwrap());
    parts.for_each(|part| _ = cmd.arg(part));
    cmd.exec(&mut server.admin()).unwrap();
}

fn assert_error(error: &Error, kind: ErrorKind, advice: &str, source_text: &str) {
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(advice), "{error}");
    let source = error.source().expect("the error must have a source").to_string();
    assert!(source.contains(source_text), "{source}");
    for text in [error.to_string(), format!("{error:?}"), source] {
        assert!(!text.contains("hunter2"), "{text}");
    }
}

async fn assert_error_after(command: &str, kind: ErrorKind, advice: &str, source_text: &str) {
    let (server, limiter) = start(&[]).await;
    run(&server, command);
    assert_error(&limiter.try_limit(&SLOW, fresh()).await.unwrap_err(), kind, advice, source_text);
}

#[tokio::test]
async fn server_errors_have_a_specific_kind_and_advice() {
    let replica = format!("REPLICAOF 127.0.0.1 {}", free_port());
    assert_error_after("CONFIG SET maxmemory 1", ErrorKind::Unavailable, "raise maxmemory", "OOM").await;
    assert_error_after("CONFIG SET min-replicas-to-write 1", ErrorKind::Unavailable, "fewer replicas", "NOREPLICAS")
        .await;
    assert_error_after("ACL SETUSER app -evalsha", ErrorKind::Protocol, "lacks a permission", "evalsha").await;
    assert_error_after("ACL SETUSER app -set", ErrorKind::Protocol, "lacks a permission", "run").await;
    assert_error_after("ACL SETUSER app resetkeys ~other:*", ErrorKind::Protocol, "lacks a permission", "key").await;
    assert_error_after(&replica, ErrorKind::Unavailable, "read-only replica", "read only").await;
    let (server, limiter) = start(&["--replica-serve-stale-data", "no"]).await;
    run(&server, &replica);
    assert_error(&limiter.try_limit(&SLOW, fresh()).await.unwrap_err(), ErrorKind::Unavailable, "primary", "MASTER");
}

#[tokio::test]
async fn connecting_fails_with_wrong_credentials() {
    let (server, limiter) = start(&[]).await;
    assert_error(
        &connect(&server, "app:hunter2!").await.unwrap_err(),
        ErrorKind::Protocol,
        "check the URL",
        "authentication",
    );
    run(&server, "CONFIG SET requirepass hunter2");
    let anonymous = RedisBackend::connect(&server.url()).await.unwrap_err();
    assert_error(&anonymous, ErrorKind::Protocol, "check the URL", "NOAUTH");
    let error = RedisBackend::connect("redis://app:hunter2@127.0.0.1:port").await.unwrap_err();
    assert_error(&error, ErrorKind::Protocol, "check the URL", "URL");
    let error = RedisBackend::connect(&format!("redis://app:hunter2@127.0.0.1:{}", free_port())).await.unwrap_err();
    assert_error(&error, ErrorKind::Unavailable, "cannot reach the server", "refused");
    assert!(!format!("{limiter:?}").contains("hunter2"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_running_a_long_script_is_unavailable() {
    let (server, limiter) = start(&["--lua-time-limit", "20"]).await;
    let mut busy = server.admin();
    let script =
        tokio::task::spawn_blocking(move || redis::cmd("EVAL").arg("while true do end").arg(0).exec(&mut busy));
    let begin = Instant::now();
    let error = loop {
        assert!(begin.elapsed() < PATIENCE);
        match limiter.try_limit(&SLOW, fresh()).await {
            Err(error) if error.source().is_some_and(|source| source.to_string().contains("BUSY")) => break error,
            _ => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    };
    assert_error(&error, ErrorKind::Unavailable, "SCRIPT KILL", "BUSY");
    run(&server, "SCRIPT KILL");
    assert!(script.await.unwrap().is_err());
    drop(limiter.try_limit(&SLOW, fresh()).await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_loading_its_data_is_unavailable() {
    // Redis 6 does not have this setting.
    let debug: &[_] = if is_redis_6() { &[] } else { &["--enable-debug-command", "yes"] };
    let (mut server, limiter) = start(debug).await;
    run(&server, "CONFIG SET rdbcompression no");
    run(&server, "DEBUG POPULATE 1000 filler 20000");
    run(&server, "SAVE");
    server.kill();
    // Loading takes a millisecond per key. Meanwhile, the server replies once per 2 MB, which is about a hundred keys.
    server.restart_with(&["--key-load-delay", "1000"]);
    let begin = Instant::now();
    let mut loading = None;
    while let Err(error) = limiter.try_limit(&SLOW, fresh()).await {
        assert!(begin.elapsed() < PATIENCE, "{error}");
        if error.to_string().contains("loading") {
            loading = Some(error);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_error(
        &loading.expect("expected an error while the server was loading its data"),
        ErrorKind::Unavailable,
        "when it has finished",
        "loading the dataset",
    );
}

#[tokio::test]
async fn a_server_that_cannot_save_is_unavailable() {
    let (server, limiter) = start(&[]).await;
    redis::cmd("CONFIG").arg("SET").arg("save").arg("3600 1").exec(&mut server.admin()).unwrap();
    std::fs::remove_dir_all(server.directory()).unwrap();
    let begin = Instant::now();
    let error = loop {
        assert!(begin.elapsed() < PATIENCE);
        let _ = redis::cmd("BGSAVE").exec(&mut server.admin());
        tokio::time::sleep(Duration::from_millis(20)).await;
        if let Err(error) = limiter.try_limit(&SLOW, fresh()).await {
            break error;
        }
    };
    assert_error(&error, ErrorKind::Unavailable, "see its log", "MISCONF");
}

#[tokio::test]
async fn a_cluster_without_slots_is_unavailable() {
    let server = Server::with(node());
    let error = RedisBackend::connect(&server.url()).await.unwrap_err();
    assert_error(&error, ErrorKind::Unavailable, "not every slot", "not served");
}

/// The backend must not overwrite the foreign value.
#[tokio::test]
async fn a_foreign_value_causes_an_error() {
    let server = Server::start();
    let backend = server.backend().await;
    let limiter = RateLimiter::new(backend.clone());
    let row = backend.row_key(SLOW.name(), limiter.digest(Some(&Key::from(7))));
    let mut admin = server.admin();
    redis::cmd("LPUSH").arg(&row).arg("foreign").exec(&mut admin).unwrap();
    let error = limiter.try_limit(&SLOW, 7).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
    for part in [&*row, "found a value of a different type", "delete it, or use a different prefix"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    assert_eq!(redis::cmd("DEL").arg(&row).query::<u64>(&mut admin), Ok(1));
    for foreign in [vec![], vec![b'x'; 7], vec![b'x'; 31], vec![b'x'; 33], vec![b'x'; 4096], vec![0xff; 32]] {
        redis::cmd("SET").arg(&row).arg(&foreign).exec(&mut admin).unwrap();
        let error = limiter.try_limit(&SLOW, 7).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{} bytes: {error}", foreign.len());
        let stored: Vec<u8> = redis::cmd("GET").arg(&row).query(&mut admin).unwrap();
        assert_eq!(stored, foreign);
    }
    redis::cmd("DEL").arg(&row).exec(&mut admin).unwrap();
    assert!(limiter.try_limit(&SLOW, 7).await.unwrap().is_allowed());
}

#[tokio::test]
async fn a_call_with_more_than_a_thousand_charges_is_not_supported() {
    let server = Server::start();
    let limiter = RateLimiter::new(server.backend().await);
    let error = limiter.try_limit_all((0..1001).map(|key| Charge::new(&SLOW, key))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("at most 1000"), "{error}");
    assert!(limiter.try_limit_all((0..1000).map(|key| Charge::new(&SLOW, key))).await.unwrap().is_allowed());
}
