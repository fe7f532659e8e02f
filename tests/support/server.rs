//! A Redis server for tests: the installed `redis-server`, or the program that `TOLLGATE_REDIS_SERVER` names.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use tollgate::backend::RedisBackend;

use super::ports::free_port;

/// A running server. Dropping this value stops the server.
pub(crate) struct Server {
    child: Child,
    port: u16,
    directory: PathBuf,
    arguments: Vec<String>,
}

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A placeholder for a free port in the settings of a server.
pub(crate) const FREE: &str = "a free port";

const LOG: &str = "redis.log";

impl Server {
    pub(crate) fn start() -> Server {
        Server::with(&[])
    }

    /// Starts a server with these command-line settings. Replaces [`FREE`] with a free port.
    pub(crate) fn with(arguments: &[&str]) -> Server {
        // Try several times, because another process might take the port before the server listens on it.
        let server = (0..5).find_map(|_| Server::try_start(arguments));
        server.unwrap_or_else(|| panic!("redis-server {arguments:?} failed to start; see its log above"))
    }

    fn try_start(arguments: &[&str]) -> Option<Server> {
        let port = free_port();
        let directory = std::env::temp_dir().join(format!("tollgate-redis-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let argument = |it: &&str| if *it == FREE { free_port().to_string() } else { (*it).to_owned() };
        let arguments: Vec<String> = arguments.iter().map(argument).collect();
        let child = spawn(port, &directory, &arguments);
        let mut server = Server { child, port, directory, arguments };
        server.wait_until_ready().then_some(server)
    }

    pub(crate) fn setting(&self, name: &str) -> &str {
        let at = self.arguments.iter().position(|argument| argument == name);
        at.and_then(|at| self.arguments.get(at + 1)).unwrap_or_else(|| panic!("the server was started without {name}"))
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

    pub(crate) fn admin(&self) -> redis::Connection {
        redis::Client::open(self.url()).unwrap().get_connection_with_timeout(PATIENCE).unwrap()
    }

    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("sh").arg("-c").arg(format!("kill -{name} {}", self.pid())).status().unwrap();
        assert!(status.success());
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn restart(&mut self) {
        self.restart_with(&[]);
        assert!(self.wait_until_ready(), "redis-server failed to restart; see its log above");
    }

    /// Restarts the server with additional settings. Does not wait until the server replies.
    pub(crate) fn restart_with(&mut self, arguments: &[&str]) {
        self.arguments.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        self.child = spawn(self.port, &self.directory, &self.arguments);
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Waits until the server replies. Returns `false` if the server has exited.
    fn wait_until_ready(&mut self) -> bool {
        let begin = Instant::now();
        let client = redis::Client::open(self.url()).unwrap();
        let about = || {
            let mut connection = client.get_connection_with_timeout(PATIENCE)?;
            redis::cmd("INFO").arg("server").query::<String>(&mut connection)
        };
        // The server of another process might be replying on this port.
        let is_ours = format!("process_id:{}\r\n", self.pid());
        loop {
            let answer = about();
            if answer.as_ref().is_ok_and(|about| about.contains(&is_ours)) {
                return true;
            }
            if let Some(status) = self.child.try_wait().unwrap() {
                println!("redis-server on port {} exited ({status}):\n{}", self.port, self.log());
                return false;
            }
            let (port, patient) = (self.port, begin.elapsed() < PATIENCE);
            assert!(patient, "no reply from our redis-server on port {port}: {answer:?}\n{}", self.log());
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
    // Create an empty file, because a Sentinel does not start without a writable settings file.
    let settings = directory.join("settings.conf");
    std::fs::OpenOptions::new().append(true).create(true).open(&settings).unwrap();
    let command = Command::new(program())
        .arg(settings)
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
        .arg("--dir")
        .arg(directory)
        .args(["--logfile", LOG])
        .args(arguments)
        .stdout(Stdio::null())
        .spawn();
    command.unwrap_or_else(|error| missing(&error))
}

fn program() -> OsString {
    std::env::var_os(VARIABLE).unwrap_or_else(|| "redis-server".into())
}

fn missing(error: &std::io::Error) -> ! {
    let program = program();
    panic!("cannot start {program:?}: {error}. Install Redis (apt-get install redis-server), or correct {VARIABLE}")
}

const VARIABLE: &str = "TOLLGATE_REDIS_SERVER";

/// The version line, such as `Redis server v=7.0.15 sha=...` or `Valkey server v=9.1.2 sha=...`.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let output = Command::new(program()).arg("--version").output().unwrap_or_else(|error| missing(&error));
    String::from_utf8(output.stdout).unwrap()
});

/// Redis 6 lacks the settings `cluster-port` and `enable-debug-command`.
pub(crate) fn is_redis_6() -> bool {
    VERSION.starts_with("Redis server v=6.")
}

/// Redis 7.0 lacks `CLIENT SETINFO`, and rejects an ACL rule that allows this command.
pub(crate) fn is_redis_7_0() -> bool {
    VERSION.starts_with("Redis server v=7.0.")
}

/// Returns whether the server supports TLS. Starts the server without certificates, so the server always exits.
#[cfg(feature = "redis-tls")]
pub(crate) fn has_tls() -> bool {
    let output = Command::new(program()).args(["--port", "0", "--tls-port", "1", "--save", ""]).output();
    let output = output.unwrap_or_else(|error| missing(&error));
    assert!(!output.status.success(), "the server must not start without certificates");
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    !["Failed finding TLS support", "Bad directive"].iter().any(|refusal| text.contains(refusal))
}

/// The tests that do not apply to every server, each with the reason.
#[cfg(feature = "redis-tls")]
const OPTIONAL_TESTS: [(&str, &str); 1] =
    [("redis::tls::tls_connections_require_a_trusted_certificate", "this server was built without TLS")];

/// Returns whether a test applies to this server. If not, prints the test's name and the reason. Panics instead if the
/// server is the installed one, to which all tests must apply.
#[cfg(feature = "redis-tls")]
pub(crate) fn applies(test: &str, is_supported: bool) -> bool {
    if !is_supported {
        let (_, why) = OPTIONAL_TESTS.iter().find(|(name, _)| *name == test).expect("expected an optional test");
        assert!(std::env::var_os(VARIABLE).is_some(), "{test}: {why}");
        // Write directly to `stderr`, because the test harness captures the output of `eprintln!`.
        use std::io::Write;
        let mut output = std::io::stderr();
        writeln!(output, "{test} does not apply: {why}: {}", VERSION.trim()).unwrap();
    }
    is_supported
}
