//! Law `batch-window`: batch reports to a central fixed window.
//!
//! Source: Databricks' public account of its rate limiter, the first design after the one with a
//! call per request: clients admit by default and report in batches; the owner of the count keeps a
//! fixed window, and once that is over its limit all clients reject until the window ends. What
//! went through too much is not paid back, except that reports which come after the end of a
//! window count in the next one.
//!
//! Parameters: `rivals.batch_window.interval_ms`, `.route`, `.window_ms`. Windows begin at full
//! multiples of their length on the owner's clock, and count what went through.

use super::design::{Design, Sum};
use super::keys::Bound;
use super::parameters::{BatchWindow, Route};
use super::window::{FixedWindow, quota};
use crate::random::Rng;

use crate::trace::Trace;

/// The law.
pub(crate) struct Law(pub(crate) BatchWindow);

impl Design for Law {
    /// Until when everything is rejected.
    type Gate = u64;
    type Root = FixedWindow;
    type Word = u64;

    fn interval_ms(&self) -> u64 {
        self.0.interval_ms
    }

    fn route(&self) -> Route {
        self.0.route
    }

    fn gate(&self) -> u64 {
        0
    }

    fn admits(&self, until: &mut u64, now: u64, _rng: &mut Rng) -> bool {
        now >= *until
    }

    fn hear(&self, until: &mut u64, word: u64) {
        *until = word;
    }

    fn root(&self) -> FixedWindow {
        FixedWindow::default()
    }

    #[expect(clippy::cast_precision_loss, reason = "counts of one run")]
    fn step(&self, window: &mut FixedWindow, limit: Bound, now: u64, sum: Sum) -> u64 {
        let length = self.0.window_ms * 1_000_000;
        let count = window.add(now, length, sum.admitted) as f64;
        if count >= quota(limit.rps, length) { FixedWindow::end(now, length) } else { 0 }
    }

    fn trace(until: u64, trace: &mut Trace) {
        trace.number(until);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_window_rejects_until_its_end_and_the_next_one_is_empty() {
        let law = Law(BatchWindow::default());
        let limit = Bound { rps: 100.0, burst: 10.0 };
        let mut root = law.root();
        let at = |ms: u64| ms * 1_000_000;
        let sum = |admitted| Sum { offered_rps: 0.0, admitted };
        assert_eq!(law.step(&mut root, limit, at(3100), sum(99)), 0);
        assert_eq!(law.step(&mut root, limit, at(3200), sum(300)), at(4000));
        assert_eq!(law.step(&mut root, limit, at(3900), sum(0)), at(4000));
        assert_eq!(law.step(&mut root, limit, at(4000), sum(0)), 0);
    }
}
