//! Worlds in which things go wrong at random, watched by an oracle. One seed, one world.

mod generate;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use sluicegate_model::Invariant;

pub use self::generate::scenario;
use crate::law::Law;
use crate::oracle::{Oracle, Report, Violation};
use crate::run::{RunError, prepare, run_observed};
use crate::scenario::Scenario;

/// Seeds that once failed, as they stand in `sim/seeds.txt`. They run first.
const SEEDS: &str = include_str!("../../seeds.txt");

/// What a run without a broken promise comes to.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// The seed.
    pub seed: u64,
    /// Over every decision and every message, in order.
    pub trace_sha256: String,
    /// What the oracle saw.
    pub report: Report,
}

/// A run that went wrong.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// The law.
    pub law: Law,
    /// What went wrong.
    pub cause: Cause,
}

/// What can go wrong with a run.
#[derive(Debug, Clone, PartialEq)]
pub enum Cause {
    /// Promises were broken.
    Broken {
        /// The first.
        first: Violation,
        /// How many in all.
        total: u64,
    },
    /// A core gave up.
    Panicked(String),
    /// The law is not the product's: there is nothing that it promised.
    NoPromises,
    /// The world that was made up cannot be.
    World(String),
}

impl Failure {
    /// The first promise that was broken, if that is what went wrong.
    #[must_use]
    pub fn invariant(&self) -> Option<Invariant> {
        match &self.cause {
            Cause::Broken { first, .. } => Some(first.invariant),
            Cause::Panicked(_) | Cause::NoPromises | Cause::World(_) => None,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, law, cause } = self;
        match cause {
            Cause::Broken { first, total } => {
                write!(f, "seed {seed}: {first} (the first of {total})")?;
            }
            Cause::Panicked(message) => write!(f, "seed {seed}: a core panicked: {message}")?,
            Cause::NoPromises => {
                return write!(f, "law {law} promises nothing: use --law grant or --law ratio");
            }
            Cause::World(problem) => write!(f, "seed {seed}: no such world: {problem}")?,
        }
        write!(f, "\n  replay: sluice sim faults --law {law} --seeds {seed}..{}", seed + 1)
    }
}

impl std::error::Error for Failure {}

/// The seeds that once failed.
#[must_use]
pub fn known_seeds() -> Vec<u64> {
    let lines = SEEDS.lines().map(|line| line.split('#').next().unwrap_or("").trim());
    lines.filter(|line| !line.is_empty()).filter_map(|line| line.parse().ok()).collect()
}

/// Makes up the world of a seed, lets things go wrong in it, heals it, and checks what holds.
///
/// # Errors
/// Says which promise was broken first, and how to see it again.
pub fn run(seed: u64, law: Law) -> Result<Summary, Failure> {
    let fail = |cause| Failure { seed, law, cause };
    if !law.is_ours() {
        return Err(fail(Cause::NoPromises));
    }
    let scenario = scenario(seed);
    let watched = catch_unwind(AssertUnwindSafe(|| watch(&scenario, law, seed)));
    let (trace_sha256, report) = match watched {
        Ok(Ok(watched)) => watched,
        Ok(Err(problem)) => return Err(fail(Cause::World(problem.to_string()))),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|t| (*t).to_owned()));
            return Err(fail(Cause::Panicked(text.unwrap_or_default())));
        }
    };
    match report.violations.first() {
        Some(first) => {
            let (first, total) = (first.clone(), report.violations_total);
            Err(fail(Cause::Broken { first, total }))
        }
        None => Ok(Summary { seed, trace_sha256, report }),
    }
}

/// Runs a scenario under an oracle: the hash of all that happened, and what the oracle saw.
///
/// # Errors
/// Says why the scenario cannot be run.
pub fn watch(scenario: &Scenario, law: Law, seed: u64) -> Result<(String, Report), RunError> {
    let mut oracle = Oracle::new(&prepare(scenario, seed)?);
    let run = run_observed(scenario, law, seed, &mut |_| {}, &mut oracle)?;
    Ok((run.outcome.trace_sha256, oracle.finish()))
}
