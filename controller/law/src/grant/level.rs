//! The root's part: how much may be admitted now, given what was.
//!
//! ```text
//! l  <- clamp(l + L dt - admitted, -1 s of L, B)        B = max(burst, 3 + 3 sqrt(L T))
//! u   = L + l/tau                  if l >= 0            tau = max(2 s, 4 T)
//!     = L (1 - pay(-l/L))          otherwise
//! pay(x) = min(1, min(x/tau, 0.03) + max(0, x - 0.25 s)/tau + min(x/tau, noise))
//! noise  = max(0, 3/sqrt(L tau) - 0.02)
//! ```
//!
//! A small debt is paid back gently, so that service stays even; a large one steeply, so that an
//! underestimated demand cannot outrun it. At low limits noise alone makes debts, hence the third
//! term. A slow correction `beta` then makes up for what estimates get wrong on average: it follows
//! how much of the allowance was admitted while demand was calm and above it.

use std::time::Duration;

use sluicegate_model::Time;

/// Debts and credit are settled over at least this, or four windows.
const SETTLE_OVER_S: f64 = 2.0;
/// A small debt costs at most this share of the limit.
const GENTLE: f64 = 0.03;
/// A debt is small up to this, in seconds of the limit.
const SMALL_S: f64 = 0.25;
/// The largest debt that is remembered, in seconds of the limit, and at least in requests.
const DEBT_MOST_S: f64 = 1.0;
const DEBT_MOST_REQUESTS: f64 = 10.0;
/// The correction stays within these.
const CORRECTION: (f64, f64) = (0.7, 1.4);

/// What a step looks at.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Observed {
    /// The limit, requests a second. Above 0.
    pub limit_rps: f64,
    /// Its burst, requests.
    pub depth: f64,
    /// The estimate of what is offered, requests a second.
    pub demand_rps: f64,
    /// Admitted since the last step, predicted up to now. Negative if it had been overestimated.
    pub admitted: f64,
    /// The window that rates are over.
    pub window: Duration,
}

/// What may be admitted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Allowance {
    /// Requests a second.
    pub rps: f64,
    /// What to multiply it with where demand is above it, because estimates are wrong by that much.
    pub correction: f64,
}

/// The memory of a limit: credit above zero, debt below, in requests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Level {
    level: f64,
    at: Time,
    /// The allowance since `at`.
    allowed_rps: f64,
    correction: Correction,
}

impl Level {
    /// The whole burst of a limit.
    #[must_use]
    pub fn full(now: Time, limit_rps: f64, depth: f64, window: Duration) -> Self {
        Self {
            level: most(limit_rps, depth, window),
            at: now,
            allowed_rps: limit_rps,
            correction: Correction::default(),
        }
    }

    /// Requests that may still come at once; negative if too many did.
    #[must_use]
    pub fn level(&self) -> f64 {
        self.level
    }

    /// Whether nothing would be missing at `now` if nothing were admitted.
    #[must_use]
    pub fn is_full(&self, now: Time, limit_rps: f64, depth: f64, window: Duration) -> bool {
        let flown = limit_rps * now.since(self.at).as_secs_f64();
        self.level + flown >= most(limit_rps, depth, window)
    }

    /// One step. With `debt` off nothing is remembered; with `correct` off nothing is
    /// learned of what was realised: what is assumed of silent children teaches nothing.
    #[must_use]
    pub fn step(&mut self, now: Time, seen: &Observed, debt: bool, correct: bool) -> Allowance {
        let Observed { limit_rps: limit, depth, demand_rps, admitted, window } = *seen;
        if !debt {
            self.at = now;
            return Allowance { rps: limit, correction: 1.0 };
        }
        let elapsed_s = now.since(self.at).as_secs_f64();
        self.at = now;
        if correct {
            let realised = Realised { allowed: self.allowed_rps * elapsed_s, admitted, elapsed_s };
            self.correction.step(&realised, demand_rps, self.allowed_rps, limit, window);
        } else {
            self.correction.pause();
        }
        let debt_most = (DEBT_MOST_S * limit).max(DEBT_MOST_REQUESTS);
        let level = self.level + limit * elapsed_s - admitted;
        self.level = level.clamp(-debt_most, most(limit, depth, window));
        self.allowed_rps = allowed(self.level, limit, window);
        Allowance { rps: self.allowed_rps, correction: self.correction.factor }
    }
}

/// The most credit.
fn most(limit_rps: f64, depth: f64, window: Duration) -> f64 {
    depth.max(3.0 + 3.0 * (limit_rps * window.as_secs_f64()).sqrt())
}

fn allowed(level: f64, limit: f64, window: Duration) -> f64 {
    let settle_s = SETTLE_OVER_S.max(4.0 * window.as_secs_f64());
    if level >= 0.0 {
        return limit + (level / settle_s).min(limit);
    }
    let debt_s = -level / limit;
    let even = debt_s / settle_s;
    let noise = (3.0 / (limit * settle_s).sqrt() - 0.02).max(0.0);
    let steep = (debt_s - SMALL_S).max(0.0) / settle_s;
    let most = (even.min(GENTLE) + steep + even.min(noise)).min(1.0);
    limit * (1.0 - even.min(most))
}

/// The slow correction, and what it is gathering.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Correction {
    factor: f64,
    gathered: Realised,
    /// Demand when gathering began.
    demand_rps: f64,
}

/// What came of an allowance.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Realised {
    allowed: f64,
    admitted: f64,
    elapsed_s: f64,
}

impl Default for Correction {
    fn default() -> Self {
        Self { factor: 1.0, gathered: Realised::default(), demand_rps: 0.0 }
    }
}

impl Correction {
    /// What was gathered so far is not to be learned from.
    fn pause(&mut self) {
        self.gathered = Realised::default();
    }

    fn step(
        &mut self,
        new: &Realised,
        demand_rps: f64,
        allowed_rps: f64,
        limit: f64,
        window: Duration,
    ) {
        let window_s = window.as_secs_f64();
        let over_s = 1.0_f64.max(4.0 * window_s).max(20.0 / limit);
        if demand_rps < allowed_rps {
            // Nothing is held back, so nothing can be learned.
            self.factor += (1.0 - self.factor) * (new.elapsed_s / over_s).min(1.0);
            self.gathered = Realised::default();
        } else {
            self.gathered.allowed += new.allowed;
            self.gathered.admitted += new.admitted;
            self.gathered.elapsed_s += new.elapsed_s;
            if self.gathered.elapsed_s >= (over_s / 4.0).max(2.5 * window_s) {
                self.learn(demand_rps, over_s);
            }
        }
        self.factor = self.factor.clamp(CORRECTION.0, CORRECTION.1);
    }

    fn learn(&mut self, demand_rps: f64, over_s: f64) {
        let Realised { allowed, admitted, elapsed_s } = std::mem::take(&mut self.gathered);
        let missing = (allowed - admitted) / allowed.max(1e-9);
        let noise = 3.0 / allowed.max(1.0).sqrt();
        let is_calm = (demand_rps - self.demand_rps).abs() < (0.1 + noise) * self.demand_rps;
        if is_calm && missing.abs() < 0.3 + noise {
            self.factor += missing.clamp(-0.3, 0.3) * (elapsed_s / over_s).min(0.5);
        }
        self.demand_rps = demand_rps;
    }
}
