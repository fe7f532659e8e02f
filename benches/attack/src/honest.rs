//! The honest clients, each of which has its own key and stays below its quota.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::HOST;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpSocket, TcpStream};

use crate::Result;

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Ok,
    /// The status was 429, which must not happen.
    Refused,
    /// There was another status, or no response within ten seconds.
    Failed,
}

/// A request as the client saw it.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    pub latency: Duration,
    pub outcome: Outcome,
}

/// The number of clients of each kind.
pub const EACH: u8 = 20;
pub const CLIENTS: usize = EACH as usize * KINDS.len();
/// The pace of a client, which is below the quotas of an address (10/s), of a key (1,000 in 5 minutes) and of waiting
/// requests (5/s).
const PACE: Duration = Duration::from_millis(500);
/// The number of requests per connection. Clients reconnect from time to time, as browsers do, and the latency includes
/// connecting.
const REQUESTS_PER_CONNECTION: u32 = 50;
const PATIENCE: Duration = Duration::from_secs(10);
/// One of the proxies that the server trusts.
pub const PROXY: Ipv4Addr = Ipv4Addr::new(127, 9, 0, 1);

#[derive(Clone, Copy)]
enum Kind {
    Key,
    KeyOverHttp2,
    Address,
    AddressBehindProxy,
    Waiting,
}

const KINDS: [Kind; 5] = [Kind::Key, Kind::KeyOverHttp2, Kind::Address, Kind::AddressBehindProxy, Kind::Waiting];

/// Runs all clients on a separate thread until the receiver is dropped.
pub fn start(server: SocketAddr, seen: &Sender<Seen>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let seen = seen.clone();
    std::thread::spawn(move || {
        runtime.block_on(async {
            let mut clients = tokio::task::JoinSet::new();
            let pause = PACE / CLIENTS as u32;
            for number in 0..EACH {
                for kind in KINDS {
                    clients.spawn(Client { kind, number, server }.run(seen.clone()));
                    // Stagger the clients, so that they do not run in step.
                    tokio::time::sleep(pause).await;
                }
            }
            clients.join_all().await;
        });
    });
    Ok(())
}

struct Client {
    kind: Kind,
    number: u8,
    server: SocketAddr,
}

impl Client {
    async fn run(self, seen: Sender<Seen>) {
        let mut connection = None;
        let mut due = tokio::time::Instant::now();
        for count in 0_u32.. {
            tokio::time::sleep_until(due).await;
            // Reconnect at different times for each client.
            if (count + u32::from(self.number)).is_multiple_of(REQUESTS_PER_CONNECTION) {
                connection = None;
            }
            // If the previous request delays a request, the latency counts from the scheduled time. If only the
            // timer's resolution of a millisecond delays it, the latency counts from the actual start.
            let late = due.elapsed();
            let begin = if late > Duration::from_millis(5) { due.into_std() } else { Instant::now() };
            due += PACE;
            let outcome = match tokio::time::timeout(PATIENCE, self.ask(&mut connection)).await {
                Ok(Ok(StatusCode::OK)) => Outcome::Ok,
                Ok(Ok(StatusCode::TOO_MANY_REQUESTS)) => Outcome::Refused,
                _ => {
                    connection = None;
                    Outcome::Failed
                }
            };
            if seen.send(Seen { latency: begin.elapsed(), outcome }).is_err() {
                return;
            }
        }
    }

    async fn ask(&self, connection: &mut Option<Connection>) -> Result<StatusCode> {
        let mut ready = match connection.take() {
            Some(ready) => ready,
            None => self.connect().await?,
        };
        let response = ready.send(self.request()?).await?;
        let status = response.status();
        response.into_body().collect().await?;
        *connection = Some(ready);
        Ok(status)
    }

    async fn connect(&self) -> Result<Connection> {
        let stream = TokioIo::new(connect(self.address(), self.server).await?);
        if matches!(self.kind, Kind::KeyOverHttp2) {
            let (ready, work) = http2::handshake(TokioExecutor::new(), stream).await?;
            tokio::spawn(work);
            return Ok(Connection::Http2(ready));
        }
        let (ready, work) = http1::handshake(stream).await?;
        tokio::spawn(work);
        Ok(Connection::Http1(ready))
    }

    fn address(&self) -> Ipv4Addr {
        match self.kind {
            Kind::Key | Kind::KeyOverHttp2 | Kind::Waiting => Ipv4Addr::new(127, 1, 1, 1),
            Kind::Address => Ipv4Addr::new(127, 1, 0, self.number + 1),
            Kind::AddressBehindProxy => PROXY,
        }
    }

    fn request(&self) -> Result<Request<Empty<Bytes>>> {
        let path = match self.kind {
            Kind::Key | Kind::KeyOverHttp2 => "/api",
            Kind::Address | Kind::AddressBehindProxy => "/page",
            Kind::Waiting => "/wait",
        };
        let mut request = match self.kind {
            Kind::KeyOverHttp2 => Request::get(format!("http://honest{path}")),
            _ => Request::get(path).header(HOST, "honest"),
        };
        match self.kind {
            Kind::Key => request = request.header("x-api-key", format!("honest-{}", self.number)),
            Kind::KeyOverHttp2 => request = request.header("x-api-key", format!("honest-2-{}", self.number)),
            Kind::Waiting => request = request.header("x-api-key", format!("honest-waiting-{}", self.number)),
            Kind::AddressBehindProxy => {
                request = request.header("x-forwarded-for", format!("198.51.100.{}", self.number));
            }
            Kind::Address => {}
        }
        Ok(request.body(Empty::new())?)
    }
}

enum Connection {
    Http1(http1::SendRequest<Empty<Bytes>>),
    Http2(http2::SendRequest<Empty<Bytes>>),
}

impl Connection {
    async fn send(&mut self, request: Request<Empty<Bytes>>) -> hyper::Result<Response<Incoming>> {
        match self {
            Connection::Http1(ready) => {
                ready.ready().await?;
                ready.send_request(request).await
            }
            Connection::Http2(ready) => {
                ready.ready().await?;
                ready.send_request(request).await
            }
        }
    }
}

/// Opens a connection from one of the loopback device's 16 million addresses.
pub async fn connect(from: Ipv4Addr, to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((from, 0).into())?;
    let stream = socket.connect(to).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}
