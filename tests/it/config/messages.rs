//! The error messages for the files in `broken/` are compared with `messages.txt`.
//!
//! `TOLLGATE_MESSAGES=write cargo test --all-features --test it config::` rewrites the messages. Review the changes
//! afterwards.

use std::fmt::Write;
use std::path::Path;

use super::app::parse;

#[test]
fn broken_configurations_produce_the_expected_messages() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/config");
    let mut names: Vec<String> = std::fs::read_dir(folder.join("broken"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort_unstable();
    assert!(names.len() >= 50, "{} files", names.len());

    let mut messages = String::new();
    for name in &names {
        let text = std::fs::read_to_string(folder.join("broken").join(name)).unwrap();
        let error = parse(name, &text).expect_err(name).to_string();
        assert!(error.lines().count() <= 21 && error.len() < 5000, "{error}");
        writeln!(messages, "## {name}\n{error}\n").unwrap();
    }

    let golden = folder.join("messages.txt");
    if std::env::var_os("TOLLGATE_MESSAGES").is_some_and(|value| value == "write") {
        std::fs::write(&golden, messages).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(&golden).unwrap();
    for (expected, found) in expected.split("## ").zip(messages.split("## ")) {
        assert_eq!(expected, found);
    }
    assert_eq!(expected, messages);
}
