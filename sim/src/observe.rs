//! To watch a run from outside, and to tamper with it: what an oracle is built on.

use std::sync::Arc;

use sluicegate_aggregator_core::Aggregator;
use sluicegate_client_core::{Agent, Limiter};
use sluicegate_controller_core::Controller;
use sluicegate_model::{Down, ServiceBuckets, Up};

use crate::node::NodeId;
use crate::product::ClientClock;

/// A bucket by its place in [`crate::Setup::buckets`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BucketId(pub u16);

/// A request on its way to a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// Who asks, as a number among the clients.
    pub client: u32,
    /// Which workload it is of.
    pub workload: u16,
    /// Which kind of that workload.
    pub kind: u16,
    /// Tries before this one.
    pub tries: u16,
    /// When it asks, in world time.
    pub at: u64,
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It goes through.
    Admit,
    /// It goes through, although this shadow bucket would have dropped it.
    WouldDrop(BucketId),
    /// This bucket (of several, the first) refuses it.
    Drop(BucketId),
    /// The answer is on its way: [`crate::Net::answer`] will bring it.
    Later,
}

impl Verdict {
    /// Whether it goes through.
    #[must_use]
    pub fn is_admitted(self) -> bool {
        matches!(self, Self::Admit | Self::WouldDrop(_))
    }
}

/// What is to become of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fate {
    /// Sent as it is now.
    #[default]
    Send,
    /// Sent twice.
    Twice,
    /// Not sent.
    Lose,
}

/// What happened to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeChange {
    /// Its process started, with nothing in memory.
    Started,
    /// Its process died.
    Crashed,
    /// It stands still (of a client: the agent, and for a whole process its requests too).
    Paused,
    /// It goes on.
    Resumed,
    /// Its stream to the tier above is open.
    Opened,
    /// Its stream to the tier above is closed.
    Closed,
    /// Its clock jumped, or runs at another rate.
    ClockChanged,
    /// Its link to the tier above is cut, or degraded.
    LinkWorse,
    /// Its link to the tier above is as it was.
    LinkBetter,
}

/// A node that has just handled something.
pub enum Inside<'a> {
    /// A client.
    Client(&'a Limiter<ClientClock>, &'a Agent),
    /// An aggregator.
    Aggregator(&'a Aggregator),
    /// A controller.
    Controller(&'a Controller),
}

/// Sees everything that happens in the product's own fleet, in order, and may change it. All times
/// are world time in nanoseconds.
pub trait Observer {
    /// A request was decided. What is returned is what the world makes of it.
    fn decided(&mut self, _at: u64, _ask: &Ask, verdict: Verdict) -> Verdict {
        verdict
    }

    /// A message is about to be sent up.
    fn up(&mut self, _at: u64, _from: NodeId, _message: &mut Up) -> Fate {
        Fate::Send
    }

    /// A message is about to be sent down.
    fn down(&mut self, _at: u64, _to: NodeId, _message: &mut Down) -> Fate {
        Fate::Send
    }

    /// The node below opened a stream of that number; what it sends from now on goes through it.
    fn opened(&mut self, _at: u64, _node: NodeId, _stream: u32) {}

    /// A message that was sent up through a stream which is open at the receiver arrived, and is
    /// about to be handled.
    fn up_arrived(&mut self, _at: u64, _from: NodeId, _stream: u32, _message: &Up) {}

    /// A message that was sent down through the stream that is open arrived, and is about to be
    /// handled.
    fn down_arrived(&mut self, _at: u64, _to: NodeId, _message: &Down) {}

    /// A node has handled a message or a timer; its messages were polled.
    fn stepped(&mut self, _at: u64, _node: NodeId, _inside: Inside<'_>) {}

    /// Something happened to a node.
    fn changed(&mut self, _at: u64, _node: NodeId, _change: NodeChange) {}

    /// A controller was given these services.
    fn configured(&mut self, _at: u64, _node: NodeId, _services: &[Arc<ServiceBuckets>]) {}
}
