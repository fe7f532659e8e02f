//! The commands for operators against a running service: output, errors, exit codes, and the live table in a terminal.

mod commands;
mod hostile;
mod readme;
mod service;
mod terminal;
