use std::net::SocketAddr;

use tokio::task::JoinSet;

use super::running::{Example, LOCALHOST, TestResponse, send};

#[tokio::test]
async fn five_of_eight_guesses_are_checked_and_then_the_right_password_is_refused() {
    let example = Example::start("login_protection", &[]);
    let server = example.address();
    let mut guesses = JoinSet::new();
    for i in 1..=8 {
        guesses.spawn(async move { login(server, "ada", &format!("guess{i}")).await.status() });
    }
    let statuses = guesses.join_all().await;
    for (status, count) in [(401, example.promised("5 401")), (429, example.promised("3 429"))] {
        assert_eq!(format!("{} {status}", statuses.iter().filter(|seen| **seen == status).count()), count);
    }

    let right = login(server, "ada", example.promised("lovelace")).await;
    assert_eq!(right.status_line(), example.promised("HTTP/1.1 429 Too Many Requests"));
    for line in [
        "content-type: application/problem+json",
        r#"ratelimit-policy: "account";q=5;w=3600"#,
        r#"ratelimit-policy: "address";q=20;w=3600"#,
    ] {
        assert!(right.has(example.promised(line)), "{right:?}");
    }
    example.promised(r#"ratelimit: "account";r=0;t=720"#);
    example.promised("retry-after: 720");
    // On a slow machine, the first guess may have been sent several seconds ago.
    assert!((700..=720).contains(&right.number("retry-after")), "{right:?}");
}

#[tokio::test]
async fn a_login_resets_the_count_for_the_account_but_not_for_the_address() {
    let example = Example::start("login_protection", &[]);
    let server = example.address();
    let mut statuses = Vec::new();
    for i in 1..=11 {
        statuses.push(login(server, &format!("user{i}"), "123456").await.status().to_string());
        statuses.push(login(server, "eve", "polastri").await.status().to_string());
    }
    let promised = "401 200 401 200 401 200 401 200 401 200 401 200 401 200 401 200 401 200 401 200 429 429";
    assert_eq!(statuses.join(" "), example.promised(promised));
}

#[tokio::test]
async fn the_right_code_resets_the_count_of_wrong_codes() {
    let example = Example::start("login_protection", &[]);
    let server = example.address();
    let mut statuses = Vec::new();
    for code in example.promised("000000 000001 271828 000002 000003 000004 000005").split(' ') {
        statuses.push(send(LOCALHOST, server, "POST /reset/ada", &[], code).await.status().to_string());
    }
    assert_eq!(statuses.join(" "), example.promised("403 403 200 403 403 403 429"));
}

async fn login(server: SocketAddr, account: &str, password: &str) -> TestResponse {
    let body = format!("account={account}&password={password}");
    send(LOCALHOST, server, "POST /login", &["content-type: application/x-www-form-urlencoded"], &body).await
}
