//! An allowance shared out among children.
//!
//! ```text
//! g_i = beta u D_i / D            if D >= u
//!     = D_i + (u - D) R_i / R     otherwise      and at least 0.02 L / children
//! ```
//!
//! with `D_i` a child's demand and `R_i` the sum of its clients' usual rates: head-room goes where
//! traffic usually is, so that a surge finds its grant there already.

use super::level::Allowance;

/// Children without demand get this share of the limit, over all of them.
pub const FLOOR: f64 = 0.02;

/// A child, as the split sees it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Child {
    /// Its demand, requests a second.
    pub demand_rps: f64,
    /// The sum of its clients' usual rates, requests a second.
    pub usual_rps: f64,
}

/// What all children of one key have in common.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Split {
    allowed_rps: f64,
    /// The factor from demand to grant where demand is above the allowance.
    factor: f64,
    demand_rps: f64,
    usual_rps: f64,
    children: f64,
    floor_rps: f64,
}

impl Split {
    /// Shares `allowance` out among `children`, whose demand is estimated at `estimate_rps` together.
    /// A child without demand gets at least its part of `floor_rps`.
    #[must_use]
    pub fn new(
        allowance: Allowance,
        estimate_rps: f64,
        floor_rps: f64,
        children: impl Iterator<Item = Child>,
    ) -> Self {
        let (mut demand_rps, mut usual_rps, mut count) = (0.0, 0.0, 0.0);
        for child in children {
            demand_rps += child.demand_rps;
            usual_rps += child.usual_rps;
            count += 1.0;
        }
        Self {
            allowed_rps: allowance.rps,
            factor: allowance.rps * allowance.correction / estimate_rps.max(1e-9),
            demand_rps,
            usual_rps,
            children: f64::max(count, 1.0),
            floor_rps,
        }
    }

    /// The share of demand that is allowed; above 1 there is head-room.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.factor
    }

    /// What a child gets, requests a second.
    #[must_use]
    pub fn of(&self, child: &Child) -> f64 {
        let part = if self.demand_rps < self.allowed_rps {
            let of_usual = if self.usual_rps > 1e-6 {
                child.usual_rps / self.usual_rps
            } else {
                1.0 / self.children
            };
            child.demand_rps + (self.allowed_rps - self.demand_rps) * of_usual
        } else {
            self.factor * child.demand_rps
        };
        part.max(self.floor_rps / self.children)
    }
}
