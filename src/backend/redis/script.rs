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

    /// The beginning of its command, which so many arguments of so many bytes will follow.
    pub(super) fn command(&self, in_full: bool, arguments: usize, bytes: usize) -> Cmd {
        let (name, script) = if in_full { ("EVAL", self.source) } else { ("EVALSHA", &*self.hash) };
        let mut command = Cmd::with_capacity(arguments + 2, bytes + name.len() + script.len());
        command.arg(name).arg(script);
        command
    }
}
