//! The wire format of gRPC refusals: one header block that ends the stream.

use std::net::SocketAddr;
use std::time::Duration;

use axum::body::Bytes;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Full};
use hyper::body::Body;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tollgate::{MINUTE, Policy, Quota, RateLimitLayer, key};

use super::echo::{METHOD, serve};
use crate::support::connections::{http1, http2, limiter};

const ONE: Policy = Policy::new("one", Quota::token_bucket(1, MINUTE));

/// Builds a call to `test.Echo/Say` with an uncompressed message of two bytes.
fn call(address: SocketAddr, content_type: &str) -> Request<Full<Bytes>> {
    Request::post(format!("http://{address}{METHOD}"))
        .header("host", address.to_string())
        .header("content-type", content_type)
        .header("te", "trailers")
        .body(Full::from(&b"\0\0\0\0\x02hi"[..]))
        .unwrap()
}

fn statuses(headers: &HeaderMap) -> Vec<&str> {
    headers.get_all("grpc-status").iter().map(|value| value.to_str().unwrap()).collect()
}

#[tokio::test]
async fn a_refusal_consists_of_headers_only() {
    let (address, _echo) = serve(RateLimitLayer::new(ONE, key::client_ip()).limiter(&limiter().0)).await;
    let mut sender = http2(address).await;

    // An allowed request gets a message, with the status in the trailers.
    let answer = sender.send_request(call(address, "application/grpc")).await.unwrap();
    assert_eq!((answer.status().as_u16(), statuses(answer.headers())), (200, vec![]));
    assert!(!answer.body().is_end_stream());
    let body = answer.into_body().collect().await.unwrap();
    assert_eq!(body.trailers().map(statuses), Some(vec!["0"]));
    assert_eq!(body.to_bytes(), &b"\0\0\0\0\x02hi"[..]);

    for content_type in ["application/grpc", "application/grpc+proto"] {
        let answer = sender.send_request(call(address, content_type)).await.unwrap();
        assert!(answer.body().is_end_stream());
        assert_eq!((answer.status().as_u16(), statuses(answer.headers())), (200, vec!["8"]));
        let headers = answer.headers().clone();
        assert_eq!(headers["content-type"], content_type);
        assert_eq!(headers["grpc-retry-pushback-ms"], "60000");
        assert_eq!(headers["grpc-message"], "rate limit exceeded: \"one\"; retry after 60s");
        assert!(!headers["grpc-status-details-bin"].as_bytes().contains(&b'='), "base64 must not be padded");
        assert_eq!(
            (&headers["ratelimit"], &headers["cache-control"]),
            (&"\"one\";r=0;t=60".parse().unwrap(), &"no-store".parse().unwrap())
        );
        let body = answer.into_body().collect().await.unwrap();
        assert!(body.trailers().is_none());
        assert!(body.to_bytes().is_empty());
    }
}

#[tokio::test]
async fn the_headers_frame_of_a_refusal_ends_the_stream() {
    // Client libraries hide whether an empty DATA frame ends the stream, so the test reads raw frames.
    let (address, _echo) = serve(RateLimitLayer::new(ONE, key::client_ip()).limiter(&limiter().0)).await;
    let mut sender = http2(address).await;
    sender.send_request(call(address, "application/grpc")).await.unwrap();

    let mut stream = TcpStream::connect(address).await.unwrap();
    // Send the preface, empty SETTINGS, and HEADERS on stream 1 without END_STREAM. The server must not wait for the
    // message, which is never sent. The HPACK block uses literal fields without indexing.
    let mut block = vec![0x83, 0x86]; // :method POST, :scheme http
    for (name, value) in
        [(":path", METHOD), (":authority", "test"), ("content-type", "application/grpc"), ("te", "trailers")]
    {
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).unwrap());
            block.extend_from_slice(text.as_bytes());
        }
    }
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend_from_slice(&[0, 0, 0, SETTINGS, 0, 0, 0, 0, 0]);
    bytes.extend_from_slice(&[0, 0, u8::try_from(block.len()).unwrap(), HEADERS, END_HEADERS, 0, 0, 0, 1]);
    bytes.extend_from_slice(&block);
    stream.write_all(&bytes).await.unwrap();

    let frames = tokio::time::timeout(Duration::from_secs(20), frames(&mut stream))
        .await
        .expect("the server must respond without waiting for the message");
    assert_eq!(frames, [(HEADERS, END_HEADERS | END_STREAM)]);
}

/// Reads the frames of stream 1 until the stream ends. Returns their types and flags.
async fn frames(stream: &mut TcpStream) -> Vec<(u8, u8)> {
    let mut frames: Vec<(u8, u8)> = Vec::new();
    while frames.last().is_none_or(|(kind, flags)| *kind != RST_STREAM && flags & END_STREAM == 0) {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.unwrap();
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        stream.read_exact(&mut payload).await.unwrap();
        if head[5..] == [0, 0, 0, 1] {
            frames.push((head[3], head[4]));
        }
    }
    frames
}

const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

#[tokio::test]
async fn grpc_web_refusals_keep_the_content_type_of_the_request() {
    let (address, _echo) = serve(RateLimitLayer::new(ONE, key::client_ip()).limiter(&limiter().0)).await;
    let (mut one, mut two) = (http1(address).await, http2(address).await);
    two.send_request(call(address, "application/grpc")).await.unwrap();
    for (content_type, expected) in [
        ("application/grpc-web", "application/grpc-web"),
        ("application/grpc-web+proto", "application/grpc-web+proto"),
        ("application/grpc-web-text", "application/grpc-web-text"),
        ("application/grpc-web-text+proto; charset=utf-8", "application/grpc-web-text+proto"),
    ] {
        let answers = [
            one.send_request(call(address, content_type)).await.unwrap(),
            two.send_request(call(address, content_type)).await.unwrap(),
        ];
        for answer in answers {
            assert_eq!((answer.status().as_u16(), statuses(answer.headers())), (200, vec!["8"]), "{content_type}");
            assert_eq!(answer.headers()["content-type"], expected);
            assert_eq!(answer.headers()["grpc-retry-pushback-ms"], "60000");
            assert!(answer.into_body().collect().await.unwrap().to_bytes().is_empty());
        }
    }
}

#[tokio::test]
async fn non_grpc_requests_get_problem_json_from_the_same_server() {
    let (address, _echo) = serve(RateLimitLayer::new(ONE, key::client_ip()).limiter(&limiter().0)).await;
    let mut sender = http2(address).await;
    sender.send_request(call(address, "application/grpc")).await.unwrap();
    for content_type in ["application/json", "application/grpcish", "text/plain; application/grpc"] {
        let answer = sender.send_request(call(address, content_type)).await.unwrap();
        assert_eq!((answer.status().as_u16(), statuses(answer.headers())), (429, vec![]), "{content_type}");
        assert_eq!(answer.headers()["content-type"], "application/problem+json");
        assert!(!answer.into_body().collect().await.unwrap().to_bytes().is_empty());
    }
}
