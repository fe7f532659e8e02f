//! The router's responses: policies, the heaviest keys, limited keys, blocks, and why a key is limited.

use std::net::IpAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tollgate::policy::Enforce;
use tollgate::protection::{DenyRule, Signal};
use tollgate::{DAY, HOUR, Key, MINUTE, Quota, Subject};

use super::client::{API, TestServer, chat};

async fn why(server: &TestServer, query: &str) -> Value {
    let answer = server.read(&format!("key?{query}")).await;
    assert_eq!(answer["scope"], json!({"rows":"this_process","blocks":"this_process","deny_list":"this_process"}));
    answer
}

fn actions(answer: &Value) -> Vec<&str> {
    answer["helps"].as_array().unwrap().iter().map(|help| help["action"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn policies_show_quotas_tiers_changes_enforcement_and_rows() {
    let server = TestServer::start().await;
    let (limiter, chat) = (&server.limiter, chat());
    limiter.limit(&API, 7).await.unwrap();
    limiter.limit(&API, 8).await.unwrap();
    limiter.set_quota(&API, Quota::token_bucket(9, MINUTE)).await.unwrap();
    limiter.set_tier_quota(&chat, "premium", Quota::token_bucket(99, MINUTE)).await.unwrap();
    limiter.set_enforcement(&chat, Enforce::Share(0.25)).await.unwrap();
    let mut keys = Vec::new();
    for key in 0..25 {
        limiter.set_key_quota(&API, key, Quota::token_bucket(1, MINUTE)).await.unwrap();
        keys.push(server.digest(key));
    }
    keys.sort();

    let answer = server.read("policies?max=10").await;
    assert_eq!(answer["scope"], json!({"settings": "this_process", "rows": "this_process"}));
    let [api, chat] = &answer["policies"].as_array().unwrap()[..] else { panic!("{answer}") };
    assert_eq!((&api["policy"], &api["quotas"], &api["set_quotas"]), (&json!("api"), &json!("5/min"), &json!("9/min")));
    assert_eq!((&api["enforce"], &api["set_enforce"], &api["rows"]), (&json!(1.0), &json!(false), &json!(2)));
    assert_eq!((&api["set_keys_total"], &api["next"]), (&json!(25), &json!(keys[9])));
    assert_eq!(chat["quotas"], "10/min; 100/d fixed");
    assert_eq!((&chat["enforce"], &chat["set_enforce"], &chat["rows"]), (&json!(0.25), &json!(true), &json!(0)));
    assert_eq!(chat["tiers"], json!([{"tier": "premium", "quotas": "50/min", "set_quotas": "99/min"}]));

    let mut found = Vec::new();
    let mut next = String::new();
    loop {
        let page = server.read(&format!("policies?policy=api&max=10{next}")).await;
        let api = &page["policies"][0];
        found.extend(api["set_keys"].as_array().unwrap().iter().map(|set| set["key"].as_str().unwrap().to_owned()));
        match api["next"].as_str() {
            Some(last) => next = format!("&after={last}"),
            None => break,
        }
    }
    assert_eq!(found, keys);
}

#[tokio::test]
async fn the_heaviest_keys_are_listed_with_counts_and_with_texts_if_enabled() {
    let server = TestServer::start().await;
    for key in 1..=3 {
        for _ in 0..4 * key {
            drop(server.limiter.try_limit(&API, key).await);
            drop(server.limiter.try_limit(&chat(), key).await);
        }
    }
    let answer = server.read("top?max=2").await;
    assert_eq!((&answer["scope"], &answer["has_top"]), (&json!("this_process"), &json!(true)));
    let [api, chat] = &answer["policies"].as_array().unwrap()[..] else { panic!("{answer}") };
    assert_eq!(api["requested"]["total"], 24);
    assert_eq!(api["refused"]["total"], 3 + 7);
    let first = json!({"key": server.digest(3), "text": "3", "count": 12, "max_error": 0});
    assert_eq!((&api["requested"]["keys"][0], api["requested"]["keys"].as_array().unwrap().len()), (&first, 2));
    assert_eq!(
        chat["requested"]["keys"][0]["text"],
        Value::Null,
        "the text of a key must be shown only for policies passed to `show_keys`"
    );

    let limited = server.read("limited?policy=api").await;
    let expected = json!({"refused": "this_process", "now": "this_process", "blocks": "this_process"});
    assert_eq!(limited["scope"], expected);
    let [worst, second] = &limited["keys"].as_array().unwrap()[..] else { panic!("{limited}") };
    assert_eq!((&worst["key"], &worst["refused"], &worst["policy"]), (&first["key"], &json!(7), &json!("api")));
    assert_eq!((&worst["allowed"], &worst["retry_after_ms"]), (&json!(false), &json!(12_000)));
    assert_eq!((&second["text"], &second["refused"]), (&json!("2"), &json!(3)));
    server.clock.advance(MINUTE);
    assert_eq!(server.read("limited").await["keys"][0]["allowed"], true, "the key must be allowed now");
}

#[tokio::test]
async fn blocks_are_listed_in_pages() {
    let server = TestServer::start().await;
    for key in 0..25 {
        server.limiter.block(Signal::key(key), HOUR).await.unwrap();
    }
    server.limiter.block(Signal::ip([192, 0, 2, 7].into()), DAY).await.unwrap();
    server.clock.advance(Duration::from_secs(10));
    let (mut found, mut next) = (Vec::new(), String::new());
    loop {
        let page = server.read(&format!("blocks?max=7{next}")).await;
        assert_eq!((&page["total"], &page["scope"]), (&json!(26), &json!("this_process")));
        found.extend(page["blocks"].as_array().unwrap().clone());
        match page["next"].as_str() {
            Some(last) => next = format!("&after={last}"),
            None => break,
        }
    }
    assert_eq!(found.len(), 26);
    let rules: Vec<&Value> = found.iter().map(|block| &block["rule"]).filter(|rule| !rule.is_null()).collect();
    assert_eq!(rules, [&json!("network 192.0.2.7/32")]);
    let key = found.iter().find(|block| block["key"] == server.digest(7)).unwrap();
    let left = u64::try_from((HOUR - Duration::from_secs(10)).as_millis()).unwrap();
    assert_eq!(
        *key,
        json!({"key": server.digest(7), "rule": null, "manual": true, "times": 0, "age_ms": 10_000, "left_ms": left})
    );
    let limited = server.read("limited?max=3").await;
    assert_eq!((&limited["blocks_total"], limited["blocks"].as_array().unwrap().len()), (&json!(26), 3));
}

#[tokio::test]
async fn the_response_for_a_limited_key_lists_its_windows_and_the_actions_that_help() {
    let server = TestServer::start().await;
    let chat = chat();
    server.limiter.acquire(&chat, "ada").cost(10).await.unwrap();
    let answer = why(&server, "key=%22ada%22&policy=chat").await;
    assert_eq!((&answer["key"], &answer["on_deny_list"]), (&json!(server.digest("ada")), &json!(false)));
    let chat = &answer["policies"][0];
    assert_eq!((&chat["allowed"], &chat["reason"]), (&json!(false), &json!("quota_exceeded")));
    assert_eq!(
        (&chat["tier"], &chat["quotas_from"], &chat["enforced"]),
        (&Value::Null, &json!("policy"), &json!(true))
    );
    let [minute, day] = &chat["windows"].as_array().unwrap()[..] else { panic!("{chat}") };
    let expected = json!({"name": "chat;1min", "quota": "10/min", "capacity": 10, "spent": 10, "left": 0,
        "full_in_ms": 60_000, "retry_after_ms": 6000, "other_quota": false});
    assert_eq!(*minute, expected);
    assert_eq!((&day["spent"], &day["left"], &day["retry_after_ms"]), (&json!(10), &json!(90), &Value::Null));
    let helps = json!([{"action": "wait", "ms": 6000}, {"action": "reset"}, {"action": "credit", "tokens": 1},
        {"action": "quota"}]);
    assert_eq!(chat["helps"], helps);

    let free = why(&server, "key=%22eve%22").await;
    assert_eq!(free["policies"].as_array().unwrap().len(), 2, "without a policy, the response contains all policies");
    assert_eq!((&free["policies"][0]["allowed"], &free["policies"][0]["helps"]), (&json!(true), &json!([])));
}

#[tokio::test]
async fn the_tier_of_a_key_is_read_from_its_row() {
    let server = TestServer::start().await;
    let (limiter, policy) = (&server.limiter, chat());
    let chat = async |query: &str| why(&server, &format!("policy=chat&{query}")).await["policies"][0].clone();
    assert_eq!((&chat("key=7").await["tier_from"]), &json!("none"));
    limiter.acquire(&policy, Subject::new(7).tier("premium")).cost(20).await.unwrap();
    let found = chat("key=7").await;
    assert_eq!(
        (&found["tier"], &found["tier_from"], &found["quotas_from"]),
        (&json!("premium"), &json!("row"), &json!("tier"))
    );
    assert_eq!((&found["windows"][0]["left"], &found["quotas"]), (&json!(30), &json!("50/min")));
    assert_eq!(chat("key=7&tier=premium").await["tier_from"], "asked");
    assert_eq!(server.get("key?key=7&tier=premum").await.status, 400);

    limiter.set_tier_quota(&policy, "premium", Quota::token_bucket(60, MINUTE)).await.unwrap();
    limiter.limit(&policy, Subject::new(7).tier("premium")).await.unwrap();
    let found = chat("key=7").await;
    assert_eq!(
        (&found["tier"], &found["quotas_from"], &found["quotas"]),
        (&json!("premium"), &json!("set_for_tier"), &json!("60/min"))
    );
    limiter.set_key_quota(&policy, 7, Quota::token_bucket(70, MINUTE)).await.unwrap();
    assert_eq!(chat("key=7").await["quotas_from"], "set_for_key");
    limiter.set_quota(&policy, Quota::token_bucket(5, MINUTE)).await.unwrap();
    assert_eq!(chat("key=8").await["quotas_from"], "set_for_all");

    // The extractor gives this caller its own quota, which the router does not know about.
    let own = Subject::new(9).quota(Quota::token_bucket(1000, MINUTE));
    limiter.limit(&policy, own).await.unwrap();
    let found = chat("key=9").await;
    assert_eq!(found["windows"][0]["other_quota"], true, "{found}");
}

/// Regression: a caller whose address is blocked or on the deny list was reported as allowed.
#[tokio::test]
async fn blocks_and_deny_rules_that_match_the_address_in_a_key_are_reported() {
    let server = TestServer::start().await;
    server.denied.insert(DenyRule::network("198.51.100.0/24").unwrap());
    for (address, key) in [("192.0.2.7", "192.0.2.7"), ("2001:db8:1:2::3", "2001:db8:1:2::/64")] {
        server.limiter.block(Signal::ip(address.parse().unwrap()), HOUR).await.unwrap();
        let answer = why(&server, &format!("policy=api&key={key}")).await;
        let found = &answer["policies"][0];
        assert_eq!((&found["allowed"], &found["reason"]), (&json!(false), &json!("blocked")), "{answer}");
        assert_eq!((actions(found), &answer["blocks"][0]["manual"]), (vec!["wait", "unblock"], &json!(true)));
        let answer = server.change("unblock", &json!({ "key": key }).to_string()).await;
        assert_eq!((&answer["found"], server.limiter.blocks().len()), (&json!(true), 0));
    }
    let key = Key::from(IpAddr::from([192, 0, 2, 8]));
    for _ in 0..8 {
        drop(server.limiter.try_limit(&API, &key).await.unwrap());
    }
    server.clock.advance(HOUR);
    server.limiter.block(Signal::ip([192, 0, 2, 8].into()), HOUR).await.unwrap();
    let limited = server.read("limited").await;
    let found = &limited["keys"][0];
    assert_eq!((&found["text"], &found["reason"]), (&json!("192.0.2.8"), &json!("blocked")), "{limited}");

    let answer = why(&server, "policy=api&key=198.51.100.9").await;
    assert_eq!((&answer["on_deny_list"], &answer["policies"][0]["reason"]), (&json!(true), &json!("deny_list")));
    assert_eq!(why(&server, "policy=api&key=192.0.2.0/24").await["on_deny_list"], false);
}

#[tokio::test]
async fn the_explanation_covers_blocks_deny_lists_pauses_and_shadow_mode() {
    let server = TestServer::start().await;
    let limiter = &server.limiter;
    let api = async |key: &str| {
        let answer = why(&server, &format!("policy=api&key={key}")).await;
        (answer["policies"][0].clone(), answer)
    };
    limiter.acquire(&API, 7).cost(5).await.unwrap();
    limiter.block(Signal::key(7), HOUR).await.unwrap();
    let (seven, answer) = api("7").await;
    assert_eq!((&seven["reason"], &seven["retry_after_ms"]), (&json!("blocked"), &json!(3_600_000)));
    assert_eq!(actions(&seven), ["wait", "unblock", "reset", "credit", "quota"], "both the block and the quota apply");
    assert_eq!((&seven["windows"][0]["spent"], &answer["blocks"][0]["left_ms"]), (&json!(5), &json!(3_600_000)));
    let (eight, _) = {
        limiter.block(Signal::key(8), HOUR).await.unwrap();
        api("8").await
    };
    assert_eq!((actions(&eight), &eight["windows"][0]["left"]), (vec!["wait", "unblock"], &json!(5)));

    server.denied.insert(DenyRule::key(9));
    let (nine, answer) = api("9").await;
    assert_eq!((&answer["on_deny_list"], &nine["reason"]), (&json!(true), &json!("deny_list")));
    assert_eq!(actions(&nine), ["deny_list"]);
    let by_digest = why(&server, &format!("policy=api&key={}", server.digest(9))).await;
    assert_eq!(by_digest["on_deny_list"], Value::Null, "the deny list contains keys, not digests");

    limiter.pause(&API, 10, MINUTE).await.unwrap();
    let (ten, _) = api("10").await;
    assert_eq!((&ten["reason"], actions(&ten)), (&json!("blocked"), vec!["wait"]));

    limiter.set_enforcement(&API, Enforce::Never).await.unwrap();
    let (shadowed, _) = api("7").await;
    assert_eq!((&shadowed["enforced"], &shadowed["allowed"]), (&json!(false), &json!(true)));
}

#[tokio::test]
async fn reading_spends_nothing() {
    let server = TestServer::start().await;
    server.limiter.limit(&API, 7).await.unwrap();
    for _ in 0..3 {
        for path in ["policies", "top", "limited", "blocks", "key?key=7", "key?key=8"] {
            server.read(path).await;
        }
    }
    assert_eq!(server.limiter.remaining(&API, 7).await.unwrap(), 4);
    assert_eq!(server.limiter.stats().rows, Some(1));
    assert_eq!(server.read("top").await["policies"][0]["requested"]["total"], 1);
    assert!(server.audits.take().is_empty());
}
