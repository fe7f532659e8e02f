//! Runs the real script on a real server, but with a clock that tests can set to reach every branch of the script.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Arg, AsyncConnectionConfig, Cmd, ErrorKind, Pipeline, RedisError, RedisFuture, ServerErrorKind, Value};
use tollgate::algorithm::Micros;
use tollgate::backend::RedisBackend;

use crate::support::server::{PATIENCE, Server};

/// Lua code that is prepended to the script. This code takes the time from the arguments, and records expiries instead
/// of setting them.
const PRELUDE: &str = "
local real, redis = redis, { pcall = redis.pcall }
redis.call = function(name, ...)
  if name == 'TIME' then return { ARGV[#ARGV - 1], ARGV[#ARGV] } end
  if name ~= 'SET' then return real.call(name, ...) end
  local key, value, exat, expires = ...
  assert(exat == 'EXAT' and tonumber(expires) > 0)
  real.call('HSET', 'expiries', key, expires)
  return real.call('SET', key, value)
end
";

/// A connection that passes the time as an argument to each script call.
#[derive(Clone)]
pub(crate) struct SetClock {
    connection: MultiplexedConnection,
    now: Arc<Mutex<Micros>>,
    scripts: Arc<Mutex<HashMap<Vec<u8>, String>>>,
}

impl SetClock {
    pub(crate) async fn on(server: &Server) -> SetClock {
        let client = redis::Client::open(server.url()).unwrap();
        // The Redis client's own default is half a second.
        let config =
            AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE)).set_connection_timeout(Some(PATIENCE));
        let connection = client.get_multiplexed_async_connection_with_config(&config).await.unwrap();
        SetClock { connection, now: Arc::new(Mutex::new(Micros::EPOCH)), scripts: Arc::default() }
    }

    pub(crate) fn backend(&self) -> RedisBackend {
        RedisBackend::builder().deadline(PATIENCE).connection(self.clone())
    }

    pub(crate) fn set(&self, now: Micros) {
        *self.now.lock().unwrap() = now;
    }

    fn rewritten(&self, command: &Cmd) -> Result<Cmd, RedisError> {
        let mut arguments = command.args_iter().map(|argument| match argument {
            Arg::Simple(bytes) => bytes.to_vec(),
            _ => panic!("expected a command with plain arguments"),
        });
        let name = arguments.next().unwrap();
        if !name.starts_with(b"EVAL") {
            return Ok(command.clone());
        }
        let (script, now) = (arguments.next().unwrap(), self.now.lock().unwrap().get());
        let mut scripts = self.scripts.lock().unwrap();
        let source = if name == b"EVAL" {
            let source = String::from_utf8(script).unwrap();
            let hash = redis::Script::new(&source).get_hash().as_bytes().to_vec();
            scripts.entry(hash).or_insert(source)
        } else {
            let unknown = (ErrorKind::Server(ServerErrorKind::NoScript), "this script has not been sent in full yet");
            scripts.get(&script).ok_or(unknown)?
        };
        let mut rewritten = redis::cmd("EVAL");
        rewritten.arg(format!("{PRELUDE}{source}"));
        arguments.for_each(|argument| _ = rewritten.arg(argument));
        rewritten.arg(now / 1_000_000).arg(now % 1_000_000);
        Ok(rewritten)
    }
}

impl ConnectionLike for SetClock {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        let command = self.rewritten(command);
        Box::pin(async move { self.connection.req_packed_command(&command?).await })
    }

    fn req_packed_commands<'a>(&'a mut self, _: &'a Pipeline, _: usize, _: usize) -> RedisFuture<'a, Vec<Value>> {
        unreachable!("the backend sends one command at a time")
    }

    fn get_db(&self) -> i64 {
        0
    }
}

pub(crate) struct Window(redis::Connection);

impl Window {
    pub(crate) fn to(server: &Server) -> Window {
        Window(server.admin())
    }

    pub(crate) fn rows(&mut self, keys: &[String]) -> Vec<Option<Vec<u8>>> {
        redis::cmd("MGET").arg(keys).query(&mut self.0).unwrap()
    }

    pub(crate) fn write(&mut self, key: &str, bytes: &[u8]) {
        redis::cmd("SET").arg(key).arg(bytes).exec(&mut self.0).unwrap();
    }

    /// Returns the expiries recorded since the last call, in seconds since the epoch.
    pub(crate) fn expiries(&mut self) -> HashMap<String, u32> {
        let mut both = redis::pipe();
        both.cmd("HGETALL").arg("expiries").cmd("DEL").arg("expiries").ignore();
        let (expiries,) = both.query(&mut self.0).unwrap();
        expiries
    }

    pub(crate) fn clear(&mut self) {
        redis::cmd("FLUSHALL").exec(&mut self.0).unwrap();
    }
}
