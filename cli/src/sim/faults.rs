//! `sluice sim faults`: worlds made up at random, in which everything goes wrong, and an oracle that
//! watches.

use std::convert::Infallible;
use std::io;

use clap::Args;
use sluicegate_sim::Law;
use sluicegate_sim::faults;

use super::named::{Seeds, law};
use super::pool;
use crate::exit::{Ended, Failure};
use crate::output;

/// Make up a world for each seed, let everything go wrong in it, and check what must hold
///
/// An oracle that knows nothing of the product's insides watches every decision and every message
/// and names the first promise that is broken, with the seed and the command to see it again. Seeds
/// that once failed run first, unless only one seed is asked for. The last line is
/// `N passed, N failed`; exits with 1 if any failed.
#[derive(Debug, Args)]
pub(super) struct FaultsArgs {
    /// The seeds: 0..300 is all from 0 to 300; one alone is that one
    #[arg(long, value_name = "A..B")]
    seeds: Seeds,
    /// Who decides; only the product's own laws promise anything
    #[arg(long, value_name = "LAW", default_value = "ratio", value_parser = law)]
    law: Law,
}

/// Runs the command.
pub(super) fn run(args: FaultsArgs) -> Ended {
    let FaultsArgs { seeds, law } = args;
    if !law.is_ours() {
        return Err(Failure::bad_input(format!(
            "--law: {law} promises nothing; only grant and ratio do"
        )));
    }
    let jobs = jobs(&seeds);
    let mut told: io::Result<()> = Ok(());
    let work = |seed: &u64, _: &pool::Share<'_>| Ok::<_, Infallible>(faults::run(*seed, law));
    let done = |_: &u64, result: &Result<faults::Summary, faults::Failure>| {
        if let (Err(failure), Ok(())) = (result, &told) {
            told = output::line(failure.to_string());
        }
    };
    let Ok(results) = pool::run_all(&jobs, work, done);
    told?;
    let passed: Vec<&faults::Summary> = results.iter().filter_map(|r| r.as_ref().ok()).collect();
    let failed = results.len() - passed.len();
    let (mut decisions, mut checks) = (0_u64, 0_u64);
    for summary in &passed {
        decisions += summary.report.decisions;
        checks += summary.report.checks;
    }
    output::line(format!("{checks} checks over {decisions} decisions"))?;
    output::line(format!("{} passed, {failed} failed", passed.len()))?;
    if failed > 0 {
        return Err(Failure::Told);
    }
    Ok(())
}

/// The seeds that once failed, then those asked for; each once.
fn jobs(seeds: &Seeds) -> Vec<u64> {
    let mut jobs = if seeds.is_one() { Vec::new() } else { faults::known_seeds() };
    let known = jobs.clone();
    jobs.extend(seeds.iter().filter(|seed| !known.contains(seed)));
    jobs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_that_once_failed_run_first_and_once() {
        let known = faults::known_seeds();
        let all = jobs(&"0..100000".parse().expect("seeds"));
        assert_eq!(all[..known.len()], known[..]);
        let mut unique = all.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), all.len());
        assert_eq!(jobs(&"7".parse().expect("a seed")), [7]);
    }
}
