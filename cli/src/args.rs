//! The command line as a whole: one variant a subcommand.

use clap::{Parser, Subcommand};

use crate::check::CheckArgs;
use crate::demo::DemoArgs;
use crate::exit::Ended;
use crate::explain::ExplainArgs;
use crate::load::LoadArgs;
use crate::node::{AggregatorArgs, ControllerArgs, SidecarArgs};
use crate::sim::SimArgs;
use crate::status::StatusArgs;
use crate::{check, demo, explain, load, node, sim, status};

/// Rate limits for a whole fleet, decided inside the process that sends the request
#[derive(Debug, Parser)]
#[command(
    name = "sluice",
    version,
    subcommand_required = true,
    arg_required_else_help = true,
    max_term_width = 100
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(DemoArgs),
    Controller(Box<ControllerArgs>),
    Aggregator(Box<AggregatorArgs>),
    Sidecar(Box<SidecarArgs>),
    Check(CheckArgs),
    Explain(ExplainArgs),
    Load(Box<LoadArgs>),
    Sim(SimArgs),
    Status(StatusArgs),
}

impl Cli {
    /// Runs the subcommand.
    pub(crate) fn run(self) -> Ended {
        match self.command {
            Command::Demo(args) => demo::run(args),
            Command::Controller(args) => node::controller(*args),
            Command::Aggregator(args) => node::aggregator(*args),
            Command::Sidecar(args) => node::sidecar(*args),
            Command::Check(args) => check::run(args),
            Command::Explain(args) => explain::run(args),
            Command::Load(args) => load::run(*args),
            Command::Sim(args) => sim::run(args),
            Command::Status(args) => status::run(args),
        }
    }
}
