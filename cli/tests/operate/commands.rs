//! Each command, with its output, errors and exit codes.

use std::process::Command;

use serde_json::Value;
use tollgate::Reason;

use crate::service::{READER, Service, TOKEN, run};

const ADA: &str = "path(name):ada";

#[test]
fn a_limited_key_is_found_explained_and_reset() {
    let service = Service::start();
    service.request("ada", 8);
    let (code, out, error) = service.tollgate(&["limited"]);
    assert_eq!((code, &*error), (0, ""));
    assert!(out.starts_with("path(name):ada under hello: 3 refused, quota_exceeded, retry in "), "{out}");
    assert!(out.contains("\nblocks: 0\n"), "{out}");

    let (code, out, _) = service.tollgate(&["why", ADA]);
    assert_eq!(code, 3);
    let expected = "hello: quota exceeded\n  5/h: 5 spent, 0 left, full in ";
    assert!(out.starts_with(expected), "{out}");
    for help in [
        "helps: waiting ",
        "reset 'path(name):ada' --policy hello\n",
        "credit 'path(name):ada' --policy hello --tokens 1\n",
    ] {
        assert!(out.contains(help), "{out}");
    }
    let (_, json, _) = service.tollgate(&["why", ADA, "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["policies"][0]["windows"][0]["spent"], 5);

    let reset = ["reset", ADA, "--policy", "hello"];
    assert_eq!(service.tollgate(&reset), (0, "reset in this process\n".into(), String::new()));
    assert_eq!(service.tollgate(&["why", ADA]).0, 0);
    let (code, out, _) = service.tollgate(&reset);
    assert_eq!((code, &*out), (3, "nothing to change in this process\n"));
    service.request("ada", 5);
    let credit = ["credit", ADA, "--policy", "hello", "--tokens", "2"];
    assert_eq!(service.tollgate(&credit).1, "credited in this process\n");
    assert!(service.tollgate(&["why", ADA]).1.contains("3 spent, 2 left"));
    assert_eq!(service.tollgate(&["reset", "--all", "--policy", "hello"]).0, 0);
    assert!(service.tollgate(&["why", ADA]).1.contains("0 spent, 5 left, full\n"));
}

#[test]
fn callers_are_blocked_and_unblocked() {
    let service = Service::start();
    for target in [&[ADA][..], &["--ip", "192.0.2.7"], &["--user-agent", "curl"], &["--label", "asn=64496"]] {
        let (block, unblock) = ([&["block", "--for", "1h"], target].concat(), [&["unblock"], target].concat());
        assert_eq!(service.tollgate(&block), (0, "blocked for 1h in this process\n".into(), String::new()));
        assert!(service.tollgate(&["limited"]).1.contains("blocks: 1\n"));
        assert_eq!(service.tollgate(&unblock).0, 0);
        assert_eq!(service.tollgate(&unblock).0, 3);
    }
    service.tollgate(&["block", ADA, "--for", "1h"]);
    let (code, out, _) = service.tollgate(&["why", ADA, "--policy", "hello"]);
    assert_eq!(code, 3);
    assert!(out.contains("hello: blocked\n") && out.contains("helps: tollgate unblock 'path(name):ada'\n"), "{out}");
    let digest = out.lines().last().unwrap().split(' ').next().unwrap();
    assert_eq!(service.tollgate(&["unblock", digest]).0, 0, "{digest}");
}

#[test]
fn quotas_and_enforcement_are_set_and_restored() {
    let service = Service::start();
    for scope in [&[][..], &["--tier", "premium"], &["--key", ADA]] {
        let set = [&["quota", "9/h", "--policy", "hello"], scope].concat();
        assert_eq!(service.tollgate(&set), (0, "set in this process\n".into(), String::new()));
        let restore = [&["quota", "--restore", "--policy", "hello"], scope].concat();
        assert_eq!(service.tollgate(&restore).1, "restored in this process\n");
    }
    service.tollgate(&["quota", "9/h", "--policy", "hello", "--tier", "premium"]);
    service.tollgate(&["enforce", "0.25", "--policy", "hello"]);
    let expected = "hello: 5/h\n  tier premium: 50/h, set to 9/h\n  enforced for 0.25 of the keys\n";
    assert_eq!(service.tollgate(&["policies"]).1, expected);
    service.tollgate(&["enforce", "--restore", "--policy", "hello"]);
    assert!(!service.tollgate(&["policies"]).1.contains("enforced"));
}

/// Regression: JSON cannot represent NaN or infinity, so the program's setting was restored instead.
#[test]
fn a_share_outside_0_to_1_is_rejected() {
    let service = Service::start();
    service.tollgate(&["enforce", "0.25", "--policy", "hello"]);
    for share in ["NaN", "inf", "1.5", "-0.1"] {
        let (code, out, error) = service.tollgate(&["enforce", "--policy", "hello", "--", share]);
        assert!(code == 2 && error.contains("from 0.0 to 1.0"), "{share}: {code} {out} {error}");
    }
    assert!(service.tollgate(&["policies"]).1.contains("enforced for 0.25 of the keys"));
}

#[test]
fn the_table_is_printed_once_without_a_terminal() {
    let service = Service::start();
    service.request("ada", 8);
    service.request("eve", 2);
    let (code, out, _) = service.tollgate(&["top"]);
    let expected = "charges since the start of this process\n   requested      refused  key\n          10            3  \
                    all keys under hello\n           8            3  path(name):ada under hello\n           2            0  \
                    path(name):eve under hello\n";
    assert_eq!((code, &*out), (0, expected));
}

#[test]
fn errors_explain_what_was_expected_and_what_to_do() {
    let service = Service::start();
    for (arguments, part) in [
        (&["why", "ada"][..], "`key`: expected a key at byte 0: write \"ada\" in quotes for a string"),
        (&["why", "7", "--policy", "helo"], "there is no policy \"helo\" (did you mean \"hello\"?)"),
        (&["why", "7", "--tier", "gold"], "no selected policy has the tier \"gold\""),
        (&["quota", "fast", "--policy", "hello"], "`quota`: "),
        (&["block", "7", "--for", "soon"], "`lasts`: expected a duration, such as \"15min\""),
        (&["limited", "--max", "1000"], "`max`: expected 1 to 100, found 1000"),
        (&["limited", "--url", "http://127.0.0.1:1/admin"], "cannot reach http://127.0.0.1:1/admin"),
    ] {
        let (code, out, error) = service.tollgate(arguments);
        assert_eq!((code, &*out), (1, ""), "{arguments:?}");
        assert!(error.starts_with("error: ") && error.contains(part), "{arguments:?}: {error}");
    }
    let (code, _, error) = service.tollgate(&["limited", "--url", "http://ada:hunter2@127.0.0.1:1/admin"]);
    assert!(code == 1 && error.contains("leave out the user name") && !error.contains("hunter2"), "{error}");
    let elsewhere = format!("http://{}/hello", service.address);
    let (code, _, error) = service.tollgate(&["limited", "--url", &elsewhere]);
    assert!(code == 1 && error.contains("from another server or route; check --url"), "{error}");
    for arguments in [&["why"][..], &["block", "7"], &["block", "--for", "1h"], &["limited", "--url", "ftp://x"]] {
        let (code, _, error) = service.tollgate(arguments);
        assert!(code == 2 && error.contains("Usage") || error.contains("expected a URL"), "{arguments:?}: {error}");
    }
    assert!(service.limiter.blocks().is_empty());
}

#[test]
fn the_token_comes_from_a_file_or_the_environment_and_is_never_shown() {
    let service = Service::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, format!("{READER}\n")).unwrap();
    let file = file.to_str().unwrap();
    let command = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        command.args(arguments).env_remove("TOLLGATE_ADMIN_TOKEN").args(["--url", &service.url()]);
        run(&mut command)
    };
    let (code, _, error) = command(&["limited"]);
    assert!(code == 1 && error.contains("set the variable TOLLGATE_ADMIN_TOKEN"), "{error}");
    assert_eq!(command(&["limited", "--token-file", file]).0, 0);
    let (code, out, error) = command(&["block", "7", "--for", "1h", "--token-file", file]);
    assert!(code == 1 && error.contains("eve has read-only access"), "{error}");
    let mut wrong = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    wrong.args(["limited", "--url", &service.url()]).env("TOLLGATE_ADMIN_TOKEN", "an unknown token of an operator");
    let (code, _, refused) = run(&mut wrong);
    assert!(code == 1 && refused.contains("this request is not authorized"), "{refused}");
    assert!(!(out + &error + &refused).contains(READER) && !refused.contains("unknown token"));
    let decision = service.limiter.limit_now(&service.policy, "ada").unwrap();
    assert_eq!((decision.reason(), TOKEN.len() > 15), (Reason::WithinQuota, true));
}
