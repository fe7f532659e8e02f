//! What is said of broken configurations, word for word: each file of `broken/`, and its message in `messages.txt`.
//!
//! `TOLLGATE_MESSAGES=write cargo test --all-features --test config` writes the messages anew; read what changed.

use std::fmt::Write;
use std::path::Path;

use crate::app::parse;

#[test]
fn each_broken_configuration_is_refused_with_its_message() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config");
    let mut names: Vec<String> = std::fs::read_dir(folder.join("broken"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort_unstable();
    assert!(names.len() >= 50, "{} files", names.len());

    let mut said = String::new();
    for name in &names {
        let text = std::fs::read_to_string(folder.join("broken").join(name)).unwrap();
        let error = parse(name, &text).expect_err(name).to_string();
        assert!(error.lines().count() <= 21 && error.len() < 5000, "{error}");
        writeln!(said, "## {name}\n{error}\n").unwrap();
    }

    let golden = folder.join("messages.txt");
    if std::env::var_os("TOLLGATE_MESSAGES").is_some_and(|wish| wish == "write") {
        std::fs::write(&golden, said).unwrap();
        return;
    }
    let known = std::fs::read_to_string(&golden).unwrap();
    for (known, said) in known.split("## ").zip(said.split("## ")) {
        assert_eq!(known, said);
    }
    assert_eq!(known, said);
}
