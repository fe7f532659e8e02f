//! The `tollgate` command: tries limits on access logs, checks configuration files, and operates a running service.

mod caller;
mod check;
mod diff;
mod log;
mod operate;
mod progress;
mod simulate;
mod suggest;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

/// Tries rate limits on access logs, checks tollgate's configuration files, and operates a running service.
#[derive(Parser, Debug)]
#[command(name = "tollgate", version)]
enum Command {
    Check(check::Check),
    Simulate(simulate::Simulate),
    Suggest(suggest::Suggest),
    Diff(diff::Diff),
    Policies(operate::Policies),
    Top(operate::Top),
    Limited(operate::Limited),
    Why(operate::Why),
    Reset(operate::Reset),
    Credit(operate::Credit),
    Block(operate::Block),
    Unblock(operate::Unblock),
    Quota(operate::Quota),
    Enforce(operate::Enforce),
}

/// Exits with 0 on success, 1 if the command fails or `diff` exceeds `--fail-over`, 2 if the arguments are wrong, and 3
/// if there was nothing to change or the key is limited.
fn main() -> ExitCode {
    let result = match Command::parse() {
        Command::Check(check) => check.run().map(|()| 0),
        Command::Simulate(simulate) => simulate.run().map(|()| 0),
        Command::Suggest(suggest) => suggest.run().map(|()| 0),
        Command::Diff(diff) => diff.run().map(|is_within| u8::from(!is_within)),
        Command::Policies(policies) => policies.run(),
        Command::Top(top) => top.run(),
        Command::Limited(limited) => limited.run(),
        Command::Why(why) => why.run(),
        Command::Reset(reset) => reset.run(),
        Command::Credit(credit) => credit.run(),
        Command::Block(block) => block.run(),
        Command::Unblock(unblock) => unblock.run(),
        Command::Quota(quota) => quota.run(),
        Command::Enforce(enforce) => enforce.run(),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Exits with an error message about a wrong argument.
fn wrong_argument(message: &str) -> ! {
    Command::command().error(ErrorKind::ValueValidation, message).exit()
}
