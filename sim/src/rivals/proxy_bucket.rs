//! Law `proxy-bucket`: a token bucket in each client.
//!
//! Source: Uber's public account of its global rate limiter, of the design before the present one.
//! A client refills its own bucket with `ratio x limit`, the ratio being its own part of the load
//! of all, which the tiers above sum up and send down. Tokens that are left at the end of an
//! interval are kept in a ring for 10 seconds (up to 20), and the oldest are spent first.
//!
//! Parameters: `rivals.proxy_bucket.interval_ms`, `.keep_ms`. The ring has one place for each whole
//! interval in `keep_ms`. Before it hears of the load of all, a client admits everything.

use super::design::{Design, Own, Sum};
use super::keys::Bound;
use super::parameters::{ProxyBucket, Route};
use crate::random::Rng;

use crate::trace::Trace;

/// The law.
pub(crate) struct Law(pub(crate) ProxyBucket);

/// A client's bucket.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Gate {
    /// What all offer, requests a second; not known at first.
    load_rps: Option<f64>,
    /// This interval's tokens.
    tokens: f64,
    /// What earlier ones left; `oldest` is the place of the oldest.
    ring: Box<[f64]>,
    oldest: usize,
}

impl Design for Law {
    type Gate = Gate;
    type Root = ();
    type Word = f64;

    fn interval_ms(&self) -> u64 {
        self.0.interval_ms
    }

    fn route(&self) -> Route {
        Route::Tiers
    }

    fn gate(&self) -> Gate {
        let places = usize::try_from(self.0.keep_ms / self.0.interval_ms).unwrap_or(0);
        Gate { load_rps: None, tokens: 0.0, ring: vec![0.0; places].into(), oldest: 0 }
    }

    fn admits(&self, gate: &mut Gate, _now: u64, _rng: &mut Rng) -> bool {
        gate.load_rps.is_none()
            || gate.tokens >= 1.0
            || gate.ring.iter().any(|tokens| *tokens >= 1.0)
            || gate.ring.iter().sum::<f64>() + gate.tokens >= 1.0
    }

    fn take(&self, gate: &mut Gate) {
        if gate.load_rps.is_some() {
            gate.spend();
        }
    }

    fn interval_over(&self, gate: &mut Gate, limit: Bound, own: Own) {
        let Some(load_rps) = gate.load_rps.filter(|load| *load > 0.0) else { return };
        if !gate.ring.is_empty() {
            gate.ring[gate.oldest] = gate.tokens.max(0.0);
            gate.oldest = (gate.oldest + 1) % gate.ring.len();
        }
        gate.tokens = (own.offered_rps / load_rps).min(1.0) * limit.rps * own.seconds;
    }

    fn hear(&self, gate: &mut Gate, load_rps: f64) {
        gate.load_rps = (load_rps > 0.0).then_some(load_rps);
    }

    fn root(&self) {}

    fn step(&self, (): &mut (), _limit: Bound, _now: u64, sum: Sum) -> f64 {
        sum.offered_rps
    }

    fn trace(load_rps: f64, trace: &mut Trace) {
        trace.number(load_rps.to_bits());
    }
}

impl Gate {
    /// Takes one token: a whole one from the oldest place that has one, or else all remains
    /// together.
    fn spend(&mut self) {
        let places = self.ring.len();
        let from_oldest = |i: usize| (self.oldest + i) % places;
        if let Some(place) = (0..places).map(from_oldest).find(|p| self.ring[*p] >= 1.0) {
            self.ring[place] -= 1.0;
        } else if self.tokens >= 1.0 {
            self.tokens -= 1.0;
        } else {
            let mut open = 1.0_f64;
            for i in 0..places {
                let tokens = &mut self.ring[(self.oldest + i) % places];
                let part = tokens.min(open);
                *tokens -= part;
                open -= part;
            }
            self.tokens -= open;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Bound = Bound { rps: 100.0, burst: 10.0 };

    fn law(keep_ms: u64) -> Law {
        Law(ProxyBucket { interval_ms: 1000, keep_ms })
    }

    /// How many of `asks` go through.
    fn admitted(law: &Law, gate: &mut Gate, asks: u32) -> u32 {
        let mut rng = Rng::new(1, 1);
        let mut count = 0;
        for _ in 0..asks {
            if law.admits(gate, 0, &mut rng) {
                law.take(gate);
                count += 1;
            }
        }
        count
    }

    #[test]
    fn all_goes_through_until_the_load_of_all_is_known() {
        let law = law(10_000);
        let mut gate = law.gate();
        law.interval_over(&mut gate, LIMIT, Own { offered_rps: 50.0, seconds: 1.0 });
        assert_eq!(admitted(&law, &mut gate, 500), 500);
        law.hear(&mut gate, 200.0);
        assert_eq!(admitted(&law, &mut gate, 500), 0);
    }

    #[test]
    fn the_refill_is_the_own_part_of_the_limit() {
        let law = law(0);
        let mut gate = law.gate();
        law.hear(&mut gate, 200.0);
        law.interval_over(&mut gate, LIMIT, Own { offered_rps: 50.0, seconds: 1.0 });
        assert_eq!(admitted(&law, &mut gate, 500), 25);
        // Never more than the limit, however old the load of all is.
        law.interval_over(&mut gate, LIMIT, Own { offered_rps: 5000.0, seconds: 1.0 });
        assert_eq!(admitted(&law, &mut gate, 500), 100);
    }

    #[test]
    fn unused_tokens_are_kept_for_as_long_as_the_ring_is() {
        let law = law(3000);
        let mut gate = law.gate();
        law.hear(&mut gate, 100.0);
        for _ in 0..10 {
            law.interval_over(&mut gate, LIMIT, Own { offered_rps: 20.0, seconds: 1.0 });
        }
        // Three old refills and the present one.
        assert_eq!(admitted(&law, &mut gate, 500), 80);
    }

    #[test]
    fn remains_make_whole_tokens() {
        let law = law(2000);
        let mut gate = law.gate();
        law.hear(&mut gate, 100.0);
        for _ in 0..3 {
            law.interval_over(&mut gate, LIMIT, Own { offered_rps: 0.4, seconds: 1.0 });
        }
        assert_eq!(admitted(&law, &mut gate, 5), 1);
        assert!((gate.ring.iter().sum::<f64>() + gate.tokens - 0.2).abs() < 1e-9);
    }
}
