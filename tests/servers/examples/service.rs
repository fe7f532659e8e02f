use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::running::{Example, LOCALHOST, TestResponse, send, statuses};

const ADA: &str = "authorization: Bearer ada";
const BOB: &str = "authorization: Bearer bob";
const EVE: &str = "authorization: Bearer eve";
const KIM: &str = "authorization: Bearer kim";

struct Service {
    example: Example,
    server: SocketAddr,
}

impl Service {
    fn start() -> Service {
        let example = Example::start("service", &[]);
        let server = example.address();
        Service { example, server }
    }

    async fn get(&self, path: &str, headers: &[&str]) -> TestResponse {
        send(LOCALHOST, self.server, &format!("GET {path}"), headers, "").await
    }
}

/// Returns the remaining tokens of a policy, as reported in the headers.
fn left(response: &TestResponse, policy: &str) -> Option<u64> {
    let item =
        response.lines("ratelimit").find_map(|line| line.strip_prefix(&format!("{policy:?};r=")).map(str::to_owned))?;
    item.split(';').next()?.parse().ok()
}

#[tokio::test]
async fn each_route_and_caller_has_the_limits_from_the_file() {
    let service = Service::start();
    let get = async |path: &str, headers: &[&str]| service.get(path, headers).await;

    // After one other request, an anonymous caller can make one export, but not a second one.
    let hello = get("/", &[]).await;
    assert_eq!((hello.status(), left(&hello, "api"), left(&hello, "exports")), (200, Some(11), None));
    assert_eq!((left(&hello, "strangers"), left(&hello, "service")), (Some(99), Some(999)));
    let export = get("/export", &[]).await;
    assert_eq!((export.body.as_str(), left(&export, "api")), (service.example.promised("all of it\n"), Some(1)));
    // The route's cost applies only to the route's policies.
    assert_eq!(left(&export, "strangers"), Some(98));
    let refused = get("/export", &[]).await;
    assert_eq!((refused.status(), refused.value("content-type")), (429, Some("application/json")));
    let body: serde_json::Value = serde_json::from_str(&refused.body).unwrap();
    assert_eq!(body["retry_in"], refused.number("retry-after"));
    assert_eq!(get("/me", &[]).await.body, "1 left\n");

    // Users have the quota of their plan, and the members of a team share one quota for exports.
    let ada = get("/export", &[ADA]).await;
    assert_eq!((left(&ada, "api"), left(&ada, "exports"), left(&ada, "strangers")), (Some(20), Some(40), None));
    assert_eq!(get("/me", &[ADA]).await.body, service.example.promised("20 left\n"));
    let bob = get("/export", &[BOB]).await;
    assert_eq!((left(&bob, "api"), left(&bob, "exports")), (Some(20), Some(30)));
    let eve = get("/export", &[EVE]).await;
    assert_eq!((left(&eve, "api"), left(&eve, "exports")), (Some(290), Some(40)));
    // Once the team's quota is spent, further exports are refused without charging the member.
    for (user, status) in [(ADA, 200), (ADA, 200), (BOB, 200), (BOB, 429)] {
        assert_eq!(get("/export", &[user]).await.status(), status);
    }
    assert_eq!(get("/me", &[BOB]).await.body, "10 left\n");

    // Only the limit for the whole service applies to admins.
    let admin = get("/export", &[KIM]).await;
    assert!(admin.status() == 200 && left(&admin, "api").is_none() && left(&admin, "exports").is_none(), "{admin:?}");
    assert_eq!(get("/me", &[KIM]).await.body, "no limit\n");
    assert_eq!(get("/", &["user-agent: GPTBot/1"]).await.status(), 429);
}

#[tokio::test]
async fn searches_wait_instead_of_being_refused() {
    let service = Service::start();
    let began = Instant::now();
    for _ in 0..3 {
        assert_eq!(service.get("/search", &[EVE]).await.status(), 200);
    }
    assert!(began.elapsed() >= Duration::from_millis(390), "{:?}", began.elapsed());
}

#[tokio::test]
async fn an_address_that_guesses_tokens_is_refused_and_then_blocked() {
    let service = Service::start();
    let guesser = Ipv4Addr::new(127, 0, 0, 2);
    let guess = async || send(guesser, service.server, "GET /", &["authorization: Bearer guess"], "").await;
    let mut wrong = 0;
    let mut response = guess().await;
    while response.status() == 401 {
        wrong += 1;
        response = guess().await;
    }
    // On a slow machine, the bucket can refill slightly during the loop.
    assert!((100..=105).contains(&wrong), "{wrong} guesses");
    assert!(response.status() == 429 && response.number("retry-after") < 60, "{response:?}");
    for _ in 0..25 {
        response = guess().await;
    }
    assert!(response.status() == 429 && response.number("retry-after") > 3500, "{response:?}");
    // Customers at the same address, and strangers elsewhere, are not affected.
    assert_eq!(send(guesser, service.server, "GET /", &[ADA], "").await.status(), 200);
    assert_eq!(statuses(1, service.server, "GET /", &[]).await, "200");
}

#[test]
fn the_server_reports_every_error_in_an_invalid_file() {
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/service/limits.toml");
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("service_broken.toml");
    let text = std::fs::read_to_string(ours).unwrap();
    let text = text.replace("key = \"team\"", "key = \"taem\"").replace("\"api\", \"search\"", "\"api\", \"serach\"");
    std::fs::write(&file, text.replace("wait = ", "waits = ")).unwrap();
    let mut example: PathBuf = std::env::current_exe().unwrap();
    example.pop();
    example.pop();
    example.push(format!("examples/service{}", std::env::consts::EXE_SUFFIX));
    let ended = Command::new(example).arg(&file).env("PORT", "0").output().unwrap();
    assert!(!ended.status.success());
    let report = String::from_utf8(ended.stderr).unwrap().replace(file.to_str().unwrap(), "limits.toml");
    assert_eq!(
        report,
        "\
limits.toml: policies.exports.key: unknown key \"taem\" (did you mean \"team\"?); known keys: \"caller\", \"global\", \
         \"stranger\", \"team\". Programs register keys with `ConfigReader::key`
limits.toml: policies.search.waits: unknown field (did you mean \"wait\"?); known fields: \"cost\", \"enforce\", \"key\", \"leases\", \"quota\", \
         \"shadow\", \"tiers\", \"wait\"
limits.toml: routes.\"/search\"[1]: unknown policy \"serach\" (did you mean \"search\"?); known policies: \"api\", \
         \"exports\", \"search\", \"service\", \"strangers\"
"
    );
}
