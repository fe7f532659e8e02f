//! Failover in a cluster. Until the replica takes over, calls to the slots of the failed node fail within the deadline,
//! and nearly all calls to other slots succeed.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tollgate::algorithm::Ask;
use tollgate::backend::{Backend, ErrorKind, RedisBackend, RowId, Take, conformance};
use tollgate::{Quota, policy::PolicyName};

use super::cluster::{key_on, slow, spent};
use crate::support::cluster_server::{Cluster, info, wait_until_synced};
use crate::support::server::{PATIENCE, Server};

const DEADLINE: Duration = Duration::from_millis(500);

/// The machine may be busy.
const SLACK: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_primary_affects_only_its_own_slots() {
    fail_primary(|node| node.kill()).await;
}

/// The connections to the hanging node stay open, and no node redirects the client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hanging_primary_affects_only_its_own_slots() {
    fail_primary(|node| {
        let stopped = Command::new("kill").args(["-STOP", &node.pid().to_string()]).status().unwrap();
        assert!(stopped.success());
    })
    .await;
}

async fn fail_primary(break_it: impl FnOnce(&mut Server)) {
    let mut cluster = Cluster::with_replica(Duration::from_secs(1));
    let backend = cluster.connect(RedisBackend::builder().deadline(DEADLINE)).await;
    let policy = PolicyName::new("gone");
    let row = |primary: usize| RowId { policy: &policy, key: key_on(&cluster, primary) };
    let rows = [0, 1, 2].map(row);
    let hit = Take::new(rows[0], &slow(100), Ask::cost(1));
    let others =
        [1, 2].map(|i| Take::new(rows[i], &Quota::token_bucket(1_000_000, Duration::from_secs(1)), Ask::cost(1)));
    assert_eq!(conformance::spend(&backend, &[hit], 30).await, 30);
    // If the replica missed some of the spent tokens, they would be available again after the failover.
    wait_until_synced(&cluster.nodes[0], &cluster.nodes[3]);
    // All script calls on this node have ended, so exactly 30 of the row's 100 tokens are spent.
    break_it(&mut cluster.nodes[0]);

    let begin = Instant::now();
    let replica = &mut cluster.nodes[3].admin();
    let (mut asked, mut missed) = (0, 0);
    let (mut refused, mut granted) = (0, 0);
    // The client may still ask a hanging node for the slot map. A call can therefore time out although the new primary
    // has charged it.
    let mut unknown = 0;
    let promoted_at = loop {
        for other in &others {
            let began = Instant::now();
            let answer = backend.acquire(&[*other]).await;
            asked += 1;
            // The client delays some calls while it asks the hanging node for the slot map.
            match answer {
                Ok(steps) => assert!(steps.all_granted()),
                Err(_) => missed += 1,
            }
            assert!(began.elapsed() < DEADLINE + SLACK, "{:?}", began.elapsed());
        }
        let began = Instant::now();
        match backend.acquire(&[hit]).await {
            Ok(steps) => {
                assert!(steps.all_granted());
                granted += 1;
                break Instant::now();
            }
            Err(error) => {
                refused += 1;
                unknown = usize::from(error.kind() == ErrorKind::Timeout);
            }
        }
        assert!(began.elapsed() < DEADLINE + SLACK, "{:?}", began.elapsed());
        assert!(begin.elapsed() < PATIENCE, "the replica did not take over");
        tokio::time::sleep(Duration::from_millis(5)).await;
        if info(replica, "replication").contains("role:slave") {
            continue;
        }
        let promoted = Instant::now();
        while let Err(error) = backend.acquire(&[hit]).await {
            assert!(promoted.elapsed() < Duration::from_secs(3) + SLACK, "the new primary was not found: {error}");
            unknown += usize::from(error.kind() == ErrorKind::Timeout);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        granted += 1;
        break promoted;
    };
    assert!(refused > 0, "the primary did not fail");
    assert!(missed * 10 <= asked, "too many calls to healthy nodes failed: {missed} of {asked}");
    println!("{refused} calls failed; calls succeeded again {:?} after the promotion", promoted_at.elapsed());
    loop {
        match backend.acquire(&[hit]).await {
            Ok(steps) if steps.all_granted() => granted += 1,
            Ok(_) => break,
            Err(error) => unknown += usize::from(error.kind() == ErrorKind::Timeout),
        }
        assert!(begin.elapsed() < PATIENCE, "the tokens were not exhausted");
    }
    assert!(granted <= 70 && granted + unknown >= 70, "{granted} charges were granted, {unknown} timed out");
    assert_eq!(spent(&backend, &hit).await, 100.0);
}

/// The cluster's only node closes the connection instead of replying to a script call, so the outcome is unknown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_charge_is_not_sent_again_after_its_connection_breaks() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    std::thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let calls = Arc::clone(&counted);
            std::thread::spawn(move || serve(connection, port, &calls));
        }
    });
    let builder = RedisBackend::builder().deadline(Duration::from_secs(2)).lazy();
    let backend = builder.connect_cluster([format!("redis://127.0.0.1:{port}")]).await.unwrap();
    let policy = PolicyName::new("once");
    let row = RowId { policy: &policy, key: tollgate::key::Digest::from_bits(7) };
    let answer = backend.acquire(&[Take::new(row, &slow(10), Ask::cost(1))]).await;
    assert_eq!(answer.unwrap_err().kind(), tollgate::backend::ErrorKind::Unavailable);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(calls.load(Ordering::SeqCst), 1, "the charge was sent again, although it may already have been made");
}

/// Replies to the commands that a client sends to a cluster node.
fn serve(mut connection: TcpStream, port: u16, calls: &AtomicUsize) {
    let mut bytes = [0; 65536];
    while let Ok(read @ 1..) = connection.read(&mut bytes) {
        let text = String::from_utf8_lossy(&bytes[..read]).to_ascii_uppercase();
        if text.contains("\r\nEVAL") {
            calls.fetch_add(1, Ordering::SeqCst);
            return;
        }
        // Several commands may arrive together, and each needs a reply.
        for command in text.split("\r\n").filter(|line| line.chars().all(|c| c.is_ascii_alphabetic())) {
            let answer = match command {
                "CLUSTER" => format!("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:{port}\r\n"),
                "PING" => "+PONG\r\n".to_owned(),
                "GET" => "$-1\r\n".to_owned(),
                "CLIENT" => "+OK\r\n".to_owned(),
                _ => continue,
            };
            connection.write_all(answer.as_bytes()).unwrap();
        }
    }
}
