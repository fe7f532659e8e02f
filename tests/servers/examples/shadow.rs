use std::net::SocketAddr;

use super::running::{Example, LOCALHOST, TestResponse, get, send};

#[tokio::test]
async fn the_fourth_request_passes_in_shadow_mode_and_is_marked_and_counted() {
    let example = Example::start("shadow", &[]);
    let server = example.address();
    for _ in 0..3 {
        assert_eq!(outcome(&example, &get(server, &["x-api-key: k1"]).await), Outcome::Quiet);
    }
    assert_eq!(outcome(&example, &get(server, &["x-api-key: k1"]).await), Outcome::Marked);
    let report = send(LOCALHOST, server, "GET /shadowed", &[], "").await;
    assert_eq!(report.body, example.promised("1 request would have been refused\n"));
}

#[tokio::test]
async fn a_share_of_one_half_always_enforces_the_limit_for_the_same_clients() {
    let example = Example::start("shadow", &["0.5"]);
    let server = example.address();
    let mut enforced = 0;
    for i in 0..40 {
        let seen = outcomes(&example, server, i).await;
        match seen[0] {
            Outcome::Informed => {
                enforced += 1;
                assert_eq!(seen[1..], [Outcome::Informed, Outcome::Informed, Outcome::Refused, Outcome::Refused]);
            }
            _ => {
                let quiet = Outcome::Quiet;
                assert_eq!(seen, [quiet, quiet, quiet, Outcome::Marked, Outcome::Marked]);
            }
        }
    }
    // The number of heads in 40 tosses of a fair coin is outside this range less than once in 10^8 runs.
    assert!((3..=37).contains(&enforced), "the limit is enforced for {enforced} of 40 clients");
}

#[tokio::test]
async fn a_share_of_one_enforces_the_limit_for_all_clients() {
    let example = Example::start("shadow", &["1.0"]);
    let server = example.address();
    for i in 0..5 {
        assert_eq!(outcomes(&example, server, i).await[3..], [Outcome::Refused, Outcome::Refused]);
    }
}

async fn outcomes(example: &Example, server: SocketAddr, client: u32) -> Vec<Outcome> {
    let mut seen = Vec::new();
    for _ in 0..5 {
        seen.push(outcome(example, &get(server, &[&format!("x-api-key: k{client}")]).await));
    }
    seen
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Outcome {
    /// The response does not mention a limit.
    Quiet,
    /// The response is allowed and has only the header for the access log, `x-ratelimit-shadow`.
    Marked,
    /// The response is allowed and has rate-limit headers.
    Informed,
    Refused,
}

fn outcome(example: &Example, response: &TestResponse) -> Outcome {
    let marked = response.has(example.promised("x-ratelimit-shadow: denied"));
    let informed = response.has(example.promised(r#"ratelimit-policy: "api";q=3;w=3600"#));
    match (response.status(), informed, marked) {
        (200, false, false) => Outcome::Quiet,
        (200, false, true) => Outcome::Marked,
        (200, true, false) => Outcome::Informed,
        (429, true, false) => Outcome::Refused,
        _ => panic!("{response:?}"),
    }
}
