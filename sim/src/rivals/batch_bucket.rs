//! Law `batch-bucket`: a central token bucket that may go negative.
//!
//! Source: Databricks' public account of its rate limiter, the last of three designs. Clients admit
//! and report in batches; the owner of the count takes what went through from a token bucket, which
//! goes below zero when too much did; while it is below, clients reject everything, until the time
//! at which the refill will have brought it back (`rejectTilTimestamp`). So what went through too
//! much is paid back in full.
//!
//! Parameters: `rivals.batch_bucket.interval_ms`, `.route`, `.most_debt_s`. The bucket starts empty.

use super::design::{Design, Sum};
use super::keys::Bound;
use super::parameters::{BatchBucket, Route};
use crate::random::Rng;

use crate::trace::Trace;

/// The law.
pub(crate) struct Law(pub(crate) BatchBucket);

/// The central bucket.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Root {
    level: f64,
    stepped: Option<u64>,
}

impl Design for Law {
    /// Until when everything is rejected.
    type Gate = u64;
    type Root = Root;
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

    fn root(&self) -> Root {
        Root::default()
    }

    #[expect(clippy::cast_precision_loss, reason = "counts of one run")]
    fn step(&self, root: &mut Root, limit: Bound, now: u64, sum: Sum) -> u64 {
        let passed = now.saturating_sub(root.stepped.unwrap_or(now)) as f64 / 1e9;
        root.stepped = Some(now);
        root.level += limit.rps * passed - sum.admitted as f64;
        if let Some(most) = self.0.most_debt_s {
            root.level = root.level.max(-most * limit.rps);
        }
        root.level = root.level.min(limit.burst);
        if root.level >= 0.0 {
            return 0;
        }
        if limit.rps <= 0.0 {
            return u64::MAX;
        }
        now.saturating_add(crate::setup::nanos(-root.level / limit.rps))
    }

    fn trace(until: u64, trace: &mut Trace) {
        trace.number(until);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Bound = Bound { rps: 100.0, burst: 10.0 };
    const S: u64 = 1_000_000_000;

    fn sum(admitted: u64) -> Sum {
        Sum { offered_rps: 0.0, admitted }
    }

    #[test]
    fn rejects_until_the_debt_is_paid() {
        let law = Law(BatchBucket::default());
        let mut root = law.root();
        assert_eq!(law.step(&mut root, LIMIT, S, sum(0)), 0);
        // 100 came in, at most the burst is kept; then 60 go out: 50 too many.
        assert_eq!(law.step(&mut root, LIMIT, 2 * S, sum(0)), 0);
        assert_eq!(law.step(&mut root, LIMIT, 2 * S, sum(60)), 2 * S + S / 2);
        // Half a second on it is even.
        assert_eq!(law.step(&mut root, LIMIT, 2 * S + S / 2, sum(0)), 0);
    }

    #[test]
    fn debt_can_be_bounded_and_a_limit_of_nothing_rejects_for_ever() {
        let law = Law(BatchBucket { most_debt_s: Some(2.0), ..BatchBucket::default() });
        let mut root = law.root();
        assert_eq!(law.step(&mut root, LIMIT, S, sum(100_000)), 3 * S);
        let nothing = Bound { rps: 0.0, burst: 0.0 };
        let law = Law(BatchBucket::default());
        assert_eq!(law.step(&mut law.root(), nothing, S, sum(1)), u64::MAX);
    }

    #[test]
    fn a_client_admits_again_when_the_time_has_come() {
        let law = Law(BatchBucket::default());
        let (mut gate, mut rng) = (law.gate(), Rng::new(1, 1));
        assert!(law.admits(&mut gate, 0, &mut rng));
        law.hear(&mut gate, 50);
        assert!(!law.admits(&mut gate, 49, &mut rng));
        assert!(law.admits(&mut gate, 50, &mut rng));
    }
}
