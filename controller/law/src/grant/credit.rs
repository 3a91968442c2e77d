//! The child's part: what share of its demand a grant covers.
//!
//! ```text
//! c     <- clamp(c + g dt - admitted, low, 0.1 s of g)             requests
//! share  =  (g + c/tau) / D     if c >= 0,   tau = max(0.2 s, 2 T)
//!        =  (g + max(c/2 s, -0.3 g)) / D     otherwise
//! h      =  max(0, g - D) / R,   sigma = g / R
//! ```
//!
//! with `g` the grant, `D` demand, `R` the sum of the clients' usual rates, `T` the window of rates.
//! While the parent is there `low` is 0: what was admitted too much is the parent's to settle. Once it
//! is silent the child keeps to the base of its grant by itself and remembers excess, up to a second
//! of it.

use std::time::Duration;

use sluicegate_model::Time;

/// Unused grant is kept for so long.
const KEPT_S: f64 = 0.1;
/// And spent over this, or two windows.
const SPEND_OVER_S: f64 = 0.2;
/// Without a parent, excess is paid back over this.
const PAY_BACK_OVER_S: f64 = 2.0;
/// With at most this share of the grant.
const PAY_BACK_MOST: f64 = 0.3;
/// A parent not heard of for so long is silent.
const PARENT_SILENT_AFTER: Duration = Duration::from_millis(1500);

/// A grant, as it is held.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Held {
    /// What may be admitted now, requests a second.
    pub rps: f64,
    /// What of that holds without the parent.
    pub base_rps: f64,
    /// The time since it came.
    pub age: Duration,
}

impl Held {
    fn is_orphaned(&self) -> bool {
        self.age > PARENT_SILENT_AFTER
    }

    /// What it allows now.
    #[must_use]
    pub fn in_force_rps(&self) -> f64 {
        if self.is_orphaned() { self.base_rps } else { self.rps }
    }
}

/// What a grant comes to for those who share it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Covered {
    /// The share of demand that it covers; above 1 there is head-room.
    pub share: f64,
    /// Head-room for each request a second of a client's usual rate.
    pub headroom: f64,
    /// Grant for each request a second of a client's usual rate.
    pub sigma: f64,
}

/// What a child has left of its grants, in requests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Credit {
    level: f64,
    at: Time,
    admitted: f64,
}

impl Credit {
    /// Nothing yet. `admitted` is what was admitted so far, cumulative.
    #[must_use]
    pub fn new(now: Time, admitted: f64) -> Self {
        Self { level: 0.0, at: now, admitted }
    }

    /// What is left; negative if too much was admitted.
    #[must_use]
    pub fn level(&self) -> f64 {
        self.level
    }

    /// One step: `admitted` so far (cumulative, predicted up to now), of `demand_rps`, by clients
    /// whose usual rates add up to `usual_rps`.
    #[must_use]
    pub fn step(
        &mut self,
        now: Time,
        held: &Held,
        admitted: f64,
        demand_rps: f64,
        usual_rps: f64,
        window: Duration,
    ) -> Covered {
        let grant = held.in_force_rps();
        let low = if held.is_orphaned() { -grant } else { 0.0 };
        let level =
            self.level + grant * now.since(self.at).as_secs_f64() - (admitted - self.admitted);
        self.level = level.clamp(low, KEPT_S * grant);
        self.at = now;
        self.admitted = admitted;
        let extra = if self.level > 0.0 {
            self.level / SPEND_OVER_S.max(2.0 * window.as_secs_f64())
        } else {
            (self.level / PAY_BACK_OVER_S).max(-PAY_BACK_MOST * grant)
        };
        let usual = usual_rps.max(1e-3);
        Covered {
            share: (grant + extra) / demand_rps.max(1e-6),
            headroom: (grant - demand_rps).max(0.0) / usual,
            sigma: grant / usual,
        }
    }
}
