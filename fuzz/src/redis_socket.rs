//! [`redis_server`](crate::redis_server) once more, over real sockets and in real time: a hundred inputs a second, so only
//! the kept ones are run (`tests/replay.rs`).

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::task::LocalSet;
use tokio::time::timeout;
use tollgate::backend::RedisBackend;
use tollgate::{Policy, Quota, RateLimiter, Signal};

static API: Policy = Policy::new("api", Quota::token_bucket(10, Duration::from_secs(60)));

/// Reads `data` as [`redis_server::one`](crate::redis_server::one) does.
pub fn one(data: &[u8]) {
    let Some((shape, said)) = data.split_first() else { return };
    SERVER.with(|server| server.run(*shape, said.split(|byte| *byte == b'|').map(<[u8]>::to_vec).collect()));
}

thread_local! {
    static SERVER: Server = Server::new();
}

struct Server {
    runtime: Runtime,
    tasks: RefCell<LocalSet>,
    url: String,
    script: Rc<RefCell<Script>>,
}

#[derive(Default)]
struct Script {
    is_polite: bool,
    pieces: Vec<Vec<u8>>,
}

impl Server {
    fn new() -> Server {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
        let url = format!("redis://{}", listener.local_addr().expect("an address"));
        let (tasks, script) = (LocalSet::new(), Rc::new(RefCell::new(Script::default())));
        let told = Rc::clone(&script);
        tasks.spawn_local(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::task::spawn_local(mislead(socket, Rc::clone(&told)));
            }
        });
        Server { runtime, tasks: RefCell::new(tasks), url, script }
    }

    fn run(&self, shape: u8, pieces: Vec<Vec<u8>>) {
        *self.script.borrow_mut() = Script { is_polite: shape & 1 == 0, pieces };
        let asked = async {
            let notices = if shape & 2 == 0 { Duration::ZERO } else { Duration::from_secs(3600) };
            let backend = RedisBackend::builder().deadline(DEADLINE).notices_every(notices).lazy();
            let backend = backend.connect(&self.url).await.expect("an address");
            let limiter = RateLimiter::new(backend);
            for i in 0..=shape >> 2 & 3 {
                let answer = match shape >> (4 + i) & 1 {
                    0 => limiter.limit(&API, u64::from(i)).await.map(|decision| {
                        assert!(decision.remaining() <= decision.limit(), "{decision:?}");
                    }),
                    _ => limiter.block(Signal::key(u64::from(i)), Duration::from_secs(60)).await.map(|_| ()),
                };
                if let Err(error) = answer {
                    assert!(!error.to_string().is_empty(), "{error:?}");
                }
            }
        };
        self.runtime.block_on(self.tasks.borrow_mut().run_until(asked));
    }
}

/// Answers each thing heard with the next piece, and hangs up behind the last one.
async fn mislead(mut socket: TcpStream, script: Rc<RefCell<Script>>) {
    let (is_polite, pieces) = {
        let script = script.borrow();
        (script.is_polite, script.pieces.clone())
    };
    let mut heard = [0; 16 * 1024];
    let _ = socket.set_nodelay(true);
    let begun = Cell::new(!is_polite);
    let mut pieces = pieces.into_iter();
    loop {
        // Whoever waits for the rest of a piece says nothing more: so the next piece follows by itself.
        let length = match timeout(PAUSE, socket.read(&mut heard)).await {
            Ok(Ok(0) | Err(_)) => return,
            Ok(Ok(length)) => length,
            Err(_) => 0,
        };
        let asked = String::from_utf8_lossy(&heard[..length]);
        if !begun.replace(true) {
            let greeted = asked.matches("SETINFO").count();
            if greeted > 0 && socket.write_all(&b"+OK\r\n".repeat(greeted)).await.is_ok() && !asked.contains("EVAL") {
                continue;
            }
        }
        let Some(piece) = pieces.next() else { return };
        let is_last = pieces.len() == 0;
        if socket.write_all(&piece).await.is_err() || is_last {
            return;
        }
    }
}

/// Nobody waits longer for a decision.
const DEADLINE: Duration = Duration::from_millis(20);

const PAUSE: Duration = Duration::from_millis(2);
