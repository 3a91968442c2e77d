//! `sluice sim compare`: one scenario under several laws, on paper.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use sluicegate_sim::report::{Comparison, Reproduce};
use sluicegate_sim::{Law, Outcome, Scenario, Series};

use super::named::{self, Seeds, Which, law};
use super::{pool, text};
use crate::exit::{Ended, Failure};
use crate::{clock, output};

/// Run a scenario under several laws and seeds, and write a report
///
/// Prints a table, and writes into the directory: results.csv with a row for each law, seed and
/// bucket; report.html, one page with everything; and each plot as an SVG file.
#[derive(Debug, Args)]
pub(super) struct CompareArgs {
    #[command(flatten)]
    which: Which,
    /// The laws, in the order in which they are shown; `sluice sim list` has them
    #[arg(long, value_name = "LAW,...", value_delimiter = ',', required = true,
        value_parser = law)]
    laws: Vec<Law>,
    /// The seeds: 1..8 is all from 1 to 8
    #[arg(long, value_name = "A..B", default_value = "1..8")]
    seeds: Seeds,
    /// Where the report goes; made if it is not there
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

/// Runs the command.
pub(super) fn run(args: CompareArgs) -> Ended {
    let CompareArgs { which, laws, seeds, out } = args;
    let scenario = which.load()?;
    if let Some(twice) = laws.iter().enumerate().find(|(i, l)| laws[..*i].contains(l)) {
        return Err(Failure::bad_input(format!("--laws: {} stands twice", twice.1)));
    }
    named::check(&scenario, seeds.first())?;
    // Sooner than after minutes of work.
    std::fs::create_dir_all(&out)
        .with_context(|| format!("--out: {} cannot be made", out.display()))?;
    let how = Reproduce {
        command: command(&which, &laws, &seeds, &out),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let comparison = compare(scenario.clone(), &laws, &seeds, how)?;
    output::lines(text::comparison(&scenario, &comparison))?;
    for file in comparison.files() {
        let path = out.join(&file.name);
        std::fs::write(&path, &file.text)
            .with_context(|| format!("{} cannot be written", path.display()))?;
    }
    output::line(format!("\n{}", out.join("report.html").display()))?;
    Ok(())
}

fn compare(
    scenario: Scenario,
    laws: &[Law],
    seeds: &Seeds,
    how: Reproduce,
) -> Result<Comparison, Failure> {
    let jobs: Vec<(Law, u64)> =
        laws.iter().flat_map(|law| seeds.iter().map(move |seed| (*law, seed))).collect();
    let work = |(law, seed): &(Law, u64), share: &pool::Share<'_>| {
        let begin = clock::now();
        let mut progress = |p: sluicegate_sim::Progress| share.set(p.done_s / p.total_s);
        let mut run = sluicegate_sim::run(&scenario, *law, *seed, &mut progress)?;
        run.outcome.wall_s = begin.elapsed().as_secs_f64();
        // Only the first seed's curves are drawn.
        let series = (*seed == seeds.first()).then_some(run.series);
        Ok((run.outcome, series))
    };
    let runs: Vec<(Outcome, Option<Series>)> =
        pool::run_all(&jobs, work, |_, _| {}).map_err(named::bad_run)?;
    let mut comparison = Comparison::new(scenario.clone(), how);
    let mut runs = runs.into_iter();
    for law in laws {
        let (outcomes, series): (Vec<Outcome>, Vec<Option<Series>>) =
            runs.by_ref().take(seeds.iter().count()).unzip();
        if let Some(series) = series.into_iter().flatten().next() {
            comparison.add(*law, outcomes, series);
        }
    }
    Ok(comparison)
}

/// The command that does the same again.
fn command(which: &Which, laws: &[Law], seeds: &Seeds, out: &Path) -> String {
    let laws: Vec<&str> = laws.iter().map(|l| l.name()).collect();
    let mut words = vec![
        "sluice sim compare".to_owned(),
        quoted(&which.scenario),
        format!("--laws {}", laws.join(",")),
        format!("--seeds {seeds}"),
    ];
    words.extend(which.settings.iter().map(|s| format!("--set {}", quoted(s))));
    words.push(format!("--out {}", quoted(&out.display().to_string())));
    words.join(" ")
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_can_be_pasted() {
        let which = Which {
            scenario: "my files/it's.yaml".into(),
            settings: vec!["clients=5".into(), "faults[0].at_s=5".into()],
        };
        let seeds = "1..8".parse().expect("seeds");
        assert_eq!(
            command(&which, &[Law::Ratio], &seeds, Path::new("target/x")),
            "sluice sim compare 'my files/it'\\''s.yaml' --laws ratio --seeds 1..8 \
             --set clients=5 --set 'faults[0].at_s=5' --out target/x"
        );
    }
}
