//! A load on embedded clients: decisions in this process, as a service that embeds the client would
//! ask for them.

use std::thread;
use std::time::Duration;

use sluicegate_client::{Decision, Limiter, Outcome, Settings};
use sluicegate_model::Request;
use tokio_util::sync::CancellationToken;

use super::plan::Plan;
use super::progress::Progress;
use super::stats::{Fate, Stats, Took};
use crate::clock;
use crate::exit::Failure;

/// How often a pause looks whether the load is to stop.
const LOOK: Duration = Duration::from_millis(50);

/// The clients to embed, and what their requests look like.
#[derive(Debug, Clone)]
pub(crate) struct EmbeddedTarget {
    /// The settings of each client of this process, with its place in the whole load.
    pub(crate) clients: Vec<(usize, Settings)>,
    pub(crate) service: String,
    pub(crate) dimensions: Vec<(String, String)>,
    /// How long to wait for the clients to be connected before the load starts without.
    pub(crate) wait: Duration,
}

/// Who calls, and what, in the places that arrivals name.
#[derive(Debug)]
pub(crate) struct Names {
    pub(crate) callers: Vec<String>,
    pub(crate) procedures: Vec<String>,
}

/// Clients at work, by their place in the whole load.
pub(crate) struct Clients {
    all: Vec<Option<Limiter>>,
}

impl Clients {
    /// Starts them.
    pub(crate) fn start(settings: Vec<(usize, Settings)>) -> Result<Self, Failure> {
        let places = settings.iter().map(|(place, _)| place + 1).max().unwrap_or(0);
        let mut all: Vec<Option<Limiter>> = vec![None; places];
        for (place, settings) in settings {
            let started = Limiter::start(settings);
            all[place] = Some(started.map_err(|e| Failure::BadInput(e.into()))?);
        }
        Ok(Self { all })
    }

    /// How many have their buckets.
    pub(crate) fn informed(&self) -> usize {
        self.all.iter().flatten().filter(|l| is_informed(l)).count()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.all.iter().flatten().count()
    }

    /// Waits until all have their buckets; says whether they do.
    pub(crate) fn wait(&self, most: Duration, stop: &CancellationToken) -> bool {
        let start = clock::now();
        while self.informed() < self.len() {
            if start.elapsed() >= most || stop.is_cancelled() {
                return false;
            }
            thread::sleep(Duration::from_millis(10));
        }
        true
    }

    /// Whether any has buckets of that service.
    pub(crate) fn have_buckets(&self, service: &str) -> bool {
        let has = |l: &Limiter| l.stats().client.services.iter().any(|s| s.service == *service);
        self.all.iter().flatten().any(has)
    }

    /// The client at that place of the load.
    pub(crate) fn get(&self, place: usize) -> Option<&Limiter> {
        self.all.get(place)?.as_ref()
    }

    /// Messages that clients could not read.
    pub(crate) fn decode_errors(&self) -> u64 {
        self.all.iter().flatten().map(|l| l.connection().decode_errors).sum()
    }

    /// Ends all at the same time, so that one slow end does not hold up the others.
    pub(crate) fn shutdown(&self) {
        thread::scope(|scope| {
            for limiter in self.all.iter().flatten() {
                scope.spawn(|| limiter.shutdown());
            }
        });
    }
}

fn is_informed(limiter: &Limiter) -> bool {
    limiter.connection().configuration_version > 0
}

/// What became of a request.
pub(crate) fn fate(outcome: Outcome) -> Fate {
    match outcome.details() {
        Decision::Admit { shadow_dropped_by: None } => Fate::Admitted,
        Decision::Admit { shadow_dropped_by: Some(_) } => Fate::WouldDrop,
        Decision::Drop { .. } => Fate::Dropped,
    }
}

/// Asks for every decision of the plan at its time; returns what came of them. Blocks.
pub(crate) fn drive(
    target: &EmbeddedTarget,
    clients: &Clients,
    names: &Names,
    plan: Plan,
    length: Option<Duration>,
    stop: &CancellationToken,
) -> anyhow::Result<(Stats, Took)> {
    let dimensions: Vec<(&str, &str)> =
        target.dimensions.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    let mut stats = Stats::new(names.callers.len())?;
    let mut progress = Progress::new(length);
    let start = clock::now();
    let mut scheduled = Duration::ZERO;
    'load: for (arrival, place) in plan {
        loop {
            let elapsed = start.elapsed();
            progress.show(elapsed, &stats.total);
            if stop.is_cancelled() {
                break 'load;
            }
            if elapsed >= arrival.due {
                break;
            }
            thread::sleep((arrival.due - elapsed).min(LOOK));
        }
        scheduled = arrival.due;
        let Some(limiter) = clients.get(place) else { continue };
        let request = Request {
            service: &target.service,
            caller: names.callers.get(arrival.caller as usize).map_or("", String::as_str),
            procedure: names.procedures.get(arrival.procedure as usize).map_or("", String::as_str),
            dimensions: &dimensions,
        };
        let begun = clock::now();
        let outcome = limiter.decide(&request);
        let latency = begun.elapsed();
        stats.began(begun.duration_since(start).saturating_sub(arrival.due));
        stats.ended(arrival.due, arrival.caller, fate(outcome), latency);
    }
    if let Some(length) = length {
        while start.elapsed() < length && !stop.is_cancelled() {
            progress.show(start.elapsed(), &stats.total);
            thread::sleep((length.saturating_sub(start.elapsed())).min(LOOK));
        }
        scheduled = length;
    }
    progress.end();
    let (ran, interrupted) = (start.elapsed(), stop.is_cancelled());
    let scheduled = if interrupted { ran } else { scheduled };
    Ok((stats, Took { ran, scheduled, interrupted }))
}
