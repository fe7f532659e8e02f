//! A redis-server of one's own.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tollgate::backend::RedisBackend;

/// A running server. It ends with the test that started it.
pub(crate) struct Server {
    child: Child,
    port: u16,
    directory: PathBuf,
    arguments: Vec<String>,
}

/// For a machine with better things to do.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

impl Server {
    /// Starts a server on a free port.
    pub(crate) fn start() -> Server {
        Server::with(&[])
    }

    /// Starts a server with these settings, as on its command line.
    pub(crate) fn with(arguments: &[&str]) -> Server {
        let port = free_port();
        let directory = std::env::temp_dir().join(format!("tollgate-redis-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let child = spawn(port, &directory, &arguments);
        let server = Server { child, port, directory, arguments };
        server.wait_until_it_answers();
        server
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) async fn backend(&self) -> RedisBackend {
        RedisBackend::builder().deadline(PATIENCE).connect(&self.url()).await.unwrap()
    }

    /// A plain connection, for looking at what is there and for breaking it.
    pub(crate) fn admin(&self) -> redis::Connection {
        redis::Client::open(self.url()).unwrap().get_connection_with_timeout(PATIENCE).unwrap()
    }

    /// Sends it a signal: `STOP`, `CONT`.
    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("sh").arg("-c").arg(format!("kill -{name} {}", self.pid())).status().unwrap();
        assert!(status.success());
    }

    /// Ends it as a power cut does.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again, on the same port.
    pub(crate) fn restart(&mut self) {
        self.restart_with(&[]);
        self.wait_until_it_answers();
    }

    /// Starts it again with more settings, and does not wait for it.
    pub(crate) fn restart_with(&mut self, arguments: &[&str]) {
        self.arguments.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        self.child = spawn(self.port, &self.directory, &self.arguments);
    }

    /// Where it would save.
    pub(crate) fn directory(&self) -> &std::path::Path {
        &self.directory
    }

    fn wait_until_it_answers(&self) {
        let begin = Instant::now();
        let client = redis::Client::open(self.url()).unwrap();
        while let Err(error) =
            client.get_connection_with_timeout(PATIENCE).and_then(|mut it| redis::cmd("PING").query::<String>(&mut it))
        {
            assert!(begin.elapsed() < PATIENCE, "redis-server on port {} does not answer: {error}", self.port);
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Free until somebody takes it, which on a test machine is us.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn spawn(port: u16, directory: &std::path::Path, arguments: &[String]) -> Child {
    let command = Command::new("redis-server")
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
        .arg("--dir")
        .arg(directory)
        .args(arguments)
        .stdout(Stdio::null())
        .spawn();
    command.unwrap_or_else(|error| panic!("no redis-server: {error}. Install it: apt-get install redis-server"))
}
