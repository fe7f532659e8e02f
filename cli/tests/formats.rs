//! Runs the command on logs in all formats, including hostile lines, and compares its output with golden files.
//! `TOLLGATE_GOLDEN=write cargo test --test formats` writes these files.

use std::path::Path;
use std::process::Command;

fn compare(name: &str, arguments: &[&str]) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let run = |format: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_tollgate"))
            .arg("simulate")
            .arg(here.join(format!("logs/{name}.log")))
            .args(["--quota", "2/min", "--quota", "1/h fixed", "--key", "ip"])
            .args(arguments)
            .args(format)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let found = format!("{}\n{}", run(&[]), run(&["--json"]));
    assert!(!found.contains('\x1b'), "a control character was printed: {found:?}");
    let golden = here.join(format!("golden/{name}.txt"));
    if std::env::var_os("TOLLGATE_GOLDEN").is_some() {
        std::fs::write(&golden, &found).unwrap();
    }
    assert_eq!(found, std::fs::read_to_string(&golden).unwrap(), "{name}");
}

#[test]
fn a_common_log_gives_the_expected_report() {
    compare("common", &["--format", "common"]);
}

#[test]
fn a_combined_log_gives_the_expected_report() {
    compare("combined", &[]);
}

#[test]
fn an_nginx_log_gives_the_expected_report() {
    compare("nginx", &["--format", r#"$remote_addr "$http_x_forwarded_for" $msec $request_time "$request""#]);
}

#[test]
fn a_caddy_log_gives_the_expected_report() {
    compare("caddy", &["--format", "caddy"]);
}

#[test]
fn a_traefik_log_gives_the_expected_report() {
    compare("traefik", &["--format", "traefik"]);
}

#[test]
fn named_fields_give_the_same_report_as_the_predefined_format() {
    let fields = ["time=StartUTC", "address=ClientHost"];
    let arguments: Vec<&str> = fields.iter().flat_map(|field| ["--field", *field]).collect();
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/logs/traefik.log");
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        command.arg("simulate").arg(&here).args(["--quota", "1/h"]).args(arguments).output().unwrap().stdout
    };
    assert_eq!(run(&arguments), run(&["--format", "traefik"]));
}
