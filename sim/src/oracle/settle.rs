//! Whether what goes through comes back to the limit once nothing goes wrong any more (I7).
//!
//! What is asked of the law `ratio`, for a key with the limit `L` and its own offered load, both
//! over the time from `max(2 s, 6 ticks)` after the last disturbance until the traffic stops:
//!
//! - at most `1.05 L`, at least `0.95 min(L, offered)`, each with `3 sigma` to spare, and the burst
//!   once on top;
//! - `sigma` holds the chance of arrivals, and that of the ratio itself: the law divides by a load
//!   that was measured over one tick, so the ratio is off by `r = sqrt(V / (offered * tick))` each
//!   time, `V` being the variance of arrivals over that of a Poisson process; and that of the few
//!   ticks that follow one in which nothing was seen, and let everything through;
//! - the mean of `min(1, L / measured)` is above `L / mean`, and a tick that sees nothing is followed
//!   by one that admits all: the mean is worked out for arrivals in batches at random;
//! - what was admitted too little is credited and what was admitted too much is not, which adds at
//!   most
//!   `0.6 r sqrt(tick / spend)`, `spend = max(2 s, 4 ticks)`; and close to the limit a ratio that
//!   is too low is not made up for by one that is too high, which costs at most `0.4 r`.
//! - a client that did not ask for a key for long is told of it only once it has: what goes through
//!   until then is counted apart and allowed on top.
//!
//! Of a key whose requests other buckets drop as well, only the upper bound is asked, with `r` of the
//! limit's own rate: how much is offered to it depends on what the others do.
//!
//! Where a tick sees fewer than four requests nothing can be said, and nothing is.

use std::collections::BTreeMap;

use sluicegate_model::{Limit, Mode, Scope};

use super::directory::{Directory, Hit, Thing};
use crate::node::Topology;
use crate::observe::Verdict;
use crate::scenario::{Scenario, Shape};

const BIN_NS: u64 = 100_000_000;
/// Below so many requests a tick the law has nothing to go by.
const LEAST_PER_TICK: f64 = 4.0;
/// A bucket that is asked for no more than this share of its limit gets in nobody's way.
const SLACK: f64 = 0.7;

/// Over what a key's limit holds: a zone or a region, by number.
type Unit = (Thing, usize);

#[derive(Debug, Default)]
struct Bins {
    matched: Vec<u32>,
    charged: Vec<u32>,
    unheard: Vec<u32>,
}

/// What went through, by key and unit, over time.
#[derive(Debug)]
pub(super) struct Settle {
    bins: BTreeMap<Unit, Bins>,
    tick_s: f64,
    /// By workload: whether its load is the same all the time, and how much more it scatters than
    /// a Poisson process does.
    steady: Vec<Option<f64>>,
}

/// One key held against its limit.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Held {
    pub(super) thing: Thing,
    pub(super) unit: usize,
    pub(super) least: f64,
    pub(super) most: f64,
    pub(super) limit_rps: f64,
    pub(super) offered_rps: f64,
    pub(super) admitted_rps: f64,
}

impl Held {
    pub(super) fn is_fine(&self) -> bool {
        (self.least..=self.most).contains(&self.admitted_rps)
    }
}

impl Settle {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let all = std::iter::once(&scenario.workload).chain(&scenario.more_workloads);
        let steady = all.map(|w| {
            let is_steady = w.shape == Shape::Constant && w.retries.is_none();
            is_steady.then_some(2.0 * w.batch.max(1.0) - 1.0)
        });
        #[expect(clippy::cast_precision_loss, reason = "a tick")]
        let tick_s = scenario.tick_ms as f64 / 1000.0;
        Self { bins: BTreeMap::new(), tick_s, steady: steady.collect() }
    }

    /// How long things may take to settle, in nanoseconds.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds")]
    pub(super) fn within(&self) -> u64 {
        ((6.0 * self.tick_s).max(2.0) * 1e9) as u64
    }

    /// A request was decided by a client of `zone`.
    pub(super) fn count(
        &mut self,
        directory: &Directory,
        topology: Topology,
        (at, zone): (u64, usize),
        hit: Hit,
        (verdict, unheard): (Verdict, bool),
    ) {
        let facts = &directory.buckets[hit.bucket.0 as usize];
        let unit = match facts.scope {
            Scope::Zone => zone,
            Scope::Region | Scope::Global => topology.region_of(zone),
        };
        let bins = self.bins.entry((hit.key, unit)).or_default();
        let place = usize::try_from(at / BIN_NS).unwrap_or(usize::MAX);
        if bins.matched.len() <= place {
            bins.matched.resize(place + 1, 0);
            bins.charged.resize(place + 1, 0);
            bins.unheard.resize(place + 1, 0);
        }
        bins.matched[place] += 1;
        let charged = verdict.is_admitted() && verdict != Verdict::WouldDrop(hit.bucket);
        bins.charged[place] += u32::from(charged);
        bins.unheard[place] += u32::from(charged && unheard);
    }

    /// Requests a second of a key in a span.
    fn rates(&self, unit: Unit, (from, until): (u64, u64)) -> [f64; 3] {
        let Some(bins) = self.bins.get(&unit) else { return [0.0; 3] };
        let place = |at: u64| usize::try_from(at.div_ceil(BIN_NS)).unwrap_or(usize::MAX);
        let (from, until) = (place(from), place(until));
        let sum = |bins: &[u32]| {
            let within = bins.iter().take(until).skip(from);
            within.map(|n| f64::from(*n)).sum::<f64>()
        };
        #[expect(clippy::cast_precision_loss, reason = "bins of one run")]
        let span_s = until.saturating_sub(from) as f64 * BIN_NS as f64 / 1e9;
        [&bins.matched, &bins.charged, &bins.unheard].map(|bins| sum(bins) / span_s)
    }

    /// Every key that can be held against its limit over a span, and how many cannot.
    pub(super) fn judge(
        &self,
        directory: &Directory,
        limits: &dyn Fn(Thing) -> Option<Limit>,
        span: (u64, u64),
    ) -> (Vec<Held>, u64) {
        let mut held = Vec::new();
        let mut skipped = 0;
        for unit in self.bins.keys() {
            let Some(bucket) = directory.bucket_of(unit.0) else { continue };
            if directory.buckets[bucket.0 as usize].mode == Mode::Observe {
                continue;
            }
            match self.hold(directory, limits, *unit, span) {
                Some(one) => held.push(one),
                None => skipped += 1,
            }
        }
        (held, skipped)
    }

    fn hold(
        &self,
        directory: &Directory,
        limits: &dyn Fn(Thing) -> Option<Limit>,
        (thing, unit): Unit,
        span: (u64, u64),
    ) -> Option<Held> {
        let Limit::Tokens(tokens) = limits(thing)? else { return None };
        let mut scatter: f64 = 1.0;
        let mut shared = false;
        for (kinds, steady) in directory.kinds.iter().zip(&self.steady) {
            for asked in kinds.iter().filter(|a| a.hits.iter().any(|h| h.key == thing)) {
                scatter = scatter.max((*steady)?);
                let others = asked.hits.iter().filter(|h| h.key != thing);
                let mode = |key: Thing| {
                    directory.bucket_of(key).map(|b| directory.buckets[b.0 as usize].mode)
                };
                for other in others {
                    // An outcome names one shadow bucket only.
                    if mode(other.key) == Some(Mode::Shadow) && mode(thing) == Some(Mode::Shadow) {
                        return None;
                    }
                    shared |= !self.is_slack(directory, limits, other.key, span)?;
                }
            }
        }
        let [offered, admitted, unheard] = self.rates((thing, unit), span);
        #[expect(clippy::cast_precision_loss, reason = "a span")]
        let span_s = (span.1 - span.0) as f64 / 1e9;
        let limit = tokens.rate_rps();
        let mut one = Held {
            thing,
            unit,
            least: 0.0,
            most: 0.0,
            limit_rps: limit,
            offered_rps: offered,
            admitted_rps: admitted,
        };
        if limit == 0.0 {
            return Some(one);
        }
        if offered * self.tick_s < LEAST_PER_TICK {
            return None;
        }
        let expected = limit.min(offered);
        // What others drop is not offered to this one; how much that is depends on their ratios.
        let seen = if shared { expected } else { offered };
        if seen * self.tick_s < LEAST_PER_TICK {
            return None;
        }
        let r = (scatter / (seen * self.tick_s)).sqrt();
        let spend_s = (4.0 * self.tick_s).max(2.0);
        let by_chance = scatter * expected / span_s;
        let by_ratio = (expected * r).powi(2) * 2.0 * self.tick_s / span_s;
        let sigma = (by_chance + by_ratio + self.by_open_ticks(seen, scatter, span_s)).sqrt();
        let credited =
            (0.6 * r * (self.tick_s / spend_s).sqrt() * limit).min(tokens.depth() / spend_s);
        let mean = offered * mean_ratio(limit * self.tick_s, offered * self.tick_s, scatter);
        one.most = 1.05 * limit
            + 3.0 * sigma
            + tokens.depth() / span_s
            + (mean - limit).max(0.0)
            + credited
            + unheard;
        let cut = if offered < (1.0 + 3.0 * r) * limit { 0.4 * r * expected } else { 0.0 };
        one.least = if shared { 0.0 } else { (0.95 * expected - 3.0 * sigma - cut).max(0.0) };
        Some(one)
    }

    /// The variance of what goes through in ticks that are open because the one before saw nothing:
    /// they are rare, and each lets a whole tick's requests through.
    fn by_open_ticks(&self, seen_rps: f64, scatter: f64, span_s: f64) -> f64 {
        let a_tick = seen_rps * self.tick_s;
        let nothing = libm::exp(-a_tick / mean_batch(scatter));
        span_s / self.tick_s * nothing * (a_tick * a_tick + a_tick * scatter) / (span_s * span_s)
    }

    /// Whether a key gets in no other's way. `None` if that cannot be said.
    fn is_slack(
        &self,
        directory: &Directory,
        limits: &dyn Fn(Thing) -> Option<Limit>,
        thing: Thing,
        span: (u64, u64),
    ) -> Option<bool> {
        let bucket = directory.bucket_of(thing)?;
        if directory.buckets[bucket.0 as usize].mode != Mode::Deny {
            return Some(true);
        }
        let Limit::Tokens(tokens) = limits(thing)? else { return Some(true) };
        let units = self.bins.keys().filter(|u| u.0 == thing);
        let most = units.map(|u| self.rates(*u, span)[0]).fold(0.0, f64::max);
        Some(most <= SLACK * tokens.rate_rps())
    }
}

/// The mean of geometric batches that scatter so much more than a Poisson process does.
fn mean_batch(scatter: f64) -> f64 {
    (scatter + 1.0) / 2.0
}

/// The mean of `min(1, limit / seen)` over ticks that see batches of requests at random, by how
/// much their number scatters over a Poisson process's. All numbers are of one tick.
fn mean_ratio(limit: f64, offered: f64, scatter: f64) -> f64 {
    let batch = mean_batch(scatter);
    let batches = offered / batch;
    let mut chance = libm::exp(-batches);
    let (mut mean, mut left, mut n) = (chance, 1.0 - chance, 0.0);
    while left > 1e-9 && n < 10.0 * batches + 100.0 {
        n += 1.0;
        chance *= batches / n;
        left -= chance;
        mean += chance * (limit / (n * batch)).min(1.0);
    }
    mean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_requests_a_tick_are_cut_to_the_limit_and_few_let_more_through() {
        assert!((mean_ratio(50.0, 100.0, 1.0) - 0.505).abs() < 0.001);
        assert!((mean_ratio(200.0, 100.0, 1.0) - 1.0).abs() < 1e-6);
        // Most ticks see nothing at all.
        assert!(mean_ratio(0.001, 0.1, 1.0) > 0.9);
        assert!(mean_ratio(50.0, 100.0, 13.0) > 0.52);
        assert!((mean_ratio(0.0, 5.0, 1.0) - (-5.0_f64).exp()).abs() < 1e-9);
    }
}
