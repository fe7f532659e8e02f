use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::running::{Example, LOCALHOST, TestResponse, send};

#[tokio::test]
async fn the_actual_cost_of_an_answer_is_charged() {
    let example = Example::start("llm_tokens", &[]);
    let server = example.address();
    let short = complete(server, example.promised("12")).await;
    assert_eq!(short.status(), 200);
    assert!(short.has(example.promised(r#"ratelimit: "tokens";r=950;t=82080"#)), "{short:?}");
    // The body has one chunk per word, and each chunk is preceded by a line that contains its length.
    let words: String = short.body.split("\r\n").skip(1).step_by(2).collect();
    example.promised(&words);
    assert!(words.ends_with("word11 word12\n"), "{short:?}");
    assert_eq!(balance(server).await, example.promised("988 tokens, 19 calls\n"));

    assert_eq!(complete(server, "60").await.status(), 200);
    assert_eq!(balance(server).await, example.promised("928 tokens, 18 calls\n"));
}

#[tokio::test]
async fn the_estimate_is_kept_on_disconnect_and_refunded_on_failure() {
    let example = Example::start("llm_tokens", &[]);
    let server = example.address();
    complete(server, "12").await;
    complete(server, "60").await;
    assert_eq!(balance(server).await, "928 tokens, 18 calls\n");
    disconnect_early(server, "40").await;
    tokio::time::sleep(Duration::from_millis(1500)).await; // the response would have taken 800 ms
    assert_eq!(balance(server).await, example.promised("878 tokens, 17 calls\n"));

    let failed = complete(server, "fail").await;
    assert_eq!((failed.status(), failed.body.as_str()), (503, example.promised("the model is down\n")));
    assert_eq!(balance(server).await, "878 tokens, 17 calls\n");
}

#[tokio::test]
async fn of_five_batches_one_starts_three_wait_and_one_is_refused() {
    let example = Example::start("llm_tokens", &[]);
    let server = example.address();
    example.promised("the first starts immediately and three more start at intervals of one second");
    let began = Instant::now();
    let mut batches = JoinSet::new();
    for _ in 0..5 {
        batches.spawn(async move {
            // The cost equals the estimate, so nothing is refunded.
            let response = send(LOCALHOST, server, "POST /batch", &["x-team: blue"], "50").await;
            (response.status(), began.elapsed())
        });
    }
    let mut ended = batches.join_all().await;
    ended.sort_by_key(|(status, at)| (*status == 200, *at));
    let statuses: Vec<_> = ended.iter().map(|(status, _)| *status).collect();
    assert_eq!(statuses, [429, 200, 200, 200, 200]);
    for (turn, (_, at)) in ended[1..].iter().enumerate() {
        let earliest = Duration::from_secs(turn as u64 + 1);
        assert!(*at >= earliest, "{ended:?}");
    }
}

async fn complete(server: SocketAddr, words: &str) -> TestResponse {
    send(LOCALHOST, server, "POST /complete", &["x-team: blue"], words).await
}

async fn balance(server: SocketAddr) -> String {
    send(LOCALHOST, server, "GET /balance", &["x-team: blue"], "").await.body
}

/// Reads the first words of a response and then disconnects.
async fn disconnect_early(server: SocketAddr, words: &str) {
    let mut stream = TcpStream::connect(server).await.unwrap();
    let length = words.len();
    let request = format!("POST /complete HTTP/1.1\r\nhost: test\r\nx-team: blue\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all(format!("{request}{words}").as_bytes()).await.unwrap();
    let mut text = String::new();
    while !text.contains("word3") {
        let mut buffer = [0; 512];
        let read = stream.read(&mut buffer).await.unwrap();
        text.push_str(std::str::from_utf8(&buffer[..read]).unwrap());
    }
}
