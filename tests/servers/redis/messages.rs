//! Error messages name what is missing, such as a URL's scheme or a user's permission.

use std::error::Error as _;

use tollgate::backend::{Error, ErrorKind, RedisBackend};
use tollgate::{HOUR, Policy, Quota, RateLimiter};

use crate::support::server::{PATIENCE, Server};

static SLOW: Policy = Policy::new("slow", Quota::token_bucket(9, HOUR));

#[tokio::test]
async fn the_error_for_a_url_without_a_scheme_shows_an_example() {
    for (url, parts) in [
        ("localhost", ["write `redis://` before the host", "`redis://127.0.0.1:6379`"]),
        ("localhost:6379", ["write `redis://` before the host", "`redis://127.0.0.1:6379`"]),
        ("127.0.0.1:6379", ["write `redis://` before the host", "`redis://127.0.0.1:6379`"]),
        ("app:hunter2@localhost:6379", ["write `redis://` before the host", "`redis://127.0.0.1:6379`"]),
        ("app:hunter2://localhost:6379", ["write `redis://` before the host", "`redis://127.0.0.1:6379`"]),
        ("", ["write `redis://` before the host", "`redis://127.0.0.1:6379`"]),
        ("http://app:hunter2@localhost:6379", ["found `http://`", "`redis://127.0.0.1:6379`"]),
    ] {
        let one = RedisBackend::connect(url).await.unwrap_err();
        let cluster = RedisBackend::connect_cluster(["redis://127.0.0.1:1", url]).await.unwrap_err();
        let lazy = RedisBackend::builder().lazy().connect(url).await.unwrap_err();
        for error in [one, cluster, lazy] {
            assert_eq!(error.kind(), ErrorKind::Protocol, "{url:?}: {error}");
            for part in parts {
                assert!(error.to_string().contains(part), "{url:?}: {error}");
            }
            assert!(!format!("{error} {error:?} {:?}", error.source()).contains("hunter2"), "{error:?}");
        }
    }
}

/// Returns the error for a user who has all permissions except those that `rules` remove.
async fn without(server: &Server, rules: &[&str]) -> Error {
    let mut user = redis::cmd("ACL");
    user.arg(&["SETUSER", "limits", "reset", "on", ">hunter2", "~tollgate:*", "+@all"]).arg(rules);
    user.exec(&mut server.admin()).unwrap();
    let url = format!("redis://limits:hunter2@127.0.0.1:{}", server.port());
    let backend = RedisBackend::builder().deadline(PATIENCE).lazy().connect(&url).await.unwrap();
    RateLimiter::new(backend).try_limit(&SLOW, "ada").await.unwrap_err()
}

#[tokio::test]
async fn the_error_for_a_missing_permission_names_the_acl_rule() {
    let server = Server::start();
    for command in ["evalsha", "eval", "get", "set"] {
        let error = without(&server, &[&format!("-{command}")]).await;
        assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
        // Before Redis 7.2, a script's error does not name the command.
        let is_named = error.source().unwrap().to_string().contains(&format!("'{command}'"));
        assert!(is_named || !command.starts_with("eval"), "{error:?}");
        let parts = match is_named {
            true => [format!("may not run `{command}`"), format!("ACL SETUSER <user> +{command}")],
            false => ["one of the script's commands".to_owned(), "`ACL LOG` names the command".to_owned()],
        };
        for part in parts {
            assert!(error.to_string().contains(&part), "without {command}: {error}");
        }
    }
    let error = without(&server, &["resetkeys", "~shop:*"]).await;
    assert!(error.to_string().contains("does not match the backend's prefix"), "{error}");
    assert!(!error.to_string().contains("may not run"), "{error}");
}
