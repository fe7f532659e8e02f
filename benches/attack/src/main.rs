//! An attack on an axum server with tollgate, while honest clients use it: `make attack`.
//!
//! ```text
//! attack run [--seconds 600] [--flood 6000] [--results folder]
//! ```
//!
//! Three processes on loopback. `serve` is the server, configured as a careful operator would (see `server.rs`).
//! `hostile` has the attackers, each at a bounded pace: the question is whether the limiter protects honest
//! clients, not whether two cores can be exhausted. `run` has the honest clients, starts and stops the
//! other two, and samples the server once a second: memory, descriptors, threads, tasks,
//! rows. It writes a table and plots, prints a summary, and fails if a promise is broken.

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
        other => Err(format!("{other:?} is none of run, serve, hostile").into()),
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
