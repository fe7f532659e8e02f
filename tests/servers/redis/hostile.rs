//! Malformed and malicious replies cause an error within the deadline, but never a panic or unbounded memory use.

use std::time::{Duration, Instant};

use tollgate::RateLimiter;
use tollgate::backend::{Error, ErrorKind, RedisBackend};

use super::outage::SLOW;
use super::proxy::hostile;
use super::rows::OURS;
use crate::support::server::PATIENCE;

const DEADLINE: Duration = Duration::from_millis(200);

async fn ask(url: &str) -> Error {
    let limiter = RateLimiter::new(
        RedisBackend::builder().deadline(DEADLINE).notices_every(Duration::ZERO).lazy().connect(url).await.unwrap(),
    );
    let begin = Instant::now();
    let error = limiter.try_limit(&SLOW, 1).await.unwrap_err();
    assert!(begin.elapsed() < PATIENCE, "{:?}: {error}", begin.elapsed());
    error
}

#[tokio::test]
async fn malformed_replies_cause_errors() {
    let reply = |bytes: &[u8]| [format!("${}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
    // A well-formed reply consists of the time, the result of one operation, and one row.
    let row = |now: f64, done: u8, spent: f64| {
        [&now.to_le_bytes()[..], &[done], &OURS, &[0; 4], &spent.to_le_bytes(), &[0; 24]].concat()
    };
    let denied = row(1e15, 0, 0.0);
    let all: [(&[u8], &[ErrorKind]); 20] = [
        (b":7\r\n", &[ErrorKind::Protocol]),
        (b"+OK\r\n", &[ErrorKind::Protocol]),
        (b"$-1\r\n", &[ErrorKind::Protocol]),
        (b"$0\r\n\r\n", &[ErrorKind::Protocol]),
        (b"*2\r\n:1\r\n:2\r\n", &[ErrorKind::Protocol]),
        (b"%1\r\n+a\r\n+b\r\n", &[ErrorKind::Protocol]),
        (b"-ERR no\r\n", &[ErrorKind::Protocol]),
        (b"-\r\n", &[ErrorKind::Protocol]),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", &[ErrorKind::Protocol]),
        (b"\0\0\0\0", &[ErrorKind::Protocol]),
        (b"$-7\r\n", &[ErrorKind::Protocol, ErrorKind::Timeout]),
        (b"$99999999999999999999\r\n", &[ErrorKind::Protocol, ErrorKind::Timeout]),
        (b"$9223372036854775807\r\nabc", &[ErrorKind::Protocol, ErrorKind::Timeout]),
        (b"*2147483647\r\n", &[ErrorKind::Protocol, ErrorKind::Timeout]),
        (b"$36\r\nabc", &[ErrorKind::Timeout]),
        (&reply(&row(f64::NAN, 1, 0.0)), &[ErrorKind::Protocol]),
        (&reply(&row(-1.0, 1, 0.0)), &[ErrorKind::Protocol]),
        (&reply(&row(1e15, 1, f64::INFINITY)), &[ErrorKind::Protocol]),
        (&reply(&[row(1e15, 1, 0.0), vec![0; 40]].concat()), &[ErrorKind::Protocol]),
        // This reply denies a charge that the algebra grants.
        (&reply(&denied), &[ErrorKind::Protocol]),
    ];
    for (nonsense, kinds) in all {
        let error = ask(&hostile(nonsense.to_vec(), false, false)).await;
        assert!(kinds.contains(&error.kind()), "{:?}: {error}", String::from_utf8_lossy(nonsense));
    }
}

#[tokio::test]
async fn a_truncated_reply_causes_an_error() {
    for half in ["", "$36\r\nabc", "*3\r\n:1\r\n", "-ERR"] {
        let error = ask(&hostile(half.into(), false, true)).await;
        // The client may report a truncated reply as a protocol error.
        assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Protocol), "{half:?}: {error}");
    }
}

/// Some of the replies are errors that Redis 6.2 returns when a command within a script fails.
#[tokio::test]
async fn redirections_and_script_errors_are_recognized() {
    let within = |error: &str| {
        format!("-ERR Error running script (call to f_0a): @user_script:290: @user_script: 290: -{error}\r\n")
    };
    for (reply, kind, advice) in [
        ("-MOVED 7 127.0.0.1:1\r\n".to_owned(), ErrorKind::Unavailable, "connect_cluster"),
        ("-TRYAGAIN later\r\n".to_owned(), ErrorKind::Unavailable, "connect_cluster"),
        (
            "-CROSSSLOT Keys in request don't hash to the same slot\r\n".to_owned(),
            ErrorKind::Unsupported,
            "connect_cluster",
        ),
        (within("READONLY You can't write against a read only replica."), ErrorKind::Unavailable, "read-only replica"),
        (within("OOM command not allowed when used memory > 'maxmemory'."), ErrorKind::Unavailable, "raise maxmemory"),
        (within("WRONGTYPE Operation against a key holding"), ErrorKind::Protocol, "a different prefix"),
        (
            "-ERR The user executing the script can't run this command script: f_0a\r\n".to_owned(),
            ErrorKind::Protocol,
            "permission",
        ),
        (within("ERR something"), ErrorKind::Protocol, "refused the script"),
    ] {
        let error = ask(&hostile(reply.clone().into(), false, false)).await;
        assert_eq!(error.kind(), kind, "{reply}: {error}");
        assert!(error.to_string().contains(advice), "{reply}: {error}");
    }
}

/// The server announces a reply of one gigabyte and keeps sending after the deadline.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endless_reply_is_abandoned() {
    let before = resident();
    let endless = [b"$1000000000\r\n".to_vec(), vec![b'x'; 1 << 20]].concat();
    let limiter = {
        let url = hostile(endless, true, false);
        RateLimiter::new(
            RedisBackend::builder()
                .deadline(DEADLINE)
                .notices_every(Duration::ZERO)
                .lazy()
                .connect(&url)
                .await
                .unwrap(),
        )
    };
    for _ in 0..300 {
        limiter.try_limit(&SLOW, 1).await.unwrap_err();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let grown = resident().saturating_sub(before);
    // The limit is high because other tests run in parallel. Storing the whole reply would take more than 700 MiB.
    assert!(grown < 400 << 20, "memory use grew by {} MiB", grown >> 20);
}

/// The first two replies are pages that claim that another follows, so a backend that read on would never finish. The
/// last three replies are malformed.
#[tokio::test]
async fn the_backend_gives_up_on_endless_notices() {
    let page = |all: u8, version: &str| {
        format!(
            "*6\r\n$1\r\n7\r\n$13\r\n1700000000000\r\n:{all}\r\n:1\r\n${}\r\n{version}\r\n$1\r\n0\r\n",
            version.len()
        )
    };
    for answer in [
        page(1, "5"),
        page(0, "5"),
        page(1, "-5"),
        "*0\r\n".into(),
        "*6\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n*0\r\n".into(),
    ] {
        let url = hostile(answer.clone().into_bytes(), false, false);
        let limiter = RateLimiter::new(RedisBackend::builder().deadline(DEADLINE).lazy().connect(&url).await.unwrap());
        let set = limiter.set_quota(&SLOW, SLOW.quotas()[0]);
        let refused = tokio::time::timeout(PATIENCE, set).await.expect("expected an answer").unwrap_err();
        assert!(refused.to_string().contains("notices on the server"), "{answer:?}: {refused}");
    }
}

fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}
