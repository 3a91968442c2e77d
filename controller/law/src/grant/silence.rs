//! A child that fell silent: it may be dead, or cut off and admitting what it was granted.
//!
//! It keeps its grant and is charged for it. After a while the charge decays, since its traffic may
//! have moved; but not while most children are silent, which points at this node. If it comes back it
//! turns out what it admitted, and what had decayed of the charge is forgiven, so that the others do
//! not pay for it.

use std::time::Duration;

use sluicegate_model::{Flight, Time};

use super::split::Child;

/// A child not heard of for so long is silent.
pub const SILENT_AFTER: Duration = Duration::from_millis(1500);
/// It is charged in full for so long.
const FULL_FOR: Duration = Duration::from_secs(15);
/// And then less and less over this.
const DECAY_OVER: Duration = Duration::from_secs(30);

/// What stands for a silent child of one key.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Silent {
    /// What it last said of its demand.
    pub child: Child,
    /// Client sessions that it last said it had.
    pub sessions: u32,
    /// What it was granted last, without burst that was being spent: what it goes on admitting.
    pub grant_rps: f64,
    /// Last heard of.
    pub heard: Time,
    /// Admitted beyond its counts, until it counts as silent.
    pub flight: Flight,
    /// Charged since, in requests, and what it would be without decay.
    charged: f64,
    charged_full: f64,
    charged_at: Time,
}

impl Silent {
    /// A child that was heard of last at `heard`, when `flight` was in no count yet.
    #[must_use]
    pub fn new(child: Child, sessions: u32, grant_rps: f64, heard: Time, flight: Flight) -> Self {
        Self {
            child,
            sessions,
            grant_rps,
            heard,
            flight,
            charged: 0.0,
            charged_full: 0.0,
            charged_at: heard + SILENT_AFTER,
        }
    }

    /// How much it still counts, 1 to 0.
    #[must_use]
    pub fn weight(&self, now: Time, most_are_silent: bool) -> f64 {
        if most_are_silent {
            return 1.0;
        }
        let past = now.since(self.heard).saturating_sub(FULL_FOR);
        (1.0 - past.as_secs_f64() / DECAY_OVER.as_secs_f64()).max(0.0)
    }

    /// Charges for the time up to `now` at `weight`; what it has admitted so far in no count.
    pub fn charge(&mut self, now: Time, weight: f64) -> f64 {
        let due = self.grant_rps * now.since(self.charged_at).as_secs_f64();
        self.charged_at = self.charged_at.max(now);
        self.charged_full += due;
        self.charged += due * weight;
        self.in_flight(now) + self.charged
    }

    fn in_flight(&self, now: Time) -> f64 {
        self.flight.requests
            + self.flight.rps * now.since(self.heard).min(SILENT_AFTER).as_secs_f64()
    }

    /// What is forgiven of `admitted`, what it turned out to have admitted in no count so far: at
    /// most what decayed of the charge.
    #[must_use]
    pub fn forgiven(&self, now: Time, admitted: f64) -> f64 {
        let unexpected = admitted - self.in_flight(now) - self.charged;
        unexpected.clamp(0.0, (self.charged_full - self.charged).max(0.0))
    }

    /// Whether nothing of it counts any more.
    #[must_use]
    pub fn is_over(&self, now: Time, most_are_silent: bool) -> bool {
        self.weight(now, most_are_silent) <= 0.0
    }
}
