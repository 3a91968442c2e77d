//! `sluice sim`: worlds in virtual time, run, compared and broken on purpose.

mod compare;
mod faults;
mod list;
mod named;
mod pool;
mod run;
mod text;

use clap::{Args, Subcommand};

use self::compare::CompareArgs;
use self::faults::FaultsArgs;
use self::list::ListArgs;
use self::run::RunArgs;
use crate::exit::Ended;

/// Run whole worlds in virtual time: scenarios, rival laws, faults
///
/// Clients, aggregators and controllers are the very ones that the other commands run; network,
/// clocks and callers are simulated. One seed is one history: the same command gives the same
/// numbers anywhere.
#[derive(Debug, Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct SimArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    List(ListArgs),
    Run(RunArgs),
    Compare(CompareArgs),
    Faults(FaultsArgs),
}

/// Runs the command.
pub(crate) fn run(args: SimArgs) -> Ended {
    match args.command {
        Command::List(args) => list::run(args),
        Command::Run(args) => run::run(args),
        Command::Compare(args) => compare::run(args),
        Command::Faults(args) => faults::run(args),
    }
}
