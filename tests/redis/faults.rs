//! Real failures of a server: no call exceeds the deadline and the failure mode applies meanwhile; decisions are exact
//! again within a second afterwards.

use std::time::Duration;

use tollgate::backend::ErrorKind;

use crate::outage::{Application, SLOW, fresh};
use crate::ports::free_port;
use crate::proxy::Proxy;
use crate::server::Server;

const A_WHILE: Duration = Duration::from_millis(500);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_and_comes_back() {
    let mut server = Server::start();
    let application = Application::on(&server.url()).await;
    server.kill();
    // Until the pauses between probes are at their longest.
    application.suffers(Duration::from_millis(1650)).await;
    application.fails_at_once().await;
    server.restart();
    application.is_back().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stands_still_for_three_seconds() {
    let server = Server::start();
    let application = Application::on(&server.url()).await;
    server.signal("STOP");
    let kinds = application.suffers(Duration::from_secs(3)).await;
    assert!(kinds.contains(&ErrorKind::Timeout) && kinds.contains(&ErrorKind::Unavailable), "{kinds:?}");
    application.fails_at_once().await;
    server.signal("CONT");
    application.is_back().await;
}

#[tokio::test]
async fn a_server_that_lost_its_scripts_gets_them_again() {
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
async fn a_server_that_becomes_read_only() {
    let server = Server::start();
    let application = Application::on(&server.url()).await;
    let mut admin = server.admin();
    redis::cmd("REPLICAOF").arg("127.0.0.1").arg(free_port()).exec(&mut admin).unwrap();
    assert_eq!(application.suffers(A_WHILE).await, [ErrorKind::Unavailable]);
    redis::cmd("REPLICAOF").arg("NO").arg("ONE").exec(&mut admin).unwrap();
    application.is_back().await;
}

/// A failover behind a name or an address: the old connection still works, and leads to a replica.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_is_elsewhere_now() {
    let (old, new) = (Server::start(), Server::start());
    let proxy = Proxy::to(old.port());
    let application = Application::on(&proxy.url()).await;
    redis::cmd("REPLICAOF").arg("127.0.0.1").arg(new.port()).exec(&mut old.admin()).unwrap();
    application.suffers(A_WHILE).await;
    // Reconnecting finds the new primary, but not with every call.
    let connected = proxy.accepted();
    assert!((2..100).contains(&connected), "{connected} connections");
    proxy.point_at(new.port());
    application.is_back().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_full() {
    let server = Server::with(&["--maxmemory-policy", "noeviction"]);
    let application = Application::on(&server.url()).await;
    let mut admin = server.admin();
    let key = fresh();
    while application.deny.try_limit(&SLOW, key).await.unwrap().is_allowed() {}
    redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg(1).exec(&mut admin).unwrap();
    assert_eq!(application.suffers(A_WHILE).await, [ErrorKind::Unavailable]);
    // A denial needs no memory, since it writes nothing.
    assert!(!application.allow.try_limit(&SLOW, key).await.unwrap().is_allowed());
    redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg(0).exec(&mut admin).unwrap();
    application.is_back().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_are_killed_all_the_time() {
    let server = Server::start();
    let application = Application::on(&server.url()).await;
    let mut admin = server.admin();
    let killing = tokio::task::spawn_blocking(move || {
        for _ in 0..50 {
            redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("normal").exec(&mut admin).unwrap();
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    application.is_asked(A_WHILE).await;
    killing.await.unwrap();
    application.is_back().await;
}

#[tokio::test]
async fn an_idle_connection_that_was_closed_fails_no_decision() {
    let server = Server::start();
    let application = Application::on(&server.url()).await;
    for _ in 0..3 {
        redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("normal").exec(&mut server.admin()).unwrap();
        tokio::time::sleep(Duration::from_millis(1100)).await;
        application.deny.limit(&SLOW, fresh()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_that_is_changed() {
    let server = Server::start();
    let mut admin = server.admin();
    let mut password = |to: &str| {
        redis::cmd("CONFIG").arg("SET").arg("requirepass").arg(to).exec(&mut admin).unwrap();
        redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("normal").exec(&mut admin).unwrap();
    };
    password("first");
    let application = Application::on(&format!("redis://:first@127.0.0.1:{}", server.port())).await;
    password("second");
    let kinds = application.suffers(A_WHILE).await;
    assert!(kinds.contains(&ErrorKind::Protocol), "no error asks for a configuration change: {kinds:?}");
    password("first");
    application.is_back().await;
}

/// As when a cable is pulled: nothing is closed, and no data arrives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socket_that_swallows_everything() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let application = Application::on(&proxy.url()).await;
    let connected = proxy.accepted();
    proxy.swallow(true);
    application.suffers(Duration::from_millis(2550)).await;
    application.fails_at_once().await;
    assert!(proxy.accepted() - connected < 10, "{} failed connections", proxy.accepted() - connected);
    proxy.swallow(false);
    application.is_back().await;
    // No connection is leaked: one of the backend's, and the one that counts them.
    let clients: String = redis::cmd("CLIENT").arg("LIST").query(&mut server.admin()).unwrap();
    assert!(clients.lines().count() <= 2, "{clients}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socket_that_is_closed_as_soon_as_it_is_open() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let application = Application::on(&proxy.url()).await;
    proxy.refuse(true);
    application.suffers(A_WHILE).await;
    application.fails_at_once().await;
    proxy.refuse(false);
    application.is_back().await;
    proxy.close_all();
    application.is_asked(Duration::from_millis(20)).await;
    application.is_back().await;
}
