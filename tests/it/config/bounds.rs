//! Bounds on the sizes of files, values, lists and messages.

use std::fmt::Write;
use std::time::Instant;

use tollgate::config::ConfigErrorKind;
use tollgate::{Config, key};

use super::app::{limiter, parse};

#[test]
fn an_error_lists_the_first_twenty_faults_and_counts_all_of_them() {
    for count in [1, 2, 19, 20, 21, 1000] {
        let mut text = String::new();
        for i in 0..count {
            writeln!(text, "[policies.p{i:04}]\nquota = \"{i}/moon\"").unwrap();
        }
        let error = parse("limits.toml", &text).unwrap_err();
        assert_eq!((error.fault_count(), error.faults().len()), (count, count.min(20)));
        let message = error.to_string();
        assert_eq!(message.lines().count(), if count > 20 { 21 } else { count });
        assert!(message.lines().all(|line| line.starts_with("limits.toml: ")), "{message}");
        let more = message.lines().last().unwrap().strip_prefix("limits.toml: and ").map(str::to_owned);
        assert_eq!(more, (count > 20).then(|| format!("{} more", count - 20)));
    }
}

#[test]
fn texts_larger_than_16_mib_are_rejected() {
    let mut text = "policies.api.quota = \"1/s\"\n".to_owned();
    text.extend(std::iter::repeat_n('\n', Config::MAX_BYTES - text.len()));
    assert!(parse("limits.toml", &text).is_ok());
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("large_limits.toml");
    let read = |text: &str| {
        std::fs::write(&path, text).unwrap();
        Config::read(&path, |text| toml::from_str(text))
    };
    assert!(read(&text).is_ok());
    text.push('\n');
    for result in [parse("limits.toml", &text), read(&text)] {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ConfigErrorKind::TooLarge);
        assert!(error.to_string().ends_with(": larger than 16 MiB; make it smaller"), "{error}");
    }
}

#[test]
fn values_that_total_more_than_64_mib_are_rejected_while_parsing() {
    // The text takes only two bytes per value, so only the parsed values exceed the bound.
    let text = format!("{{\"policies\": [{}1]}}", "1,".repeat(4_000_000));
    let error = serde_json::from_str::<Config>(&text).unwrap_err().to_string();
    assert!(error.starts_with("the configuration takes more than 64 MiB of memory"), "{error}");
    // A document of about 1 MiB exceeds the bound if it uses aliases to repeat a long string 100 times.
    let uses = ["*long"; 100].join(", ");
    let text = format!("long: &long {}\nuses: [{uses}]\n", "x".repeat(1 << 20));
    let error = yaml_serde::from_str::<Config>(&text).unwrap_err().to_string();
    assert!(error.contains("the configuration takes more than 64 MiB of memory"), "{error}");
}

#[test]
fn more_than_sixteen_levels_of_nesting_are_rejected_while_parsing() {
    let nested = |depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let error = serde_json::from_str::<Config>(&nested(16)).unwrap_err().to_string();
    assert!(error.contains("policies"), "expected an error about policies, not about depth: {error}");
    let error = serde_json::from_str::<Config>(&nested(17)).unwrap_err().to_string();
    assert!(error.starts_with("nested more than 16 levels deep"), "{error}");
}

#[test]
fn the_largest_allowed_configuration_loads_and_larger_ones_are_rejected() {
    let text = |policies: usize, tiers: usize, routes: usize, rules: usize| {
        let tiers: Vec<_> = (0..tiers).map(|i| format!("\"t{i}\": \"{}/min\"", i + 1)).collect();
        let tiers = tiers.join(",");
        let list = |count: usize, line: &dyn Fn(usize) -> String| (0..count).map(line).collect::<Vec<_>>().join(",");
        format!(
            r#"{{"policies": {{{}}}, "routes": {{{}}}, "deny": {{"ips": [{}]}}}}"#,
            list(policies, &|i| format!(r#""p{i}": {{"quota": "10/min", "tiers": {{{tiers}}}}}"#)),
            list(routes, &|i| format!(r#""GET /r{i}": "p{}""#, i % policies)),
            list(rules, &|i| format!("\"10.{}.{}.{}\"", i >> 16, i >> 8 & 255, i & 255)),
        )
    };
    let began = Instant::now();
    let config = parse("limits.json", &text(10_000, 4, 10_000, 100_000)).unwrap();
    let (limiter, _clock) = limiter(&config);
    drop(config.layer(&limiter, key::global()));
    println!("the largest configuration was loaded in {:?}", began.elapsed());
    assert_eq!(
        (config.policies().count(), config.routes().count(), config.deny_list().len()),
        (10_000, 10_000, 100_000)
    );

    for (text, part) in [
        (text(10_001, 0, 0, 0), "policies: found 10001 policies; at most 10000 are allowed"),
        (text(1, 101, 0, 0), "policies.p0.tiers: found 101 tiers; at most 100 are allowed in a policy"),
        (text(501, 99, 0, 0), "policies: found 50100 quotas in policies and tiers; at most 50000 are allowed"),
        (text(1, 0, 10_001, 0), "routes: found 10001 routes; at most 10000 are allowed"),
        (text(1, 0, 0, 100_001), "deny: found 100001 rules; at most 100000 are allowed"),
    ] {
        let error = parse("limits.json", &text).unwrap_err();
        assert_eq!((error.fault_count(), error.to_string()), (1, format!("limits.json: {part}")));
    }
}

#[test]
fn the_number_of_user_agent_patterns_is_bounded() {
    let text = |patterns: &dyn Fn(usize) -> String, count: usize| {
        let list: Vec<String> = (0..count).map(|i| format!("{:?}", patterns(i))).collect();
        format!(r#"{{"policies": {{"api": {{"quota": "10/min"}}}}, "deny": {{"user_agents": [{}]}}}}"#, list.join(","))
    };
    for (pattern, max) in
        [("*bot-N*", 1000), ("bot-N*", 1000), ("a*bot-N", 1000), ("a*bot-N*", 100), ("*a*bot-N*", 100)]
    {
        let patterns = |i: usize| pattern.replace('N', &i.to_string());
        assert_eq!(parse("limits.json", &text(&patterns, max)).unwrap().deny_list().len(), max, "{pattern}");
        let error = parse("limits.json", &text(&patterns, max + 1)).unwrap_err().to_string();
        assert!(error.contains(&format!("found {} user agents", max + 1)), "{error}");
        assert!(error.contains(&format!("at most {max} are")), "{error}");
    }
}
