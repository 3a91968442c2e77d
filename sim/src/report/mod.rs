//! What a comparison of laws comes to on paper: a table in CSV, plots, and one page that holds them
//! all. Makes texts; where they go is the caller's affair.

mod axis;
mod chart;
mod csv;
mod page;
mod plots;
mod series;
mod strip;
mod summary;
mod text;
mod theme;

use crate::law::Law;
use crate::outcome::{Measure, Outcome, Series};
use crate::scenario::Scenario;

pub use summary::{Cell, MessageSummary, Summary};

/// One scenario under several laws, each run with the same seeds.
#[derive(Debug, Clone)]
pub struct Comparison {
    scenario: Scenario,
    how: Reproduce,
    laws: Vec<LawRuns>,
}

/// How to get the same again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reproduce {
    /// The command, ready to be pasted.
    pub command: String,
    /// The version of the program.
    pub version: String,
}

/// The runs of one law.
#[derive(Debug, Clone)]
struct LawRuns {
    law: Law,
    outcomes: Vec<Outcome>,
    /// Of the first seed: curves of several would hide one another.
    series: Series,
}

/// A file of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Its name, without a folder.
    pub name: String,
    /// What it holds.
    pub text: String,
}

impl Comparison {
    /// An empty one.
    #[must_use]
    pub fn new(scenario: Scenario, how: Reproduce) -> Self {
        Self { scenario, how, laws: Vec::new() }
    }

    /// Adds the runs of a law, and the curves of the first of them.
    pub fn add(&mut self, law: Law, outcomes: Vec<Outcome>, series: Series) {
        self.laws.push(LawRuns { law, outcomes, series });
    }

    /// Medians and worst over the seeds, by bucket and, in each, by law.
    #[must_use]
    pub fn summaries(&self) -> Vec<Summary> {
        (0..self.buckets().len())
            .flat_map(|b| self.laws.iter().map(move |l| Summary::new(l.law, &l.outcomes, b)))
            .collect()
    }

    /// All files: `results.csv`, `report.html`, and an SVG for each plot.
    #[must_use]
    pub fn files(&self) -> Vec<File> {
        let plots = plots::all(self);
        let mut files = vec![
            File { name: "results.csv".into(), text: csv::results(self) },
            File { name: "report.html".into(), text: page::page(self, &plots) },
        ];
        files.extend(plots.iter().flat_map(plots::Plots::files));
        files
    }

    /// The buckets' names; every run has the same.
    fn buckets(&self) -> Vec<&str> {
        let first = self.laws.first().and_then(|l| l.outcomes.first());
        first.map_or(Vec::new(), |o| o.buckets.iter().map(|b| b.bucket.as_str()).collect())
    }

    /// The seeds of the first law's runs; every law has the same.
    fn seeds(&self) -> Vec<u64> {
        self.laws.first().map_or(Vec::new(), |l| l.outcomes.iter().map(|o| o.seed).collect())
    }
}

/// The measures that tell most of a scenario that names none.
const MEASURES: [Measure; 6] = [
    Measure::CutMs,
    Measure::Max1sX,
    Measure::VolLimitS,
    Measure::WasteLimitS,
    Measure::MeanX,
    Measure::Min1sX,
];

impl Scenario {
    /// The measures that tell most here.
    #[must_use]
    pub fn telling_measures(&self) -> &[Measure] {
        if self.measures.is_empty() { &MEASURES } else { &self.measures }
    }
}

#[cfg(test)]
mod tests;
