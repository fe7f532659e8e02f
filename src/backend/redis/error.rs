//! Classifies errors from the Redis server and the Redis client.

use redis::{ErrorKind as RedisErrorKind, RedisError};

use crate::backend::Error;
use crate::backend::ErrorKind::{Protocol, Timeout, Unavailable, Unsupported};

/// The state of the server, as indicated by an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServerStatus {
    /// The server replied. The connection is kept.
    Responsive,
    /// The server is now a replica. The backend reconnects, because the host name may now resolve to the new primary.
    Replica,
    /// The connection is broken.
    Unreachable,
}

pub(super) fn server_status(error: &RedisError) -> ServerStatus {
    match (error.kind(), code(error)) {
        (_, "READONLY" | "MASTERDOWN") => ServerStatus::Replica,
        (RedisErrorKind::Server(_) | RedisErrorKind::Extension | RedisErrorKind::UnexpectedReturnType, _) => {
            ServerStatus::Responsive
        }
        _ => ServerStatus::Unreachable,
    }
}

/// Returns the server's error code. If a command in a script failed, returns the code of that command's error.
///
/// In a script, a missing permission is an `ERR` whose text depends on the server's version. Before Redis 7, every
/// error in a script is an `ERR`, and the original code follows in the text: `@user_script: 1: -OOM ...`,
/// `@user_script:1: WRONGTYPE ...`.
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

fn missing_permission(error: &RedisError) -> String {
    let detail = error.detail().unwrap_or_default();
    let command = detail.split_once(" permissions to run ").and_then(|(_, rest)| rest.split('\'').nth(1));
    let (lacks, allow) = match command {
        Some(command) => (format!("it may not run `{command}`"), format!("`ACL SETUSER <user> +{command}` allows it")),
        None if detail.contains("key") => (
            "its key pattern does not match the backend's prefix".to_owned(),
            "`ACL SETUSER <user> ~tollgate:*` allows the default prefix `tollgate`".to_owned(),
        ),
        None => ("it may not run one of the script's commands".to_owned(), "`ACL LOG` names the command".to_owned()),
    };
    format!(
        "the user lacks a permission: {lacks}; {allow}; tollgate::docs::redis lists all permissions under \"The Redis \
         user\""
    )
}

/// Returns whether a cluster node refused a command without running it, because the command's slot has moved, is moving
/// or has no owner at the moment.
pub(super) fn is_not_served(error: &RedisError) -> bool {
    use redis::ServerErrorKind::{Ask, ClusterDown, Moved, TryAgain};
    matches!(error.kind(), RedisErrorKind::Server(Moved | Ask | TryAgain | ClusterDown))
}

pub(super) fn classify(error: RedisError) -> Error {
    let (kind, advice) = match (code(&error), error.kind()) {
        ("READONLY", _) => (Unavailable, "the server has become a read-only replica; reconnecting to find the primary"),
        ("LOADING", _) => (Unavailable, "the server is loading its data; it will reply when it has finished"),
        ("MASTERDOWN", _) => (Unavailable, "the server is a replica that lost its primary; connect to the primary"),
        ("CLUSTERDOWN", _) => (Unavailable, "the cluster is down: not every slot has a primary; see CLUSTER INFO"),
        ("MOVED" | "ASK" | "TRYAGAIN", _) => (
            Unavailable,
            "a slot is moving, or the server is part of a cluster; connect to a cluster with `connect_cluster`",
        ),
        ("CROSSSLOT", _) => (Unsupported, "the server is part of a cluster; connect with `connect_cluster`"),
        ("NOPERM", _) => return Error::new(Protocol, missing_permission(&error)).with_source(error),
        ("NOAUTH" | "WRONGPASS", _) | (_, RedisErrorKind::AuthenticationFailed) => {
            (Protocol, "the server rejected the user name or password; check the URL")
        }
        ("BUSY", _) => (Unavailable, "the server is busy with a long script; end it with SCRIPT KILL, or wait"),
        ("OOM", _) => {
            (Unavailable, "the server's memory is full; raise maxmemory, or use a separate server for rate limits")
        }
        ("MISCONF", _) => (Unavailable, "the server cannot save to disk and refuses writes; see its log"),
        ("NOREPLICAS", _) => (
            Unavailable,
            "the server refuses writes while it has fewer replicas than min-replicas-to-write; check the replicas",
        ),
        ("WRONGTYPE", _) => (
            Protocol,
            "a key with the backend's prefix holds a value of a different type; use a different prefix, or delete the key",
        ),
        (_, RedisErrorKind::ClusterConnectionNotFound) => {
            (Unavailable, "no node of the cluster serves the slot at the moment; see CLUSTER INFO")
        }
        (_, RedisErrorKind::MasterNameNotFoundBySentinel) => {
            (Unavailable, "the Sentinels report no running primary by this name; check the name with SENTINEL MASTERS")
        }
        (_, RedisErrorKind::Server(_) | RedisErrorKind::Extension) => {
            let code = error.code().unwrap_or("unknown");
            let message = format!("the server refused the script with error code `{code}`; see the error's source");
            return Error::new(Protocol, message).with_source(error);
        }
        (_, RedisErrorKind::Parse | RedisErrorKind::UnexpectedReturnType) => {
            (Protocol, "the reply does not follow the Redis protocol; check the address")
        }
        (_, RedisErrorKind::InvalidClientConfig | RedisErrorKind::RESP3NotSupported) => (
            Protocol,
            "the Redis client cannot use the URL; check the URL and the crate's features (`redis-tls` for `rediss://`)",
        ),
        _ if error.is_timeout() => (Timeout, "the Redis client timed out; the charge may have been made"),
        _ => (Unavailable, "cannot reach the server; check the address and whether the server is running"),
    };
    Error::new(kind, advice).with_source(error)
}
