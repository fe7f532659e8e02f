use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::running::{Example, LOCALHOST, TestResponse, send};

/// The running example and a copy of its file, which tests can change.
struct Running {
    example: Example,
    server: SocketAddr,
    operators: SocketAddr,
    file: PathBuf,
}

impl Running {
    fn start(name: &str) -> Running {
        let file = copy(name);
        let example = Example::start("config_file", &[file.to_str().unwrap()]);
        let (server, operators) = (example.address(), example.address());
        Running { example, server, operators, file }
    }

    /// Changes the file by replacing it with another file, as editors do.
    fn change(&self, old: &str, new: &str) {
        let text = std::fs::read_to_string(&self.file).unwrap();
        assert!(text.contains(old), "the file does not contain {old}");
        let other = self.file.with_extension("new");
        std::fs::write(&other, text.replace(old, new)).unwrap();
        std::fs::rename(other, &self.file).unwrap();
    }

    /// Requests a reload. Returns the response body, with the file's path replaced by `limits.toml`.
    async fn reload(&self, status: u16) -> String {
        let response = send(LOCALHOST, self.operators, "POST /reload", &[], "").await;
        assert_eq!(response.status(), status, "{response:?}");
        response.body.replace(self.file.to_str().unwrap(), "limits.toml")
    }

    async fn create(&self) -> TestResponse {
        send(LOCALHOST, self.server, "POST /todos", &[], "").await
    }
}

fn copy(name: &str) -> PathBuf {
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/config_file/limits.toml");
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.toml"));
    std::fs::write(&file, std::fs::read_to_string(ours).unwrap()).unwrap();
    file
}

#[tokio::test]
async fn routes_have_the_limits_from_the_file() {
    let running = Running::start("config_file_routes");
    let response = running.create().await;
    assert!(response.has(running.example.promised(r#"ratelimit-policy: "create";q=5;w=60"#)), "{response:?}");
    let response = send(LOCALHOST, running.server, "GET /todos", &[], "").await;
    assert!(response.has(running.example.promised(r#"ratelimit-policy: "default";q=60;w=60"#)), "{response:?}");
    let response = send(LOCALHOST, running.server, "GET /search", &["user-agent: GPTBot/1"], "").await;
    assert_eq!(response.status(), 429);
    // Only the operators' port accepts reload requests.
    assert_eq!(send(LOCALHOST, running.server, "POST /reload", &[], "").await.status(), 404);
}

#[tokio::test]
async fn a_reload_applies_the_changed_file_and_refills_nothing() {
    let running = Running::start("config_file_changed");
    assert_eq!(running.create().await.status(), 201);
    running.change("\"5/min\"", "\"3/min\"");
    assert!(
        running.create().await.has(r#"ratelimit-policy: "create";q=5;w=60"#),
        "the limit changed before the reload"
    );
    let report = running.reload(200).await;
    assert_eq!(report, running.example.promised("policies.create.quota: 5/min → 3/min\n"));
    let response = running.create().await;
    assert!(response.has(r#"ratelimit-policy: "create";q=3;w=60"#), "{response:?}");
    // Two of the three tokens had been spent before this request. On a slow machine, one might have been refilled.
    let r: u64 = response.value("ratelimit").unwrap().split("r=").nth(1).unwrap()[..1].parse().unwrap();
    assert!(r <= 1, "{response:?}");
    assert_eq!(running.example.line(), "policies.create.quota: 5/min → 3/min");
    assert_eq!(running.reload(200).await, "nothing has changed\n");
}

#[tokio::test]
async fn a_broken_file_changes_nothing_and_all_errors_are_reported() {
    let running = Running::start("config_file_broken");
    running.change("\"5/min\"", "\"3/mim\"");
    running.change("\"/search\" = \"search\"", "\"/search\" = \"saerch\"");
    running.change("[\"192.0.2.0/24\"]", "[\"127.0.0.0/8\"]");
    let report = running.reload(422).await;
    let promised = [
        "limits.toml: policies.create.quota: quota \"3/mim\": expected a period such as \"min\" or \"30s\", found \"mim\"; units: us ms s min h d w\n",
        "limits.toml: routes.\"/search\": unknown policy \"saerch\" (did you mean \"search\"?); known policies: \"create\", \"default\", \"search\"\n",
        "The limits are unchanged.\n",
    ];
    assert_eq!(report, promised.map(|line| running.example.promised(line)).concat());
    let response = running.create().await;
    assert!(response.status() == 201 && response.has(r#"ratelimit-policy: "create";q=5;w=60"#), "{response:?}");

    // The errors are corrected, but one change needs a restart, so nothing changes.
    running.change("3/mim", "3/min");
    running.change("\"saerch\"", "\"default\"");
    let report = running.reload(422).await;
    assert_eq!(
        report,
        "limits.toml: routes.\"/search\": \"search\" → \"default\"; restart the program to change it\n\
         The limits are unchanged.\n"
    );
    assert!(running.create().await.has(r#"ratelimit-policy: "create";q=5;w=60"#));

    // Now the whole file is correct, and its deny list covers the client's address.
    running.change("\"/search\" = \"default\"", "\"/search\" = \"search\"");
    assert_eq!(
        running.reload(200).await,
        "policies.create.quota: 5/min → 3/min\ndeny: added network 127.0.0.0/8\ndeny: removed network 192.0.2.0/24\n"
    );
    assert_eq!(running.create().await.status(), 429);
}

#[test]
fn the_server_does_not_start_with_a_broken_file() {
    let file = copy("config_file_start");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("\"60/min\"", "60")).unwrap();
    let mut example: PathBuf = std::env::current_exe().unwrap();
    example.pop();
    example.pop();
    example.push(format!("examples/config_file{}", std::env::consts::EXE_SUFFIX));
    let ended = Command::new(example).arg(&file).env("PORT", "0").output().unwrap();
    assert!(!ended.status.success());
    let report = String::from_utf8(ended.stderr).unwrap().replace(file.to_str().unwrap(), "limits.toml");
    assert_eq!(
        report,
        "limits.toml: policies.default.quota: expected a quota such as \"10/s burst 50\", or a table, found the number 60\n"
    );
}
