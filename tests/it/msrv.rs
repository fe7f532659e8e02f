//! Checks that `Cargo.toml` and the README state the minimum Rust version that the dependencies require.
//!
//! These tests need no older toolchain, but only `cargo +1.85 check` is a complete check. The tests also reject let
//! chains, the newer syntax that is most likely to be used out of habit. In `make lint`, clippy flags standard library
//! items that are too new (`incompatible_msrv`).

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// A minor version of Rust: the `x` in `1.x`.
type Rust = u32;

#[test]
fn the_default_features_need_the_stated_rust_version() {
    let stated = minor(env!("CARGO_PKG_RUST_VERSION"));
    let (needed, package) = needed(&[]);
    assert_eq!(needed, stated, "Cargo.toml states 1.{stated}; {package} requires 1.{needed}");
    assert!(
        text("README.md").contains(&format!("Requires Rust 1.{stated},")),
        "README.md does not state Rust 1.{stated}"
    );
}

#[test]
fn only_the_redis_feature_needs_a_newer_rust_version() {
    let (all, package) = needed(&["--all-features"]);
    let (redis, _) = needed(&["--no-default-features", "--features", "redis"]);
    assert_eq!(
        all, redis,
        "{package} requires a newer Rust version than the Redis client does: select an older {package} with `cargo update`"
    );
    let others = "admin,axum,conformance,metrics,serde,tonic,tracing,uuid,wait";
    let (others, package) = needed(&["--no-default-features", "--features", others]);
    assert_eq!(others, minor(env!("CARGO_PKG_RUST_VERSION")), "without redis, {package} requires 1.{others}");
    assert!(
        text("README.md").contains(&format!("or 1.{all} with the `redis` feature.")),
        "README.md does not state Rust 1.{all} for the `redis` feature"
    );
    assert!(
        text("Cargo.toml").contains(&format!("Needs Rust 1.{all}.")),
        "Cargo.toml does not state Rust 1.{all} for the `redis` feature"
    );
}

#[test]
fn the_library_has_no_let_chains() {
    let stated = minor(env!("CARGO_PKG_RUST_VERSION"));
    assert!(stated < 88, "let chains have been stable since Rust 1.88; delete this test");
    let found: Vec<String> = rust_files(&root().join("src")).into_iter().flat_map(|file| let_chains(&file)).collect();
    assert!(found.is_empty(), "let chains require Rust 1.88, but Cargo.toml states 1.{stated}:\n{}", found.join("\n"));
}

/// Returns the highest `rust-version` of all dependencies that these features need on any platform, and the package
/// that requires it. The lock file determines the versions of the dependencies.
fn needed(features: &[&str]) -> (Rust, String) {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["metadata", "--format-version", "1", "--locked"]).args(features).current_dir(root());
    let output = command.output().expect("failed to run cargo");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("expected JSON");
    let packages: HashMap<&str, &Value> = list(&metadata["packages"]).map(|package| (id(package), package)).collect();
    let nodes: HashMap<&str, &Value> = list(&metadata["resolve"]["nodes"]).map(|node| (id(node), node)).collect();

    let root = metadata["resolve"]["root"].as_str().expect("expected a root package");
    let mut seen = HashSet::from([root]);
    let mut next = vec![root];
    let mut highest = (0, String::from("no package"));
    while let Some(package) = next.pop() {
        for dependency in list(&nodes[package]["deps"]) {
            // Include build dependencies, but not dev-dependencies.
            if list(&dependency["dep_kinds"]).all(|kind| kind["kind"] == "dev") {
                continue;
            }
            let package = dependency["pkg"].as_str().expect("expected an id");
            if seen.insert(package) {
                next.push(package);
                let required = packages[package]["rust_version"].as_str().map_or(0, minor);
                highest =
                    highest.max((required, format!("{} {}", packages[package]["name"], packages[package]["version"])));
            }
        }
    }
    assert!(seen.len() > 20, "only {} packages found", seen.len());
    highest
}

/// Returns the let chains in `file`. Assumes that rustfmt has formatted the file.
fn let_chains(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).expect("expected a readable file");
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.starts_with("//")).collect();
    let following = lines.iter().skip(1).chain(&[""]);
    let chains = lines.iter().zip(following).filter(|(line, following)| {
        let condition = line.rsplit_once('{').map_or(**line, |(condition, _)| condition);
        let first = condition.contains("if let ") || condition.contains("while let ");
        condition.contains("&& let ") || first && (condition.contains(" && ") || following.starts_with("&& "))
    });
    chains.map(|(line, _)| format!("{}: {line}", file.display())).collect()
}

fn minor(version: &str) -> Rust {
    let mut parts = version.split('.');
    assert_eq!(parts.next(), Some("1"), "{version}");
    parts.next().and_then(|minor| minor.parse().ok()).unwrap_or_else(|| panic!("no minor version in {version}"))
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().expect("expected a list").iter()
}

fn id(value: &Value) -> &str {
    value["id"].as_str().expect("expected an id")
}

fn text(name: &str) -> String {
    fs::read_to_string(root().join(name)).expect("expected a readable file")
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).expect("expected a folder") {
        let path = entry.expect("expected an entry").path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}
