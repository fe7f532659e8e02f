//! Real server failures. During a failure, the failure mode applies, and no call exceeds the deadline. Within a second
//! after the failure ends, decisions are exact again.

use std::time::Duration;

use tollgate::backend::ErrorKind;

use super::outage::{Application, SLOW, fresh};
use super::proxy::Proxy;
use crate::support::ports::free_port;
use crate::support::server::Server;

const A_WHILE: Duration = Duration::from_millis(500);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_is_used_again_after_a_restart() {
    let mut server = Server::start();
    let application = Application::on(&server.url()).await;
    server.kill();
    // The outage is long enough for the pauses between probes to reach their maximum.
    application.call_during_outage(Duration::from_millis(1650)).await;
    application.assert_fails_immediately().await;
    server.restart();
    application.assert_recovers().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_fail_until_a_stopped_server_resumes() {
    let server = Server::start();
    let application = Application::on(&server.url()).await;
    server.signal("STOP");
    let kinds = application.call_during_outage(Duration::from_secs(3)).await;
    assert!(kinds.contains(&ErrorKind::Timeout) && kinds.contains(&ErrorKind::Unavailable), "{kinds:?}");
    application.assert_fails_immediately().await;
    server.signal("CONT");
    application.assert_recovers().await;
}

#[tokio::test]
async fn lost_scripts_are_sent_again() {
    let server = Server::start();
    let application = Application::on(&server.url()).await;
    let mut admin = server.admin();
    let key = fresh();
    for left in (0..10).rev() {
        redis::cmd("SCRIPT").arg("FLUSH").exec(&mut admin).unwrap();
        assert_eq!(application.deny.try_limit(&SLOW, key).await.unwrap().remaining(), left);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_fail_until_a_read_only_server_is_a_primary_again() {
    let server = Server::start();
    let application = Application::on(&server.url()).await;
    let mut admin = server.admin();
    redis::cmd("REPLICAOF").arg("127.0.0.1").arg(free_port()).exec(&mut admin).unwrap();
    assert_eq!(application.call_during_outage(A_WHILE).await, [ErrorKind::Unavailable]);
    redis::cmd("REPLICAOF").arg("NO").arg("ONE").exec(&mut admin).unwrap();
    application.assert_recovers().await;
}

/// After a failover, the old connection still works, but the server at its other end is a replica.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_primary_behind_the_same_address_is_found() {
    let (old, new) = (Server::start(), Server::start());
    let proxy = Proxy::to(old.port());
    let application = Application::on(&proxy.url()).await;
    redis::cmd("REPLICAOF").arg("127.0.0.1").arg(new.port()).exec(&mut old.admin()).unwrap();
    application.call_during_outage(A_WHILE).await;
    // The backend reconnects to find the new primary, but not for every call.
    let connected = proxy.accepted();
    assert!((2..100).contains(&connected), "{connected} connections");
    proxy.point_at(new.port());
    application.assert_recovers().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_fail_until_a_full_server_has_memory_again() {
    let server = Server::with(&["--maxmemory-policy", "noeviction"]);
    let application = Application::on(&server.url()).await;
    let mut admin = server.admin();
    let key = fresh();
    while application.deny.try_limit(&SLOW, key).await.unwrap().is_allowed() {}
    redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg(1).exec(&mut admin).unwrap();
    assert_eq!(application.call_during_outage(A_WHILE).await, [ErrorKind::Unavailable]);
    // A denial needs no memory, because it writes nothing.
    assert!(!application.allow.try_limit(&SLOW, key).await.unwrap().is_allowed());
    redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg(0).exec(&mut admin).unwrap();
    application.assert_recovers().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_succeed_again_after_connections_are_repeatedly_killed() {
    let server = Server::start();
    let application = Application::on(&server.url()).await;
    let mut admin = server.admin();
    let killing = tokio::task::spawn_blocking(move || {
        for _ in 0..50 {
            redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("normal").exec(&mut admin).unwrap();
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    application.call_repeatedly(A_WHILE).await;
    killing.await.unwrap();
    application.assert_recovers().await;
}

#[tokio::test]
async fn decisions_succeed_after_an_idle_connection_is_closed() {
    let server = Server::start();
    let application = Application::on(&server.url()).await;
    for _ in 0..3 {
        redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("normal").exec(&mut server.admin()).unwrap();
        tokio::time::sleep(Duration::from_millis(1100)).await;
        application.deny.limit(&SLOW, fresh()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_fail_after_a_password_change_until_the_password_is_restored() {
    let server = Server::start();
    let mut admin = server.admin();
    let mut password = |to: &str| {
        redis::cmd("CONFIG").arg("SET").arg("requirepass").arg(to).exec(&mut admin).unwrap();
        redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("normal").exec(&mut admin).unwrap();
    };
    password("first");
    let application = Application::on(&format!("redis://:first@127.0.0.1:{}", server.port())).await;
    password("second");
    let kinds = application.call_during_outage(A_WHILE).await;
    assert!(kinds.contains(&ErrorKind::Protocol), "expected an error of kind `Protocol`, found {kinds:?}");
    password("first");
    application.assert_recovers().await;
}

/// Simulates a pulled cable: the connection stays open, but no data arrives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_fail_while_a_connection_carries_no_data() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let application = Application::on(&proxy.url()).await;
    let connected = proxy.accepted();
    proxy.drop_data(true);
    application.call_during_outage(Duration::from_millis(2550)).await;
    application.assert_fails_immediately().await;
    assert!(proxy.accepted() - connected < 10, "{} failed connections", proxy.accepted() - connected);
    proxy.drop_data(false);
    application.assert_recovers().await;
    // No connection is leaked. The backend has one connection, and this query has another.
    let clients: String = redis::cmd("CLIENT").arg("LIST").query(&mut server.admin()).unwrap();
    assert!(clients.lines().count() <= 2, "{clients}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_succeed_again_once_new_connections_stay_open() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let application = Application::on(&proxy.url()).await;
    proxy.refuse_connections(true);
    application.call_during_outage(A_WHILE).await;
    application.assert_fails_immediately().await;
    proxy.refuse_connections(false);
    application.assert_recovers().await;
    proxy.close_all();
    application.call_repeatedly(Duration::from_millis(20)).await;
    application.assert_recovers().await;
}
