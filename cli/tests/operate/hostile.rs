//! Answers from a server that is not the admin router, or that tries to harm the operator's terminal or obtain the
//! token.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::Command;
use std::sync::{Arc, Mutex};

use serde_json::json;

use crate::service::{TOKEN, run};

/// Answers every request with the same text, and remembers the requests.
struct Server {
    address: SocketAddr,
    requests: Arc<Mutex<String>>,
}

impl Server {
    fn start(answer: String) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(String::new()));
        let seen = Arc::clone(&requests);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut request = [0; 4096];
                let length = stream.read(&mut request).unwrap();
                seen.lock().unwrap().push_str(&String::from_utf8_lossy(&request[..length]));
                // The command may close the connection before it has read a long answer.
                drop(stream.write_all(answer.as_bytes()));
            }
        });
        Server { address, requests }
    }

    fn json(status: &str, body: &serde_json::Value) -> Server {
        let body = body.to_string();
        let (kind, length) = ("content-type: application/json", body.len());
        Server::start(format!(
            "HTTP/1.1 {status}\r\n{kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
        ))
    }

    fn ask(&self, arguments: &[&str]) -> (i32, String, String) {
        run(Command::new(env!("CARGO_BIN_EXE_tollgate"))
            .args(arguments)
            .env("TOLLGATE_ADMIN_URL", format!("http://{}/admin", self.address))
            .env("TOLLGATE_ADMIN_TOKEN", TOKEN))
    }
}

/// Sets the title of the terminal, clears the screen with the one-byte form of `ESC [`, and reverses the text.
const ESCAPES: &str = "x\u{1b}]0;owned\u{7}\u{9b}2J\u{202e}gnp\u{7f}";

fn assert_harmless(text: &str) {
    let is_harmful = |c: char| c != '\n' && (c.is_control() || matches!(c, '\u{202a}'..='\u{202e}'));
    assert!(!text.contains(is_harmful), "{text:?}");
}

#[test]
fn texts_and_errors_from_the_server_cannot_control_the_terminal() {
    for status in ["200 OK", "400 Bad Request"] {
        let keys = json!([{"key": ESCAPES, "text": ESCAPES, "count": 1, "refused": ESCAPES, "policy": ESCAPES,
            "reason": ESCAPES, "retry_after_ms": u64::MAX}]);
        let counts = json!({"total": 1, "keys": keys});
        let policy = json!({"policy": ESCAPES, "quotas": ESCAPES, "set_quotas": ESCAPES, "enforce": ESCAPES,
            "tiers": [{"tier": ESCAPES, "quotas": ESCAPES}], "set_keys_total": ESCAPES, "requested": counts,
            "refused": counts, "tier": ESCAPES, "reason": ESCAPES, "quotas_from": ESCAPES,
            "windows": [{"quota": ESCAPES, "spent": ESCAPES, "left": ESCAPES, "full_in_ms": u64::MAX}],
            "helps": [{"action": ESCAPES}, {"action": "credit", "tokens": ESCAPES}]});
        let blocks = json!([{"key": ESCAPES, "rule": ESCAPES, "left_ms": u64::MAX}]);
        let answer = json!({"detail": ESCAPES, "policies": [policy], "keys": keys, "blocks": blocks, "key": ESCAPES,
            "blocks_total": ESCAPES, "scope": ESCAPES});
        let server = Server::json(status, &answer);
        for command in [
            &["policies"][..],
            &["top"],
            &["limited"],
            &["why", "7"],
            &["reset", "7", "--policy", "api"],
            &["block", "7", "--for", "1h"],
        ] {
            for json in [&[][..], &["--json"]] {
                let (code, out, error) = server.ask(&[command, json].concat());
                assert_eq!(code == 1, status.starts_with('4'), "{command:?} {error}");
                assert_harmless(&out);
                assert_harmless(&error);
            }
        }
    }
}

#[test]
fn the_token_is_not_sent_to_the_target_of_a_redirect() {
    let other = Server::json("200 OK", &json!({"policies": []}));
    for status in [301, 302, 303, 307, 308] {
        let to = format!("location: http://{}/policies", other.address);
        let server =
            Server::start(format!("HTTP/1.1 {status} X\r\n{to}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"));
        for command in [&["policies"][..], &["unblock", "7"]] {
            let (code, _, error) = server.ask(command);
            assert!(code == 1 && !error.contains(TOKEN), "{error}");
        }
        assert!(server.requests.lock().unwrap().contains(TOKEN));
    }
    assert_eq!(*other.requests.lock().unwrap(), "");
}

#[test]
fn malformed_and_long_answers_do_not_crash_the_command() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let long = format!("{:?}", "x".repeat(20_000_000));
    for body in ["7", "null", "[]", "{}", r#"{"policies":7,"keys":"x","blocks":{}}"#, "", "{", &deep, &long] {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
        let server = Server::start(head + body);
        for command in [&["policies"][..], &["top"], &["limited"], &["why", "7"], &["unblock", "7"]] {
            let (code, out, error) = server.ask(command);
            assert!(code <= 1 && out.len() + error.len() < 1000, "{command:?} {code} {out} {error}");
        }
    }
    for head in [
        "HTTP/1.1 200 OK\r\nx: \u{1b}[2J\r\n\r\n{}",
        "HTTP/1.1 200 \u{1b}[2J\r\ncontent-length: 2\r\n\r\n{}",
        "\u{1b}[2J",
    ] {
        let (code, out, error) = Server::start(head.to_owned()).ask(&["policies"]);
        assert!(code <= 1, "{error}");
        assert_harmless(&out);
        assert_harmless(&error);
    }
}
