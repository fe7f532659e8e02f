//! A service with the admin router, for testing the commands.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Output};
use std::sync::Arc;

use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use tokio::runtime::Runtime;
use tollgate::admin::{Admin, Operator, bearer_tokens};
use tollgate::observe::Top;
use tollgate::{HOUR, MemoryBackend, Policy, Quota, RateLimitLayer, RateLimiter, key};

pub const TOKEN: &str = "correct-horse-battery";
pub const READER: &str = "a token that may only read";

/// A running service that allows five requests per hour for each name, so no token is refilled during a test. The
/// service stops when this value is dropped.
pub struct Service {
    _runtime: Runtime,
    pub limiter: RateLimiter,
    pub policy: Policy,
    pub address: SocketAddr,
}

impl Service {
    pub fn start() -> Service {
        Service::start_at("127.0.0.1:0")
    }

    pub fn start_at(address: &str) -> Service {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let policy = Policy::new("hello", Quota::token_bucket(5, HOUR)).tier("premium", Quota::token_bucket(50, HOUR));
        let top = Arc::new(Top::new().show_keys([&policy]));
        let limiter = RateLimiter::builder(MemoryBackend::new()).observer(Arc::clone(&top)).build();
        let layer = RateLimitLayer::new(&policy, key::path("name")).limiter(&limiter);
        let operators = [(TOKEN, Operator::editor("ops")), (READER, Operator::reader("eve"))];
        let admin = Admin::new(&limiter, bearer_tokens(operators)).layer(&layer).top(&top);
        let hello = get(|Path(name): Path<String>| async move { name }).layer(layer);
        let app = Router::new().route("/hello/{name}", hello).nest("/admin/limits", admin.into_router());
        let listener = runtime.block_on(tokio::net::TcpListener::bind(address)).unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(axum::serve(listener, app).into_future());
        Service { _runtime: runtime, limiter, policy, address }
    }

    pub fn url(&self) -> String {
        format!("http://{}/admin/limits", self.address)
    }

    /// Sends requests under this name.
    pub fn request(&self, name: &str, times: usize) {
        for _ in 0..times {
            let mut stream = TcpStream::connect(self.address).unwrap();
            write!(stream, "GET /hello/{name} HTTP/1.0\r\nhost: x\r\n\r\n").unwrap();
            stream.read_to_string(&mut String::new()).unwrap();
        }
    }

    /// Runs the command with the editor's token, and returns its exit code, output and errors.
    pub fn tollgate(&self, arguments: &[&str]) -> (i32, String, String) {
        run(Command::new(env!("CARGO_BIN_EXE_tollgate"))
            .args(arguments)
            .env("TOLLGATE_ADMIN_URL", self.url())
            .env("TOLLGATE_ADMIN_TOKEN", TOKEN))
    }
}

pub fn run(command: &mut Command) -> (i32, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}
