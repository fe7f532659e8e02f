//! Threat 21: client input that injects headers.

use axum::http::Method;
use proptest::prelude::*;
use tollgate::{
    HeaderFamily, MINUTE, Policy, Quota, RateLimitLayer, RouteLimits, Subject,
    key::{self, KeyExtractor},
    middleware::ResetUnit,
    policy::{Enforce, PolicyName},
};

use super::client::{ONE, hello, limiter, request, send};

const QUOTA: Quota = Quota::token_bucket(1, MINUTE);

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn t21_a_policy_name_is_rejected_or_read_back_unchanged(
        name in prop_oneof!["[ -~]{0,130}", "[a\"\\\\,;=\r\n\t\0\u{7f}\u{e9}]{0,6}", ".{0,8}"],
    ) {
        let printable = name.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        let policy = Policy::try_new(&name, QUOTA);
        prop_assert_eq!(policy.is_ok(), printable && (1..=128).contains(&name.len()));
        prop_assert_eq!(policy.is_ok(), PolicyName::try_new(name.as_str()).is_ok());
        let Ok(policy) = policy else { return Ok(()) };
        let app = hello().layer(RateLimitLayer::new(policy, key::global()).limiter(&limiter().0));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for status in [200, 429] {
            let answer = runtime.block_on(send(&app, request::<&str, &str>("::1", &[])));
            prop_assert_eq!(answer.status, status);
            for field in ["ratelimit-policy", "ratelimit"] {
                let list: sfv::List = sfv::Parser::new(answer.headers[field].as_bytes()).parse().unwrap();
                let [sfv::ListEntry::Item(item)] = &list[..] else { panic!("expected one item, found {list:?}") };
                prop_assert_eq!(item.bare_item.as_string().unwrap().as_str(), &name);
            }
            if status == 429 {
                let problem: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
                prop_assert_eq!(&problem["violated-policies"], &serde_json::json!([name]));
            }
        }
    }
}

#[test]
fn t21_control_and_non_ascii_characters_are_rejected_in_policy_names() {
    for name in ["", "a\r\nset-cookie: b", "a\nb", "a\tb", "a\0", "\u{7f}", "caf\u{e9}", "\u{202e}", "\u{1f980}"] {
        assert!(Policy::try_new(name, QUOTA).is_err(), "{name:?}");
        assert!(PolicyName::try_new(name).is_err(), "{name:?}");
        assert!(std::panic::catch_unwind(|| Policy::new(name.to_owned().leak(), QUOTA)).is_err(), "{name:?}");
    }
    for name in ["a\r\nb", "a b", "caf\u{e9}", ""] {
        let layer = || RateLimitLayer::new(ONE, key::global()).shadow_header(name.to_owned().leak());
        assert!(std::panic::catch_unwind(layer).is_err(), "{name:?}");
    }
}

const MARK: &str = "mark-of-the-client";

#[tokio::test]
async fn t21_client_input_never_appears_in_a_response() {
    let families = [
        HeaderFamily::Draft11,
        HeaderFamily::Draft6,
        HeaderFamily::XRateLimit(ResetUnit::Seconds),
        HeaderFamily::XRateLimit(ResetUnit::Epoch),
        HeaderFamily::None,
    ];
    let content_types = [
        MARK.to_owned(),
        format!("application/{MARK}"),
        "application/grpc".to_owned(),
        format!("application/grpc+{MARK}"),
        format!("application/grpc;{MARK}"),
        format!("application/grpc-web+{MARK}"),
        format!("application/grpc-web-{MARK}"),
        format!("application/grpc-web-text+{MARK}"),
    ];
    for family in families {
        for content_type in &content_types {
            // The client chooses the tier's name, but no such tier exists.
            let by = key::header("x-api-key").map(|subject: Subject| subject.tier(MARK));
            let missing = key::header("x-missing").or_reject();
            let limiter = limiter().0;
            let layers = [
                RateLimitLayer::new(ONE, by.clone()),
                RateLimitLayer::new(ONE, key::bearer().or(key::cookie("session"))),
                RateLimitLayer::new(ONE, missing),
                RouteLimits::new(by.clone()).default_policy(ONE).choose(|_| Some("no such policy")),
                RateLimitLayer::new(ONE.enforce(Enforce::Never), by.clone()).shadow_header("x-shadow"),
            ];
            for layer in layers {
                let app = hello().layer(layer.headers(family).grpc().limiter(&limiter));
                for method in [Method::GET, Method::from_bytes(MARK.as_bytes()).unwrap()] {
                    let answer = send(&app, marked(method, content_type)).await;
                    assert!(!answer.shows(MARK.as_bytes()), "{family:?} {content_type} {:?}", answer.headers);
                }
            }
        }
    }
}

fn marked(method: Method, content_type: &str) -> axum::extract::Request {
    let mut request = request(
        "198.51.100.1",
        &[
            ("content-type", content_type.to_owned()),
            ("x-api-key", MARK.into()),
            ("authorization", format!("Bearer {MARK}")),
            ("cookie", format!("session={MARK}")),
            ("accept", MARK.into()),
            ("origin", MARK.into()),
            ("user-agent", MARK.into()),
            ("x-forwarded-for", MARK.into()),
            ("x-shadow", MARK.into()),
            ("retry-after", MARK.into()),
            ("ratelimit", MARK.into()),
        ],
    );
    *request.method_mut() = method;
    *request.uri_mut() = format!("/?{MARK}").parse().unwrap();
    request
}
