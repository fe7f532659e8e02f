//! The command `tollgate`: tries limits on access logs, and checks configuration files.

mod caller;
mod check;
mod diff;
mod log;
mod progress;
mod simulate;
mod suggest;

use std::process::ExitCode;

use clap::Parser;

/// Tries rate limits on access logs, and checks tollgate's configuration files.
#[derive(Parser, Debug)]
#[command(name = "tollgate", version)]
enum Command {
    Check(check::Check),
    Simulate(simulate::Simulate),
    Suggest(suggest::Suggest),
    Diff(diff::Diff),
}

/// Exits with 0 on success, 1 if a file is invalid or cannot be read or `diff` found too much, and 2 if the arguments are
/// wrong.
fn main() -> ExitCode {
    let result = match Command::parse() {
        Command::Check(check) => check.run().map(|()| true),
        Command::Simulate(simulate) => simulate.run().map(|()| true),
        Command::Suggest(suggest) => suggest.run().map(|()| true),
        Command::Diff(diff) => diff.run(),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
