//! `sluice sim run`: one world, once.

use clap::Args;
use sluicegate_sim::Law;

use super::named::{self, Which, law};
use super::{pool, text};
use crate::clock;
use crate::exit::{Ended, Failure};
use crate::output;

/// Run a scenario once and measure it
#[derive(Debug, Args)]
pub(super) struct RunArgs {
    #[command(flatten)]
    which: Which,
    /// Who decides; `sluice sim list` has the laws
    #[arg(long, value_name = "LAW", default_value = "ratio", value_parser = law)]
    law: Law,
    /// What all chance comes from
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print the outcome as one line of JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: RunArgs) -> Ended {
    let RunArgs { which, law, seed, json } = args;
    let scenario = which.load()?;
    let begin = clock::now();
    let work = |seed: &u64, share: &pool::Share<'_>| {
        sluicegate_sim::run(&scenario, law, *seed, &mut |p| share.set(p.done_s / p.total_s))
    };
    let mut runs = pool::run_all(&[seed], work, |_, _| {}).map_err(named::bad_run)?;
    let Some(run) = runs.pop() else {
        return Err(Failure::AtWork(anyhow::Error::msg("the run came to nothing")));
    };
    let mut outcome = run.outcome;
    outcome.wall_s = begin.elapsed().as_secs_f64();
    if json {
        return Ok(output::json(&outcome)?);
    }
    output::lines(text::outcome(&scenario, &outcome))?;
    Ok(())
}
