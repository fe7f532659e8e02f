//! A script: by its hash where the server knows it, in full where it does not.

use redis::Cmd;

#[derive(Debug)]
pub(super) struct Script {
    source: &'static str,
    hash: String,
}

impl Script {
    pub(super) fn new(source: &'static str) -> Script {
        Script { source, hash: redis::Script::new(source).get_hash().to_owned() }
    }

    /// The beginning of its command.
    pub(super) fn command(&self, in_full: bool) -> Cmd {
        let mut command = Cmd::new();
        if in_full {
            command.arg("EVAL").arg(self.source);
        } else {
            command.arg("EVALSHA").arg(&self.hash);
        }
        command
    }
}
