//! Measures real servers on loopback, with and without layers, over 64 connections, each with one request at a time.
//! Part of `make bench`.
//!
//! Each stack is served by a separate process on the first core, and the client has the second. In each of 20 rounds, a
//! layer and the same server without that layer run right after each other, in alternating order. Prints, as Markdown,
//! the medians of the rounds and the 95% interval of the ratio within a round (bootstrap).
//!
//! All connections come from one address, so the key is hot. axum boxes each layer's future, which costs more than most
//! layers do, so a layer that does nothing is measured too. tollgate is also measured around the whole router, where
//! axum boxes nothing.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::task::LocalSet;
use tollgate_peers::{Kind, Stack, layers, median, pin, quick, serve, served, spread};

const CONNECTIONS: usize = 64;
const SLICE: Duration = Duration::from_millis(350);

pub fn print() {
    pin(1);
    let runtime = runtime();
    let rounds = if quick() { 2 } else { 20 };
    allowed(&runtime, rounds);
    denied(&runtime, rounds);
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Implements `bench serve STACK KIND`. The process ends with its parent process.
pub fn run(stack: &str, kind: &str) {
    pin(0);
    let kind = if kind == "denied" { Kind::Denied } else { Kind::Allowed };
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    let served = runtime().block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?.port());
        serve(stack, kind, listener).await
    });
    served.expect("served");
}

/// Measures layers that allow everything, each compared with the server without that layer.
fn allowed(runtime: &Runtime, rounds: usize) {
    let stacks = served(Kind::Allowed);
    let mut servers: Vec<_> = stacks.iter().map(|it| Server::start(runtime, it, Kind::Allowed)).collect();
    let layered: Vec<_> = (0..stacks.len()).filter(|i| stacks[*i].name != stacks[*i].without).collect();
    for round in 0..rounds {
        for turn in 0..layered.len() {
            let with = layered[(round + turn) % layered.len()];
            let without = stacks.iter().position(|it| it.name == stacks[with].without).expect("served");
            let pair = if round % 2 == 0 { [with, without] } else { [without, with] };
            let [first, second] = pair.map(|i| servers[i].slice(runtime, "200"));
            let (with_rate, without_rate) = if pair[0] == with { (first, second) } else { (second, first) };
            servers[with].ratios.push(with_rate / without_rate);
        }
    }
    println!("| allowed, {rounds} pairs | requests/s | p99 ms | server µs/request | with : without | 95% interval |");
    println!("| --- | ---: | ---: | ---: | ---: | --- |");
    servers.iter_mut().for_each(Server::print);
    println!();
}

/// Measures layers that deny everything, each compared with tower_governor in the same round.
fn denied(runtime: &Runtime, rounds: usize) {
    let stacks = layers(Kind::Denied);
    let mut servers: Vec<_> = stacks.iter().map(|it| Server::start(runtime, it, Kind::Denied)).collect();
    for server in &mut servers {
        // Spend the limit first.
        server.load(runtime, SLICE / 10);
    }
    let peer = stacks.iter().position(|it| it.name == "tower_governor, no headers").expect("a peer");
    for round in 0..rounds {
        let mut rates = vec![0.0; stacks.len()];
        for turn in 0..stacks.len() {
            let i = (round + turn) % stacks.len();
            rates[i] = servers[i].slice(runtime, if stacks[i].name == stacks[i].without { "200" } else { "429" });
        }
        for (server, rate) in servers.iter_mut().zip(&rates) {
            server.ratios.push(rate / rates[peer]);
        }
    }
    println!(
        "| denial storm, {rounds} rounds | requests/s | p99 ms | server µs/request | this : tower_governor \
         | 95% interval |"
    );
    println!("| --- | ---: | ---: | ---: | ---: | --- |");
    servers.iter_mut().for_each(Server::print);
}

/// A served stack, and its measurements.
struct Server {
    name: &'static str,
    child: Child,
    connections: Vec<TcpStream>,
    rates: Vec<f64>,
    ratios: Vec<f64>,
    nanos: Vec<u32>,
    cpu: Duration,
}

impl Server {
    fn start(runtime: &Runtime, stack: &Stack, kind: Kind) -> Server {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["serve", stack.name, if kind == Kind::Denied { "denied" } else { "allowed" }])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let mut port = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut port).expect("a port");
        let port: u16 = port.trim().parse().expect("a port");
        let connections = runtime.block_on(async {
            let mut connections = Vec::with_capacity(CONNECTIONS);
            for _ in 0..CONNECTIONS {
                let connection = TcpStream::connect(("127.0.0.1", port)).await.expect("connected");
                connection.set_nodelay(true).expect("a socket");
                connections.push(connection);
            }
            connections
        });
        let mut server = Server {
            name: stack.name,
            child,
            connections,
            rates: Vec::new(),
            ratios: Vec::new(),
            nanos: Vec::new(),
            cpu: Duration::ZERO,
        };
        server.load(runtime, SLICE / 10);
        server
    }

    /// Returns the requests per second over one slice of a round. All responses must have `status`.
    fn slice(&mut self, runtime: &Runtime, status: &str) -> f64 {
        // Warm up, because the machine has just run another stack.
        self.load(runtime, SLICE / 10);
        let (cpu, begin) = (self.on_cpu(), Instant::now());
        let answers = self.load(runtime, SLICE);
        let elapsed = begin.elapsed();
        self.cpu += self.on_cpu() - cpu;
        for answer in &answers {
            assert!(answer.status == status.as_bytes(), "{}: answered {:?}", self.name, str::from_utf8(&answer.status));
        }
        let rate = answers.len() as f64 / elapsed.as_secs_f64();
        self.nanos.extend(answers.iter().map(|answer| answer.nanos));
        self.rates.push(rate);
        rate
    }

    /// Sends requests over all connections concurrently.
    fn load(&mut self, runtime: &Runtime, length: Duration) -> Vec<Answer> {
        let until = Instant::now() + length;
        LocalSet::new().block_on(runtime, async {
            let tasks: Vec<_> = self.connections.drain(..).map(|it| tokio::task::spawn_local(ask(it, until))).collect();
            let mut answers = Vec::new();
            for task in tasks {
                let (connection, of) = task.await.expect("asked");
                self.connections.push(connection);
                answers.extend(of);
            }
            answers
        })
    }

    /// Returns the CPU time of the server's only thread.
    fn on_cpu(&self) -> Duration {
        let output = std::fs::read_to_string(format!("/proc/{}/schedstat", self.child.id())).expect("Linux");
        Duration::from_nanos(output.split(' ').next().and_then(|it| it.parse().ok()).expect("nanoseconds"))
    }

    fn print(&mut self) {
        self.nanos.sort_unstable();
        let requests = self.nanos.len();
        let p99 = f64::from(self.nanos[requests * 99 / 100]) / 1e6;
        let cpu = self.cpu.as_secs_f64() * 1e6 / requests as f64;
        print!("| {} | {:.0} | {p99:.2} | {cpu:.1} |", self.name, median(self.rates.clone()));
        if self.ratios.is_empty() {
            println!(" | |");
        } else {
            let (middle, low, high) = spread(&self.ratios);
            println!(" {middle:.3} | {low:.3} to {high:.3} |");
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Answer {
    status: [u8; 3],
    nanos: u32,
}

/// Sends requests in sequence, each after the previous response.
async fn ask(mut connection: TcpStream, until: Instant) -> (TcpStream, Vec<Answer>) {
    let mut answers = Vec::with_capacity(1024);
    let mut buffer = [0; 4096];
    let mut now = Instant::now();
    while now < until {
        connection.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.expect("a server");
        let mut there = 0;
        let status = loop {
            let read = connection.read(&mut buffer[there..]).await.expect("an answer");
            assert!(read > 0, "the server closed the connection");
            there += read;
            if let Some(status) = whole(&buffer[..there]) {
                break status;
            }
        };
        let then = std::mem::replace(&mut now, Instant::now());
        answers.push(Answer { status, nanos: (now - then).as_nanos() as u32 });
    }
    (connection, answers)
}

/// Returns the status of a response, once the response is complete.
fn whole(answer: &[u8]) -> Option<[u8; 3]> {
    let head = answer.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let mut lines = answer[..head].split(|byte| *byte == b'\n');
    let status = lines.next()?.get(9..12)?.try_into().ok()?;
    let length = lines.find_map(|line| line.strip_prefix(b"content-length: ")).expect("answers of known length");
    let length: usize = str::from_utf8(length).ok()?.trim().parse().ok()?;
    (answer.len() == head + length).then_some(status)
}
