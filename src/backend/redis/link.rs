//! The connection: made when it is needed, made anew when it is lost.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, Client, Cmd, FromRedisValue, RedisResult, Value};
use tokio::sync::Mutex;

/// Where commands go.
pub(super) enum Link {
    Server(Lost<Client>),
    Cluster(Lost<ClusterClient>),
    /// Somebody else's, who sees to it that it stays.
    Given(Box<dyn Given>),
}

/// A connection that can be lost, and how to make it anew.
pub(super) struct Lost<C: Connect> {
    client: C,
    connection: Mutex<Option<C::Connection>>,
    /// How many there were: nobody drops one that came after his own.
    number: AtomicU64,
}

/// What connects.
pub(super) trait Connect: Send + Sync {
    type Connection: ConnectionLike + Clone + Send + Sync;

    fn connect(&self) -> impl Future<Output = RedisResult<Self::Connection>> + Send;
}

impl Connect for Client {
    type Connection = MultiplexedConnection;

    async fn connect(&self) -> RedisResult<MultiplexedConnection> {
        // Whoever calls has a deadline of his own.
        let config = AsyncConnectionConfig::new().set_connection_timeout(Some(CONNECT)).set_response_timeout(None);
        self.get_multiplexed_async_connection_with_config(&config).await
    }
}

impl Connect for ClusterClient {
    type Connection = ClusterConnection;

    async fn connect(&self) -> RedisResult<ClusterConnection> {
        self.get_async_connection().await
    }
}

/// How long a connection may take to come about.
pub(super) const CONNECT: Duration = Duration::from_secs(1);

/// Sockets that do not wait to fill a packet, and notice a peer that is gone.
pub(super) fn tcp() -> TcpSettings {
    TcpSettings::default().set_nodelay(true)
}

/// Without a provider of cryptography, or with two that it could choose from, rustls panics.
pub(super) fn choose_cryptography(url: &str) {
    #[cfg(feature = "redis-tls")]
    if url.starts_with("rediss") && rustls::crypto::CryptoProvider::get_default().is_none() {
        // Lost only against somebody who installs one at the same time.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    #[cfg(not(feature = "redis-tls"))]
    let _ = url;
}

impl<C: Connect> Lost<C> {
    pub(super) fn new(client: C) -> Lost<C> {
        Lost { client, connection: Mutex::new(None), number: AtomicU64::new(0) }
    }

    async fn run(&self, command: &Cmd) -> RedisResult<Value> {
        let mut kept = self.connection.lock().await;
        let mut connection = match &*kept {
            Some(connection) => connection.clone(),
            None => {
                let connection = self.client.connect().await?;
                self.number.fetch_add(1, Ordering::Relaxed);
                kept.insert(connection).clone()
            }
        };
        drop(kept);
        connection.req_packed_command(command).await
    }
}

impl Link {
    pub(super) async fn run<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        let value = match self {
            Link::Server(server) => server.run(command).await,
            Link::Cluster(cluster) => cluster.run(command).await,
            Link::Given(given) => given.run(command).await,
        };
        Ok(T::from_redis_value(value?.extract_error()?)?)
    }

    /// The number of the connection that the next command would go by.
    pub(super) fn number(&self) -> u64 {
        match self {
            Link::Server(server) => server.number.load(Ordering::Relaxed),
            Link::Cluster(_) | Link::Given(_) => 0,
        }
    }

    /// The connection with this number is of no use: the next command makes a new one. A cluster's sees to its nodes itself, and
    /// so does whoever gave his own.
    pub(super) async fn lost(&self, number: u64) {
        let Link::Server(server) = self else { return };
        let mut kept = server.connection.lock().await;
        if server.number.load(Ordering::Relaxed) == number {
            *kept = None;
        }
    }

    /// Whether a script may only touch keys of one slot.
    pub(super) fn has_slots(&self) -> bool {
        match self {
            Link::Server(_) => false,
            Link::Cluster(_) => true,
            Link::Given(given) => given.is_cluster(),
        }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the client: it knows the password.
        f.write_str(match self {
            Link::Server(_) => "Server",
            Link::Cluster(_) => "Cluster",
            Link::Given(_) => "Given",
        })
    }
}

/// A connection of somebody else's.
pub(super) trait Given: Send + Sync {
    fn run<'a>(&'a self, command: &'a Cmd) -> Pin<Box<dyn Future<Output = RedisResult<Value>> + Send + 'a>>;

    fn is_cluster(&self) -> bool;
}

pub(super) struct Theirs<C> {
    pub(super) connection: C,
    pub(super) is_cluster: bool,
}

impl<C: ConnectionLike + Clone + Send + Sync> Given for Theirs<C> {
    fn run<'a>(&'a self, command: &'a Cmd) -> Pin<Box<dyn Future<Output = RedisResult<Value>> + Send + 'a>> {
        let mut connection = self.connection.clone();
        Box::pin(async move { connection.req_packed_command(command).await })
    }

    fn is_cluster(&self) -> bool {
        self.is_cluster
    }
}
