//! The cap of one key: a token bucket of the whole limit, so that one client alone never admits more
//! than the fleet may.
//!
//! Fed with exact counts of what was admitted, it says what the decision path may admit until the
//! next look. It knows no slots, no stripes and no directives.

use std::time::Duration;

use sluicegate_model::{Time, TokenRate};

/// How far ahead a budget reaches: what the bucket will hold by then may be admitted at once, so
/// that a look that comes a little late drops nothing that the limit allows. A look that is later
/// than this admits (the decision path sees the age of the heartbeat).
pub(super) const BUDGET_HORIZON: Duration = Duration::from_millis(50);

/// Absorbs rounding of the level, far below one request.
const ROUNDING: f64 = 1e-6;

/// What flows into a key's token bucket, and how much it holds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Flow {
    pub(super) rate_rps: f64,
    pub(super) depth: f64,
}

impl Flow {
    /// This limit, or the one its root says is in force if that is higher: a client that has not
    /// heard of a change yet must not drop what the new limit allows.
    pub(super) fn raised_to(self, limit_rps: f64) -> Self {
        if limit_rps > self.rate_rps {
            let factor = limit_rps / self.rate_rps;
            return Self { rate_rps: limit_rps, depth: self.depth * factor };
        }
        self
    }
}

impl From<TokenRate> for Flow {
    fn from(rate: TokenRate) -> Self {
        Self { rate_rps: rate.rate_rps(), depth: rate.depth() }
    }
}

/// The level of one key's token bucket.
///
/// Between two looks the arrivals may have come at any moment. The level is counted as if all of
/// them had come first and the refill after: never lower than any true order would leave it, so
/// nothing is dropped that a token bucket asked at each request would admit. Over any span it still
/// admits at most `depth + rate * span`, plus what a budget lends in advance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Cap {
    level: f64,
    at: Time,
}

impl Cap {
    /// A full bucket, as of `now`.
    pub(super) fn full(flow: &Flow, now: Time) -> Self {
        Self { level: flow.depth, at: now }
    }

    /// Takes `admitted` requests since the last call out, and puts in what has flowed since.
    pub(super) fn take(&mut self, flow: &Flow, admitted: u64, now: Time) {
        let span = now.since(self.at);
        #[expect(clippy::cast_precision_loss, reason = "admitted between two looks, below 2^52")]
        let admitted = admitted as f64;
        let filled = self.level + flow.rate_rps * span.as_secs_f64() - admitted;
        self.level = filled.min(flow.depth);
        if span > BUDGET_HORIZON {
            // Nobody watched for so long that the decision path stopped trusting the budget. What it
            // let through then was its own rule, not a debt; what a budget may lend stays owed.
            self.level = self.level.max(-lent(flow, BUDGET_HORIZON));
        }
        self.at = now;
    }

    /// What may be admitted from now on if the next look comes within `horizon`.
    pub(super) fn budget(&self, flow: &Flow, horizon: Duration) -> u64 {
        let holds = self.level + lent(flow, horizon) + ROUNDING;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
        let budget = holds.clamp(0.0, MAX_BUDGET) as u64;
        budget
    }

    /// Whether nothing is missing from the bucket.
    pub(super) fn is_full(&self, flow: &Flow) -> bool {
        self.level >= flow.depth
    }

    /// Follows a change of the limit: what was spent stays spent.
    pub(super) fn change(&mut self, from: &Flow, to: &Flow) {
        self.level += to.depth - from.depth;
        self.level = self.level.min(to.depth);
    }

    #[cfg(test)]
    pub(super) fn level(&self) -> f64 {
        self.level
    }
}

/// The largest budget: far above what a look can see, exact as a float.
const MAX_BUDGET: f64 = 1e15;

fn lent(flow: &Flow, horizon: Duration) -> f64 {
    flow.rate_rps * horizon.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LOOK: Duration = Duration::from_millis(10);

    fn flow(requests: u64, burst: u64) -> Flow {
        TokenRate::per_second(requests, Some(burst)).expect("a limit").into()
    }

    /// A token bucket asked at each request: what must never be dropped.
    struct Exact {
        level: f64,
        at: Time,
    }

    impl Exact {
        fn admit(&mut self, flow: &Flow, now: Time) -> bool {
            let filled = self.level + flow.rate_rps * now.since(self.at).as_secs_f64();
            self.level = filled.min(flow.depth);
            self.at = now;
            let yes = self.level >= 1.0;
            if yes {
                self.level -= 1.0;
            }
            yes
        }
    }

    #[test]
    fn an_overshoot_is_paid_back() {
        let flow = flow(100, 10);
        let mut cap = Cap::full(&flow, Time::ZERO);
        assert_eq!(cap.budget(&flow, BUDGET_HORIZON), 15);
        cap.take(&flow, 40, Time::from_millis(10));
        assert!((cap.level() + 29.0).abs() < 1e-9);
        assert_eq!(cap.budget(&flow, BUDGET_HORIZON), 0);
        let mut now = Time::from_millis(10);
        while cap.budget(&flow, BUDGET_HORIZON) == 0 {
            now = now + LOOK;
            cap.take(&flow, 0, now);
        }
        // 30 missing tokens come in 300 ms; a budget reaches 50 ms ahead.
        assert_eq!(now, Time::from_millis(260));
    }

    #[test]
    fn a_long_pause_leaves_no_debt_and_no_more_than_a_full_bucket() {
        let flow = flow(100, 10);
        let mut cap = Cap::full(&flow, Time::ZERO);
        cap.take(&flow, 1_000_000, Time::from_millis(30_000));
        assert!((cap.level() + 5.0).abs() < 1e-9, "what a budget lends is all that stays owed");
        cap.take(&flow, 0, Time::from_millis(60_000));
        assert!(cap.is_full(&flow));
        assert!((cap.level() - 10.0).abs() < 1e-9);
    }

    #[test]
    fn a_change_of_the_limit_keeps_what_was_spent() {
        let (small, large) = (flow(100, 10), flow(1000, 100));
        let mut cap = Cap::full(&small, Time::ZERO);
        cap.take(&small, 4, Time::ZERO);
        cap.change(&small, &large);
        assert!((cap.level() - 96.0).abs() < 1e-9);
        cap.change(&large, &small);
        assert!((cap.level() - 6.0).abs() < 1e-9);
    }

    #[test]
    fn a_huge_limit_has_a_budget() {
        let rate = TokenRate::per_second(1_000_000_000_000, None).expect("a limit");
        let cap = Cap::full(&rate.into(), Time::ZERO);
        assert_eq!(cap.budget(&rate.into(), BUDGET_HORIZON), 150_000_000_000);
    }

    proptest! {
        /// One counter, looks every 10 ms, arrivals in any pattern: never less than a token bucket
        /// that is asked at each request, never more than limit and burst plus what is lent.
        #[test]
        fn neither_drops_falsely_nor_admits_too_much(
            requests in 1_u64..5_000,
            burst in 1_u64..500,
            arrivals in proptest::collection::vec((0_u64..30_000, 1_u64..40), 1..400),
        ) {
            let flow = flow(requests, burst);
            let mut cap = Cap::full(&flow, Time::ZERO);
            let mut exact = Exact { level: flow.depth, at: Time::ZERO };
            let (mut left, mut since_look) = (cap.budget(&flow, BUDGET_HORIZON), 0_u64);
            let (mut look, mut now) = (Time::ZERO + LOOK, Time::ZERO);
            let (mut admitted, mut owed) = (0_u64, 0_u64);
            for (gap_us, many) in arrivals {
                now = now + Duration::from_micros(gap_us);
                while look <= now {
                    cap.take(&flow, since_look, look);
                    (left, since_look) = (cap.budget(&flow, BUDGET_HORIZON), 0);
                    look = look + LOOK;
                }
                for _ in 0..many {
                    owed += u64::from(exact.admit(&flow, now));
                    if left > 0 {
                        (left, since_look, admitted) = (left - 1, since_look + 1, admitted + 1);
                    }
                }
                prop_assert!(admitted >= owed, "{admitted} admitted, {owed} allowed at {now:?}");
                let span = now.since(Time::ZERO).as_secs_f64();
                let most = flow.depth + flow.rate_rps * (span + BUDGET_HORIZON.as_secs_f64());
                #[expect(clippy::cast_precision_loss, reason = "small")]
                let admitted = admitted as f64;
                prop_assert!(admitted <= most + 1e-3, "{admitted} admitted, at most {most}");
            }
        }
    }
}
