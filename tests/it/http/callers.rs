//! Limits for users, anonymous callers and tiers. Extractors can also find keys asynchronously.

use axum::http::request::Parts;
use tollgate::key::Extraction;
use tollgate::{MINUTE, Policy, Quota, RateLimitLayer, Subject};

use crate::support::client::{hello, limiter, serve};

const TWO: Policy = Policy::new("two", Quota::token_bucket(2, MINUTE));

/// Returns the user in the `x-user` header. A real app would read an extension set by its authentication layer.
pub(crate) fn user(req: &Parts) -> Option<String> {
    header(req, "x-user")
}

fn header(req: &Parts, name: &str) -> Option<String> {
    req.headers.get(name).map(|value| value.to_str().unwrap().to_owned())
}

#[tokio::test]
async fn each_user_has_a_bucket_but_anonymous_callers_share_one() {
    let (limiter, _clock) = limiter();
    let client = serve(hello().layer(RateLimitLayer::new(TWO, user).limiter(&limiter))).await;
    for name in ["ada", "bob", "anonymous", "None"] {
        assert_eq!(client.get_as(name).await.limits()[0].1, 1, "{name}");
    }
    let mut statuses = Vec::new();
    for _ in 0..3 {
        statuses.push(client.get().await.status);
    }
    assert_eq!(statuses, [200, 200, 429]);
    assert_eq!(client.get_as("ada").await.status, 200);
    assert_eq!(client.get_as("ada").await.status, 429);
    assert_eq!(limiter.remaining(&TWO, Subject::anonymous()).await.unwrap(), 0);
    assert_eq!(limiter.remaining(&TWO, "bob").await.unwrap(), 1);
}

#[tokio::test]
async fn a_higher_tier_raises_the_limit_immediately_but_refunds_no_tokens() {
    let (limiter, _clock) = limiter();
    let policy = TWO.tier("pro", Quota::token_bucket(60, MINUTE));
    let by_plan = |req: &Parts| match (user(req), header(req, "x-plan")) {
        (Some(user), Some(plan)) => Subject::new(user).tier(plan),
        (user, _) => user.into(),
    };
    let client = serve(hello().layer(RateLimitLayer::new(policy, by_plan).limiter(&limiter))).await;

    client.get_as("ada").await;
    let last = client.get_as("ada").await;
    assert_eq!((last.status, last.policies(), last.limits()[0].1), (200, vec![("two".into(), 2, 60)], 0));
    assert_eq!(client.get_as("ada").await.status, 429);

    let pro = client.send("GET", &["x-user: ada", "x-plan: pro"]).await;
    assert_eq!((pro.status, pro.policies(), pro.limits()[0].1), (200, vec![("two".into(), 60, 60)], 57));
    // A key has one bucket for all its tiers. A caller with an unknown tier gets the policy's own quota.
    let refused = client.send("GET", &["x-user: ada", "x-plan: unheard-of"]).await;
    assert_eq!((refused.status, refused.policies()), (429, vec![("two".into(), 2, 60)]));
    assert_eq!(client.get_as("bob").await.status, 200);
}

#[tokio::test]
async fn keys_can_be_found_asynchronously() {
    let (limiter, _clock) = limiter();
    let session = |req: &Parts| {
        let session = header(req, "x-session");
        Extraction::later(async move {
            tokio::task::yield_now().await;
            Ok(session.map(|session| session.trim_end_matches(char::is_numeric).to_owned()))
        })
    };
    let all = Policy::new("all", Quota::token_bucket(100, MINUTE));
    let layer = RateLimitLayer::new(TWO, session).and(all, tollgate::key::global());
    let client = serve(hello().layer(layer.limiter(&limiter))).await;
    for (session, remaining) in [("ada1", 1), ("bob1", 1), ("ada2", 0)] {
        let answer = client.send("GET", &[&format!("x-session: {session}")]).await;
        assert_eq!((session, answer.status, answer.limits()[0].1), (session, 200, remaining));
        assert_eq!(answer.body, b"hello");
    }
    let refused = client.send("GET", &["x-session: ada3"]).await;
    assert_eq!((refused.status, refused.retry_after()), (429, Some(30)));
    assert_eq!(limiter.remaining(&TWO, "ada").await.unwrap(), 0);
}
