//! What the last directive of a key says beyond its ratio, and the guard that follows from it: the
//! rate that a client whose load jumps keeps to until word of the jump has come back.
//!
//! Pure functions of a directive and of rates. It knows no slots and no counts; the level is a
//! [`Cap`](super::cap::Cap) like that of the whole limit.
//!
//! A guard lends nothing in advance: until the next look no more is admitted than it holds. A key
//! that threads count apart is given that much on each stripe, so that within one look the stripes
//! together may admit more than it holds, at most once for each of them. That is a debt: nothing
//! more is admitted until it is paid, and over any longer span the guard's rate holds.

use std::time::Duration;

use sluicegate_model::{Directive, Time};

use super::cap::Flow;
use super::ledger::Stated;

/// At this limit and below, requests a second, nobody has a part big enough to guard, and whatever is
/// admitted is reported at once.
pub(super) const LOW_LIMIT_RPS: f64 = 200.0;
/// With an equal part of the limit below this, one request more or less is too much of it.
const MIN_PART_RPS: f64 = 1.0;
/// Above this share of its limit in use a key is busy.
const BUSY: f64 = 0.2;
/// Below this rate a count of one tick says little: a client has at least its own share.
const MIN_SAMPLE: f64 = 10.0;

/// How much more than what it was told to admit a client may.
const SLACK: f64 = 1.5;
/// And of an equal part of the limit, for clients that were quiet.
const SLACK_OF_PART: f64 = 0.25;
/// Without a directive for so long there is no slack.
const STALE_AFTER: Duration = Duration::from_millis(2500);
const STALE_SLACK: f64 = 1.0;
const STALE_SLACK_OF_PART: f64 = 0.1;

/// It holds what flows in so long a time,
const DEPTH: Duration = Duration::from_millis(30);
/// and at least so many requests, and so many more for the dispersion: what arrives in bursts below
/// its rate must pass.
const MIN_DEPTH: f64 = 2.0;
const DEPTH_OF_DISPERSION: f64 = 6.0;

/// What is kept of the last directive of a key.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Terms {
    admit: f64,
    headroom: f64,
    sigma: f64,
    limit_rps: f64,
    sessions: u32,
    at: Time,
}

impl Terms {
    pub(super) fn new(directive: &Directive, now: Time) -> Self {
        Self {
            admit: directive.admit.share(),
            headroom: directive.headroom.into(),
            sigma: directive.sigma.into(),
            limit_rps: directive.limit_rps,
            sessions: directive.sessions,
            at: now,
        }
    }

    /// Whether more than a fifth of what may be admitted is in use.
    pub(super) fn is_busy(&self) -> bool {
        self.admit < 1.0 || self.sigma * BUSY < 1.0
    }

    /// Whether `n` requests in `span` are more than a fifth of this client's own share.
    pub(super) fn is_much(&self, n: f64, span: Duration, acked: Stated, slot: Duration) -> bool {
        let own_rps = (self.sigma * f64::from(acked.usual_rps)).max(self.part_rps());
        n > BUSY * own_rps * span.max(slot).as_secs_f64()
    }

    /// What flows into the guard, and how much it holds; `None` where a guard would drop falsely.
    pub(super) fn guard(
        &self,
        now: Time,
        acked: Stated,
        dispersion: f64,
        tick: Duration,
    ) -> Option<Flow> {
        if self.limit_rps <= LOW_LIMIT_RPS || self.part_rps() < MIN_PART_RPS {
            return None;
        }
        let (offered_rps, usual_rps) = (f64::from(acked.offered_rps), f64::from(acked.usual_rps));
        let mut told_rps = self.admit * offered_rps + self.headroom * usual_rps;
        if offered_rps * tick.as_secs_f64() < MIN_SAMPLE {
            told_rps = told_rps.max(self.sigma * usual_rps);
        }
        let (slack, of_part) = if now.since(self.at) < STALE_AFTER {
            (SLACK, SLACK_OF_PART)
        } else {
            (STALE_SLACK, STALE_SLACK_OF_PART)
        };
        let rate_rps = slack * told_rps + of_part * self.part_rps();
        let least = MIN_DEPTH + DEPTH_OF_DISPERSION * dispersion;
        let depth = (rate_rps * DEPTH.as_secs_f64()).max(least);
        rate_rps.is_finite().then_some(Flow { rate_rps, depth })
    }

    /// An equal part of the limit for every client that uses the key.
    fn part_rps(&self) -> f64 {
        self.limit_rps / f64::from(self.sessions.max(1))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sluicegate_model::AdmitRatio;

    use super::*;

    const TICK: Duration = Duration::from_millis(100);
    const SLOT: Duration = Duration::from_millis(10);
    const NOW: Time = Time::from_millis(5_000);

    fn terms(admit: f64, headroom: f32, sigma: f32, limit_rps: f64, sessions: u32) -> Terms {
        let directive = Directive {
            admit: AdmitRatio::from_share(admit),
            headroom,
            sigma,
            grant: None,
            limit_rps,
            sessions,
            term: 1,
            seq: 1,
            ttl: Duration::from_secs(10),
        };
        Terms::new(&directive, NOW)
    }

    fn rate(terms: &Terms, after: Duration, offered_rps: f64, usual_rps: f64) -> Option<f64> {
        let acked = Stated::new(offered_rps, usual_rps);
        terms.guard(NOW + after, acked, 1.0, TICK).map(|flow| flow.rate_rps)
    }

    #[test]
    fn the_rate_is_what_was_told_with_some_slack() {
        let busy = terms(0.5, 0.0, 0.5, 20_000.0, 100);
        // 1.5 * 0.5 * 400 + 0.25 * 200
        assert_eq!(rate(&busy, SLOT, 400.0, 400.0), Some(350.0));
        // 1 * 0.5 * 400 + 0.1 * 200
        assert_eq!(rate(&busy, Duration::from_millis(2500), 400.0, 400.0), Some(220.0));
        let calm = terms(1.0, 2.0, 3.0, 20_000.0, 100);
        // 1.5 * (400 + 2 * 500) + 50
        assert_eq!(rate(&calm, SLOT, 400.0, 500.0), Some(2_150.0));
        // Of 20 requests a second a tick sees two: 1.5 * 3 * 50 is more than 1.5 * (20 + 2 * 25).
        assert_eq!(rate(&calm, SLOT, 20.0, 50.0), Some(1.5 * 150.0 + 50.0));
        assert_eq!(rate(&calm, SLOT, 0.0, 0.0), Some(50.0), "a client that was quiet");
    }

    #[test]
    fn it_holds_thirty_milliseconds_or_a_burst() {
        let flow = terms(1.0, 0.0, 1.0, 100_000.0, 10);
        let guard = |rps, dispersion| {
            let acked = Stated::new(rps, rps);
            flow.guard(NOW, acked, dispersion, TICK).expect("a guard").depth
        };
        assert!((guard(10_000.0, 1.0) - 17_500.0 * 0.03).abs() < 1e-6);
        assert!((guard(0.0, 1.0) - 75.0).abs() < 1e-6);
        assert!((guard(0.0, 30.0) - 182.0).abs() < 1e-6);
    }

    #[test]
    fn low_limits_and_small_parts_are_not_guarded() {
        let rps = |limit, sessions| rate(&terms(0.5, 0.0, 0.5, limit, sessions), SLOT, 50.0, 50.0);
        assert_eq!(rps(200.0, 1), None);
        assert_eq!(rps(300.0, 301), None);
        assert!(rps(300.0, 300).is_some() && rps(300.0, 0).is_some());
        assert_eq!(rps(f64::INFINITY, 10), None);
    }

    #[test]
    fn a_key_is_busy_above_a_fifth() {
        assert!(terms(0.999, 0.0, 9.0, 1e4, 1).is_busy());
        assert!(terms(1.0, 0.0, 4.9, 1e4, 1).is_busy());
        assert!(!terms(1.0, 0.0, 5.1, 1e4, 1).is_busy());
        let calm = terms(1.0, 0.0, 10.0, 10_000.0, 100);
        let much = |n, usual| calm.is_much(n, SLOT, Stated::new(0.0, usual), SLOT);
        // A part is 100 a second, one in 10 ms; ten times the usual rate may be more.
        assert!(much(0.3, 0.0) && !much(0.1, 0.0));
        assert!(much(21.0, 1_000.0) && !much(19.0, 1_000.0));
    }

    proptest! {
        /// In a steady state a guard never has less than what a client is told to admit.
        #[test]
        fn it_leaves_room_for_what_was_told(
            admit in 0.0..1.0_f64, sigma in 0.0..50.0_f32, headroom in 0.0..10.0_f32,
            offered in 0.0..1e5_f64, stale in any::<bool>(),
        ) {
            let terms = terms(admit, headroom, sigma, 20_000.0, 100);
            let after = if stale { Duration::from_secs(9) } else { SLOT };
            let rate = rate(&terms, after, offered, offered).expect("a guard");
            prop_assert!(rate >= admit * offered * 0.999_999);
        }
    }
}
