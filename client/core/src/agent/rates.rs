//! How fast one client is offered requests of one key: what its reports state under the law `grant`,
//! and when one is made out of turn.
//!
//! Fed with counts at each look, it knows no limit, no directive and no message.

use std::time::Duration;

use sluicegate_model::Time;

use super::ledger::Stated;
use crate::Switches;

/// Over how long the usual rate forgets.
const USUAL_MEMORY: Duration = Duration::from_secs(2);
/// Over how long the dispersion forgets.
const DISPERSION_MEMORY_S: f64 = 10.0;
/// Dispersion is of counts in slots of this length.
const SLOT: Duration = Duration::from_millis(10);
/// From so many requests on the dispersion is worked out; with fewer it is taken to be
/// [`USUAL_DISPERSION`].
const MIN_DISPERSED: f64 = 5.0;
const USUAL_DISPERSION: f64 = 1.5;
/// From so many requests on one report's rate may stand for the usual rate.
const MIN_PEAK: u64 = 10;
/// So many requests make a rate, however short the time.
const FULL_WINDOW: u64 = 20;
/// An early report counts the last rate as if it had been seen for so long.
const OLD_RATE: Duration = Duration::from_millis(25);
/// From an early report to the one that puts its rate right.
const FOLLOW_UP: Duration = Duration::from_millis(25);
/// Between two early reports of a key.
pub(super) const MIN_BETWEEN_EARLY: Duration = Duration::from_millis(10);
/// From any report of a key to an early one.
const MIN_BEFORE_EARLY: Duration = Duration::from_millis(5);
/// After so many reports in a row without a request nothing is said until there is one.
const IDLE_REPORTS: u8 = 2;

/// After so long without a request the client is, usually, no longer one of those that use the key.
pub(super) const GONE_AFTER: Duration = Duration::from_secs(10);

/// Why a key is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Tick,
    /// Its rate jumped.
    Early,
    /// Some time after an early report.
    FollowUp,
}

/// What a report says of a key besides counts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Statement {
    pub(super) rates: Stated,
    pub(super) in_use: bool,
}

/// What is the same for every key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timing {
    pub(super) tick: Duration,
    pub(super) look: Duration,
    pub(super) switches: Switches,
}

/// The rates of one key.
#[derive(Debug, Clone)]
pub(super) struct Rates {
    /// Requests, and the sum of the squares of how many came in each slot.
    dispersed: f64,
    squares: f64,
    dispersion: f64,
    /// Of the slot under way.
    in_slot: u64,
    usual_rps: f64,
    /// From the last report to the one before.
    last_rps: f64,
    /// Of the last window that was closed, or as an early report put it.
    offered_rps: f64,
    window_from: Time,
    in_window: u64,
    reported: Time,
    since_report: u64,
    early_at: Time,
    follow_up_at: Time,
    seen: Time,
    /// After so long without a request the client is no longer one of those that use the key.
    gone_after: Duration,
    idle_reports: u8,
    gone: bool,
}

impl Rates {
    /// Of a key that was offered nothing until `since`.
    pub(super) fn new(since: Time) -> Self {
        Self {
            dispersed: 0.0,
            squares: 0.0,
            dispersion: USUAL_DISPERSION,
            in_slot: 0,
            usual_rps: 0.0,
            last_rps: 0.0,
            offered_rps: 0.0,
            window_from: since,
            in_window: 0,
            reported: since,
            since_report: 0,
            early_at: Time::ZERO,
            follow_up_at: Time::NEVER,
            seen: since,
            gone_after: GONE_AFTER,
            idle_reports: 0,
            gone: true,
        }
    }

    /// The client counts as one that uses the key for so long after a request.
    pub(super) fn stay(&mut self, gone_after: Duration) {
        self.gone_after = gone_after;
    }

    /// The client counts as one that uses the key, though there was no request yet.
    pub(super) fn stand(&mut self) {
        (self.gone, self.gone_after) = (false, Duration::MAX);
    }

    /// `offered` requests came since the last call.
    pub(super) fn see(&mut self, now: Time, offered: u64) {
        if offered == 0 {
            return;
        }
        self.in_slot += offered;
        self.in_window += offered;
        self.since_report += offered;
        (self.seen, self.gone) = (now, false);
    }

    /// A look is over, `span` after the last one.
    pub(super) fn end_slot(&mut self, span: Duration) {
        if self.in_slot > 0 {
            let n = requests(std::mem::take(&mut self.in_slot));
            let slots = (span.as_secs_f64() / SLOT.as_secs_f64()).max(1.0);
            self.dispersed += n;
            self.squares += n * n / slots;
        }
    }

    /// The variance of counts for each request of their mean: 1 of random arrivals, more of batches.
    pub(super) fn dispersion(&self) -> f64 {
        self.dispersion
    }

    /// What is due at this look apart from ticks. `is_worth` says whether a jump to so many requests
    /// in so long is worth a report.
    pub(super) fn due(
        &self,
        now: Time,
        switches: Switches,
        is_worth: impl FnOnce(f64, Duration) -> bool,
    ) -> Option<Kind> {
        let n = requests(self.since_report);
        if switches.early && n >= 4.0 * self.dispersion {
            let span = now.since(self.reported);
            let may = span >= MIN_BEFORE_EARLY && now.since(self.early_at) >= MIN_BETWEEN_EARLY;
            if may && self.is_jump(n, span) && is_worth(n, span) {
                return Some(Kind::Early);
            }
        }
        (now >= self.follow_up_at).then_some(Kind::FollowUp)
    }

    /// Whether a follow-up is to come; the tick leaves the key to it.
    pub(super) fn awaits_follow_up(&self) -> bool {
        self.follow_up_at != Time::NEVER
    }

    /// More than twice what was to be expected, beyond chance.
    fn is_jump(&self, n: f64, span: Duration) -> bool {
        let expected = self.usual_rps.max(self.last_rps) * span.as_secs_f64();
        let noise = 3.0 * (self.dispersion * expected).sqrt() + 2.0 * self.dispersion;
        n > 2.0 * expected + noise
    }

    /// Whether nothing will be said before there is a request.
    pub(super) fn is_quiet(&self) -> bool {
        self.idle_reports >= IDLE_REPORTS && self.offered_rps <= 0.0
    }

    /// Whether the key is not used here, and the last report says so.
    pub(super) fn is_gone(&self) -> bool {
        self.gone
    }

    /// What a report made now says; `None` if that is not worth saying.
    pub(super) fn state(&mut self, now: Time, kind: Kind, timing: &Timing) -> Option<Statement> {
        let span = now.since(self.reported);
        if span.is_zero() {
            return None;
        }
        let n = std::mem::take(&mut self.since_report);
        let rate_rps = requests(n) / span.as_secs_f64();
        self.reported = now;
        self.last_rps = rate_rps;
        self.usual_rps += forgotten(span, USUAL_MEMORY.as_secs_f64()) * (rate_rps - self.usual_rps);
        self.follow_up_at = Time::NEVER;
        if kind == Kind::Early {
            self.early_at = now;
            if timing.switches.follow_up {
                self.follow_up_at = now + FOLLOW_UP;
            }
        }
        self.disperse(span, timing.switches);
        self.close_window(now, kind, timing);
        let quiet = now.since(self.seen);
        self.idle_reports = if n > 0 { 0 } else { self.idle_reports.saturating_add(1) };
        self.gone |= quiet >= self.gone_after;
        if self.idle_reports > IDLE_REPORTS && self.offered_rps <= 0.0 && quiet < USUAL_MEMORY {
            return None;
        }
        let usual_rps = match n {
            // What is said stands until there is traffic: as much as a fading mean would add up to.
            0 if quiet >= USUAL_MEMORY => 0.0,
            MIN_PEAK.. => self.usual_rps.max(rate_rps),
            _ => self.usual_rps,
        };
        Some(Statement { rates: Stated::new(self.offered_rps, usual_rps), in_use: !self.gone })
    }

    fn disperse(&mut self, span: Duration, switches: Switches) {
        let left = 1.0 - forgotten(span, DISPERSION_MEMORY_S);
        self.dispersed *= left;
        self.squares *= left;
        self.dispersion = if !switches.dispersion {
            1.0
        } else if self.dispersed >= MIN_DISPERSED {
            let mean = self.usual_rps * SLOT.as_secs_f64();
            (self.squares / self.dispersed - mean).max(1.0)
        } else {
            USUAL_DISPERSION
        };
    }

    /// A report that was made because requests came says more than the true rate, so it never ends a
    /// window: it lends its rate until the follow-up, whose window begins here.
    fn close_window(&mut self, now: Time, kind: Kind, timing: &Timing) {
        let (n, span) = (requests(self.in_window), now.since(self.window_from));
        if kind == Kind::Early {
            let old = OLD_RATE.as_secs_f64();
            let lent_rps = (n + self.offered_rps * old) / (span.as_secs_f64() + old);
            self.offered_rps = self.offered_rps.max(lent_rps);
            if timing.switches.follow_up {
                (self.window_from, self.in_window) = (now, 0);
            }
            return;
        }
        // A tick falls on a look, which may be early or late by one.
        let whole = timing.tick.saturating_sub(timing.look).max(MIN_BEFORE_EARLY);
        let is_full = span >= whole || self.in_window >= FULL_WINDOW || kind == Kind::FollowUp;
        if is_full && !span.is_zero() {
            self.offered_rps = n / span.as_secs_f64();
            (self.window_from, self.in_window) = (now, 0);
        }
    }
}

/// The part that a mean which forgets over `memory_s` has forgotten after `span`.
fn forgotten(span: Duration, memory_s: f64) -> f64 {
    1.0 - (-span.as_secs_f64() / memory_s).exp()
}

#[expect(clippy::cast_precision_loss, reason = "requests between two reports, below 2^52")]
fn requests(n: u64) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests;
