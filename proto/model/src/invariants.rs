//! The numbered promises of the system. `docs/invariants.md` explains each; tests, debug assertions
//! and production counters name them by these numbers.

use std::fmt;

/// A promise that must hold whatever happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Invariant {
    /// The decision never blocks, fails, or allocates after warm-up.
    I1,
    /// Nothing is dropped without a directive in force, except as `on_control_loss`, the cap and a
    /// limit of 0 say.
    I2,
    /// Per service attempts = admitted + dropped by one + dropped by several; per bucket
    /// offered <= matched.
    I3,
    /// Lost, repeated, late or reordered messages change no count.
    I4,
    /// Terms and configuration versions never go back at an aggregator or a client.
    I5,
    /// A shadow or observe bucket changes no outcome and no other bucket's count.
    I6,
    /// After faults heal, admitted comes back to the limit within a bound.
    I7,
    /// A service's buckets change whole or not at all, and the last good ones stay.
    I8,
    /// Every queue and map is bounded.
    I9,
    /// A directive computed under an override lives no longer than the override.
    I10,
}

impl Invariant {
    /// All, in order.
    pub const ALL: [Self; 10] = [
        Self::I1,
        Self::I2,
        Self::I3,
        Self::I4,
        Self::I5,
        Self::I6,
        Self::I7,
        Self::I8,
        Self::I9,
        Self::I10,
    ];
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
