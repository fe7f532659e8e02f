//! The commands as a shell runs them: output, errors and exit codes.

use std::path::PathBuf;
use std::process::{Command, Output};

fn tollgate(arguments: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } =
        Command::new(env!("CARGO_BIN_EXE_tollgate")).args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

fn file(folder: &tempfile::TempDir, name: &str, text: &str) -> String {
    let path: PathBuf = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

const OLD: &str = r#"
    default = "api"
    [policies.api]
    quota = "10/min"
    tiers = { premium = "100/min burst 200" }
    [policies.search]
    quota = "2/min"
    [routes]
    "GET /search/{topic}" = "search"
"#;

/// 15 requests from `192.0.2.1` and 5 requests (4 searches) from `192.0.2.2`, all in the same second.
fn log() -> String {
    let line = |host: u8, path: &str| {
        format!("192.0.2.{host} - - [01/Jan/2026:00:00:00 +0000] \"GET {path} HTTP/1.1\" 200 1 \"-\" \"-\"\n")
    };
    let searches = (0..4).map(|i| line(2, &format!("/search/{i}")));
    (0..15).map(|_| line(1, "/x")).chain(searches).chain([line(2, "/x")]).collect()
}

#[test]
fn a_configuration_is_checked() {
    let folder = tempfile::tempdir().unwrap();
    let (code, out, _) = tollgate(&["check", &file(&folder, "limits.toml", OLD)]);
    assert_eq!(code, 0);
    let expected = "policy api\n  no tier: 10/min\n  tier \"premium\": 100/min burst 200\npolicy search\n  no tier: 2/min\n\
                    route GET /search/{topic}: search\nother routes: api\n";
    assert_eq!(out, expected);
    let broken = OLD.replace("10/min", "10/minuet").replace("= \"search\"", "= \"serch\"");
    let (code, out, error) = tollgate(&["check", &file(&folder, "broken.toml", &broken)]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(error.contains("policies.api.quota") && error.contains("did you mean \"search\"?"), "{error}");
}

/// A known fault. Right: `route /health: no limits`, and `/health` in the JSON. `/health` is not among the other routes.
/// Cause: `Config::routes` in the crate's `src/config/mod.rs` returns a line once for each policy, and thus never.
#[test]
fn fault_20_check_hides_a_route_without_limits() {
    let folder = tempfile::tempdir().unwrap();
    let text = "default = \"api\"\n[policies.api]\nquota = \"10/min\"\n[routes]\n\"/health\" = []\n";
    let limits = file(&folder, "limits.toml", text);
    let (code, out, error) = tollgate(&["check", &limits]);
    let expected = "policy api\n  no tier: 10/min\nother routes: api\n";
    assert_eq!((code, &*out, &*error), (0, expected, ""));
    let (_, json, _) = tollgate(&["check", &limits, "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["routes"], &json["other_routes"]), (&serde_json::json!([]), &serde_json::json!(["api"])));
}

#[test]
fn settings_without_effect_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let text = r#"
        default = "api"
        all_routes = ["daily"]
        [policies.api]
        quota = ["10/s", "100000/h fixed"]
        tiers = { free = ["10/s", "100000/h fixed"], premium = ["10/s", "1000/h fixed"] }
        [policies.daily]
        quota = "1000/d"
        enforce = 0.25
        [policies.unused]
        quota = ["1/min sliding", "5000/d"]
        [policies.search]
        quota = "5/s"
        [routes]
        "GET /search" = "search"
        "/{*rest}" = "search"
        [deny]
        ips = ["10.1.0.0/16", "10.0.0.0/8", "2001:db8::/32", "10.200.3.4", "11.0.0.0/8"]
    "#;
    let (code, out, _) = tollgate(&["check", &file(&folder, "limits.toml", text)]);
    assert_eq!(code, 0);
    let notes: Vec<&str> = out.lines().filter_map(|line| line.strip_prefix("no effect: ")).collect();
    assert_eq!(
        notes,
        [
            "policy api: 100000/h fixed never denies a request, because 10/s never admits that many",
            "policy api: the tier \"free\" has the same quotas as callers without a tier",
            "policy api, tier \"free\": 100000/h fixed never denies a request, because 10/s never admits that many",
            "no request falls under the policy unused; add it to `routes`, `default` or `all_routes`",
            "policy unused: 5000/d never denies a request, because 1/min sliding never admits that many",
            "`default` (api) applies only to the path /, because the route /{*rest} matches all others",
            "the deny rule for 10.1.0.0/16, because the rule for 10.0.0.0/8 includes it",
            "the deny rule for 10.200.3.4/32, because the rule for 10.0.0.0/8 includes it",
        ]
    );
    for line in ["all routes: daily\n", "deny list: 5 rules\n", "  enforced for 25% of the keys\n"] {
        assert!(out.contains(line), "{out}");
    }
    let (_, json, _) = tollgate(&["check", &file(&folder, "limits.toml", text), "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((json["no_effect"].as_array().unwrap().len(), &json["all_routes"][0]), (8, &"daily".into()));
}

#[test]
fn the_routes_of_a_configuration_apply_to_the_paths_in_a_log() {
    let folder = tempfile::tempdir().unwrap();
    let (limits, log) = (file(&folder, "limits.toml", OLD), file(&folder, "access.log", &log()));
    let (code, out, error) = tollgate(&["simulate", &log, "--config", &limits, "--json"]);
    assert_eq!((code, error.as_str()), (0, ""));
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    let worst = &report["limits"][0]["worst_callers"];
    assert_eq!((&worst[0]["caller"], &worst[0]["refused"]), (&"192.0.2.1".into(), &5.into()));
    assert_eq!((&worst[1]["caller"], &worst[1]["refused"]), (&"192.0.2.2".into(), &2.into()));
}

/// Regression: all waiting requests were polled for every line, which took minutes.
#[test]
fn many_waiting_requests_are_simulated_quickly() {
    let folder = tempfile::tempdir().unwrap();
    let quota = "{ rate = 1, period = \"1 s\", max_reserved = 20_000 }";
    let config = format!("default = \"api\"\n[policies.api]\nquota = {quota}\nwait = \"6 h\"\n");
    let lines = (0..9_000).map(|i| {
        let second = i / 1000;
        format!("192.0.2.1 - - [01/Jan/2026:00:00:0{second} +0000] \"GET / HTTP/1.1\" 200 1 \"-\" \"-\"\n")
    });
    let (config, log) = (file(&folder, "wait.toml", &config), file(&folder, "access.log", &lines.collect::<String>()));
    let begin = std::time::Instant::now();
    let (code, out, error) = tollgate(&["simulate", &log, "--config", &config]);
    assert!(code == 0 && out.contains("0 (0.00%)"), "{out} {error}");
    assert!(begin.elapsed() < std::time::Duration::from_secs(20), "{:?}", begin.elapsed());
}

#[test]
fn diff_fails_if_too_many_callers_are_newly_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (old, log) = (file(&folder, "old.toml", OLD), file(&folder, "access.log", &log()));
    let new = file(&folder, "new.toml", &OLD.replace("2/min", "4/min").replace("\"10/min", "\"3/min"));
    let (code, out, _) = tollgate(&["diff", &old, &new, "--log", &log]);
    assert_eq!(code, 0);
    let changes =
        "policies.api.quota: 10/min → 3/min\npolicies.search.quota: 2/min → 4/min\nrefused requests: 7 → 12\n";
    let expected = "newly refused: 0 of 2 callers\nno longer refused: 1 of 2 callers\n  192.0.2.2";
    assert!(out.starts_with(&format!("{changes}{expected}")), "{out}");
    let (code, out, error) = tollgate(&["diff", &new, &old, "--log", &log, "--fail-over", "0"]);
    assert_eq!(code, 1);
    assert!(out.contains("\nnewly refused: 1 of 2 callers\n  192.0.2.2"), "{out}");
    assert_eq!(error, "error: newly refused callers: 1, which is more than --fail-over allows\n");
    assert_eq!(tollgate(&["diff", &new, &old, "--log", &log, "--fail-over", "1-keys"]).0, 0);
}

#[test]
fn the_tightest_quotas_are_suggested() {
    let folder = tempfile::tempdir().unwrap();
    let log = file(&folder, "access.log", &log());
    let (code, out, error) = tollgate(&["suggest", &log, "--refuse-at-most", "0"]);
    assert_eq!((code, error.as_str()), (0, ""));
    let quotas: Vec<&str> = out.lines().map(|line| line.split("  ").next().unwrap()).collect();
    assert_eq!(quotas, ["15/min", "15/min fixed", "15/min sliding"]);
    let (_, out, _) = tollgate(&["suggest", &log, "--refuse-at-most", "50%"]);
    assert!(out.starts_with("5/min "), "{out}");
    let (_, _, error) = tollgate(&["suggest", &log]);
    assert_eq!(error, "note: --refuse-at-most is less than one of 2 callers, so no caller may be refused\n");
}

#[test]
fn errors_explain_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let log = file(&folder, "access.log", &log());
    let is = |expected: i32, arguments: &[&str], text: &str| {
        let (code, out, error) = tollgate(arguments);
        assert!(code == expected && out.is_empty(), "{arguments:?}: {code} {out}");
        assert!(error.contains(text), "{arguments:?}: {error}");
    };
    is(2, &["simulate", &log], "add --quota '100/min' or --config limits.toml");
    is(2, &["simulate", &log, "--quota", "100/m1n"], "expected");
    is(2, &["simulate", &log, "--quota", "1/s", "--key", "ipp"], "expected ip, ip/N");
    is(2, &["simulate", &log, "--quota", "1/s", "--format", "clf"], "expected common, combined");
    is(2, &["simulate", &log, "--quota", "1/s", "--field", "tme=ts"], "expected one of time, address");
    is(1, &["simulate", &log, "--quota", "1/s", "--format", "caddy"], "no line of the log can be read");
    is(1, &["simulate", "none.log", "--quota", "1/s"], "none.log: No such file");
    is(2, &["suggest", "-"], "a file instead of standard input");
    // The misspelled variable is not recognized as the address.
    let misspelled = r#"$remote_adr - $remote_user [$time_local] "$request" $status $body_bytes_sent"#;
    is(1, &["simulate", &log, "--quota", "1/s", "--format", misspelled], "no line has an address");
}
