//! A malicious server: whatever it sends and whenever it disconnects, each decision completes, and errors have messages.
//!
//! The client is redis-rs's, over an in-memory pipe. It reconnects after a disconnect. Time is simulated, and advances
//! while all tasks are idle.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{AsyncConnectionConfig, Cmd, Pipeline, RedisConnectionInfo, RedisFuture, RedisResult, Value};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, duplex};
use tokio::time::timeout;
use tollgate::backend::{RedisBackend, RedisBackendBuilder};
use tollgate::{Policy, Quota, RateLimiter, protection::Signal};

static API: Policy = Policy::new("api", Quota::token_bucket(10, Duration::from_secs(60)));

/// Reads `data` as the calls, whether the server accepts the handshake, and the server's output. The output consists of
/// pieces separated by `|`, each of which the server sends after it has received something.
pub fn run(data: &[u8]) {
    let Some((shape, script)) = Script::read(data) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let limiter = RateLimiter::new(builder(shape).connection(Client { script, kept: Arc::default() }));
        ask(&limiter, shape).await;
    });
}

/// Makes the calls and checks their results.
pub(crate) async fn ask(limiter: &RateLimiter, shape: u8) {
    for i in 0..=shape >> 2 & 3 {
        let answer = match shape >> (4 + i) & 1 {
            0 => limiter.try_limit(&API, u64::from(i)).await.map(|decision| {
                assert!(decision.remaining() <= decision.capacity(), "{decision:?}");
            }),
            _ => limiter.block(Signal::key(u64::from(i)), Duration::from_secs(60)).await.map(|_| ()),
        };
        if let Err(error) = answer {
            assert!(!error.to_string().is_empty(), "{error:?}");
        }
    }
}

/// The server's output.
pub(crate) struct Script {
    accepts_handshake: bool,
    pieces: Vec<Vec<u8>>,
}

impl Script {
    /// Reads the calls and the script.
    pub(crate) fn read(data: &[u8]) -> Option<(u8, Arc<Script>)> {
        let (shape, output) = data.split_first()?;
        let pieces = output.split(|byte| *byte == b'|').map(<[u8]>::to_vec).collect();
        Some((*shape, Arc::new(Script { accepts_handshake: shape & 1 == 0, pieces })))
    }
}

/// Returns the backend's builder, with or without a notice channel.
pub(crate) fn builder(shape: u8) -> RedisBackendBuilder {
    let notices = if shape & 2 == 0 { Duration::ZERO } else { Duration::from_secs(3600) };
    RedisBackend::builder().deadline(DEADLINE).notices_every(notices)
}

/// A client that connects when necessary. Each time, the server starts the script from the beginning.
#[derive(Clone)]
struct Client {
    script: Arc<Script>,
    kept: Arc<Mutex<Option<MultiplexedConnection>>>,
}

impl Client {
    fn kept(&self) -> std::sync::MutexGuard<'_, Option<MultiplexedConnection>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn connection(&self) -> RedisResult<MultiplexedConnection> {
        if let Some(connection) = self.kept().clone() {
            return Ok(connection);
        }
        let (ours, theirs) = duplex(16 * 1024);
        tokio::spawn(mislead(theirs, Arc::clone(&self.script)));
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let (connection, driver) =
            MultiplexedConnection::new_with_config(&RedisConnectionInfo::default(), ours, config).await?;
        tokio::spawn(driver);
        Ok(self.kept().insert(connection).clone())
    }
}

impl ConnectionLike for Client {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(async move {
            let answer = self.connection().await?.req_packed_command(command).await;
            if answer.as_ref().is_err_and(|error| error.is_unrecoverable_error()) {
                *self.kept() = None;
            }
            answer
        })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        Box::pin(async move { self.connection().await?.req_packed_commands(pipeline, offset, count).await })
    }

    fn get_db(&self) -> i64 {
        0
    }
}

/// Responds to each received chunk with the next piece, and disconnects after the last one.
pub(crate) async fn mislead(mut socket: impl AsyncRead + AsyncWrite + Unpin, script: Arc<Script>) {
    let mut buffer = vec![0; 16 * 1024];
    let mut has_greeted = !script.accepts_handshake;
    let mut pieces = script.pieces.iter();
    loop {
        // A client that is waiting for the rest of a reply sends nothing, so the next piece is sent after a pause.
        let length = match timeout(PAUSE, socket.read(&mut buffer)).await {
            Ok(Ok(0) | Err(_)) => return,
            Ok(Ok(length)) => length,
            Err(_) => 0,
        };
        let asked = String::from_utf8_lossy(&buffer[..length]);
        if !std::mem::replace(&mut has_greeted, true) {
            let greetings = asked.matches("SETINFO").count();
            if greetings > 0 && socket.write_all(&b"+OK\r\n".repeat(greetings)).await.is_ok() && !asked.contains("EVAL")
            {
                continue;
            }
        }
        let Some(piece) = pieces.next() else { return };
        if socket.write_all(piece).await.is_err() || pieces.len() == 0 {
            return;
        }
    }
}

/// The deadline of each call.
const DEADLINE: Duration = Duration::from_millis(20);

const PAUSE: Duration = Duration::from_millis(2);
