//! Choices for a backend on Redis, and the first connection.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::ClusterClientBuilder;
use redis::{AsyncConnectionConfig, Client, ConnectionInfo, IntoConnectionInfo, RedisResult};
use tokio::time::timeout;

use super::lanes::Lanes;
use super::link::{Dial, Link, Lost};
use super::notices::Board;
use super::{RedisBackend, error, link};
use crate::algorithm::{Ask, Quota};
use crate::backend::{Error, ErrorKind, RowId, Take};
use crate::policy::{Digest, PolicyName, Secret};
use crate::sync::tasks::Handle;

/// Choices for a [`RedisBackend`].
///
/// ```no_run
/// use std::time::Duration;
/// use tollgate::backend::RedisBackend;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tollgate::backend::Error> {
/// let backend = RedisBackend::builder()
///     .prefix("shop:limits")
///     .deadline(Duration::from_millis(30))
///     .connect("redis://127.0.0.1")
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RedisBackendBuilder {
    prefix: Arc<str>,
    deadline: Duration,
    secret: Option<Secret>,
    lazy: bool,
    notices: Duration,
}

impl RedisBackendBuilder {
    pub(super) fn new() -> RedisBackendBuilder {
        RedisBackendBuilder {
            prefix: "tollgate".into(),
            deadline: DEADLINE,
            secret: None,
            lazy: false,
            notices: NOTICES,
        }
    }

    /// What the keys of rows begin with. Defaults to `tollgate`. Applications with different ones share nothing. The key
    /// pattern of the server's user has to be the same: `~shop:*` for `shop`.
    ///
    /// # Panics
    /// If it contains a brace: on a cluster, that would decide the slot.
    #[track_caller]
    #[must_use]
    pub fn prefix(mut self, prefix: &str) -> RedisBackendBuilder {
        assert!(!prefix.contains(['{', '}']), "tollgate: the prefix {prefix:?} contains a brace; leave it out");
        self.prefix = prefix.into();
        self
    }

    /// How long a decision may take at most, the time in a queue included; at least a millisecond. Defaults to 100 ms.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> RedisBackendBuilder {
        self.deadline = deadline.max(Duration::from_millis(1));
        self
    }

    /// Connects when the first decision is asked for, not before: a process that is started while the server is down
    /// begins in its [failure mode](crate::FailureMode), and is not told that the server cannot be reached at all.
    ///
    /// ```
    /// use tollgate::backend::RedisBackend;
    /// use tollgate::{backend::ErrorKind, Policy, Quota, RateLimiter, MINUTE};
    ///
    /// static API: Policy = Policy::new("api", Quota::token_bucket(10, MINUTE));
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::backend::Error> {
    /// // Nobody listens there, and the program starts all the same.
    /// let limiter = RateLimiter::new(RedisBackend::builder().lazy().connect("redis://127.0.0.1:1").await?);
    /// let error = limiter.try_limit(&API, "ada").await.unwrap_err();
    /// assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Timeout));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn lazy(mut self) -> RedisBackendBuilder {
        self.lazy = true;
        self
    }

    /// The secret under which limiters on this backend hash keys, the same in every process. Defaults to one that
    /// follows from the prefix and is no secret at all: whoever can read the server can then guess keys, such as
    /// addresses, and find their rows. Give one of your own if keys are personal. A process with another one counts by
    /// itself, and nothing warns.
    ///
    /// ```
    /// use tollgate::backend::RedisBackend;
    /// use tollgate::key::Secret;
    ///
    /// # fn secret_of_all_processes() -> [u8; 16] { [7; 16] }
    /// let builder = RedisBackend::builder().secret(Secret::new(secret_of_all_processes()));
    /// assert!(!format!("{builder:?}").contains('7')); // it shows nowhere
    /// ```
    #[must_use]
    pub fn secret(mut self, secret: Secret) -> RedisBackendBuilder {
        self.secret = Some(secret);
        self
    }

    /// How often each process looks for what others changed at run time ([quotas](crate::RateLimiter::set_quota),
    /// blocks); zero = it does not, and tells nobody. Defaults to 500 ms, which makes a change known everywhere within
    /// a second.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::backend::RedisBackend;
    ///
    /// // Limits that are never changed at run time, and blocks that each process keeps to itself: nothing to look for.
    /// let builder = RedisBackend::builder().notices_every(Duration::ZERO);
    /// ```
    #[must_use]
    pub fn notices_every(mut self, period: Duration) -> RedisBackendBuilder {
        self.notices = period;
        self
    }

    /// See [`RedisBackend::connect`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// As there.
    pub async fn connect(self, url: &str) -> Result<RedisBackend, Error> {
        let info = read(url)?.set_tcp_settings(link::tcp());
        // `CLIENT SETINFO` is not sent: from Redis 7.2 on, and on Valkey, a user with the documented permissions may not
        // run it, and each connection would leave an entry in the server's ACL LOG.
        let settings = info.redis_settings().clone().set_skip_set_lib_name();
        let info = info.set_redis_settings(settings);
        let address = info.addr().to_string();
        let client = Client::open(info).map_err(error::classify)?;
        let dial = Dial::new(move || {
            let client = client.clone();
            async move {
                // The caller has its own deadline.
                let config = AsyncConnectionConfig::new();
                let config = config.set_connection_timeout(Some(link::CONNECT)).set_response_timeout(None);
                client.get_multiplexed_async_connection_with_config(&config).await
            }
        });
        self.tried(Link::Server(Box::new(Lost::new(dial))), &address).await
    }

    /// Connects by a function of your own, now and whenever the connection is lost: to the primary that Redis Sentinel
    /// names, with a password that changes, with a certificate of the client.
    ///
    /// ```no_run
    /// use std::sync::Arc;
    ///
    /// use redis::sentinel::{SentinelClient, SentinelServerType::Master}; // feature `sentinel` of the crate `redis`
    /// use tokio::sync::Mutex;
    /// use tollgate::backend::RedisBackend;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let sentinels = vec!["redis://10.0.0.1:26379", "redis://10.0.0.2:26379", "redis://10.0.0.3:26379"];
    /// let client = Arc::new(Mutex::new(SentinelClient::build(sentinels, "mymaster".to_owned(), None, Master)?));
    /// let backend = RedisBackend::builder()
    ///     .connect_with(move || {
    ///         let client = Arc::clone(&client);
    ///         async move { client.lock().await.get_async_connection().await }
    ///     })
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The backend calls the function again after an error of the connection, and when the server has become a read-only
    /// replica; calls never overlap. An attempt ends with the [deadline](RedisBackendBuilder::deadline) of the decision
    /// that needs the connection. While the server is out of reach, one attempt at a time is made in the background and
    /// has half a second, or the deadline if that is longer.
    ///
    /// # Errors
    /// As [`RedisBackend::connect`].
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub async fn connect_with<F>(self, connect: impl Fn() -> F + Send + Sync + 'static) -> Result<RedisBackend, Error>
    where
        F: Future<Output = RedisResult<MultiplexedConnection>> + Send + 'static,
    {
        self.tried(Link::Server(Box::new(Lost::new(Dial::new(connect)))), "connect_with").await
    }

    /// See [`RedisBackend::connect_cluster`].
    ///
    /// ```no_run
    /// use tollgate::backend::RedisBackend;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::backend::Error> {
    /// let backend = RedisBackend::builder().prefix("shop:limits").connect_cluster(["redis://10.0.0.5:6379"]).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// As there.
    pub async fn connect_cluster<U: AsRef<str>>(
        self,
        urls: impl IntoIterator<Item = U>,
    ) -> Result<RedisBackend, Error> {
        let infos = urls.into_iter().map(|url| read(url.as_ref())).collect::<Result<Vec<_>, _>>()?;
        // Without what else is in a URL: users and passwords.
        let known = infos.iter().map(|info| info.addr().to_string());
        let addresses = known.take(MOST_LISTED).collect::<Vec<_>>().join(", ");
        let client = ClusterClientBuilder::new(infos)
            // The client would also send a charge again when its connection broke, though it may have happened.
            // Redirections are followed in `lanes`.
            .retries(0)
            .connection_timeout(link::CONNECT)
            .response_timeout(self.deadline)
            .tcp_settings(link::tcp())
            .build()
            .map_err(error::classify)?;
        self.tried(Link::Cluster(Arc::new(Lost::new(client))), &addresses).await
    }

    /// On a connection of your own, to one server: a `ConnectionManager`, say. It is cloned for each call, and
    /// reconnecting is its own business.
    ///
    /// ```no_run
    /// use tollgate::backend::RedisBackend;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = redis::Client::open("redis://127.0.0.1")?;
    /// let backend = RedisBackend::builder().connection(client.get_multiplexed_async_connection().await?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn connection(self, connection: impl ConnectionLike + Clone + Send + Sync + 'static) -> RedisBackend {
        self.on(Link::Given { connection: Box::new(connection), is_cluster: false })
    }

    /// On a connection of your own to a cluster: a `ClusterConnection`, say. Build it with `retries(0)`: by default
    /// that client sends a command again when its connection breaks, and a charge may happen twice.
    ///
    /// ```no_run
    /// use redis::cluster::ClusterClientBuilder;
    /// use tollgate::backend::RedisBackend;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = ClusterClientBuilder::new(["redis://10.0.0.5:6379"]).retries(0).build()?;
    /// let backend = RedisBackend::builder().cluster_connection(client.get_async_connection().await?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn cluster_connection(self, connection: impl ConnectionLike + Clone + Send + Sync + 'static) -> RedisBackend {
        self.on(Link::Given { connection: Box::new(connection), is_cluster: true })
    }

    /// Whether the server at `address` is there, and understands the script.
    async fn tried(self, link: Link, address: &str) -> Result<RedisBackend, Error> {
        let (lazy, patience) = (self.lazy, link::CONNECT.saturating_add(self.deadline));
        let backend = self.on(link);
        if lazy {
            return Ok(backend);
        }
        let row = RowId { policy: &PROBE, key: Digest::from_bits(0) };
        let peek = backend.kind(&[Take::new(row, &Quota::per_second(1), Ask::cost(1))], false);
        match timeout(patience, backend.lanes.try_out(peek)).await {
            Ok(answer) => answer.map(|()| backend).map_err(|error| error.at(address)),
            Err(_) => {
                let message = format!(
                    "the Redis server did not answer within {patience:?}; check the address, or start without it: `lazy()`"
                );
                Err(Error::new(ErrorKind::Unavailable, message).at(address))
            }
        }
    }

    fn on(self, link: Link) -> RedisBackend {
        let secret = self.secret.unwrap_or_else(|| {
            let mut bytes = [0; 16];
            for (i, byte) in self.prefix.bytes().enumerate() {
                bytes[i % 16] ^= byte.rotate_left((i / 16) as u32);
            }
            Secret::new(bytes)
        });
        let lanes = Arc::new(Lanes::new(link, self.deadline, Handle::current()));
        let board = || Arc::new(Board::new(Arc::clone(&lanes), &self.prefix, self.notices));
        let board = (!self.notices.is_zero()).then(board);
        RedisBackend { lanes, prefix: self.prefix, secret, board }
    }
}

/// The URL as the client reads it. Errors do not repeat it: it may contain a password, with or without a scheme.
fn read(url: &str) -> Result<ConnectionInfo, Error> {
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
    link::choose_cryptography(&info);
    Ok(info)
}

/// Nodes of a cluster that an error names.
const MOST_LISTED: usize = 3;

const DEADLINE: Duration = Duration::from_millis(100);

/// Between two looks at the board of notices.
const NOTICES: Duration = Duration::from_millis(500);

/// Whether the server is there is asked by a row that never is.
static PROBE: PolicyName = PolicyName::new("probe");
