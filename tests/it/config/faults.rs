//! Kinds, faults and sources of configuration errors. The errors must not show keys.

use std::error::Error;

use tollgate::config::ConfigErrorKind;
use tollgate::{
    Config,
    policy::{ParseQuotaError, PolicyError, QuotaError},
    protection::DenyRuleError,
};

use super::app::parse;

const BROKEN: &str = r#"
    policies.api.quota = "60/mim"
    policies.web.quota = { rate = 5, period = "1 s", capacity = 0 }
    policies.zero.quota = "0/s"
    policies."".quota = "1/s"
    deny.ips = ["10.0.0.0/99"]
"#;

#[test]
fn each_fault_has_a_path_and_a_cause() {
    let error = parse("limits.toml", BROKEN).unwrap_err();
    assert_eq!((error.kind(), error.fault_count()), (ConfigErrorKind::Invalid, 5));
    let fault = |path: &str| error.faults().iter().find(|fault| fault.path() == path).unwrap().source().unwrap();
    assert!(fault("policies.api.quota").is::<ParseQuotaError>());
    assert!(fault("policies.web.quota").is::<QuotaError>());
    assert!(fault("policies.zero.quota").source().unwrap().is::<QuotaError>());
    assert!(fault("policies.\"\"").is::<PolicyError>());
    assert!(fault("deny.ips[0]").is::<DenyRuleError>());
    assert!(error.source().unwrap().source().is_some());
}

#[test]
fn a_syntax_error_is_the_source_of_the_config_error() {
    let error = parse("limits.json", "{").unwrap_err();
    assert_eq!((error.kind(), error.fault_count()), (ConfigErrorKind::Syntax, 0));
    let cause = error.source().unwrap().downcast_ref::<serde_json::Error>().unwrap();
    assert!(cause.is_eof());
    assert_eq!(error.to_string(), format!("limits.json: {cause}"));
}

#[test]
fn an_unreadable_file_is_named_in_the_error() {
    let read = |path: &std::path::Path| Config::read(path, |text| toml::from_str(text)).unwrap_err();
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));

    let missing = folder.join("no_such_limits.toml");
    let error = read(&missing);
    assert_eq!(error.kind(), ConfigErrorKind::Read);
    assert!(error.to_string().starts_with(&format!("{}: cannot read the file: ", missing.display())), "{error}");
    assert!(error.source().unwrap().is::<std::io::Error>());

    let latin = folder.join("latin_limits.toml");
    std::fs::write(&latin, b"# caf\xe9\n").unwrap();
    let error = read(&latin);
    assert_eq!(error.kind(), ConfigErrorKind::Read);
    assert!(error.to_string().contains("UTF-8"), "{error}");
}

#[test]
fn errors_and_debug_output_never_contain_keys() {
    let secret = "hunter2";
    for text in [
        r#"{"policies": {"api": {"quota": "1/s"}}, "deny": {"keys": "hunter2"}}"#,
        r#"{"policies": {"api": {"quota": "1/s"}}, "deny": {"keys": [["hunter2"]]}}"#,
        r#"{"policies": {"api": {"quota": "1/s"}}, "deny": {"keys": {"0": "hunter2"}}}"#,
        r#"{"policies": {"api": {"quota": "1/s"}}, "deny": {"keys": ["hunter2"]}}"#,
        r#"{"policies": {"api": {"quota": "1/s"}}, "deny": {"keys": ["bearer:hunter2)"]}}"#,
        r#"{"policies": {"api": {"quota": "1/s"}}, "deny": {"keys": ["bearer:hunter2"], "ip": []}}"#,
    ] {
        let error = parse("limits.json", text).unwrap_err();
        assert!(!format!("{error} {error:?}").contains(secret), "{error}");
    }
    let text = r#"{"policies": {"api": {"quota": "1/s"}}, "deny": {"keys": ["bearer:hunter2"]}}"#;
    assert!(!format!("{:?}", parse("limits.json", text).unwrap()).contains(secret));
}
