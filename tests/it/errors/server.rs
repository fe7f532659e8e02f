//! Errors caused by the replies of a fake Redis server. `tests/servers/redis` tests the errors of real servers.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use tollgate::backend::RedisBackend;
use tollgate::{Charge, FailureMode, MINUTE, Policy, Quota, RateLimiter};

use super::list::List;

static API: Policy = Policy::new("api", Quota::token_bucket(10, MINUTE));

const DEADLINE: Duration = Duration::from_millis(300);

pub(crate) async fn connecting(list: &mut List) {
    list.section("Redis, when connecting: Error");
    list.error("no URL", RedisBackend::connect("localhost").await);
    list.error("a URL with another scheme", RedisBackend::connect("http://app:hunter2@localhost").await);
    list.error("an invalid port", RedisBackend::connect("redis://app:hunter2@127.0.0.1:port").await);
    list.error("no server at the address", RedisBackend::connect("redis://127.0.0.1:1").await);
    list.error(
        "a missing password",
        RedisBackend::connect(&fake_server(b"-NOAUTH Authentication required.\r\n")).await,
    );
    list.error("a silent server", RedisBackend::builder().deadline(DEADLINE).connect(&fake_server(b"")).await);
}

pub(crate) async fn deciding(list: &mut List) {
    list.section("Redis, when deciding: Error");
    for (label, reply) in [
        ("no reply before the deadline", ""),
        ("an invalid script reply", "$3\r\nabc\r\n"),
        ("a server that is not Redis", "HTTP/1.1 400 Bad Request\r\n\r\n"),
        ("a replica", "-READONLY You can't write against a read only replica.\r\n"),
        ("a replica without its primary", "-MASTERDOWN Link with MASTER is down\r\n"),
        ("a server that is starting", "-LOADING Redis is loading the dataset in memory\r\n"),
        ("a cluster that is down", "-CLUSTERDOWN Hash slot not served\r\n"),
        ("a cluster that is used as a single server", "-MOVED 7 127.0.0.1:1\r\n"),
        ("rows in several slots", "-CROSSSLOT Keys in request don't hash to the same slot\r\n"),
        ("a missing permission", "-NOPERM this user has no permissions to run the 'evalsha' command\r\n"),
        (
            "the same on Redis 6",
            "-NOPERM this user has no permissions to run the 'evalsha' command or its subcommand\r\n",
        ),
        ("the same on Valkey", "-NOPERM User limits has no permissions to run the 'evalsha' command\r\n"),
        (
            "a missing permission for a command in the script",
            "-ERR The user executing the script can't run this command or subcommand script: 3a, on @user_script:1.\r\n",
        ),
        (
            "the same on Redis 6",
            "-ERR Error running script (call to f_3a): @user_script:1: @user_script: 1: The user executing the script \
             can't run this command or subcommand\r\n",
        ),
        (
            "the same on Valkey",
            "-ERR ACL failure in script: User limits has no permissions to run the 'get' command script: on \
             @user_script:1.\r\n",
        ),
        (
            "keys that the user may not access",
            "-NOPERM this user has no permissions to access one of the keys used as arguments\r\n",
        ),
        ("the same on Valkey", "-NOPERM No permissions to access a key\r\n"),
        ("a wrong password", "-WRONGPASS invalid username-password pair or user is disabled.\r\n"),
        ("another client's long-running script", "-BUSY Redis is busy running a script.\r\n"),
        ("a server that is out of memory", "-OOM command not allowed when used memory > 'maxmemory'.\r\n"),
        (
            "the same on Redis 6",
            "-ERR Error running script (call to f_3a): @user_script:1: @user_script: 1: -OOM command not allowed when \
             used memory > 'maxmemory'.\r\n",
        ),
        ("a full disk", "-MISCONF Redis is configured to save RDB snapshots\r\n"),
        ("missing replicas", "-NOREPLICAS Not enough good replicas to write.\r\n"),
        ("another application's key", "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"),
        (
            "the same on Redis 6",
            "-ERR Error running script (call to f_3a): @user_script:1: WRONGTYPE Operation against a key holding the wrong \
             kind of value\r\n",
        ),
        ("any other error", "-ERR something\r\n"),
    ] {
        // Only the missing reply is to exceed the deadline, however busy the machine is.
        let deadline = if reply.is_empty() { DEADLINE } else { 200 * DEADLINE };
        list.error(label, limiter(&fake_server(reply.as_bytes()), deadline).await.try_limit(&API, 7).await);
    }

    let limiter = limiter(&fake_server(b""), DEADLINE).await;
    limiter.try_limit(&API, 7).await.unwrap_err();
    list.error("a call made after another call got no reply", limiter.try_limit(&API, 7).await);
    let many = (0..1001).map(|key| Charge::new(&API, key));
    list.error("too many charges", limiter.try_limit_all(many).await);
}

async fn limiter(url: &str, deadline: Duration) -> RateLimiter {
    let builder = RedisBackend::builder().deadline(deadline).notices_every(Duration::ZERO).lazy();
    RateLimiter::builder(builder.connect(url).await.unwrap()).on_failure(FailureMode::Deny).build()
}

/// Starts a server that accepts connections normally and answers each script call with `reply`. Returns its URL.
fn fake_server(reply: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://127.0.0.1:{}", listener.local_addr().unwrap().port());
    thread::spawn(move || {
        for socket in listener.incoming() {
            thread::spawn(move || serve_fake(socket.unwrap(), reply));
        }
    });
    url
}

fn serve_fake(mut socket: TcpStream, reply: &[u8]) {
    let mut buffer = [0; 64 * 1024];
    while let Ok(length @ 1..) = socket.read(&mut buffer) {
        let request = String::from_utf8_lossy(&buffer[..length]);
        let mut output = b"+OK\r\n".repeat(request.matches("TIME").count());
        if request.contains("EVAL") {
            output.extend(reply);
        }
        if socket.write_all(&output).is_err() {
            return;
        }
    }
}
