//! TLS connections (`rediss://`).

use std::process::Command;

use tollgate::backend::RedisBackend;
use tollgate::{HOUR, Policy, Quota, RateLimiter};

use crate::support::server::{FREE, Server, applies, has_tls};

static SLOW: Policy = Policy::new("slow", Quota::token_bucket(5, HOUR));

/// The environment variable that contains the server's URL in the child process.
const CHILD: &str = "TOLLGATE_TEST_TLS";

#[test]
fn tls_connections_require_a_trusted_certificate() {
    if !applies("redis::tls::tls_connections_require_a_trusted_certificate", has_tls()) {
        return;
    }
    let directory = directory();
    let openssl = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"])
        .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .args(["-keyout", "key.pem", "-out", "cert.pem"])
        .current_dir(&directory)
        .output()
        .unwrap_or_else(|error| panic!("cannot run openssl: {error}. Install it (apt-get install openssl)"));
    assert!(openssl.status.success(), "{openssl:?}");
    let path = |name: &str| directory.join(name).to_str().unwrap().to_owned();
    let (cert, key) = (path("cert.pem"), path("key.pem"));
    let server = Server::with(&[
        "--tls-port",
        FREE,
        "--tls-cert-file",
        &cert,
        "--tls-key-file",
        &key,
        "--tls-ca-cert-file",
        &cert,
        "--tls-auth-clients",
        "no",
    ]);
    let run = |trusted: &str| {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["redis::tls::child", "--exact", "--nocapture"]).env("SSL_CERT_FILE", trusted);
        child.env(CHILD, format!("rediss://localhost:{}", server.setting("--tls-port"))).output().unwrap()
    };
    let output = run(&cert);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("admitted=5;"), "{text}");
    let output = run(&path("nothing.pem"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("refused: backend"), "{text}");
    let _ = std::fs::remove_dir_all(directory);
}

/// The child process runs this test. In any other process, the test does nothing.
#[tokio::test]
async fn child() {
    let Ok(url) = std::env::var(CHILD) else { return };
    let backend = match RedisBackend::connect(&url).await {
        Ok(backend) => backend,
        Err(error) => return println!("refused: {error}"),
    };
    let limiter = RateLimiter::new(backend);
    let mut admitted = 0;
    for _ in 0..8 {
        admitted += u32::from(limiter.try_limit(&SLOW, "ada").await.unwrap().is_allowed());
    }
    println!("admitted={admitted};");
}

fn directory() -> std::path::PathBuf {
    let directory = std::env::temp_dir().join(format!("tollgate-tls-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    directory
}
