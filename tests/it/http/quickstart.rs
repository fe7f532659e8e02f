//! The quickstart example, run in a separate process and in real time, as users run it.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::support::client::Client;

#[tokio::test]
async fn ten_of_eleven_concurrent_requests_pass_and_one_is_refused() {
    let (_example, url) = Example::start();
    let client = Client(url.strip_prefix("http://").unwrap().parse().unwrap());
    let requests: Vec<_> = (0..11).map(|_| tokio::spawn(async move { client.get().await })).collect();
    let (mut allowed, mut waits) = (0, Vec::new());
    for request in requests {
        let answer = request.await.unwrap();
        match answer.status {
            200 => allowed += 1,
            429 => waits.push(answer.retry_after().unwrap()),
            status => panic!("{status}"),
        }
    }
    assert_eq!((allowed, waits.len()), (10, 1));
    assert!((5..=6).contains(&waits[0]), "Retry-After: {}", waits[0]);
}

#[test]
fn the_error_for_an_occupied_port_names_the_port_and_the_variable_to_set() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let output = command().env("PORT", port.to_string()).output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(message.contains(&format!("port {port}")) && message.contains("Set PORT"), "{message}");
}

/// The running example process. It is killed when this value is dropped.
struct Example(Child);

impl Example {
    fn start() -> (Example, String) {
        let mut child = command().env("PORT", "0").stdout(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let example = Example(child);
        let mut first = String::new();
        stdout.read_line(&mut first).unwrap();
        let url = first.split_whitespace().find(|word| word.starts_with("http://"));
        let url = url.unwrap_or_else(|| panic!("no URL in {first:?}")).to_owned();
        // Keep reading the output, because printing to a closed pipe would panic.
        std::thread::spawn(move || stdout.read_to_end(&mut Vec::new()));
        (example, url)
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn command() -> Command {
    // This test runs from target/<profile>/deps; examples are in target/<profile>/examples.
    let mut path: PathBuf = std::env::current_exe().unwrap();
    path.pop();
    path.pop();
    path.push(format!("examples/quickstart{}", std::env::consts::EXE_SUFFIX));
    assert!(path.exists(), "the example has not been built: run `cargo build --example quickstart`, or run all tests");
    Command::new(path)
}
