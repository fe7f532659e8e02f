//! [`RedisBackendBuilder`], which also opens the first connection.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::ClusterClientBuilder;
use redis::{AsyncConnectionConfig, Client, ConnectionInfo, IntoConnectionInfo, RedisResult};
use tokio::time::timeout;

use super::batcher::Batcher;
use super::link::{Link, Reconnecting, ServerConnector};
use super::notices::RedisNoticeChannel;
use super::{RedisBackend, error, link};
use crate::algorithm::{Ask, Quota};
use crate::backend::{Error, ErrorKind, RowId, Take};
use crate::policy::{Digest, PolicyName, Secret};
use crate::sync::tasks::Handle;

/// Builds a [`RedisBackend`].
///
/// ```
/// use std::time::Duration;
/// use tollgate::{backend::RedisBackend, key::Secret};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::backend::Error> {
/// let backend = RedisBackend::builder()
///     .prefix("shop:limits")
///     .deadline(Duration::from_millis(30))
///     .secret(Secret::new([7; 16])) // use random bytes, the same in every process
///     .notices_every(Duration::ZERO) // changes to quotas and blocks do not reach other processes
///     .lazy() // succeeds even if the server is down
///     .connect("redis://127.0.0.1")
///     .await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct RedisBackendBuilder {
    prefix: Arc<str>,
    deadline: Duration,
    secret: Option<Secret>,
    lazy: bool,
    poll_interval: Duration,
}

impl RedisBackendBuilder {
    pub(super) fn new() -> RedisBackendBuilder {
        RedisBackendBuilder {
            prefix: "tollgate".into(),
            deadline: DEFAULT_DEADLINE,
            secret: None,
            lazy: false,
            poll_interval: DEFAULT_POLL_INTERVAL,
        }
    }

    /// Sets the prefix of all keys on the server. Defaults to `tollgate`. Applications with different prefixes share
    /// no data. The Redis user needs a matching key pattern, such as `~shop:*` for the prefix `shop`.
    ///
    /// # Panics
    /// Panics if the prefix contains braces, which determine the slot on a cluster.
    #[track_caller]
    #[must_use]
    pub fn prefix(mut self, prefix: &str) -> RedisBackendBuilder {
        assert!(
            !prefix.contains(['{', '}']),
            "tollgate: expected a prefix without braces, found {prefix:?}; remove the braces"
        );
        self.prefix = prefix.into();
        self
    }

    /// Sets the maximum duration of a decision, including its time in the queue. Defaults to 100 ms. Less
    /// than 1 ms counts as 1 ms.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> RedisBackendBuilder {
        self.deadline = deadline.max(Duration::from_millis(1));
        self
    }

    /// Postpones connecting until the first call. If connecting fails, the [failure mode](crate::FailureMode) applies.
    #[must_use]
    pub fn lazy(mut self) -> RedisBackendBuilder {
        self.lazy = true;
        self
    }

    /// Sets the secret that is used to hash keys. Processes with different secrets silently use separate rows.
    ///
    /// The default secret is derived from the prefix, so anyone who can read the server's data can guess keys and
    /// verify the guesses. Set your own secret if keys are personal data.
    #[must_use]
    pub fn secret(mut self, secret: Secret) -> RedisBackendBuilder {
        self.secret = Some(secret);
        self
    }

    /// Sets how often each process polls for the blocks and [quotas](crate::RateLimiter::set_quota) that other
    /// processes have set at run time. Defaults to 500 ms. Zero disables both polling and publishing.
    #[must_use]
    pub fn notices_every(mut self, period: Duration) -> RedisBackendBuilder {
        self.poll_interval = period;
        self
    }

    /// Connects to one server. [`RedisBackend::connect`] describes the URL, errors and panics.
    pub async fn connect(self, url: &str) -> Result<RedisBackend, Error> {
        let info = parse_url(url)?.set_tcp_settings(link::tcp());
        // The documented permissions do not allow `CLIENT SETINFO`, so each connection would cause an ACL log entry.
        let settings = info.redis_settings().clone().set_skip_set_lib_name();
        let info = info.set_redis_settings(settings);
        let address = info.addr().to_string();
        let client = Client::open(info).map_err(error::classify)?;
        let connector = ServerConnector::new(move || {
            let client = client.clone();
            async move {
                let config = AsyncConnectionConfig::new();
                let config = config.set_connection_timeout(Some(link::CONNECT_TIMEOUT)).set_response_timeout(None);
                client.get_multiplexed_async_connection_with_config(&config).await
            }
        });
        self.checked(Link::Server(Box::new(Reconnecting::new(connector))), &address).await
    }

    /// Connects with your own function, for example for [Sentinel](crate::docs::redis#sentinel), a changing password or
    /// a client certificate.
    ///
    /// The backend calls `connect` again after a connection error, and when the server has become a read-only replica.
    /// Calls never overlap. A call for a decision is canceled at the decision's
    /// [deadline](RedisBackendBuilder::deadline). A call for a background task is canceled after at most one second, or
    /// after the deadline if that is longer.
    ///
    /// Fails and panics in the same cases as [`RedisBackend::connect`].
    pub async fn connect_with<F>(self, connect: impl Fn() -> F + Send + Sync + 'static) -> Result<RedisBackend, Error>
    where
        F: Future<Output = RedisResult<MultiplexedConnection>> + Send + 'static,
    {
        self.checked(Link::Server(Box::new(Reconnecting::new(ServerConnector::new(connect)))), "connect_with").await
    }

    /// Connects to a cluster. [`RedisBackend::connect_cluster`] describes the URLs, errors and panics.
    pub async fn connect_cluster<U: AsRef<str>>(
        self,
        urls: impl IntoIterator<Item = U>,
    ) -> Result<RedisBackend, Error> {
        let infos = urls.into_iter().map(|url| parse_url(url.as_ref())).collect::<Result<Vec<_>, _>>()?;
        // Errors contain only the addresses, because URLs may contain passwords.
        let addresses = infos.iter().map(|info| info.addr().to_string());
        let addresses = addresses.take(MAX_LISTED).collect::<Vec<_>>().join(", ");
        let client = ClusterClientBuilder::new(infos)
            // A retry by the client could charge twice. The batcher follows redirections itself.
            .retries(0)
            .connection_timeout(link::CONNECT_TIMEOUT)
            .response_timeout(self.deadline)
            .tcp_settings(link::tcp())
            .build()
            .map_err(error::classify)?;
        self.checked(Link::Cluster(Arc::new(Reconnecting::new(client))), &addresses).await
    }

    /// Uses your own connection to one server, such as a `ConnectionManager`. The backend never reconnects it.
    ///
    /// # Panics
    /// Panics if called outside of a tokio runtime.
    pub fn connection(self, connection: impl ConnectionLike + Clone + Send + Sync + 'static) -> RedisBackend {
        self.build(Link::UserProvided { connection: Box::new(connection), is_cluster: false })
    }

    /// Uses your own connection to a cluster, such as a `ClusterConnection`. Build the cluster client with
    /// `retries(0)`, because a retry could charge twice.
    ///
    /// # Panics
    /// Panics if called outside of a tokio runtime.
    pub fn cluster_connection(self, connection: impl ConnectionLike + Clone + Send + Sync + 'static) -> RedisBackend {
        self.build(Link::UserProvided { connection: Box::new(connection), is_cluster: true })
    }

    /// Builds the backend. Unless the backend is lazy, checks that the server can run the script.
    async fn checked(self, link: Link, address: &str) -> Result<RedisBackend, Error> {
        let (lazy, time) = (self.lazy, link::CONNECT_TIMEOUT.saturating_add(self.deadline));
        let backend = self.build(link);
        if lazy {
            return Ok(backend);
        }
        let row = RowId { policy: &PROBE, key: Digest::from_bits(0) };
        let peek = backend.decide_action(&[Take::new(row, &Quota::per_second(1), Ask::cost(1))], false);
        match timeout(time, backend.batcher.check(peek)).await {
            Ok(answer) => answer.map(|()| backend).map_err(|error| error.at(address)),
            Err(_) => {
                let message = format!(
                    "the Redis server did not reply within {time:?}; check the address, or use `lazy()` to start without \
                     the server"
                );
                Err(Error::new(ErrorKind::Unavailable, message).at(address))
            }
        }
    }

    fn build(self, link: Link) -> RedisBackend {
        let secret = self.secret.unwrap_or_else(|| {
            let mut bytes = [0; 16];
            for (i, byte) in self.prefix.bytes().enumerate() {
                bytes[i % 16] ^= byte.rotate_left((i / 16) as u32);
            }
            Secret::new(bytes)
        });
        let batcher = Arc::new(Batcher::new(link, self.deadline, Handle::current()));
        let channel = || Arc::new(RedisNoticeChannel::new(Arc::clone(&batcher), &self.prefix, self.poll_interval));
        let channel = (!self.poll_interval.is_zero()).then(channel);
        RedisBackend { batcher, prefix: self.prefix, secret, channel }
    }
}

/// Parses a URL. Errors do not include the URL, because it may contain a password.
fn parse_url(url: &str) -> Result<ConnectionInfo, Error> {
    let info = url.into_connection_info().map_err(|failed| {
        let is_scheme = |text: &&str| {
            !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
        };
        let message = match url.split_once("://").map(|(scheme, _)| scheme).filter(is_scheme) {
            None => {
                "expected a URL such as `redis://127.0.0.1:6379`, found one without a scheme; write `redis://` before \
                     the host, `rediss://` for TLS, or `unix://` before the path of a socket"
                    .to_owned()
            }
            Some("redis" | "rediss" | "valkey" | "valkeys" | "unix" | "redis+unix" | "valkey+unix") => {
                return error::classify(failed);
            }
            Some(other) => format!(
                "expected a URL such as `redis://127.0.0.1:6379`, `rediss://` for TLS or `unix://` for a \
                     socket, found `{other}://`"
            ),
        };
        Error::new(ErrorKind::Protocol, message).with_source(failed)
    })?;
    link::install_crypto_provider(&info);
    Ok(info)
}

const MAX_LISTED: usize = 3;

const DEFAULT_DEADLINE: Duration = Duration::from_millis(100);

const DEFAULT_POLL_INTERVAL: Duration = Duration::from_millis(500);

static PROBE: PolicyName = PolicyName::new("probe");
