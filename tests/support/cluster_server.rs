//! A Redis cluster for tests, with three primaries and optionally a replica of the first primary.

use std::ops::Range;
use std::time::{Duration, Instant};

use redis::Connection;
use tollgate::backend::{RedisBackend, RedisBackendBuilder};
use tollgate::key::Digest;

use super::server::{FREE, PATIENCE, Server, is_redis_6};

/// A running cluster. Dropping this value stops the cluster.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Server>,
}

pub(crate) const PRIMARIES: u16 = 3;

pub(crate) const SLOTS: u16 = 16384;

/// The setting for the cluster bus port. The default, which is the server's port plus 10000, may be in use. Redis 6
/// lacks this setting. If the default port is in use, a Redis 6 server exits, and [`Server::with`] tries again.
const BUS: &str = "--cluster-port";

pub(crate) fn node() -> &'static [&'static str] {
    const NODE: [&str; 4] = ["--cluster-enabled", "yes", BUS, FREE];
    if is_redis_6() { &NODE[..2] } else { &NODE }
}

fn bus(node: &Server) -> String {
    if is_redis_6() { (node.port() + 10_000).to_string() } else { node.setting(BUS).to_owned() }
}

impl Cluster {
    pub(crate) fn start() -> Cluster {
        Cluster::of(PRIMARIES.into(), Duration::from_secs(5))
    }

    /// Starts a cluster with a replica of the first primary. If this primary fails, the replica is promoted after
    /// `node_timeout`.
    pub(crate) fn with_replica(node_timeout: Duration) -> Cluster {
        Cluster::of(usize::from(PRIMARIES) + 1, node_timeout)
    }

    fn of(nodes: usize, node_timeout: Duration) -> Cluster {
        let node_timeout = node_timeout.as_millis().to_string();
        // With these settings, a failed node affects only its own slots.
        let rest = ["--cluster-require-full-coverage", "no", "--cluster-node-timeout", &node_timeout];
        let arguments = [node(), rest.as_slice()].concat();
        let cluster = Cluster { nodes: (0..nodes).map(|_| Server::with(&arguments)).collect() };
        for i in 0..PRIMARIES {
            let node = &mut cluster.nodes[usize::from(i)].admin();
            add_slots(node, i * SLOTS / PRIMARIES..(i + 1) * SLOTS / PRIMARIES);
            ask::<()>(node, &["CLUSTER", "SET-CONFIG-EPOCH", &(i + 1).to_string()]);
        }
        let first = &mut cluster.nodes[0].admin();
        for node in &cluster.nodes[1..] {
            ask::<()>(first, &["CLUSTER", "MEET", "127.0.0.1", &node.port().to_string(), &bus(node)]);
        }
        let known = format!("cluster_known_nodes:{nodes}");
        cluster.wait_until("all nodes know each other", |_, info| info.contains(&known));
        if let Some(replica) = cluster.nodes.get(usize::from(PRIMARIES)) {
            ask::<()>(&mut replica.admin(), &["CLUSTER", "REPLICATE", &cluster.id(0)]);
            wait_until_synced(&cluster.nodes[0], replica);
            cluster.wait_until("all nodes have discovered the replica", |node, _| {
                ask::<String>(&mut node.admin(), &["CLUSTER", "NODES"]).contains("slave")
            });
        }
        // Full coverage is not required, so a node reports `ok` even before it knows all slots.
        let ready = ["cluster_state:ok", "cluster_slots_ok:16384"];
        cluster.wait_until("the cluster is ready", |_, info| ready.iter().all(|line| info.contains(line)));
        cluster
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Server::url).collect()
    }

    pub(crate) async fn backend(&self) -> RedisBackend {
        self.connect(RedisBackend::builder().deadline(PATIENCE)).await
    }

    pub(crate) async fn connect(&self, builder: RedisBackendBuilder) -> RedisBackend {
        builder.connect_cluster(self.urls()).await.unwrap()
    }

    pub(crate) fn id(&self, node: usize) -> String {
        ask(&mut self.nodes[node].admin(), &["CLUSTER", "MYID"])
    }

    /// Makes another primary the owner of a slot, without moving the slot's rows.
    pub(crate) fn give_slot(&self, slot: u16, to: usize) {
        let id = self.id(to);
        for node in self.nodes.iter().take(PRIMARIES.into()) {
            ask::<()>(&mut node.admin(), &["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", &id]);
        }
    }

    fn wait_until(&self, what: &str, holds: impl Fn(&Server, &str) -> bool) {
        wait_until(what, || {
            let at = |node: &Server| holds(node, &ask::<String>(&mut node.admin(), &["CLUSTER", "INFO"]));
            self.nodes.iter().all(at)
        });
    }
}

pub(crate) fn add_slots(node: &mut Connection, slots: Range<u16>) {
    redis::cmd("CLUSTER").arg("ADDSLOTS").arg(slots.collect::<Vec<_>>()).exec(node).unwrap();
}

/// Waits until a replica is up to date. The command `WAIT` would cover only writes made on the same connection.
pub(crate) fn wait_until_synced(primary: &Server, replica: &Server) {
    let (primary, replica) = (&mut primary.admin(), &mut replica.admin());
    let number = |text: &str, name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.and_then(|value| value.trim().parse::<u64>().ok())
    };
    wait_until("the replica is up to date", || {
        let written = number(&info(primary, "replication"), "master_repl_offset");
        let replicated = info(replica, "replication");
        replicated.contains("master_link_status:up") && number(&replicated, "slave_repl_offset") >= written
    });
}

pub(crate) fn slot(node: &Server, key: Digest) -> u16 {
    ask(&mut node.admin(), &["CLUSTER", "KEYSLOT", &format!("{{{:032x}}}", key.to_bits())])
}

/// Returns the primary that initially owns a slot.
pub(crate) fn owner(slot: u16) -> usize {
    let has = |i: &u16| slot < (i + 1) * SLOTS / PRIMARIES;
    (0..PRIMARIES).find(has).unwrap().into()
}

pub(crate) fn ask<T: redis::FromRedisValue>(node: &mut Connection, words: &[&str]) -> T {
    let mut command = redis::Cmd::new();
    words.iter().for_each(|word| _ = command.arg(*word));
    command.query(node).unwrap_or_else(|error| panic!("{words:?}: {error}"))
}

pub(crate) fn info(node: &mut Connection, section: &str) -> String {
    ask(node, &["INFO", section])
}

pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < PATIENCE, "timed out waiting until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
