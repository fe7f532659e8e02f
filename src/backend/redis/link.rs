//! Connections to servers, which are opened on first use and reopened after they break.

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

pub(super) enum Link {
    Server(Box<Reconnecting<ServerConnector>>),
    Cluster(Arc<Reconnecting<ClusterClient>>),
    /// Never reconnected by the backend.
    UserProvided {
        connection: Box<dyn UserConnection>,
        is_cluster: bool,
    },
}

pub(super) struct Reconnecting<C: Connect> {
    client: C,
    /// Never locked across an await, so that a caller with a deadline can discard a broken connection.
    current: Mutex<Current<C::Connection>>,
    /// Locked by the task that connects. The other tasks wait for it.
    connecting: Arc<tokio::sync::Mutex<()>>,
}

struct Current<C> {
    connection: Option<C>,
    /// Keeps a late error from discarding a newer connection.
    generation: u64,
    last_used: Instant,
}

pub(super) trait Connect: Send + Sync {
    type Connection: ConnectionLike + Clone + Send + Sync;

    /// Whether the connection detects that it is dead before it sends a command.
    const DETECTS_DEAD_CONNECTION: bool;

    fn connect(&self) -> impl Future<Output = RedisResult<Self::Connection>> + Send;
}

pub(super) struct ServerConnector(Box<dyn Fn() -> ConnectFuture + Send + Sync>);

type ConnectFuture = Pin<Box<dyn Future<Output = RedisResult<MultiplexedConnection>> + Send>>;

impl ServerConnector {
    pub(super) fn new<F>(connect: impl Fn() -> F + Send + Sync + 'static) -> ServerConnector
    where
        F: Future<Output = RedisResult<MultiplexedConnection>> + Send + 'static,
    {
        ServerConnector(Box::new(move || Box::pin(connect())))
    }
}

impl Connect for ServerConnector {
    type Connection = MultiplexedConnection;

    const DETECTS_DEAD_CONNECTION: bool = false;

    async fn connect(&self) -> RedisResult<MultiplexedConnection> {
        let mut connection = (self.0)().await?;
        // Even a hung server accepts connections, so send a harmless command before the first charge.
        connection.req_packed_command(&redis::cmd("TIME")).await?;
        Ok(connection)
    }
}

impl Connect for ClusterClient {
    type Connection = ClusterConnection;

    const DETECTS_DEAD_CONNECTION: bool = true;

    async fn connect(&self) -> RedisResult<ClusterConnection> {
        self.get_async_connection().await
    }
}

pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// A connection that has been idle for longer than this is tested before use, because a charge sent over a dead
/// connection would be lost.
const IDLE: Duration = Duration::from_secs(1);

pub(super) fn tcp() -> TcpSettings {
    TcpSettings::default().set_nodelay(true)
}

pub(super) fn install_crypto_provider(info: &ConnectionInfo) {
    #[cfg(feature = "redis-tls")]
    if matches!(info.addr(), redis::ConnectionAddr::TcpTls { .. })
        && rustls::crypto::CryptoProvider::get_default().is_none()
    {
        // This fails only if another thread has just installed a provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    #[cfg(not(feature = "redis-tls"))]
    let _ = info;
}

impl<C: Connect> Reconnecting<C> {
    pub(super) fn new(client: C) -> Reconnecting<C> {
        let current = Current { connection: None, generation: 0, last_used: Instant::now() };
        Reconnecting { client, current: Mutex::new(current), connecting: Arc::default() }
    }

    async fn run(&self, command: &Cmd) -> RedisResult<Value> {
        self.connection().await?.req_packed_command(command).await
    }

    fn recently_used(&self) -> Option<C::Connection> {
        let mut current = self.current();
        if !C::DETECTS_DEAD_CONNECTION && current.last_used.elapsed() > IDLE {
            return None;
        }
        current.last_used = Instant::now();
        current.connection.clone()
    }

    async fn connection(&self) -> RedisResult<C::Connection> {
        if let Some(connection) = self.recently_used() {
            return Ok(connection);
        }
        let _one_at_a_time = self.connecting.lock().await;
        if let Some(connection) = self.recently_used() {
            return Ok(connection);
        }
        let mut connection = self.current().connection.clone();
        if let Some(idle) = &mut connection {
            if idle.req_packed_command(&redis::cmd("TIME")).await.is_err() {
                connection = None;
            }
        }
        let connection = match connection {
            Some(connection) => connection,
            None => self.client.connect().await?,
        };
        let mut current = self.current();
        current.last_used = Instant::now();
        Ok(current.connection.insert(connection).clone())
    }

    fn generation(&self) -> u64 {
        self.current().generation
    }

    fn discard(&self, generation: u64) {
        let mut current = self.current();
        if current.generation == generation {
            current.generation += 1;
            current.connection = None;
        }
    }

    fn current(&self) -> MutexGuard<'_, Current<C::Connection>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reconnecting<ClusterClient> {
    /// Sends `ASKING` and the command to the node that is about to take over the slot (see the Redis cluster
    /// specification).
    async fn run_asking(&self, (host, port): (&str, u16), command: &Cmd) -> RedisResult<Value> {
        let mut pipeline = Pipeline::with_capacity(2);
        pipeline.cmd("ASKING").add_command(command.clone());
        let node = SingleNodeRoutingInfo::ByAddress { host: host.to_owned(), port };
        let values = self.connection().await?.route_pipeline(pipeline, 1, 1, node).await?;
        Ok(values.into_iter().next().unwrap_or(Value::Nil))
    }

    /// Opens a new connection in the background to discover the cluster's nodes again, because the Redis client does
    /// not notice when a node hangs and another one takes over its slots. Until the new connection is open, the current
    /// one remains usable for the other nodes.
    fn replace(self: &Arc<Self>, generation: u64) {
        let Ok(one_at_a_time) = Arc::clone(&self.connecting).try_lock_owned() else { return };
        {
            let current = self.current();
            // If there is no connection, the next command opens one.
            if current.generation != generation || current.connection.is_none() {
                return;
            }
        }
        let reconnecting = Arc::clone(self);
        tokio::spawn(async move {
            let _one_at_a_time = one_at_a_time;
            if let Ok(Ok(connection)) = timeout(4 * CONNECT_TIMEOUT, reconnecting.client.connect()).await {
                let mut current = reconnecting.current();
                current.connection = Some(connection);
                current.generation += 1;
            }
        });
    }
}

impl Link {
    pub(super) async fn run<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        let value = match self {
            Link::Server(server) => server.run(command).await,
            Link::Cluster(cluster) => cluster.run(command).await,
            Link::UserProvided { connection, .. } => connection.run(command).await,
        };
        Ok(T::from_redis_value(value?.extract_error()?)?)
    }

    pub(super) async fn follow<T: FromRedisValue>(&self, redirection: &RedisError, command: &Cmd) -> RedisResult<T> {
        let node = redirection.redirect_node().and_then(|(node, _)| node.rsplit_once(':'));
        let node = node.and_then(|(host, port)| Some((host, port.parse().ok()?)));
        match (self, node) {
            (Link::Cluster(cluster), Some(node)) => {
                Ok(T::from_redis_value(cluster.run_asking(node, command).await?.extract_error()?)?)
            }
            // The user's connection may follow redirections itself.
            _ => self.run(command).await,
        }
    }

    /// Identifies the current connection, for [`discard`](Link::discard).
    pub(super) fn generation(&self) -> u64 {
        match self {
            Link::Server(server) => server.generation(),
            Link::Cluster(cluster) => cluster.generation(),
            Link::UserProvided { .. } => 0,
        }
    }

    /// Discards a broken connection; the next command opens a new one. A cluster connection is replaced instead.
    pub(super) fn discard(&self, generation: u64) {
        match self {
            Link::Server(server) => server.discard(generation),
            Link::Cluster(cluster) => cluster.replace(generation),
            Link::UserProvided { .. } => {}
        }
    }

    pub(super) fn has_slots(&self) -> bool {
        match self {
            Link::Server(_) => false,
            Link::Cluster(_) => true,
            Link::UserProvided { is_cluster, .. } => *is_cluster,
        }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The client is omitted because it contains the password.
        f.write_str(match self {
            Link::Server(_) => "Server",
            Link::Cluster(_) => "Cluster",
            Link::UserProvided { .. } => "UserProvided",
        })
    }
}

pub(super) trait UserConnection: Send + Sync {
    fn run<'a>(&'a self, command: &'a Cmd) -> Pin<Box<dyn Future<Output = RedisResult<Value>> + Send + 'a>>;
}

impl<C: ConnectionLike + Clone + Send + Sync> UserConnection for C {
    fn run<'a>(&'a self, command: &'a Cmd) -> Pin<Box<dyn Future<Output = RedisResult<Value>> + Send + 'a>> {
        let mut connection = self.clone();
        Box::pin(async move { connection.req_packed_command(command).await })
    }
}
