//! Runs examples as child processes and sends HTTP requests to them.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;

/// The maximum time to wait for an example. It is long because the machine may be busy.
const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) const LOCALHOST: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// A running example. Its process is killed when this value is dropped.
pub(crate) struct Example {
    name: &'static str,
    child: Child,
    lines: Receiver<String>,
    comment: String,
}

impl Example {
    pub(crate) fn start(name: &'static str, arguments: &[&str]) -> Example {
        Example::start_with(name, arguments, &[])
    }

    /// Like `start`, but also sets the given environment variables.
    pub(crate) fn start_with(name: &'static str, arguments: &[&str], environment: &[(&str, &str)]) -> Example {
        // Change target/<profile>/deps to target/<profile>/examples.
        let mut path: PathBuf = std::env::current_exe().unwrap();
        path.pop();
        path.pop();
        path.push(format!("examples/{name}{}", std::env::consts::EXE_SUFFIX));
        let build = format!("cargo build --all-features --example {name}");
        assert!(path.exists(), "the example has not been built: run `{build}`, or all tests together");
        let mut child = Command::new(path)
            .args(arguments)
            .env("PORT", "0")
            .envs(environment.iter().copied())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let printed = BufReader::new(child.stdout.take().unwrap());
        let (send, lines) = channel();
        // Read all output, even if the test does not use it, because a closed pipe would end the example.
        std::thread::spawn(move || printed.lines().map_while(Result::ok).for_each(|line| drop(send.send(line))));
        Example { name, child, lines, comment: comment(name) }
    }

    pub(crate) fn line(&self) -> String {
        match self.lines.recv_timeout(TIMEOUT) {
            Ok(line) => line,
            Err(error) => panic!("example {}: expected another line: {error}", self.name),
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        let line = self.line();
        let address = line.split_whitespace().find_map(|word| word.strip_prefix("http://"));
        address.unwrap_or_else(|| panic!("example {}: no URL in {line:?}", self.name)).parse().unwrap()
    }

    /// Asks the process to stop.
    #[cfg(unix)]
    pub(crate) fn terminate(&self) {
        let sent = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits for the example to exit. Returns whether it succeeded.
    pub(crate) fn ends(mut self) -> bool {
        assert!(self.lines.recv_timeout(TIMEOUT).is_err(), "example {}: expected no more lines", self.name);
        self.child.wait().unwrap().success()
    }

    /// Returns `text` after checking that it is in the example's top comment.
    #[track_caller]
    pub(crate) fn promised<'a>(&self, text: &'a str) -> &'a str {
        assert!(self.comment.contains(text), "the top comment of example {} does not contain {text:?}", self.name);
        text
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn comment(name: &str) -> String {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let paths = [examples.join(format!("{name}.rs")), examples.join(name).join("main.rs")];
    let source =
        paths.iter().find_map(|path| std::fs::read_to_string(path).ok()).expect("expected the source of the example");
    let lines = source.lines().map_while(|line| line.strip_prefix("//!"));
    lines.map(|line| format!("{}\n", line.strip_prefix(' ').unwrap_or(line))).collect()
}

/// Opens a connection from `client`, sends a request with the given header lines, and reads the response until the
/// server closes the connection.
pub(crate) async fn send(
    client: Ipv4Addr,
    server: SocketAddr,
    request: &str,
    headers: &[&str],
    body: &str,
) -> TestResponse {
    let exchange = async {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((client, 0).into()).expect("expected a loopback address");
        let mut stream = socket.connect(server).await.unwrap();
        let headers: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
        let length = body.len();
        let head = format!(
            "{request} HTTP/1.1\r\nhost: test\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    };
    let text = tokio::time::timeout(TIMEOUT, exchange).await;
    let text = text.unwrap_or_else(|_| panic!("{request}: no response within {TIMEOUT:?}"));
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{request}: received {text:?}"));
    TestResponse { head: head.to_owned(), body: body.to_owned() }
}

pub(crate) async fn get(server: SocketAddr, headers: &[&str]) -> TestResponse {
    send(LOCALHOST, server, "GET /", headers, "").await
}

/// Repeats a request. Returns the statuses, separated by spaces.
pub(crate) async fn statuses(times: usize, server: SocketAddr, request: &str, headers: &[&str]) -> String {
    let mut statuses = Vec::new();
    for _ in 0..times {
        statuses.push(send(LOCALHOST, server, request, headers, "").await.status().to_string());
    }
    statuses.join(" ")
}

#[derive(Debug)]
pub(crate) struct TestResponse {
    head: String,
    pub(crate) body: String,
}

impl TestResponse {
    pub(crate) fn status(&self) -> u16 {
        self.status_line().split(' ').nth(1).unwrap().parse().unwrap()
    }

    pub(crate) fn status_line(&self) -> &str {
        self.head.lines().next().unwrap()
    }

    pub(crate) fn has(&self, line: &str) -> bool {
        self.head.lines().any(|known| known == line)
    }

    /// Returns the value of a header.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        self.lines(name).next()
    }

    /// Returns the values of all lines of a header.
    pub(crate) fn lines(&self, name: &str) -> impl Iterator<Item = &str> {
        self.head.lines().filter_map(move |line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    /// Returns the value of a header as a number.
    pub(crate) fn number(&self, name: &str) -> u64 {
        let value = self.value(name).unwrap_or_else(|| panic!("no {name} in {self:?}"));
        value.parse().unwrap_or_else(|_| panic!("{name}: {value:?}"))
    }
}
