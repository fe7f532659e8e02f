//! The connection: made when it is needed, made anew when it is lost.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::SingleNodeRoutingInfo;
use redis::io::tcp::TcpSettings;
use redis::{Cmd, ConnectionInfo, FromRedisValue, Pipeline, RedisError, RedisResult, Value};
use tokio::time::timeout;

use crate::sync::{Mutex, MutexGuard, PoisonError};

/// Where commands go.
pub(super) enum Link {
    Server(Box<Lost<Dial>>),
    Cluster(Arc<Lost<ClusterClient>>),
    /// Somebody else's, who sees to it that it stays.
    Given {
        connection: Box<dyn Given>,
        is_cluster: bool,
    },
}

/// A connection that can be lost, and how to make it anew.
pub(super) struct Lost<C: Connect> {
    client: C,
    /// Locked for a moment only, never while something is waited for: whoever gives up a connection has to answer in
    /// time.
    kept: Mutex<Kept<C::Connection>>,
    /// One connects; the others wait, and share what he got.
    connecting: Arc<tokio::sync::Mutex<()>>,
}

struct Kept<C> {
    connection: Option<C>,
    /// How many were lost: nobody drops one that came after his own.
    number: u64,
    used: Instant,
}

/// What connects.
pub(super) trait Connect: Send + Sync {
    type Connection: ConnectionLike + Clone + Send + Sync;

    /// Whether it notices by itself, before it sends a command, that a connection is dead.
    const LOOKS_AFTER_ITSELF: bool;

    fn connect(&self) -> impl Future<Output = RedisResult<Self::Connection>> + Send;
}

/// Connects to one server: by its address, or by the caller's function, which may look for the server first.
pub(super) struct Dial(Box<dyn Fn() -> Dialled + Send + Sync>);

type Dialled = Pin<Box<dyn Future<Output = RedisResult<MultiplexedConnection>> + Send>>;

impl Dial {
    pub(super) fn new<F>(connect: impl Fn() -> F + Send + Sync + 'static) -> Dial
    where
        F: Future<Output = RedisResult<MultiplexedConnection>> + Send + 'static,
    {
        Dial(Box::new(move || Box::pin(connect())))
    }
}

impl Connect for Dial {
    type Connection = MultiplexedConnection;

    const LOOKS_AFTER_ITSELF: bool = false;

    async fn connect(&self) -> RedisResult<MultiplexedConnection> {
        let mut connection = (self.0)().await?;
        // A server that hangs accepts connections too. A charge that is sent there has an unknown outcome, so a question
        // that changes nothing goes first. An error of the server is an answer.
        connection.req_packed_command(&redis::cmd("TIME")).await?;
        Ok(connection)
    }
}

impl Connect for ClusterClient {
    type Connection = ClusterConnection;

    const LOOKS_AFTER_ITSELF: bool = true;

    async fn connect(&self) -> RedisResult<ClusterConnection> {
        self.get_async_connection().await
    }
}

/// How long a connection may take to come about.
pub(super) const CONNECT: Duration = Duration::from_secs(1);

/// A connection that was not used for so long may have been closed meanwhile. Nobody knows before something was sent on
/// it, and a charge that was sent is not sent again; so something else is sent first.
const IDLE: Duration = Duration::from_secs(1);

/// Sockets that do not wait to fill a packet, and notice a peer that is gone.
pub(super) fn tcp() -> TcpSettings {
    TcpSettings::default().set_nodelay(true)
}

/// Without a provider of cryptography, or with two that it could choose from, rustls panics.
pub(super) fn choose_cryptography(info: &ConnectionInfo) {
    #[cfg(feature = "redis-tls")]
    if matches!(info.addr(), redis::ConnectionAddr::TcpTls { .. })
        && rustls::crypto::CryptoProvider::get_default().is_none()
    {
        // Lost only against somebody who installs one at the same time.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    #[cfg(not(feature = "redis-tls"))]
    let _ = info;
}

impl<C: Connect> Lost<C> {
    pub(super) fn new(client: C) -> Lost<C> {
        let kept = Kept { connection: None, number: 0, used: Instant::now() };
        Lost { client, kept: Mutex::new(kept), connecting: Arc::default() }
    }

    async fn run(&self, command: &Cmd) -> RedisResult<Value> {
        self.connection().await?.req_packed_command(command).await
    }

    /// The connection, if it was used a moment ago.
    fn fresh(&self) -> Option<C::Connection> {
        let mut kept = self.kept();
        if !C::LOOKS_AFTER_ITSELF && kept.used.elapsed() > IDLE {
            return None;
        }
        kept.used = Instant::now();
        kept.connection.clone()
    }

    /// The connection; one that was idle is tried first by a question that changes nothing. Another one if there is none
    /// or it is dead.
    async fn connection(&self) -> RedisResult<C::Connection> {
        if let Some(connection) = self.fresh() {
            return Ok(connection);
        }
        let _one_at_a_time = self.connecting.lock().await;
        if let Some(connection) = self.fresh() {
            return Ok(connection);
        }
        let mut connection = self.kept().connection.clone();
        if let Some(idle) = &mut connection {
            // An error of the server's is an answer too.
            if idle.req_packed_command(&redis::cmd("TIME")).await.is_err() {
                connection = None;
            }
        }
        let connection = match connection {
            Some(connection) => connection,
            None => self.client.connect().await?,
        };
        let mut kept = self.kept();
        kept.used = Instant::now();
        Ok(kept.connection.insert(connection).clone())
    }

    fn number(&self) -> u64 {
        self.kept().number
    }

    fn lost(&self, number: u64) {
        let mut kept = self.kept();
        if kept.number == number {
            kept.number += 1;
            kept.connection = None;
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept<C::Connection>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lost<ClusterClient> {
    /// Sends a command to a node that is about to take over its slot, and answers only those who say that they were
    /// sent (Redis cluster specification, ASK redirection).
    async fn run_at(&self, (host, port): (&str, u16), command: &Cmd) -> RedisResult<Value> {
        let mut pipeline = Pipeline::with_capacity(2);
        pipeline.cmd("ASKING").add_command(command.clone());
        let node = SingleNodeRoutingInfo::ByAddress { host: host.to_owned(), port };
        let values = self.connection().await?.route_pipeline(pipeline, 1, 1, node).await?;
        Ok(values.into_iter().next().unwrap_or(Value::Nil))
    }

    /// Learns the cluster's nodes anew, on a connection of its own. The client does so itself when a node says that a
    /// slot is elsewhere; but a node that hangs says nothing, though another may serve its slots by now. The connection
    /// that there is goes on serving the other nodes.
    fn replace(self: &Arc<Self>, number: u64) {
        let Ok(one_at_a_time) = Arc::clone(&self.connecting).try_lock_owned() else { return };
        {
            let kept = self.kept();
            // Where there is none yet, the next command connects.
            if kept.number != number || kept.connection.is_none() {
                return;
            }
        }
        let lost = Arc::clone(self);
        tokio::spawn(async move {
            let _one_at_a_time = one_at_a_time;
            if let Ok(Ok(connection)) = timeout(4 * CONNECT, lost.client.connect()).await {
                let mut kept = lost.kept();
                kept.connection = Some(connection);
                kept.number += 1;
            }
        });
    }
}

impl Link {
    pub(super) async fn run<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        let value = match self {
            Link::Server(server) => server.run(command).await,
            Link::Cluster(cluster) => cluster.run(command).await,
            Link::Given { connection, .. } => connection.run(command).await,
        };
        Ok(T::from_redis_value(value?.extract_error()?)?)
    }

    /// Sends a command where this redirection leads.
    pub(super) async fn follow<T: FromRedisValue>(&self, redirection: &RedisError, command: &Cmd) -> RedisResult<T> {
        let node = redirection.redirect_node().and_then(|(node, _)| node.rsplit_once(':'));
        let node = node.and_then(|(host, port)| Some((host, port.parse().ok()?)));
        match (self, node) {
            (Link::Cluster(cluster), Some(node)) => {
                Ok(T::from_redis_value(cluster.run_at(node, command).await?.extract_error()?)?)
            }
            // Whoever gave a connection of his own may have one that follows.
            _ => self.run(command).await,
        }
    }

    /// The number of the connection that the next command would go by.
    pub(super) fn number(&self) -> u64 {
        match self {
            Link::Server(server) => server.number(),
            Link::Cluster(cluster) => cluster.number(),
            Link::Given { .. } => 0,
        }
    }

    /// The connection with this number is of no use: the next command makes a new one; that to a cluster is replaced
    /// when there is another. Whoever gave his own sees to it himself.
    pub(super) fn lost(&self, number: u64) {
        match self {
            Link::Server(server) => server.lost(number),
            Link::Cluster(cluster) => cluster.replace(number),
            Link::Given { .. } => {}
        }
    }

    /// Whether a script may only touch keys of one slot.
    pub(super) fn has_slots(&self) -> bool {
        match self {
            Link::Server(_) => false,
            Link::Cluster(_) => true,
            Link::Given { is_cluster, .. } => *is_cluster,
        }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the client: it knows the password.
        f.write_str(match self {
            Link::Server(_) => "Server",
            Link::Cluster(_) => "Cluster",
            Link::Given { .. } => "Given",
        })
    }
}

/// A connection of somebody else's.
pub(super) trait Given: Send + Sync {
    fn run<'a>(&'a self, command: &'a Cmd) -> Pin<Box<dyn Future<Output = RedisResult<Value>> + Send + 'a>>;
}

impl<C: ConnectionLike + Clone + Send + Sync> Given for C {
    fn run<'a>(&'a self, command: &'a Cmd) -> Pin<Box<dyn Future<Output = RedisResult<Value>> + Send + 'a>> {
        let mut connection = self.clone();
        Box::pin(async move { connection.req_packed_command(command).await })
    }
}
