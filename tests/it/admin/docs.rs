//! The responses in `docs::operate` have the same fields as real responses.

use std::collections::BTreeSet;

use serde_json::Value;
use tollgate::protection::Signal;
use tollgate::{HOUR, MINUTE, Quota};

use super::client::{API, TestServer};

/// Collects the path of each field, such as `.policies.quotas`.
fn fields(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => object.iter().for_each(|(name, value)| {
            let path = format!("{path}.{name}");
            fields(value, &path, found);
            found.insert(path);
        }),
        Value::Array(list) => list.iter().for_each(|value| fields(value, path, found)),
        _ => {}
    }
}

#[tokio::test]
async fn documented_responses_have_the_same_fields_as_real_responses() {
    let server = TestServer::start().await;
    for _ in 0..8 {
        drop(server.limiter.try_limit(&API, 7).await);
    }
    let docs = include_str!("../../../src/docs/operate.md");
    let examples = docs.split("```json\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let mut examples = examples.map(|text| serde_json::from_str::<Value>(text).unwrap_or_else(|_| panic!("{text}")));
    for path in ["policies", "top", "key?key=7", "limited?policy=api", "blocks"] {
        if path == "policies" || path == "blocks" {
            server.limiter.set_key_quota(&API, 7, Quota::token_bucket(5, MINUTE)).await.unwrap();
            server.limiter.block(Signal::ip([192, 0, 2, 7].into()), HOUR).await.unwrap();
        }
        let (mut real, mut documented) = (BTreeSet::new(), BTreeSet::new());
        fields(&server.read(path).await, "", &mut real);
        fields(&examples.next().unwrap(), "", &mut documented);
        if path == "policies" {
            server.limiter.unblock(Signal::ip([192, 0, 2, 7].into())).await.unwrap();
        }
        assert_eq!(documented, real, "{path}");
    }
    let (mut real, mut documented) = (BTreeSet::new(), BTreeSet::new());
    fields(&server.change("reset", r#"{"policy":"api","key":"7"}"#).await, "", &mut real);
    fields(&examples.next().unwrap(), "", &mut documented);
    assert_eq!((documented, examples.next()), (real, None));
}
