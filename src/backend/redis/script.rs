//! The script: by its hash where the server knows it, in full where it does not.

use redis::Cmd;

#[derive(Debug)]
pub(super) struct Script {
    hash: String,
}

const SOURCE: &str = include_str!("script.lua");

impl Script {
    pub(super) fn new() -> Script {
        Script { hash: redis::Script::new(SOURCE).get_hash().to_owned() }
    }

    /// The beginning of its command.
    pub(super) fn command(&self, in_full: bool) -> Cmd {
        let mut command = Cmd::new();
        if in_full {
            command.arg("EVAL").arg(SOURCE);
        } else {
            command.arg("EVALSHA").arg(&self.hash);
        }
        command
    }
}
