//! Structured logs of the long-running commands: text for people, JSON for machines, on standard
//! error. Sets up; knows nothing of what is logged.

use std::io::{IsTerminal, stderr};

use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;

use crate::exit::Failure;

/// How to log.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(next_help_heading = "Logging")]
pub(crate) struct LogSettings {
    /// How log lines are written: `auto` is text on a terminal and JSON elsewhere
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = LogFormat::Auto)]
    pub(crate) log_format: LogFormat,
    /// What is logged: a level, or a filter such as `info,sluicegate_controller=debug`; without it
    /// the environment variable RUST_LOG counts, then `info`
    #[arg(long, value_name = "LEVEL|FILTER")]
    pub(crate) log_level: Option<String>,
}

impl Default for LogSettings {
    fn default() -> Self {
        Self { log_format: LogFormat::Auto, log_level: None }
    }
}

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Text on a terminal, JSON elsewhere.
    Auto,
    /// For people.
    Text,
    /// One object a line.
    Json,
}

/// Starts logging for this process.
pub(crate) fn start(settings: &LogSettings) -> Result<(), Failure> {
    let filter = filter(settings.log_level.as_deref())?;
    let json = match settings.log_format {
        LogFormat::Json => true,
        LogFormat::Text => false,
        LogFormat::Auto => !stderr().is_terminal(),
    };
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_span_events(FmtSpan::NONE)
        .with_writer(stderr);
    let started = if json {
        lines.json().flatten_event(true).try_init()
    } else {
        lines.with_ansi(stderr().is_terminal()).try_init()
    };
    started.map_err(|e| Failure::AtWork(anyhow::anyhow!("logging cannot start: {e}")))
}

fn filter(flag: Option<&str>) -> Result<EnvFilter, Failure> {
    let (text, from) = match flag {
        Some(text) => (text.to_owned(), "--log-level"),
        None => match std::env::var(EnvFilter::DEFAULT_ENV) {
            Ok(text) if !text.is_empty() => (text, EnvFilter::DEFAULT_ENV),
            _ => ("info".to_owned(), "--log-level"),
        },
    };
    EnvFilter::try_new(&text).map_err(|e| {
        Failure::bad_input(format!(
            "{from}: \"{text}\" is no filter: {e}; expected a level (error, warn, info, debug, \
             trace) or target=level pairs"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_or_a_filter_will_do_and_nonsense_is_refused() {
        for good in ["debug", "info,sluicegate_law=trace", "off"] {
            assert!(filter(Some(good)).is_ok(), "{good}");
        }
        let Failure::BadInput(error) = filter(Some("info,x=loud")).expect_err("nonsense") else {
            panic!("a wrong flag is bad input")
        };
        assert!(
            error.to_string().starts_with("--log-level: \"info,x=loud\" is no filter"),
            "{error}"
        );
    }
}
