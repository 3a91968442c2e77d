//! The law `grant`, part by part: pure arithmetic on what a node knows of one limit. Which key,
//! which child and which message it is about stands in [`crate::node`].
//!
//! One node of the tree does two things, and each scope's root does both:
//!
//! - As a parent ([`Level`], [`sharing`], [`split`]): how much of the limit may be admitted now, given
//!   what was admitted so far; and which part of that each value and each child gets.
//! - As a child that serves clients ([`Credit`]): what share of the demand the grant at hand covers.
//!
//! Both look at the same [`Demand`], and at admissions as they are now, not as they were reported:
//! what is on its way is predicted from the ratios [`in force`](InForce).

mod credit;
mod demand;
mod flight;
mod level;
mod push;
pub mod sharing;
mod silence;
pub mod split;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use credit::{Covered, Credit, Held};
pub use demand::Demand;
pub use flight::InForce;
pub use level::{Allowance, Level, Observed};
pub use push::{DownRule, GrantRule, Push, UpRule};
pub use silence::{SILENT_AFTER, Silent};

/// At this limit and below, requests a second, nothing is split among children: parts of it would
/// be too small to tell from noise. The root sets the ratio itself.
pub const LOW_LIMIT_RPS: f64 = 200.0;

/// From one look at every key in use to the next, at most.
pub const STEP: Duration = Duration::from_millis(100);

/// Which parts of the law work. All of them do, but in a simulation that shows what a part is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches, one for each part")]
pub struct Switches {
    /// Children get grants of their own; without, every child is told the root's ratio.
    pub grants: bool,
    /// Excess is remembered and paid back.
    pub debt: bool,
    /// What is realised of the allowance corrects it.
    pub correction: bool,
    /// Demand that swings to and fro is averaged.
    pub damping: bool,
    /// Messages go when something changed, besides at ticks.
    pub events: bool,
    /// What was charged to a child that turned out to be alive decays, and is forgiven.
    pub decay: bool,
}

impl Default for Switches {
    fn default() -> Self {
        Self {
            grants: true,
            debt: true,
            correction: true,
            damping: true,
            events: true,
            decay: true,
        }
    }
}

/// The weight of a sample taken `elapsed` after the last one in a mean that forgets over `memory`.
fn weight(elapsed: Duration, memory: Duration) -> f64 {
    if memory.is_zero() { 1.0 } else { 1.0 - (-elapsed.as_secs_f64() / memory.as_secs_f64()).exp() }
}
