//! Tests of the header parser that the other tests use: it accepts the draft's examples and rejects malformed fields.

use axum::http::HeaderMap;

use crate::support::answer::Answer;

fn answer(field: &'static str, lines: &[&str]) -> Answer {
    let mut headers = HeaderMap::new();
    for line in lines {
        headers.append(field, line.parse().unwrap());
    }
    Answer { status: 200, headers, body: Vec::new() }
}

#[test]
fn the_examples_of_the_draft_are_parsed() {
    for lines in [
        &[r#""burst";q=100;w=60, "daily";q=1000;w=86400"#][..],
        &[r#""burst";q=100;w=60"#, r#""daily"; q=1000; w=86400"#],
    ] {
        let policies = answer("ratelimit-policy", lines).policies();
        assert_eq!(policies, [("burst".into(), 100, 60), ("daily".into(), 1000, 86400)]);
    }
    assert_eq!(answer("ratelimit", &[r#""default";r=50;t=30"#]).limits(), [("default".into(), 50, Some(30))]);
    assert_eq!(answer("ratelimit", &[r#""default";r=0"#]).limits(), [("default".into(), 0, None)]);
}

#[test]
fn fields_outside_the_grammar_are_rejected() {
    for (field, line) in [
        // The first four cases are a dictionary as in draft 7, integers as in draft 6, a token as a name, and an
        // integer with sixteen digits.
        ("ratelimit", "limit=100, remaining=50, reset=5"),
        ("ratelimit-policy", "100;w=60"),
        ("ratelimit", "default;r=50;t=30"),
        ("ratelimit", r#""default";r=1000000000000000;t=30"#),
        ("ratelimit", r#""default";r=-1;t=30"#),
        ("ratelimit", r#""default";r=1.5;t=30"#),
        ("ratelimit", r#""default";t=30"#),
        ("ratelimit", r#""default;r=1"#),
    ] {
        let answer = answer(field, &[line]);
        let read = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (answer.policies(), answer.limits())));
        assert!(read.is_err(), "{line} was accepted");
    }
}
