//! The command `tollgate`: tries limits on access logs, and checks configuration files.

mod caller;
mod check;
mod log;
mod progress;
mod simulate;

use std::process::ExitCode;

use clap::Parser;

/// Tries rate limits on access logs, and checks tollgate's configuration files.
#[derive(Parser, Debug)]
#[command(name = "tollgate", version)]
enum Command {
    Check(check::Check),
    Simulate(simulate::Simulate),
}

/// Exits with 0 on success, 1 if a file is invalid or cannot be read, and 2 if the arguments are wrong.
fn main() -> ExitCode {
    let result = match Command::parse() {
        Command::Check(check) => check.run(),
        Command::Simulate(simulate) => simulate.run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
