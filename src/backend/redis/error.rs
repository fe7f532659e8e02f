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

/// The server's word for it. Before Redis 7, what a command of the script says is in the text of an `ERR`; before 7.2,
/// a script's lack of a permission is only told in English.
fn code(error: &RedisError) -> &str {
    let code = error.code().unwrap_or_default();
    if error.detail().is_some_and(|detail| detail.starts_with("The user executing the script can't")) {
        return "NOPERM";
    }
    let within = error.detail().filter(|detail| code == "ERR" && detail.starts_with("Error running script"));
    within.and_then(|detail| detail.rsplit_once(": -")?.1.split(' ').next()).unwrap_or(code)
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
        ("NOPERM", _) => (
            Protocol,
            "the user lacks a permission: its key pattern has to begin with the backend's prefix (`tollgate` unless \
             set), and it needs the commands under \"The user it needs\" in tollgate::docs::redis; ACL LOG names what \
             was refused",
        ),
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
