//! What the server's and the client's errors mean for a decision, and what to do about them.

use redis::{ErrorKind as Kind, RedisError};

use crate::backend::Error;
use crate::backend::ErrorKind::{Protocol, Timeout, Unavailable, Unsupported};

/// What follows from an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The server answered; the next call may do better.
    Answered,
    /// It has become a replica: the name may lead elsewhere by now.
    Moved,
    /// The connection is of no use any more.
    Disconnected,
}

pub(super) fn fault(error: &RedisError) -> Fault {
    match (error.kind(), code(error)) {
        (_, "READONLY" | "MASTERDOWN") => Fault::Moved,
        (Kind::Server(_) | Kind::Extension | Kind::UnexpectedReturnType, _) => Fault::Answered,
        _ => Fault::Disconnected,
    }
}

/// The server's code for it. A script that lacks a permission gets an `ERR` with one of two sentences: the first up to Redis
/// 7.0, the second from 7.2 on and on Valkey. Before Redis 7, every error of a command in a script is an `ERR` whose text
/// ends with it: `@user_script: 1: -OOM command ...`, `@user_script:1: WRONGTYPE Operation ...`.
fn code(error: &RedisError) -> &str {
    let (code, detail) = (error.code().unwrap_or_default(), error.detail().unwrap_or_default());
    if code != "ERR" {
        return code;
    }
    if detail.contains("The user executing the script can't") || detail.starts_with("ACL failure in script") {
        return "NOPERM";
    }
    let within = detail.strip_prefix("Error running script").and_then(|text| text.rsplit_once("@user_script"));
    let within = within.map(|(_, text)| text.trim_start_matches(|c: char| c.is_ascii_digit() || ": -".contains(c)));
    within.and_then(|text| text.split(' ').next()).unwrap_or(code)
}

/// What a user lacks, and the rule that allows it. Up to Redis 7.0, the answer of a script does not name the command.
fn missing_permission(error: &RedisError) -> String {
    let detail = error.detail().unwrap_or_default();
    let command = detail.split_once(" permissions to run ").and_then(|(_, rest)| rest.split('\'').nth(1));
    let (lacks, allow) = match command {
        Some(command) => (format!("it may not run `{command}`"), format!("`ACL SETUSER <user> +{command}` allows it")),
        None if detail.contains("key") => (
            "its key pattern has to begin with the backend's prefix".to_owned(),
            "`ACL SETUSER <user> ~tollgate:*` allows it for the prefix `tollgate`, which is the default".to_owned(),
        ),
        None => ("it may not run a command of the script".to_owned(), "ACL LOG names it".to_owned()),
    };
    format!(
        "the user lacks a permission: {lacks}; {allow}; all that it needs is under \"The user it needs\" in \
         tollgate::docs::redis"
    )
}

/// Whether a node of a cluster refused a command because its slot is elsewhere, or on its way.
pub(super) fn is_redirection(error: &RedisError) -> bool {
    use redis::ServerErrorKind::{Ask, Moved, TryAgain};
    matches!(error.kind(), Kind::Server(Moved | Ask | TryAgain))
}

/// The error for those who limit: its kind, and what to do.
pub(super) fn classify(error: RedisError) -> Error {
    let (kind, advice) = match (code(&error), error.kind()) {
        ("READONLY", _) => {
            (Unavailable, "the server has become a read-only replica; connecting again to find the primary")
        }
        ("LOADING", _) => (Unavailable, "the server is loading its data; it will answer when it has"),
        ("MASTERDOWN", _) => (Unavailable, "the server is a replica without its primary; connect to the primary"),
        ("CLUSTERDOWN", _) => (Unavailable, "the cluster is down: not every slot has a primary; see CLUSTER INFO"),
        ("MOVED" | "ASK" | "TRYAGAIN", _) => (
            Unavailable,
            "a slot is moving, or this is a cluster and the backend was not told: connect with `connect_cluster`",
        ),
        ("CROSSSLOT", _) => {
            (Unsupported, "this is a cluster, and the backend was not told: connect with `connect_cluster`")
        }
        ("NOPERM", _) => return Error::new(Protocol, missing_permission(&error)).with_source(error),
        ("NOAUTH" | "WRONGPASS", _) | (_, Kind::AuthenticationFailed) => {
            (Protocol, "user name or password are refused; check the URL")
        }
        ("BUSY", _) => {
            (Unavailable, "the server is busy with somebody's long script; end that with SCRIPT KILL or wait")
        }
        ("OOM", _) => {
            (Unavailable, "the server's memory is full: raise maxmemory, or give rate limits a server of their own")
        }
        ("MISCONF", _) => (Unavailable, "the server cannot save to disk and refuses writes; see its log"),
        ("NOREPLICAS", _) => (
            Unavailable,
            "the server has fewer replicas than min-replicas-to-write and refuses writes; bring them back, or lower it",
        ),
        ("WRONGTYPE", _) => {
            (Protocol, "a key of ours holds something else: choose another prefix, or remove the foreign key")
        }
        (_, Kind::ClusterConnectionNotFound) => {
            (Unavailable, "no node of the cluster serves this slot at the moment; see CLUSTER INFO")
        }
        (_, Kind::MasterNameNotFoundBySentinel) => {
            (Unavailable, "the Sentinels know no primary of this name that is up; check the name, and SENTINEL MASTERS")
        }
        (_, Kind::Server(_) | Kind::Extension) => (Protocol, "the server refused the script; the source has its words"),
        (_, Kind::Parse | Kind::UnexpectedReturnType) => {
            (Protocol, "what answered does not speak as a Redis server does; check the address")
        }
        (_, Kind::InvalidClientConfig | Kind::RESP3NotSupported) => (
            Protocol,
            "the client cannot make sense of it; check the URL and the crate's features (`redis-tls` for `rediss://`)",
        ),
        _ if error.is_timeout() => (Timeout, "whether the charge happened is unknown"),
        _ => (Unavailable, "the server cannot be reached; check the address, and whether it runs"),
    };
    Error::new(kind, advice).with_source(error)
}
