//! The Lua scripts. A script is sent as a hash, or in full if the server does not have the script yet.

use std::sync::LazyLock;

use redis::Cmd;

use super::wire::SHARED;

pub(super) static DECISIONS: LazyLock<Script> = LazyLock::new(|| {
    let (names, values): (Vec<_>, Vec<_>) = SHARED.iter().map(|(name, value)| (*name, value.to_string())).unzip();
    let constants = format!("local {} = {}\n", names.join(", "), values.join(", "));
    Script::new(constants + include_str!("script.lua"))
});

pub(super) static NOTICES: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("notices.lua").to_owned()));

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

    pub(super) fn command(&self, in_full: bool) -> Cmd {
        let (name, script) = if in_full { ("EVAL", &self.source) } else { ("EVALSHA", &self.hash) };
        let mut command = redis::cmd(name);
        command.arg(script);
        command
    }
}
