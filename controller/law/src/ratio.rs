//! The law `ratio`: drop the share of the offered load that is over the limit.
//!
//! It must not know who the children are or how their counts arrived.
//!
//! Uber's rule is `drop_ratio = (actual - limit) / actual` over the last interval, so the admitted
//! share is `limit / actual`. Here a bucket's burst is added to it as credit, kept at the root of a
//! key:
//!
//! ```text
//! level   <- clamp(level + L * dt - charged, 0, depth)         requests
//! allowed  = L + level / max(2 s, 4 ticks)                     requests a second
//! admit    = 1                  if D <= allowed
//!          = allowed / D        otherwise                      share of 1
//! ```
//!
//! with `L` the limit's rate and `depth` its burst, `D` what is offered now, `charged` what went
//! through since the last step `dt` ago. In steady overload the credit is used up, so that an
//! offered load of 1.5 times the limit is dropped at 0.333. The credit is spent over several ticks
//! and never at once: what is decided now shows in the counts one to three ticks later, and credit
//! that is spent faster than that is spent twice.
//!
//! Source of the drop ratio: Uber Engineering on its Global Rate Limiter. The credit is this
//! project's own.

use std::time::Duration;

use sluicegate_model::{AdmitRatio, Limit};

/// Credit is spent over at least this long.
const SPEND_AT_LEAST: Duration = Duration::from_secs(2);
/// Credit is spent over at least this many ticks.
const SPEND_TICKS: u32 = 4;

/// What the law looks at in one step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Observed {
    /// Time since the last step.
    pub elapsed: Duration,
    /// The time from one step to the next while the key is in use.
    pub tick: Duration,
    /// Offered now, requests a second. Finite, not negative.
    pub offered_rps: f64,
    /// Requests that the limit was charged since the last step.
    pub charged: u64,
}

/// The unused burst of one key, in requests: between 0 and the depth of its limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Credit(f64);

impl Credit {
    /// The whole burst of `limit`.
    #[must_use]
    pub fn full(limit: &Limit) -> Self {
        match limit {
            Limit::Unlimited => Self(f64::INFINITY),
            Limit::Tokens(t) => Self(t.depth()),
        }
    }

    /// Requests that may still come at once.
    #[must_use]
    pub fn level(self) -> f64 {
        self.0
    }

    /// What is left of this credit under another limit. A higher one does not add to it.
    #[must_use]
    pub fn under(self, limit: &Limit) -> Self {
        Self(self.0.min(Self::full(limit).0))
    }

    /// Whether nothing of the burst would be missing after a pause of `elapsed`.
    #[must_use]
    pub fn is_full_after(self, limit: &Limit, elapsed: Duration) -> bool {
        match limit {
            Limit::Unlimited => true,
            Limit::Tokens(t) => self.0 + t.rate_rps() * elapsed.as_secs_f64() >= t.depth(),
        }
    }

    /// One step of the law: brings the credit up to date and says what share to admit.
    ///
    /// A limit of 0 admits nothing, an unlimited one everything, any other at least the smallest
    /// ratio above nothing.
    #[must_use]
    pub fn step(&mut self, limit: &Limit, seen: &Observed) -> AdmitRatio {
        let Limit::Tokens(tokens) = limit else {
            *self = Self::full(limit);
            return AdmitRatio::ALL;
        };
        if limit.denies_all() {
            self.0 = 0.0;
            return AdmitRatio::NONE;
        }
        let rate = tokens.rate_rps();
        #[expect(clippy::cast_precision_loss, reason = "far more than the credit either way")]
        let charged = seen.charged as f64;
        let level = self.0 + rate * seen.elapsed.as_secs_f64() - charged;
        self.0 = level.clamp(0.0, tokens.depth());

        let spend_over = SPEND_AT_LEAST.max(seen.tick * SPEND_TICKS);
        let allowed = rate + self.0 / spend_over.as_secs_f64();
        if seen.offered_rps <= allowed {
            AdmitRatio::ALL
        } else {
            AdmitRatio::from_share(allowed / seen.offered_rps).max(AdmitRatio::from_bits(1))
        }
    }
}

/// The share to drop that the plain formula gives: `max(0, (offered - limit) / offered)`.
#[must_use]
pub fn drop_ratio(offered_rps: f64, limit_rps: f64) -> f64 {
    if offered_rps > 0.0 { ((offered_rps - limit_rps) / offered_rps).max(0.0) } else { 0.0 }
}
