//! A redis-server of one's own.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tollgate::backend::RedisBackend;

use crate::ports::free_port;

/// A running server. It ends with the test that started it.
pub(crate) struct Server {
    child: Child,
    port: u16,
    directory: PathBuf,
    arguments: Vec<String>,
}

/// For a machine with better things to do.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Among the settings of a server: a free port.
pub(crate) const FREE: &str = "a free port";

const LOG: &str = "redis.log";

impl Server {
    /// Starts a server on a free port.
    pub(crate) fn start() -> Server {
        Server::with(&[])
    }

    /// Starts a server with these settings, as on its command line, where [`FREE`] is a free port.
    pub(crate) fn with(arguments: &[&str]) -> Server {
        // A port may be taken between looking and listening: by whoever else is on this machine.
        let server = (0..5).find_map(|_| Server::on_ports_of_now(arguments));
        server.unwrap_or_else(|| panic!("redis-server {arguments:?} does not start; its log is above"))
    }

    fn on_ports_of_now(arguments: &[&str]) -> Option<Server> {
        let port = free_port();
        let directory = std::env::temp_dir().join(format!("tollgate-redis-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let argument = |it: &&str| if *it == FREE { free_port().to_string() } else { (*it).to_owned() };
        let arguments: Vec<String> = arguments.iter().map(argument).collect();
        let child = spawn(port, &directory, &arguments);
        let mut server = Server { child, port, directory, arguments };
        server.wait_until_it_answers().then_some(server)
    }

    /// The value of a setting that it was started with.
    pub(crate) fn setting(&self, name: &str) -> &str {
        let at = self.arguments.iter().position(|argument| argument == name);
        at.and_then(|at| self.arguments.get(at + 1)).unwrap_or_else(|| panic!("started without {name}"))
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
        assert!(self.wait_until_it_answers(), "redis-server does not start again; its log is above");
    }

    /// Starts it again with more settings, and does not wait for it.
    pub(crate) fn restart_with(&mut self, arguments: &[&str]) {
        self.arguments.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        self.child = spawn(self.port, &self.directory, &self.arguments);
    }

    /// Where it would save.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether it does: not if it has ended.
    fn wait_until_it_answers(&mut self) -> bool {
        let begin = Instant::now();
        let client = redis::Client::open(self.url()).unwrap();
        let about = || {
            let mut connection = client.get_connection_with_timeout(PATIENCE)?;
            redis::cmd("INFO").arg("server").query::<String>(&mut connection)
        };
        // On a port that was taken somebody else's server may answer.
        let is_ours = format!("process_id:{}\r\n", self.pid());
        loop {
            let answer = about();
            if answer.as_ref().is_ok_and(|about| about.contains(&is_ours)) {
                return true;
            }
            if let Some(status) = self.child.try_wait().unwrap() {
                println!("redis-server on port {} has ended, {status}:\n{}", self.port, self.log());
                return false;
            }
            let (port, patient) = (self.port, begin.elapsed() < PATIENCE);
            assert!(patient, "no answer of our redis-server on port {port}: {answer:?}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join(LOG)).unwrap_or_else(|error| format!("no log: {error}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn spawn(port: u16, directory: &Path, arguments: &[String]) -> Child {
    let command = Command::new("redis-server")
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
        .arg("--dir")
        .arg(directory)
        .args(["--logfile", LOG])
        .args(arguments)
        .stdout(Stdio::null())
        .spawn();
    command.unwrap_or_else(|error| panic!("no redis-server: {error}. Install it: apt-get install redis-server"))
}
