//! What designs with batch reports differ in. The reports themselves, and who tells whom, are in
//! [`super::batch`].

use super::keys::Bound;
use super::parameters::Route;
use crate::random::Rng;
use crate::trace::Trace;

/// A design whose clients decide by themselves and report what they did at intervals, and whose
/// owner of a count answers with a word to all. Times are nanoseconds on the clock of the node.
pub(crate) trait Design {
    /// What a client keeps of a key.
    type Gate;
    /// What the owner of its count keeps of it.
    type Root;
    /// What the owner says.
    type Word: Copy;

    /// Between two reports, and two steps of the tiers above.
    fn interval_ms(&self) -> u64;
    /// Which way reports and words go.
    fn route(&self) -> Route;

    /// A client that has heard nothing. It admits.
    fn gate(&self) -> Self::Gate;
    /// Whether a request goes through.
    fn admits(&self, gate: &mut Self::Gate, now: u64, rng: &mut Rng) -> bool;
    /// It went through.
    fn take(&self, _gate: &mut Self::Gate) {}
    /// A client's interval is over.
    fn interval_over(&self, _gate: &mut Self::Gate, _limit: Bound, _own: Own) {}
    /// The owner said something.
    fn hear(&self, gate: &mut Self::Gate, word: Self::Word);

    /// An owner that has just started.
    fn root(&self) -> Self::Root;
    /// What it says to all after a step.
    fn step(&self, root: &mut Self::Root, limit: Bound, now: u64, sum: Sum) -> Self::Word;

    /// Writes all that makes a word what it is.
    fn trace(word: Self::Word, trace: &mut Trace);
}

/// What a client had itself in an interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Own {
    pub(crate) offered_rps: f64,
    pub(crate) seconds: f64,
}

/// What all had together.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Sum {
    /// Over each client's last interval.
    pub(crate) offered_rps: f64,
    /// Requests that went through, of which the owner has heard since its last step.
    pub(crate) admitted: u64,
}
