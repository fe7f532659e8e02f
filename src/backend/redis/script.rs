//! The scripts: by their hash where the server knows them, in full where it does not.

use std::sync::LazyLock;

use redis::Cmd;

/// Decides.
pub(super) static DECISIONS: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("script.lua")));

/// Keeps the board of notices.
pub(super) static BULLETIN: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("bulletin.lua")));

/// Hashed once in a process.
#[derive(Debug)]
pub(super) struct Script {
    source: &'static str,
    hash: String,
}

impl Script {
    fn new(source: &'static str) -> Script {
        Script { source, hash: redis::Script::new(source).get_hash().to_owned() }
    }

    /// The beginning of its command, which so many arguments of so many bytes will follow.
    pub(super) fn command(&self, in_full: bool, arguments: usize, bytes: usize) -> Cmd {
        let (name, script) = if in_full { ("EVAL", self.source) } else { ("EVALSHA", &*self.hash) };
        let mut command = Cmd::with_capacity(arguments + 2, bytes + name.len() + script.len());
        command.arg(name).arg(script);
        command
    }
}
