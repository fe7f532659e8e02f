//! The commands for operators against a running service: output, errors, exit codes, and the live table in a terminal.

mod commands;
mod faults;
mod hostile;
mod readme;
mod service;
mod terminal;
