//! Law `batch-rate`: batch reports, and a share to reject.
//!
//! Source: Databricks' public account of its rate limiter, the second design: the owner of the count
//! answers with `rejectionRate = (estimatedQps - limit) / estimatedQps` and with a time until which
//! it holds (`rejectTilTimestamp`), on the assumption that traffic goes on as it is. Clients reject
//! that share at random. What went through too much is not paid back.
//!
//! Parameters: `rivals.batch_rate.interval_ms`, `.route`, `.estimate_ms`, `.hold_ms`. The estimate is
//! the mean of what clients offered in their last intervals, over the owner's steps in
//! `estimate_ms`; the account does not say how it is made, and one interval is the quickest.

use std::collections::VecDeque;

use super::design::{Design, Sum};
use super::keys::Bound;
use super::parameters::{BatchRate, Route};
use crate::random::Rng;

use crate::trace::Trace;

/// The law.
pub(crate) struct Law(pub(crate) BatchRate);

/// What to reject, and until when.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Rejection {
    share: f64,
    until: u64,
}

impl Design for Law {
    type Gate = Rejection;
    /// What all offered at the last steps.
    type Root = VecDeque<f64>;
    type Word = Rejection;

    fn interval_ms(&self) -> u64 {
        self.0.interval_ms
    }

    fn route(&self) -> Route {
        self.0.route
    }

    fn gate(&self) -> Rejection {
        Rejection::default()
    }

    fn admits(&self, gate: &mut Rejection, now: u64, rng: &mut Rng) -> bool {
        now >= gate.until || !rng.happens(gate.share)
    }

    fn hear(&self, gate: &mut Rejection, word: Rejection) {
        *gate = word;
    }

    fn root(&self) -> VecDeque<f64> {
        VecDeque::new()
    }

    #[expect(clippy::cast_precision_loss, reason = "a few thousand steps at most")]
    fn step(&self, last: &mut VecDeque<f64>, limit: Bound, now: u64, sum: Sum) -> Rejection {
        let steps = usize::try_from(self.0.estimate_ms / self.0.interval_ms).unwrap_or(1).max(1);
        last.push_back(sum.offered_rps);
        while last.len() > steps {
            last.pop_front();
        }
        let estimate = last.iter().sum::<f64>() / last.len() as f64;
        if estimate <= limit.rps {
            return Rejection::default();
        }
        let until = now.saturating_add(self.0.hold_ms * 1_000_000);
        Rejection { share: (estimate - limit.rps) / estimate, until }
    }

    fn trace(word: Rejection, trace: &mut Trace) {
        trace.number(word.share.to_bits());
        trace.number(word.until);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Bound = Bound { rps: 100.0, burst: 10.0 };

    fn sum(offered_rps: f64) -> Sum {
        Sum { offered_rps, admitted: 0 }
    }

    #[test]
    fn the_share_is_what_is_over_the_limit() {
        let law = Law(BatchRate::default());
        let mut root = law.root();
        assert_eq!(law.step(&mut root, LIMIT, 0, sum(100.0)), Rejection::default());
        let word = law.step(&mut root, LIMIT, 7, sum(150.0));
        assert!((word.share - 1.0 / 3.0).abs() < 1e-12);
        assert_eq!(word.until, 1_000_000_007);
    }

    #[test]
    fn the_estimate_may_be_over_several_steps() {
        let law = Law(BatchRate { estimate_ms: 200, ..BatchRate::default() });
        let mut root = law.root();
        law.step(&mut root, LIMIT, 0, sum(1e9));
        law.step(&mut root, LIMIT, 0, sum(0.0));
        let word = law.step(&mut root, LIMIT, 0, sum(400.0));
        assert!((word.share - 0.5).abs() < 1e-12);
    }

    #[test]
    fn a_client_rejects_that_share_while_it_holds() {
        let law = Law(BatchRate::default());
        let (mut gate, mut rng) = (law.gate(), Rng::new(1, 1));
        law.hear(&mut gate, Rejection { share: 0.75, until: 100 });
        let admitted = (0..10_000).filter(|_| law.admits(&mut gate, 99, &mut rng)).count();
        assert!((2300..2700).contains(&admitted), "{admitted}");
        assert!((0..100).all(|_| law.admits(&mut gate, 100, &mut rng)));
    }
}
