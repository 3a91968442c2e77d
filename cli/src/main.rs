//! The `sluice` command: every process and every tool of Sluicegate is a subcommand.

mod args;
mod check;
mod clock;
mod demo;
mod exit;
mod explain;
mod fetch;
mod listener;
mod load;
mod logs;
mod node;
mod output;
mod progress;
mod ready;
#[cfg(test)]
mod reference;
mod signals;
mod sim;
mod status;
mod table;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match args::Cli::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) if failure.is_closed_pipe() => ExitCode::SUCCESS,
        Err(failure) => {
            if let Some(text) = failure.text() {
                output::note(format!("error: {text}"));
            }
            failure.code()
        }
    }
}
