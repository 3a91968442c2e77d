//! To break a promise on purpose: changes what passes between cores and world, and lets the oracle
//! see what comes of it.

use std::sync::Arc;

use sluicegate_model::{Down, ServiceBuckets, Up};

use super::Oracle;
use crate::node::NodeId;
use crate::observe::{Ask, Fate, Inside, NodeChange, Observer, Verdict};

/// An oracle behind a tamperer: each thing goes through the tamperer first. Of the tamperer only
/// `decided`, `up` and `down` are asked, for what they change.
pub struct Tampered<T> {
    /// What watches.
    pub oracle: Oracle,
    /// What changes things.
    pub tamper: T,
}

impl<T: Observer> Observer for Tampered<T> {
    fn decided(&mut self, at: u64, ask: &Ask, verdict: Verdict) -> Verdict {
        let verdict = self.tamper.decided(at, ask, verdict);
        self.oracle.decided(at, ask, verdict)
    }

    fn up(&mut self, at: u64, from: NodeId, message: &mut Up) -> Fate {
        let fate = self.tamper.up(at, from, message);
        self.oracle.up(at, from, message);
        fate
    }

    fn down(&mut self, at: u64, to: NodeId, message: &mut Down) -> Fate {
        let fate = self.tamper.down(at, to, message);
        self.oracle.down(at, to, message);
        fate
    }

    fn opened(&mut self, at: u64, node: NodeId, stream: u32) {
        self.oracle.opened(at, node, stream);
    }

    fn up_arrived(&mut self, at: u64, from: NodeId, stream: u32, message: &Up) {
        self.oracle.up_arrived(at, from, stream, message);
    }

    fn down_arrived(&mut self, at: u64, to: NodeId, message: &Down) {
        self.oracle.down_arrived(at, to, message);
    }

    fn stepped(&mut self, at: u64, node: NodeId, inside: Inside<'_>) {
        self.oracle.stepped(at, node, inside);
    }

    fn changed(&mut self, at: u64, node: NodeId, change: NodeChange) {
        self.oracle.changed(at, node, change);
    }

    fn configured(&mut self, at: u64, node: NodeId, services: &[Arc<ServiceBuckets>]) {
        self.oracle.configured(at, node, services);
    }
}
