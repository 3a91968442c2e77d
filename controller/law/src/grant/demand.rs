//! Demand: what a key is offered now, as far as it can be told from noise.
//!
//! A change that noise does not explain is taken as it is. Otherwise the estimate averages until it
//! rests on [`SAMPLES`] requests, over at most [`LONGEST`]. And demand that swings up and down faster
//! than the loop can follow is replaced by its mean, since answering each swing only feeds it.

use std::time::Duration;

use sluicegate_model::Time;

use super::weight;

/// A change of so many standard deviations is no noise.
const SIGNIFICANT: f64 = 4.0;
/// And of so many requests more.
const SIGNIFICANT_REQUESTS: f64 = 2.0;
/// An average rests on so many requests.
const SAMPLES: f64 = 400.0;
/// But on no more time than this.
const LONGEST: Duration = Duration::from_secs(10);

/// Up or down by this factor is a swing.
const SWING_X: f64 = 1.5;
/// How long a swing counts.
const SWING_MEMORY: Duration = Duration::from_millis(1500);
/// With more swings than this, demand resonates.
const RESONANT: f64 = 4.0;
/// With less, it does no more.
const CALM: f64 = 1.0;
/// Over how long resonating demand is averaged.
const RESONANT_MEAN: Duration = Duration::from_secs(1);

/// The estimate of one key's demand.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Demand {
    rps: f64,
    at: Option<Time>,
    swings: Swings,
}

impl Demand {
    /// The estimate, requests a second.
    #[must_use]
    pub fn rps(&self) -> f64 {
        self.rps
    }

    /// Whether demand swings so fast that its mean stands for it.
    #[must_use]
    pub fn is_resonant(&self) -> bool {
        self.swings.resonant
    }

    /// Takes in that `seen_rps` is offered at `now`, by rates over about `window`. With `damped`
    /// off, swings are not looked for.
    pub fn see(&mut self, now: Time, seen_rps: f64, window: Duration, damped: bool) {
        let Some(at) = self.at.replace(now) else {
            self.rps = seen_rps;
            self.swings.begin(now, seen_rps);
            return;
        };
        let elapsed = now.since(at);
        if damped && self.swings.see(now, elapsed, seen_rps, window) {
            self.rps = self.swings.mean_rps;
            return;
        }
        let window_s = window.as_secs_f64();
        let (expected, seen) = (self.rps * window_s, seen_rps * window_s);
        let noise = SIGNIFICANT * expected.sqrt() + SIGNIFICANT_REQUESTS;
        if (seen - expected).abs() > noise {
            self.rps = seen_rps;
            return;
        }
        let rest_s = SAMPLES / self.rps.max(seen_rps).max(1e-3) - window_s;
        let memory = Duration::from_secs_f64(rest_s.clamp(0.0, LONGEST.as_secs_f64()));
        self.rps += weight(elapsed, memory) * (seen_rps - self.rps);
    }
}

/// How often demand turned lately.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Swings {
    /// Turns, decaying.
    count: f64,
    counted: Time,
    rising: bool,
    /// The extreme since the last turn.
    pivot_rps: f64,
    resonant: bool,
    /// The mean of what was seen, each value weighted with how long it stood.
    mean_rps: f64,
    last_rps: f64,
}

impl Swings {
    fn begin(&mut self, now: Time, rps: f64) {
        *self = Self {
            counted: now,
            rising: true,
            pivot_rps: rps,
            mean_rps: rps,
            last_rps: rps,
            ..Self::default()
        };
    }

    /// Says whether the mean stands for what was seen.
    fn see(&mut self, now: Time, elapsed: Duration, rps: f64, window: Duration) -> bool {
        self.mean_rps += weight(elapsed, RESONANT_MEAN) * (self.last_rps - self.mean_rps);
        self.last_rps = rps;
        let turned = if self.rising {
            self.pivot_rps = self.pivot_rps.max(rps);
            rps < self.pivot_rps / SWING_X
        } else {
            self.pivot_rps = self.pivot_rps.min(rps);
            rps > self.pivot_rps * SWING_X
        };
        let noise = SIGNIFICANT * (self.pivot_rps.max(rps) / window.as_secs_f64().max(1e-3)).sqrt();
        if turned && (rps - self.pivot_rps).abs() > noise {
            self.count = self.now(now) + 1.0;
            self.counted = now;
            self.rising = !self.rising;
            self.pivot_rps = rps;
        }
        let count = self.now(now);
        if !self.resonant && count > RESONANT {
            self.resonant = true;
        } else if self.resonant && count < CALM {
            self.resonant = false;
        }
        self.resonant
    }

    fn now(&self, now: Time) -> f64 {
        let past = now.since(self.counted).as_secs_f64() / SWING_MEMORY.as_secs_f64();
        self.count * (-past).exp()
    }
}
