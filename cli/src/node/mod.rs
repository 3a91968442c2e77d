//! `sluice controller`, `sluice aggregator`, `sluice sidecar`: one process of a tier each, with its
//! settings, its logs, its HTTP side and an end in order.

mod aggregator;
mod controller;
mod rates;
mod serve;
mod sidecar;
mod since;
mod tier;

use std::path::PathBuf;

use clap::Args;
use sluicegate_files::node::{
    AggregatorFlags, ControllerFlags, InvalidSettings, Limits, SettingsFile, SidecarFlags,
};

use crate::exit::{Ended, Failure};
use crate::logs::{self, LogSettings};
use crate::ready;

/// Run a controller: it turns the counts of a region into what must be dropped
///
/// Reads bucket files from a directory and applies each changed file on its own; a file with errors
/// leaves the last good version of its service in force.
#[derive(Debug, Args)]
pub(crate) struct ControllerArgs {
    #[command(flatten)]
    common: CommonArgs,
    #[command(flatten, next_help_heading = "Settings (fields of the file, too)")]
    flags: ControllerFlags,
}

/// Run an aggregator: it adds up what the clients of a zone count
///
/// It answers for buckets of scope zone itself and passes on what the controllers say of the others.
#[derive(Debug, Args)]
pub(crate) struct AggregatorArgs {
    #[command(flatten)]
    common: CommonArgs,
    #[command(flatten, next_help_heading = "Settings (fields of the file, too)")]
    flags: AggregatorFlags,
}

/// Run a sidecar: Envoy's rate limit service, answered from this process's own memory
///
/// Speaks envoy.service.ratelimit.v3.RateLimitService. A request's domain is the service, the
/// entries of its descriptors are dimensions.
#[derive(Debug, Args)]
pub(crate) struct SidecarArgs {
    #[command(flatten)]
    common: CommonArgs,
    #[command(flatten, next_help_heading = "Settings (fields of the file, too)")]
    flags: SidecarFlags,
}

/// What every process takes beside its settings.
#[derive(Debug, Args)]
struct CommonArgs {
    /// A file with settings; flags win over it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Write the addresses that were bound to this file, as JSON, once they are
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,
    #[command(flatten)]
    log: LogSettings,
}

/// Runs a controller.
pub(crate) fn controller(args: ControllerArgs) -> Ended {
    let ControllerArgs { common, flags } = args;
    let (file, ready_file) = begin(common)?;
    let file = file.as_ref().map(File::settings);
    let settings = sluicegate_files::node::controller(file, flags, &host()).map_err(told)?;
    runtime()?.block_on(controller::run(settings, ready_file))
}

/// Runs an aggregator.
pub(crate) fn aggregator(args: AggregatorArgs) -> Ended {
    let AggregatorArgs { common, flags } = args;
    let (file, ready_file) = begin(common)?;
    let file = file.as_ref().map(File::settings);
    let settings = sluicegate_files::node::aggregator(file, flags, &host()).map_err(told)?;
    runtime()?.block_on(aggregator::run(settings, ready_file))
}

/// Runs a sidecar.
pub(crate) fn sidecar(args: SidecarArgs) -> Ended {
    let SidecarArgs { common, flags } = args;
    let (file, ready_file) = begin(common)?;
    let file = file.as_ref().map(File::settings);
    let settings = sluicegate_files::node::sidecar(file, flags, &host()).map_err(told)?;
    runtime()?.block_on(sidecar::run(settings, ready_file))
}

/// A settings file that was read.
struct File {
    path: String,
    bytes: Vec<u8>,
}

impl File {
    fn settings(&self) -> SettingsFile<'_> {
        SettingsFile { path: &self.path, bytes: &self.bytes }
    }
}

fn begin(common: CommonArgs) -> Result<(Option<File>, Option<PathBuf>), Failure> {
    let CommonArgs { config, ready_file, log } = common;
    logs::start(&log)?;
    if let Some(path) = &ready_file {
        ready::check(path).map_err(|e| {
            Failure::bad_input(format!("--ready-file: {} cannot be written: {e}", path.display()))
        })?;
    }
    let file = config.map(|path| {
        let shown = path.display().to_string();
        match std::fs::read(&path) {
            Ok(bytes) => Ok(File { path: shown, bytes }),
            Err(e) => Err(Failure::bad_input(format!("--config: {shown} cannot be read: {e}"))),
        }
    });
    Ok((file.transpose()?, ready_file))
}

fn told(invalid: InvalidSettings) -> Failure {
    Failure::bad_input(format!("the settings are not usable\n{invalid}"))
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()
}

/// The name of this machine: what a node is called unless it is told.
fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The bounds of a node's core, as far as settings name them.
fn law_limits(limits: Limits, defaults: sluicegate_law::Limits) -> sluicegate_law::Limits {
    let Limits {
        max_sessions,
        max_keys,
        max_keys_per_session,
        max_message_bytes: _,
        max_session_rps,
    } = limits;
    #[expect(clippy::cast_precision_loss, reason = "settings allow at most 10^12")]
    let max_session_rps = max_session_rps as f64;
    sluicegate_law::Limits {
        max_sessions: max_sessions as usize,
        max_keys,
        max_keys_per_session,
        max_session_rps,
        ..defaults
    }
}
