//! Limits on the methods and messages of a tonic server, and the conversion of errors to gRPC statuses.

use std::time::Duration;

use tollgate::key::KeyExtractor;
use tollgate::{
    HOUR, LimitError, MINUTE, Policy, Quota, RateLimitLayer, RateLimiter, RouteLimits, Rule,
    backend::{Error, ErrorKind},
    key::{self, KeyError},
};
use tonic::service::Routes;
use tonic::{Code, Status};

use super::chat::{Chat, Client, DOWNLOAD, MESSAGES, TALK, UNARY, UPLOAD, no_limits, serve};
use super::retry_info::Details;
use crate::support::connections::limiter;

const METHODS: [&str; 4] = [UNARY, UPLOAD, DOWNLOAD, TALK];
const TABLE: [(&str, &str); 3] =
    [("/test.Chat/Upload", "upload"), ("POST /test.Chat/Talk", "talk"), ("/test.Chat/{*rest}", "chat")];

fn limits(limiter: &RateLimiter) -> RouteLimits {
    RouteLimits::new(key::client_ip())
        .policy(Policy::new("upload", Quota::token_bucket(1, HOUR)))
        .policy(Policy::new("talk", Quota::token_bucket(2, HOUR)))
        .policy(Policy::new("chat", Quota::token_bucket(3, HOUR)))
        .default_policy(Policy::new("rest", Quota::token_bucket(1, HOUR)))
        .limiter(limiter)
}

/// Calls a method until a call is denied. Returns the code of the last allowed call (`Unknown` if there was none), the
/// number of allowed calls, and the name of the policy that denied the call.
async fn until_refused(client: &mut Client, method: &'static str) -> (Code, usize, String) {
    let mut last = Code::Unknown;
    for admitted in 0..10 {
        // Send no messages, because messages have a separate limit.
        match client.call(method, 0).await.1 {
            Err(status) if status.code() == Code::ResourceExhausted => {
                let policy = status.message().split('"').nth(1).unwrap_or_default().to_owned();
                return (last, admitted, policy);
            }
            answer => last = answer.map_or_else(|status| status.code(), |()| Code::Ok),
        }
    }
    panic!("{method} is not limited")
}

async fn assert_limit_of_each_method(client: &mut Client) {
    for (method, code, admitted, policy) in [
        (UPLOAD, Code::Ok, 1, "upload"),
        (TALK, Code::Ok, 2, "talk"),
        // The service's other methods share a bucket.
        (DOWNLOAD, Code::Ok, 3, "chat"),
        (UNARY, Code::Unknown, 0, "chat"),
        ("/test.Chat/%53ay", Code::Unknown, 0, "chat"),
    ] {
        assert_eq!(until_refused(client, method).await, (code, admitted, policy.into()), "{method}");
    }
}

#[tokio::test]
async fn a_route_table_wrapping_a_tonic_server_limits_by_method_and_by_service() {
    let (limiter, _clock) = limiter();
    let layer = limits(&limiter).table(TABLE).grpc();
    let mut client = serve(layer.clone(), Chat::default()).await;
    assert_limit_of_each_method(&mut client).await;
    assert_eq!((layer.unused_routes(), layer.unmatched_requests()), (vec![], 0));
    // The first path names an unknown service. The other two are malformed paths under `test.Chat`.
    for method in ["/test.Chatter/Say", "/test.Chat/", "/test.Chat"] {
        let unlimited = client.call(method, 0).await.1.unwrap_err().code();
        assert!([Code::Unimplemented, Code::ResourceExhausted].contains(&unlimited), "{method}");
    }
    assert_eq!(layer.unmatched_requests(), 3);
}

#[tokio::test]
async fn a_route_table_inside_tonics_router_limits_by_method_and_by_service() {
    let (limiter, _clock) = limiter();
    let layer = limits(&limiter).table(TABLE).grpc();
    let routes: Routes = Routes::new(Chat::default()).into_axum_router().layer(layer.clone()).into();
    let mut client = serve(no_limits(), routes).await;
    assert_limit_of_each_method(&mut client).await;
    assert_eq!((layer.unused_routes(), layer.unmatched_requests()), (vec![], 0));
}

#[tokio::test]
async fn a_group_limits_a_method_under_several_policies() {
    let (limiter, _clock) = limiter();
    let all = Policy::new("all", Quota::token_bucket(4, HOUR));
    let limits = limits(&limiter)
        .rule(Rule::new(Policy::new("heavy", Quota::token_bucket(4, HOUR)), key::global()).fixed_cost(2))
        .group("heavy talk", ["talk", "heavy"])
        .configure(|layer| layer.grpc().and(all, key::global()));
    let layer = limits.table([("/test.Chat/Talk", "heavy talk"), ("/test.Chat/Upload", "heavy")]);
    let mut client = serve(layer, Chat::default()).await;
    assert_eq!(until_refused(&mut client, UPLOAD).await, (Code::Ok, 2, "heavy".into()));
    // `heavy` denies the call, so nothing is charged under `talk`.
    assert_eq!(until_refused(&mut client, TALK).await, (Code::Unknown, 0, "heavy".into()));
    let talk = Policy::new("talk", Quota::token_bucket(2, HOUR));
    assert_eq!(limiter.remaining(&talk, key::client_ip().key([127, 0, 0, 1].into())).await.unwrap(), 2);
    // Two of the four calls that `all` admits are left, but the default policy admits only one.
    assert_eq!(until_refused(&mut client, DOWNLOAD).await, (Code::Ok, 1, "rest".into()));
}

#[cfg(feature = "serde")]
#[tokio::test]
async fn a_config_file_limits_a_tonic_server_by_method_and_by_service() {
    let (_, clock) = limiter();
    let text = r#"
        default = "rest"

        [policies]
        upload = { quota = "1/h" }
        talk = { quota = "2/h" }
        chat = { quota = "3/h" }
        rest = { quota = "1/h" }
        many = { quota = "1000/h", key = "global", cost = 2 }

        [routes]
        "/test.Chat/Upload" = ["upload", "many"]
        "POST /test.Chat/Talk" = "talk"
        "/test.Chat/{*rest}" = "chat"
    "#;
    let config = tollgate::Config::parse("limits.toml", text, |text| toml::from_str(text)).unwrap();
    let limiter = config.limiter(tollgate::MemoryBackend::builder().clock(clock).build()).build();
    let layer = config.layer(&limiter, key::client_ip()).grpc();
    let mut client = serve(layer, Chat::default()).await;
    assert_limit_of_each_method(&mut client).await;
}

#[tokio::test]
async fn every_message_of_a_stream_is_charged_and_a_denial_ends_the_stream() {
    for (method, received) in [(UPLOAD, 0), (DOWNLOAD, 5), (TALK, 5)] {
        let (limiter, clock) = limiter();
        let chat = Chat { limiter: limiter.clone() };
        let mut client = serve(no_limits(), chat).await;
        let (count, end) = client.call(method, 9).await;
        let status = end.unwrap_err();
        assert_eq!((count, status.code()), (received, Code::ResourceExhausted), "{method}");
        assert_eq!(Details::decode(status.details()).retry_delay, HOUR / 5);
        assert_eq!(client.call(UNARY, 1).await.1.unwrap_err().code(), Code::ResourceExhausted);
        clock.advance(HOUR);
        assert_eq!(client.call(UNARY, 1).await.0, 1);
        let left = if method == UPLOAD { 1 } else { 4 };
        let (count, end) = client.call(method, 4).await;
        assert!(count == left && end.is_ok(), "{method}: {count} {end:?}");
        assert_eq!(client.call(method, 1).await.1.unwrap_err().code(), Code::ResourceExhausted);
    }
}

#[tokio::test]
async fn a_grpc_layer_refuses_every_kind_of_stream_before_its_first_message() {
    let (limiter, _clock) = limiter();
    let chat = Chat { limiter: limiter.clone() };
    let calls = Policy::new("calls", Quota::token_bucket(1, MINUTE));
    let layer = RateLimitLayer::new(calls, key::client_ip()).limiter(&limiter).grpc();
    let mut client = serve(layer, chat).await;
    assert!(client.call(TALK, 2).await.1.is_ok());
    for method in METHODS {
        let (received, end) = client.call(method, 2).await;
        assert_eq!((received, end.unwrap_err().code()), (0, Code::ResourceExhausted), "{method}");
    }
    assert_eq!(limiter.remaining(&MESSAGES, key::client_ip().key([127, 0, 0, 1].into())).await.unwrap(), 3);
}

#[tokio::test]
async fn a_denial_by_a_method_has_the_same_status_as_a_denial_by_the_layer() {
    let (limiter, clock) = limiter();
    let layer = RateLimitLayer::new(MESSAGES, key::client_ip()).limiter(&limiter).grpc();
    let mut behind = serve(layer, Chat::default()).await;
    let mut inside = serve(no_limits(), Chat { limiter: limiter.clone() }).await;
    for _ in 0..5 {
        assert_eq!(inside.call(UNARY, 1).await.0, 1);
    }
    clock.advance(Duration::from_micros(1_234_567));
    let [layers, methods] =
        [behind.call(UNARY, 1).await, inside.call(UNARY, 1).await].map(|(_, answer)| answer.unwrap_err());
    assert_eq!((methods.code(), methods.message()), (Code::ResourceExhausted, layers.message()));
    assert_eq!(Details::decode(methods.details()), Details::decode(layers.details()));
    for name in ["grpc-retry-pushback-ms", "retry-after", "ratelimit", "ratelimit-policy", "content-type"] {
        let values = [&layers, &methods].map(|status| status.metadata().get(name).cloned());
        assert!(values[0].is_some() && values[0] == values[1], "{name}: {values:?}");
    }
}

#[tokio::test]
async fn each_error_converts_to_the_expected_grpc_status() {
    let secret = || Error::new(ErrorKind::Unavailable, "redis://10.0.0.7 refused the connection");
    let status = Status::from(secret());
    assert_eq!((status.code(), Details::decode(status.details()).retry_delay), (Code::Unavailable, tollgate::SECOND));
    assert!(!format!("{status:?}").contains("10.0.0.7"), "{status:?}");
    assert_eq!(Status::from(LimitError::from(secret())).code(), Code::Unavailable);

    let no_key = |_: &http::request::Parts| None::<u64>;
    let (parts, ()) = http::Request::new(()).into_parts();
    let anonymous = no_key.or_reject().subject(&parts).await.unwrap_err();
    assert_eq!(anonymous.status(), 400);
    let no_tenant = KeyError::new("no tenant; send x-tenant");
    for (error, code) in [
        (anonymous.clone(), Code::Unauthenticated),
        (anonymous.with_status(http::StatusCode::FORBIDDEN), Code::PermissionDenied),
        (no_tenant.clone().with_status(http::StatusCode::BAD_REQUEST), Code::InvalidArgument),
        (no_tenant, Code::Internal),
    ] {
        let status = Status::from(error.clone());
        assert_eq!((status.code(), status.message()), (code, &*error.to_string()));
        assert!(status.details().is_empty());
        assert_eq!(Status::from(LimitError::from(error)).code(), code);
    }

    let (limiter, _clock) = limiter();
    let reserve = async || -> Result<(), Status> {
        limiter.acquire(&MESSAGES, 7).wait_up_to(HOUR).await?;
        Ok(())
    };
    let status = reserve().await.unwrap_err();
    assert!(status.code() == Code::Internal && status.message().contains("max_reserved"), "{status:?}");
}
