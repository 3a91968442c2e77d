//! A law as the world sees it: somebody who decides requests, and sends messages to keep the
//! decisions right. The product's own cores are one fleet, each rival is another; all meet the same
//! workload, links and faults.

use std::sync::Arc;

use sluicegate_model::ServiceBuckets;

use crate::net::Net;
use crate::node::NodeId;
use crate::observe::{Ask, Verdict};
use crate::trace::Trace;

/// A message of a fleet, as the trace sees it.
pub trait Traced {
    /// Writes all that makes it what it is.
    fn trace(&self, trace: &mut Trace);

    /// Whether it counts as a message in the report (reports, directives and the like do; the
    /// coming and going of connections does not).
    fn counts(&self) -> bool {
        true
    }
}

/// Whoever decides the requests of a world.
///
/// One object stands for all nodes: it keeps each node's state apart, and lets it change only by
/// what that node is handed. Everything is deterministic: randomness comes from [`Net::rng`], time
/// from [`Net::now`] (world time) or [`Net::local`] (what the node's clock shows).
pub trait Fleet {
    /// What the nodes send each other.
    type Message: Traced + Clone;

    /// A node's process starts, at the beginning of the run or after a crash. Its state must be as
    /// if it had never run. Nodes start one by one in the first tick, so that their ticks do not
    /// fall together.
    fn start(&mut self, net: &mut Net<'_, Self::Message>, node: NodeId);

    /// A node's process died. `silent` if the machine went too, so that no connection is closed.
    fn crash(&mut self, _net: &mut Net<'_, Self::Message>, _node: NodeId, _silent: bool) {}

    /// Decides a request at its client, which runs.
    fn decide(&mut self, net: &mut Net<'_, Self::Message>, ask: &Ask) -> Verdict;

    /// A message arrived.
    fn message(
        &mut self,
        net: &mut Net<'_, Self::Message>,
        from: NodeId,
        to: NodeId,
        message: Self::Message,
    );

    /// A timer that [`Net::set_timer`] set is due.
    fn timer(&mut self, net: &mut Net<'_, Self::Message>, node: NodeId, timer: u64);

    /// The link from `node` to the tier above was just cut in at least one direction.
    fn link_cut(&mut self, _net: &mut Net<'_, Self::Message>, _node: NodeId) {}

    /// The connection from `node` to the tier above just broke, and both ends know.
    fn connection_broke(&mut self, _net: &mut Net<'_, Self::Message>, _node: NodeId) {}

    /// These are the buckets from now on; before the first start as well.
    fn configure(&mut self, net: &mut Net<'_, Self::Message>, services: &[Arc<ServiceBuckets>]);
}
