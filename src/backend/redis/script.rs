//! The scripts: by their hash where the server knows them, in full where it does not.

use std::sync::LazyLock;

use redis::Cmd;

use super::wire::SHARED;

/// Decides.
pub(super) static DECISIONS: LazyLock<Script> = LazyLock::new(|| {
    let (names, values): (Vec<_>, Vec<_>) = SHARED.iter().map(|(name, value)| (*name, value.to_string())).unzip();
    let constants = format!("local {} = {}\n", names.join(", "), values.join(", "));
    Script::new(constants + include_str!("script.lua"))
});

/// Keeps the board of notices.
pub(super) static NOTICES: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("notices.lua").to_owned()));

/// Hashed once in a process.
#[derive(Debug)]
pub(super) struct Script {
    source: String,
    hash: String,
}

impl Script {
    fn new(source: String) -> Script {
        let hash = redis::Script::new(&source).get_hash().to_owned();
        Script { source, hash }
    }

    /// The beginning of its command, by its hash or in full.
    pub(super) fn command(&self, in_full: bool) -> Cmd {
        let (name, script) = if in_full { ("EVAL", &self.source) } else { ("EVALSHA", &self.hash) };
        let mut command = redis::cmd(name);
        command.arg(script);
        command
    }
}
