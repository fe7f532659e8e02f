//! The admin router of a child process, and its effects on the parent process. Both processes use the same Redis
//! server, and both run this test program.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use serde_json::{Value, json};
use tollgate::admin::{Admin, Operator, bearer_tokens};
use tollgate::backend::RedisBackend;
use tollgate::observe::Top;
use tollgate::{HOUR, Policy, Quota, RateLimiter, Reason, Subject};

use crate::support::server::{PATIENCE, Server};

/// The environment variable that contains the Redis server's URL.
const CHILD: &str = "TOLLGATE_TEST_ADMIN_CHILD";

const TOKEN: &str = "the token of the operator ada";

/// Twice the documented delay, because the machine may be busy.
const MAX_DELAY: Duration = Duration::from_secs(60);

fn policy() -> Policy {
    Policy::new("api", Quota::token_bucket(10, HOUR)).tier("premium", Quota::token_bucket(50, HOUR))
}

/// The child process runs this test. In any other process, the test does nothing.
#[tokio::test]
async fn child() {
    let Ok(url) = std::env::var(CHILD) else { return };
    let top = Arc::new(Top::new());
    let backend = RedisBackend::builder().deadline(PATIENCE).connect(url.as_str()).await.unwrap();
    let limiter = RateLimiter::builder(backend).observer(Arc::clone(&top)).build();
    let admin = Admin::new(&limiter, bearer_tokens([(TOKEN, Operator::editor("ada"))])).policies([&policy()]).top(&top);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("address={};", listener.local_addr().unwrap());
    let app = Router::new().nest("/admin", admin.into_router());
    // The parent process kills this process.
    drop(tokio::time::timeout(Duration::from_secs(120), axum::serve(listener, app).into_future()).await);
}

struct AdminProcess {
    child: Child,
    address: SocketAddr,
}

impl AdminProcess {
    fn start(server: &Server) -> AdminProcess {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["redis::admin::child", "--exact", "--nocapture"]).env(CHILD, server.url()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = lines.map_while(Result::ok).find(|line| line.contains("address=")).unwrap();
        let address = line.split("address=").nth(1).unwrap().split(';').next().unwrap().parse().unwrap();
        AdminProcess { child, address }
    }

    fn send(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let length = body.len();
        let head =
            format!("{method} /admin/{path} HTTP/1.0\r\nhost: {}\r\nauthorization: Bearer {TOKEN}", self.address);
        let fields = format!("content-type: application/json\r\ncontent-length: {length}");
        write!(stream, "{head}\r\n{fields}\r\n\r\n{body}").unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        (head[9..12].parse().unwrap(), serde_json::from_str(body).unwrap())
    }

    fn get(&self, path: &str) -> Value {
        let (status, body) = self.send("GET", path, "");
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    /// Makes a change that takes effect in all processes.
    fn change(&self, path: &str, body: &Value) {
        let (status, answer) = self.send("POST", path, &body.to_string());
        assert_eq!((status, &answer["scope"]), (200, &json!("all_processes")), "{path} {body}: {answer}");
    }
}

impl Drop for AdminProcess {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

async fn wait_until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let begin = Instant::now();
    while !condition().await {
        assert!(begin.elapsed() < MAX_DELAY, "expected the change to take effect within {MAX_DELAY:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_router_can_inspect_and_change_the_limits_of_another_process() {
    let server = Server::start();
    let admin = AdminProcess::start(&server);
    let (limiter, api) = (RateLimiter::new(server.backend().await), policy());
    let premium = || Subject::new("ada").tier("premium");
    limiter.acquire(&api, premium()).cost(50).await.unwrap();
    assert_eq!(limiter.try_limit(&api, premium()).await.unwrap().reason(), Reason::QuotaExceeded);

    let answer = admin.get("key?key=%22ada%22&policy=api");
    let expected = json!({"rows": "all_processes", "blocks": "all_processes", "deny_list": "this_process"});
    assert_eq!(answer["scope"], expected);
    let found = &answer["policies"][0];
    assert_eq!((&found["tier"], &found["allowed"]), (&json!("premium"), &json!(false)), "{found}");
    assert_eq!((&found["windows"][0]["spent"], &found["windows"][0]["left"]), (&json!(50), &json!(0)));
    let top = admin.get("top");
    assert_eq!((&top["scope"], &top["policies"][0]["requested"]["total"]), (&json!("this_process"), &json!(0)));

    // The limiter may cache the denial for up to a second.
    admin.change("reset", &json!({"policy": "api", "key": "\"ada\""}));
    wait_until("reset", async || limiter.remaining(&api, premium()).await.unwrap() == 50).await;
    wait_until("allowed again", async || limiter.try_limit(&api, premium()).await.unwrap().is_allowed()).await;

    admin.change("block", &json!({"key": "\"ada\"", "lasts": "1h"}));
    let reason = async || limiter.try_check(&api, premium()).await.unwrap().reason();
    wait_until("blocked", async || reason().await == Reason::Blocked).await;
    let block = admin.get("blocks")["blocks"][0].clone();
    assert_eq!(block["key"], format!("digest:{:?}", limiter.digest(Some(&"ada".into()))));
    admin.change("unblock", &json!({"key": block["key"]}));
    wait_until("unblocked", async || reason().await == Reason::WithinQuota).await;

    admin.change("quota", &json!({"policy": "api", "tier": "premium", "quota": "70/h"}));
    wait_until("quota", async || limiter.quotas(&api, premium())[0].get_capacity() == 70).await;
    admin.change("enforcement", &json!({"policy": "api", "enforce": 0}));
    wait_until("enforcement", async || limiter.enforcement(&api) == tollgate::policy::Enforce::Never).await;
    limiter.acquire(&api, premium()).cost(30).await.unwrap();
    admin.change("credit", &json!({"policy": "api", "key": "\"ada\"", "tokens": 10}));
    let policies = admin.get("policies");
    assert_eq!(policies["scope"], json!({"settings": "all_processes", "rows": "this_process"}));
    assert_eq!(policies["policies"][0]["rows"], Value::Null);
    assert_eq!(policies["policies"][0]["tiers"][0]["set_quotas"], "70/h");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_router_returns_503_if_the_server_is_down() {
    let mut server = Server::start();
    let admin = AdminProcess::start(&server);
    server.kill();
    for (method, path, body) in [("GET", "key?key=7", ""), ("POST", "reset", r#"{"policy":"api","key":"7"}"#)] {
        let (status, problem) = admin.send(method, path, body);
        let detail = problem["detail"].as_str().unwrap();
        assert!(status == 503 && detail.starts_with("the backend failed: "), "{method} {path}: {status} {detail}");
    }
    assert_eq!(admin.send("GET", "top", "").0, 200, "the process's own data must be available without the server");
}
