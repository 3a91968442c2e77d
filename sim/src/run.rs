//! One run from scenario to outcome.

use sluicegate_model as model;

use crate::fleet::Fleet;
use crate::law::Law;
use crate::measure::measure;
use crate::net::Net;
use crate::observe::Observer;
use crate::outcome::{Outcome, Series};
use crate::product::Product;
use crate::record::Record;
use crate::rivals::{
    Batch, batch_bucket, batch_rate, batch_window, envoy_redis, prefetch, proxy_bucket,
};
use crate::scenario::{Problem, Scenario, Switch};
use crate::setup::Setup;
use crate::workload::TraceError;
use crate::world::{Progress, World};

/// What a run comes to, and the curves behind it.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// What it comes to.
    pub outcome: Outcome,
    /// The curves.
    pub series: Series,
}

/// Why a scenario cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// It makes no sense.
    #[error(transparent)]
    Scenario(#[from] Problem),
    /// Its trace file cannot be used.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The law has no guard.
    #[error("guard: law {law} has none; set it to off")]
    NoGuard {
        /// The law.
        law: Law,
    },
}

/// From when on fairness is measured, after the warm-up.
const FAIR_AFTER_MS: u64 = 5000;
const NANOS_PER_MS: u64 = 1_000_000;

/// Works a scenario out without running it.
///
/// # Errors
/// Says why it cannot be run.
pub fn prepare(scenario: &Scenario, seed: u64) -> Result<Setup<'_>, RunError> {
    if let Some(problem) = scenario.problems().into_iter().next() {
        return Err(problem.into());
    }
    Ok(Setup::new(scenario, seed)?)
}

/// Runs a scenario under a law. `progress` is called now and then, and at the end. The outcome's
/// `wall_s` is left at 0: there is no wall clock here.
///
/// # Errors
/// Says why it cannot be run.
pub fn run(
    scenario: &Scenario,
    law: Law,
    seed: u64,
    progress: &mut dyn FnMut(Progress),
) -> Result<Run, RunError> {
    run_as(scenario, law, seed, progress, None)
}

/// As [`run`], under the eyes of somebody who may tamper with it.
///
/// # Errors
/// Says why it cannot be run.
pub fn run_observed(
    scenario: &Scenario,
    law: Law,
    seed: u64,
    progress: &mut dyn FnMut(Progress),
    observer: &mut dyn Observer,
) -> Result<Run, RunError> {
    run_as(scenario, law, seed, progress, Some(observer))
}

fn run_as(
    scenario: &Scenario,
    law: Law,
    seed: u64,
    progress: &mut dyn FnMut(Progress),
    observer: Option<&mut dyn Observer>,
) -> Result<Run, RunError> {
    if scenario.guard == Switch::On && law != Law::Grant {
        return Err(RunError::NoGuard { law });
    }
    let setup = prepare(scenario, seed)?;
    let rivals = &scenario.rivals;
    Ok(match law {
        Law::Ratio | Law::Grant => {
            let which = if law == Law::Ratio { model::Law::Ratio } else { model::Law::Grant };
            run_fleet(&setup, law, Product::new(&setup, which), progress, observer)
        }
        Law::ProxyBucket => {
            let design = proxy_bucket::Law(rivals.proxy_bucket.clone());
            run_fleet(&setup, law, Batch::new(&setup, design), progress, observer)
        }
        Law::EnvoyRedis => {
            let fleet = envoy_redis::Fleet::new(&setup, &rivals.envoy_redis);
            run_fleet(&setup, law, fleet, progress, observer)
        }
        Law::BatchWindow => {
            let design = batch_window::Law(rivals.batch_window.clone());
            run_fleet(&setup, law, Batch::new(&setup, design), progress, observer)
        }
        Law::BatchRate => {
            let design = batch_rate::Law(rivals.batch_rate.clone());
            run_fleet(&setup, law, Batch::new(&setup, design), progress, observer)
        }
        Law::BatchBucket => {
            let design = batch_bucket::Law(rivals.batch_bucket.clone());
            run_fleet(&setup, law, Batch::new(&setup, design), progress, observer)
        }
        Law::Prefetch => {
            let fleet = prefetch::Fleet::new(&setup, &rivals.prefetch);
            run_fleet(&setup, law, fleet, progress, observer)
        }
    })
}

fn run_fleet<F: Fleet>(
    setup: &Setup<'_>,
    law: Law,
    fleet: F,
    progress: &mut dyn FnMut(Progress),
    observer: Option<&mut dyn Observer>,
) -> Run {
    let scenario = setup.scenario;
    let ms = |nanos: u64| usize::try_from(nanos / NANOS_PER_MS).unwrap_or(usize::MAX);
    let limits: Vec<Option<f64>> = setup.buckets.iter().map(|b| b.limit_rps).collect();
    let fair = setup.warmup / NANOS_PER_MS + FAIR_AFTER_MS;
    let record = Record::new(&limits, scenario.clients, ms(setup.end).max(1), fair);
    let net = Net::new(setup.topology, &scenario.hops, setup.seed, record, observer);
    let net = World::new(setup, net, fleet).run(progress);

    let names: Vec<String> = setup.buckets.iter().map(crate::setup::BucketInfo::name).collect();
    let from_ms = ms(setup.warmup);
    let measured = names.iter().zip(&net.record.buckets);
    let outcome = Outcome {
        scenario: scenario.name.clone(),
        law: law.name().to_owned(),
        seed: setup.seed,
        virtual_s: scenario.duration_s,
        wall_s: 0.0,
        buckets: measured.map(|(name, counted)| measure(name, counted, from_ms)).collect(),
        messages: net.record.message_rates(scenario.clients, from_ms),
        trace_sha256: net.trace.finish(),
    };
    Run { series: net.record.series(&names, scenario.warmup_s), outcome }
}
