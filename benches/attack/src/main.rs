//! Attacks an axum server with tollgate while honest clients use the server. Run it with `make attack`.
//!
//! ```text
//! attack run [--seconds 600] [--flood 6000] [--results folder]
//! ```
//!
//! There are three processes on loopback:
//!
//! - `serve` is the server, configured as a careful operator would (see `server.rs`).
//! - `hostile` runs the attackers, each at a bounded rate, so that the attackers do not exhaust the machine itself.
//! - `run` runs the honest clients, and starts and stops the other two processes. Once per second, it samples the
//!   server's memory, descriptors, threads, tasks and rows. At the end, it writes a table and plots, and fails if a
//!   promise is broken.

mod args;
mod honest;
mod hostile;
mod plot;
mod report;
mod run;
mod sample;
mod server;
mod verdict;

use std::process::ExitCode;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let command = words.next().unwrap_or_else(|| "run".into());
    let done = args::Args::parse(words).and_then(|args| match command.as_str() {
        "run" => run::run(&args),
        "serve" => server::serve(&args).map(|()| true),
        "hostile" => hostile::attack(&args).map(|()| true),
        other => Err(format!("unknown command {other:?}; expected run, serve or hostile").into()),
    });
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("attack: {error}");
            ExitCode::from(2)
        }
    }
}
