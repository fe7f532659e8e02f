//! Threats 23 and 33: keys that a client can invent or name. Some tests check how the documentation uses such keys.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use tollgate::{
    HOUR, MINUTE, MemoryBackend, Policy, Quota, RateLimitLayer, RateLimiter, Rule,
    key::{self, KeyExtractor},
    protection::AutoBlock,
};

use super::client::{ONE, hello, limiter, request, send};

#[tokio::test]
async fn invented_tokens_bypass_a_paired_key_but_not_a_per_address_rule() {
    let address = Policy::new("address", Quota::token_bucket(10, MINUTE));
    let pair = RateLimitLayer::new(ONE, key::bearer().and(key::client_ip()));
    let rules = RateLimitLayer::new(ONE, key::bearer().or_skip()).and(address, key::client_ip());
    let mut admitted = Vec::new();
    for layer in [pair, rules] {
        let app = hello().layer(layer.limiter(&limiter().0));
        let mut count = 0;
        for i in 0..100 {
            let token = format!("Bearer invented-{i}");
            count += usize::from(send(&app, request("192.0.2.1", &[("authorization", token)])).await.status == 200);
        }
        admitted.push(count);
    }
    assert_eq!(admitted, [100, 10]);
}

#[tokio::test]
async fn a_request_without_a_body_length_is_charged_for_the_maximum_length() {
    const MAX_LENGTH: u64 = 1000;
    let bytes = Policy::new("bytes", Quota::fixed_window(2500, HOUR));
    let uploads = RateLimitLayer::from(Rule::new(bytes, key::client_ip()).cost(|req| {
        let length = req.headers.get("content-length").and_then(|value| value.to_str().ok()?.parse().ok());
        length.filter(|_| !req.headers.contains_key("transfer-encoding")).unwrap_or(MAX_LENGTH)
    }));
    let app = hello().layer(uploads.limiter(&limiter().0));
    let mut statuses = Vec::new();
    for lines in [
        vec![("content-length", "400")],
        vec![],
        vec![("transfer-encoding", "chunked"), ("content-length", "1")],
        vec![("content-length", "many")],
        vec![("content-length", "100")],
    ] {
        statuses.push(send(&app, request("192.0.2.1", &lines)).await.status);
    }
    assert_eq!(statuses, [200, 200, 200, 429, 200]);
}

#[tokio::test]
async fn auto_block_without_keys_blocks_the_attacker_but_not_the_account() {
    let login = Policy::new("login", Quota::token_bucket(2, HOUR));
    let [eve, ada]: [IpAddr; 2] = [[198, 51, 100, 66].into(), [198, 51, 100, 1].into()];
    let blocked = AutoBlock::new([&login]).threshold(3).within(MINUTE).block_for(HOUR);
    for (auto, ada_is_allowed) in [(blocked.clone(), false), (blocked.without_keys(), true)] {
        let limiter = RateLimiter::builder(MemoryBackend::new()).auto_block(auto).build();
        for _ in 0..10 {
            let _ = limiter.try_acquire(&login, "ada").ip(eve).await.unwrap();
        }
        limiter.reset(&login, "ada").await.unwrap();
        assert_eq!(limiter.try_acquire(&login, "ada").ip(ada).await.unwrap().is_allowed(), ada_is_allowed);
        assert!(
            !limiter.try_acquire(&login, "grace").ip(eve).await.unwrap().is_allowed(),
            "the address must be blocked"
        );
    }
}

/// Extractors that return unverified client input, as written in guides, examples, and doc comments.
const UNVERIFIED: [&str; 3] = ["key::header(", "key::bearer()", "key::cookie("];

const EXEMPT_FILES: [&str; 3] = ["src/middleware/key/mod.rs", "src/middleware/key/request.rs", "src/docs/mistakes.md"];

#[test]
fn docs_and_examples_state_how_a_credential_was_checked() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = vec![root.join("README.md")];
    for folder in ["src", "examples", "migrating/src", "migrating/tests", "client/differential"] {
        find(&root.join(folder), &mut files);
    }
    assert!(files.len() > 100, "only {} files", files.len());
    let mut faults = Vec::new();
    for file in files {
        let name = file.strip_prefix(root).unwrap().to_string_lossy().replace('\\', "/");
        if !EXEMPT_FILES.contains(&name.as_str()) {
            let text = fs::read_to_string(&file).unwrap();
            faults.extend(unverified(&text).into_iter().map(|line| format!("{name}: {line}")));
        }
    }
    assert!(
        faults.is_empty(),
        "clients can invent these keys; add a comment such as `checked by the gateway`:\n{}",
        faults.join("\n")
    );
}

#[test]
fn unchecked_credentials_in_examples_are_detected() {
    let count = |text: &str| unverified(text).len();
    assert_eq!(count("/// key::header(\"x-api-key\").or(key::client_ip())"), 1);
    assert_eq!(count("let both = key::bearer().and(key::client_ip());"), 1);
    assert_eq!(
        count("limiter.reset(&API, key::header(\"x-api-key\").key(\"k7\")).await?; key::bearer().key(token)"),
        0
    );
    assert_eq!(count("// checked by the gateway\nlet user = key::header(\"x-user\");"), 0);
    assert_eq!(count("key::cookie(\"sid\"); // checked before\n\n\nkey::cookie(\"sid\")"), 1);
}

/// Returns the lines that use an unverified key without the word "checked" on that line or the two lines before it.
fn unverified(text: &str) -> Vec<&str> {
    let lines: Vec<&str> = text.lines().collect();
    let mut faults = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let is_checked = lines[at.saturating_sub(2)..=at].iter().any(|line| line.contains("checked"));
        if !is_checked && UNVERIFIED.iter().any(|extractor| uses_extractor(line, extractor)) {
            faults.push(*line);
        }
    }
    faults
}

/// Returns whether `line` uses the extractor without calling `.key(` on it.
fn uses_extractor(line: &str, extractor: &str) -> bool {
    line.split(extractor).skip(1).any(|rest| {
        let behind =
            if extractor.ends_with(')') { rest } else { rest.split_once(')').map_or("", |(_, behind)| behind) };
        !behind.starts_with(".key(")
    })
}

fn find(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") {
            find(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs" || extension == "md") {
            files.push(path);
        }
    }
}
