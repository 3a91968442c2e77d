//! What an oracle finds broken. Plain data.

use std::fmt;

use sluicegate_model::Invariant;

use crate::node::NodeId;

/// A broken promise: which, when, where, and how that shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which promise.
    pub invariant: Invariant,
    /// When it was found, in nanoseconds of world time.
    pub at: u64,
    /// Where.
    pub node: NodeId,
    /// What should have been.
    pub expected: String,
    /// What was.
    pub found: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { invariant, at, node, expected, found } = self;
        let (s, ms) = (at / 1_000_000_000, at / 1_000_000 % 1000);
        let node = node.0;
        write!(f, "{invariant} at {s}.{ms:03} s, node {node}: expected {expected}; found {found}")
    }
}

/// The most violations that are kept word by word.
const MAX_KEPT: usize = 64;

/// Violations in the order in which they were found, the first of them in full.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) kept: Vec<Violation>,
    pub(super) total: u64,
    pub(super) checks: u64,
}

impl Findings {
    /// Notes a check, and a violation if it failed.
    pub(super) fn check(
        &mut self,
        holds: bool,
        (invariant, at, node): (Invariant, u64, NodeId),
        words: impl FnOnce() -> (String, String),
    ) {
        self.checks += 1;
        if holds {
            return;
        }
        self.total += 1;
        if self.kept.len() < MAX_KEPT {
            let (expected, found) = words();
            self.kept.push(Violation { invariant, at, node, expected, found });
        }
    }
}
