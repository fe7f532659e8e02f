//! Unknown names, duplicate names and malformed table lines cause panics with helpful messages when the router is
//! built.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tollgate::{RateLimitLayer, RouteLimits, key};

use super::app::policy;

#[track_caller]
fn panic_of<T>(build: impl FnOnce() -> T) -> String {
    match catch_unwind(AssertUnwindSafe(build)) {
        Ok(_) => panic!("expected a panic"),
        Err(panic) => match panic.downcast::<String>() {
            Ok(text) => *text,
            Err(other) => other.downcast_ref::<&str>().expect("expected a message").to_string(),
        },
    }
}

fn limits() -> RouteLimits {
    RouteLimits::new(key::global()).policy(policy("todo/create", 10)).policy(policy("search", 10))
}

/// Asserts that the message starts with the crate's name and contains each of `parts`.
#[track_caller]
fn assert_message(text: &str, parts: &[&str]) {
    assert!(text.starts_with("tollgate: "), "{text}");
    for part in parts {
        assert!(text.contains(part), "expected {part:?} in: {text}");
    }
}

#[test]
fn the_panic_for_an_unknown_policy_lists_the_known_names() {
    let known = ["\"todo/create\"", "\"search\""];
    let route = panic_of(|| limits().route("todo/delete"));
    assert_message(&route, &["\"todo/delete\"", known[0], known[1]]);
    let table = panic_of(|| limits().table([("GET /search", "search"), ("POST /todos", "todo/crate")]));
    assert_message(&table, &["\"todo/crate\"", known[0], known[1]]);
    assert_message(&panic_of(|| limits().route("Search")), &["\"Search\"", known[1]]);
    assert_message(&panic_of(|| limits().route("")), &["\"\"", known[1]]);
    assert_message(&panic_of(|| RouteLimits::new(key::global()).route("api")), &["\"api\"", "[]"]);
}

#[test]
fn routes_can_name_the_default_policy() {
    let limits = limits().default_policy(policy("default", 10));
    let _ = limits.table([("GET /health", "default"), ("GET /search", "search")]);
    let _ = limits.route("default");
    assert_message(&panic_of(|| limits.route("defautl")), &["\"defautl\"", "\"search\"", "\"default\""]);
}

#[test]
fn duplicate_policy_names_panic() {
    let twice = panic_of(|| limits().policy(policy("search", 20)));
    assert_message(&twice, &["two policies or groups named \"search\""]);
    for text in [
        panic_of(|| limits().default_policy(policy("search", 20))),
        panic_of(|| RouteLimits::new(key::global()).default_policy(policy("search", 20)).policy(policy("search", 10))),
    ] {
        assert_message(&text, &["two policies or groups named \"search\""]);
    }
    assert_message(
        &panic_of(|| limits().default_policy(policy("default", 1)).default_policy(policy("default", 2))),
        &["two policies or groups named \"default\""],
    );
    // Two rules with the same policy name in one layer would charge the same rows.
    let rules = panic_of(|| RateLimitLayer::new(policy("api", 1), key::global()).and(policy("api", 2), key::global()));
    assert_message(&rules, &["\"api\"", "a different name"]);
}

#[test]
fn duplicate_table_lines_panic() {
    for (first, second) in [("GET /search", "GET /search"), ("/search", "/search"), ("GET /search", "GET  /search")] {
        let text = panic_of(|| limits().table([(first, "search"), (second, "todo/create")]));
        assert_message(&text, &["occurs twice", &format!("{second:?}")]);
    }
    let lines =
        [("GET /search", "search"), ("HEAD /search", "search"), ("/search", "search"), ("GET /Search", "search")];
    let _ = limits().table(lines);
}

#[test]
fn the_panic_for_a_malformed_table_line_shows_valid_examples() {
    for line in [
        "",
        " ",
        "todos",
        "POST",
        "POST ",
        " /todos",
        "POST todos",
        "PO\"ST /todos",
        "/todos POST",
        "POST: /todos",
        "POST /todos /more",
        "GET, POST /todos",
        "* /todos",
        // Methods are case-sensitive.
        "post /todos",
        "Get /todos",
    ] {
        let text = panic_of(|| limits().table([(line, "search")]));
        assert_message(&text, &[&format!("{line:?}"), "\"POST /todos\"", "\"/todos\""]);
    }
    let _ = limits().table([("PURGE /todos", "search"), ("M-SEARCH /todos", "search")]);
}
