//! What is named on the command line: scenarios, laws, seeds.

use std::ops::RangeInclusive;
use std::path::Path;

use anyhow::anyhow;
use clap::Args;
use sluicegate_sim::{Law, RunError, Scenario, prepare, scenario};

use crate::exit::Failure;

/// The most seeds of one command.
const MAX_SEEDS: u64 = 1_000_000;

/// Which scenario, and what is changed in it.
#[derive(Debug, Args)]
pub(super) struct Which {
    /// A scenario of `sluice sim list`, or a file that holds one
    #[arg(value_name = "NAME|FILE")]
    pub(super) scenario: String,
    /// Change a field of the scenario, such as clients=100 or workload.period_ms=300; may be given
    /// several times
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub(super) settings: Vec<String>,
}

impl Which {
    /// Reads and checks it.
    pub(super) fn load(&self) -> Result<Scenario, Failure> {
        let Self { scenario: name, settings } = self;
        let bad = |error: anyhow::Error| Failure::BadInput(error);
        if let Some(builtin) = scenario::builtin(name) {
            return scenario::parse(name, builtin.text, settings).map_err(|e| bad(e.into()));
        }
        let path = Path::new(name);
        let is_file = name.contains(std::path::is_separator) || path.extension().is_some();
        if !is_file && !path.exists() {
            let names: Vec<&str> = scenario::builtins().iter().map(|b| b.name).collect();
            return Err(bad(anyhow!(
                "there is no scenario {name:?}; there are {}; a file is named with its path or \
                 ending",
                names.join(", ")
            )));
        }
        let mut loaded = scenario::load(path, settings).map_err(|e| bad(e.into()))?;
        if loaded.name == Scenario::default().name
            && let Some(stem) = path.file_stem().and_then(|s| s.to_str())
        {
            stem.clone_into(&mut loaded.name);
        }
        Ok(loaded)
    }
}

/// Whether it can be run at all, before anything long begins.
pub(super) fn check(scenario: &Scenario, seed: u64) -> Result<(), Failure> {
    prepare(scenario, seed).map(|_| ()).map_err(bad_run)
}

/// Everything that keeps a run from starting is in what was asked.
pub(super) fn bad_run(error: RunError) -> Failure {
    Failure::BadInput(error.into())
}

/// A law by name.
pub(super) fn law(text: &str) -> Result<Law, String> {
    text.parse().map_err(|e: sluicegate_sim::UnknownLaw| e.to_string())
}

/// Seeds: `1..8` is all from 1 to 8.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seeds(RangeInclusive<u64>);

impl Seeds {
    pub(super) fn iter(&self) -> impl Iterator<Item = u64> + use<> {
        self.0.clone()
    }

    pub(super) fn is_one(&self) -> bool {
        self.0.start() == self.0.end()
    }

    pub(super) fn first(&self) -> u64 {
        *self.0.start()
    }
}

impl std::str::FromStr for Seeds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |t: &str| {
            t.trim().parse::<u64>().map_err(|_| {
                format!("{text:?} is no range of seeds; write 1..8 for those from 1 to 8, or one")
            })
        };
        let (from, to) = match text.split_once("..") {
            Some((from, to)) => (number(from)?, number(to)?),
            None => (number(text)?, number(text)?),
        };
        if from > to {
            return Err(format!("{text:?} goes backwards; write the smaller seed first"));
        }
        if to - from >= MAX_SEEDS {
            return Err(format!("{text:?} are too many; the most is {MAX_SEEDS}"));
        }
        Ok(Self(from..=to))
    }
}

impl std::fmt::Display for Seeds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}..{}", self.0.start(), self.0.end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_a_range_or_one() {
        let of = |t: &str| t.parse::<Seeds>();
        assert_eq!(of("1..8").expect("fine").iter().count(), 8, "both ends count");
        assert_eq!(of("7").expect("fine").iter().collect::<Vec<_>>(), [7]);
        assert_eq!(of("0..300").expect("fine").to_string(), "0..300");
        for bad in ["", "..", "8..1", "a..b", "1..", "-1..3", "0..2000000"] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_cannot_be_found_is_told_from_what_cannot_be_read() {
        let load = |name: &str, settings: &[&str]| {
            let settings = settings.iter().map(|s| (*s).to_owned()).collect();
            match (Which { scenario: name.into(), settings }).load() {
                Ok(scenario) => scenario.name,
                Err(failure) => failure.text().unwrap_or_default(),
            }
        };
        assert_eq!(load("surge", &["clients=5"]), "surge");
        assert!(load("surgee", &[]).contains("surge, "), "the names are told");
        assert!(load("no/such.yaml", &[]).starts_with("no/such.yaml: "));
        let text = load("surge", &["clients=0"]);
        assert!(text.starts_with("--set clients=0: clients: is 0, must be 1 to"), "{text}");
    }
}
