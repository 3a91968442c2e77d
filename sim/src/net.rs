//! What a fleet has of the world: time, timers, randomness, links. Knows no law and no workload.

use std::time::Duration;

use sluicegate_model::Time;

use crate::fleet::Traced;
use crate::heap::Heap;
use crate::node::{Clock, NodeId, Topology};
use crate::observe::{Ask, NodeChange, Observer, Verdict};
use crate::random::Rng;
use crate::record::Record;
use crate::scenario::{Hops, Order, Tier, Way};
use crate::trace::Trace;

/// What waits in the heap.
#[derive(Debug)]
pub(crate) enum Event {
    Timer { node: NodeId, life: u32, timer: u64 },
    Deliver { slot: u32 },
    Start { node: NodeId },
    Retry { ask: Ask },
    Fault { place: u32, begins: bool },
    Churn { client: u32, begins: bool },
}

/// A message under way.
#[derive(Debug)]
pub(crate) struct Envelope<M> {
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    pub(crate) message: M,
}

/// How a node is.
#[derive(Debug)]
pub(crate) struct Health {
    pub(crate) runs: bool,
    /// How often its process has started.
    pub(crate) life: u32,
    /// Pauses of the whole process, and of a client's agent alone, that overlap.
    pub(crate) paused: u32,
    pub(crate) agent_paused: u32,
    /// What came up while it was paused.
    pub(crate) held: Vec<Event>,
    clock: Clock,
    rng: Rng,
    delays: Rng,
    link: Link,
}

impl Health {
    fn holds(&self) -> bool {
        self.paused > 0 || self.agent_paused > 0
    }
}

/// A node's link to the tier above.
#[derive(Debug, Default)]
struct Link {
    up: Direction,
    down: Direction,
    /// For fleets whose clients talk to the controller directly.
    direct_up: u64,
    direct_down: u64,
    /// Since when at least one direction is cut.
    cut_since: Option<u64>,
}

/// One direction of a link.
#[derive(Debug, Default)]
struct Direction {
    /// When the last message arrives.
    last: u64,
    /// When the last of those that never overtake each other arrives.
    sure: u64,
    cuts: u32,
    worse: Vec<Worse>,
}

/// A degradation in force.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Worse {
    pub(crate) fault: u32,
    pub(crate) loss: f64,
    pub(crate) duplicate: f64,
    /// The shortest on top, and how much longer it may be.
    pub(crate) delay: Option<(Duration, Duration)>,
}

/// What a fleet has of the world.
pub struct Net<'o, M> {
    pub(crate) now: u64,
    pub(crate) topology: Topology,
    pub(crate) heap: Heap<Event>,
    pub(crate) health: Vec<Health>,
    pub(crate) record: Record,
    pub(crate) trace: Trace,
    pub(crate) observer: Option<&'o mut dyn Observer>,
    /// Answers to requests that were decided [`Verdict::Later`].
    pub(crate) answered: Vec<(Ask, Verdict)>,
    envelopes: Vec<Option<Envelope<M>>>,
    /// What waits for the end of a cut of the link above a node, in one direction.
    waiting: Vec<(NodeId, Way, Envelope<M>)>,
    free: Vec<u32>,
    hops: [(Duration, Duration); 2],
    fifo: bool,
    loss: f64,
    duplicate: f64,
}

impl<'o, M: Traced + Clone> Net<'o, M> {
    pub(crate) fn new(
        topology: Topology,
        hops: &Hops,
        seed: u64,
        record: Record,
        observer: Option<&'o mut dyn Observer>,
    ) -> Self {
        let health = topology.all().map(|node| Health {
            runs: false,
            life: 0,
            paused: 0,
            agent_paused: 0,
            held: Vec::new(),
            clock: Clock::TRUE,
            rng: Rng::new(seed, u64::from(node.0) * 2),
            delays: Rng::new(seed, u64::from(node.0) * 2 + 1),
            link: Link::default(),
        });
        let hop = |d: &crate::scenario::DelayMs| (d.shortest(), d.spread());
        Self {
            now: 0,
            topology,
            heap: Heap::new(),
            health: health.collect(),
            record,
            trace: Trace::new(),
            observer,
            answered: Vec::new(),
            envelopes: Vec::new(),
            waiting: Vec::new(),
            free: Vec::new(),
            hops: [hop(&hops.client_aggregator_ms), hop(&hops.aggregator_controller_ms)],
            fifo: hops.order == Order::Fifo,
            loss: hops.loss,
            duplicate: hops.duplicate,
        }
    }

    /// World time, in nanoseconds from the start.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.now
    }

    /// What a node's clock shows.
    #[inline]
    #[must_use]
    pub fn local(&self, node: NodeId) -> Time {
        self.health[node.0 as usize].clock.at(self.now)
    }

    /// When (in world time) a node's clock will show `local`.
    #[must_use]
    pub fn world(&self, node: NodeId, local: Time) -> u64 {
        self.health[node.0 as usize].clock.world(local)
    }

    /// Who there is.
    #[must_use]
    pub fn topology(&self) -> Topology {
        self.topology
    }

    /// A node's own randomness.
    pub fn rng(&mut self, node: NodeId) -> &mut Rng {
        &mut self.health[node.0 as usize].rng
    }

    /// Whether a node's process runs (it may be paused).
    #[must_use]
    pub fn runs(&self, node: NodeId) -> bool {
        self.health[node.0 as usize].runs
    }

    /// Wakes a node at a world time (now, if that is past), unless its process has died until then.
    pub fn set_timer(&mut self, node: NodeId, at: u64, timer: u64) {
        let life = self.health[node.0 as usize].life;
        self.heap.push(at.max(self.now), Event::Timer { node, life, timer });
    }

    /// Answers a request that was decided [`Verdict::Later`].
    pub fn answer(&mut self, ask: &Ask, verdict: Verdict) {
        self.answered.push((*ask, verdict));
    }

    /// Whether the link from a node to the tier above is whole, both ways.
    #[must_use]
    pub fn is_linked(&self, node: NodeId) -> bool {
        self.health[node.0 as usize].link.cut_since.is_none()
    }

    /// Since when that link has been cut in at least one direction.
    #[must_use]
    pub fn cut_since(&self, node: NodeId) -> Option<u64> {
        self.health[node.0 as usize].link.cut_since
    }

    /// How long a message up from `node` and the answer would take now.
    pub fn round_trip(&mut self, node: NodeId) -> Duration {
        self.delay(node) + self.delay(node)
    }

    /// Sends a message between a node and its parent, or between a client and its region's
    /// controller. It may be lost, late, or arrive twice, as the links are.
    pub fn send(&mut self, from: NodeId, to: NodeId, message: M) {
        self.send_as(from, to, message, true);
    }

    /// Sends what a stream brings whole and in order, or breaks: on a cut it waits until that is over
    /// (by then the stream may have been given up).
    pub fn send_surely(&mut self, from: NodeId, to: NodeId, message: M) {
        self.send_as(from, to, message, false);
    }

    fn send_as(&mut self, from: NodeId, to: NodeId, message: M, may_be_lost: bool) {
        self.trace.number(self.now << 3 | 1);
        self.trace.number(u64::from(from.0) << 32 | u64::from(to.0));
        message.trace(&mut self.trace);
        if message.counts() {
            self.record.message(self.now, self.topology.place(from).0, self.topology.place(to).0);
        }
        let is_up = self.topology.place(from).0 < self.topology.place(to).0;
        let (lower, upper) = if is_up { (from, to) } else { (to, from) };
        let way = if is_up { Way::Up } else { Way::Down };
        let is_direct = self.topology.parent(lower) != Some(upper);
        let middle = self.topology.parent(lower);
        let mut lost = self.is_cut(lower, way);
        if let (true, Some(middle)) = (is_direct, middle) {
            lost |= self.is_cut(middle, way);
        }
        if lost && !may_be_lost {
            self.waiting.push((lower, way, Envelope { from, to, message }));
            return;
        }
        lost |= may_be_lost && self.is_lost(lower, way);
        if lost {
            return;
        }
        let twice = may_be_lost && self.is_doubled(lower, way);
        if twice {
            let at = self.arrival(lower, way, is_direct, true);
            self.put(at, Envelope { from, to, message: message.clone() });
        }
        let at = self.arrival(lower, way, is_direct, may_be_lost);
        self.put(at, Envelope { from, to, message });
    }

    fn put(&mut self, at: u64, envelope: Envelope<M>) {
        let slot = match self.free.pop() {
            Some(slot) => {
                self.envelopes[slot as usize] = Some(envelope);
                slot
            }
            None => {
                self.envelopes.push(Some(envelope));
                u32::try_from(self.envelopes.len() - 1).unwrap_or(u32::MAX)
            }
        };
        self.heap.push(at, Event::Deliver { slot });
    }

    pub(crate) fn recipient(&self, slot: u32) -> Option<NodeId> {
        self.envelopes.get(slot as usize)?.as_ref().map(|e| e.to)
    }

    pub(crate) fn take(&mut self, slot: u32) -> Option<Envelope<M>> {
        let envelope = self.envelopes.get_mut(slot as usize)?.take();
        if envelope.is_some() {
            self.free.push(slot);
        }
        envelope
    }

    fn direction(&mut self, lower: NodeId, way: Way) -> &mut Direction {
        let link = &mut self.health[lower.0 as usize].link;
        if way == Way::Up { &mut link.up } else { &mut link.down }
    }

    fn is_cut(&mut self, lower: NodeId, way: Way) -> bool {
        self.direction(lower, way).cuts > 0
    }

    fn is_lost(&mut self, lower: NodeId, way: Way) -> bool {
        let worse: f64 = self.direction(lower, way).worse.iter().map(|w| w.loss).sum();
        let loss = self.loss + worse;
        self.health[lower.0 as usize].delays.happens(loss)
    }

    fn is_doubled(&mut self, lower: NodeId, way: Way) -> bool {
        let worse: f64 = self.direction(lower, way).worse.iter().map(|w| w.duplicate).sum();
        let duplicate = self.duplicate + worse;
        self.health[lower.0 as usize].delays.happens(duplicate)
    }

    /// One way over the link above `lower`.
    fn delay(&mut self, lower: NodeId) -> Duration {
        let hop = match self.topology.place(lower).0 {
            Tier::Client => self.hops[0],
            Tier::Aggregator | Tier::Controller => self.hops[1],
        };
        hop.0 + self.health[lower.0 as usize].delays.time_below(hop.1)
    }

    fn arrival(&mut self, lower: NodeId, way: Way, is_direct: bool, may_overtake: bool) -> u64 {
        let mut delay = self.delay(lower);
        if is_direct {
            let spread = self.hops[1].1;
            delay += self.hops[1].0 + self.health[lower.0 as usize].delays.time_below(spread);
        }
        let place = lower.0 as usize;
        let mut fifo = self.fifo;
        let extra: Vec<(Duration, Duration)> =
            self.direction(lower, way).worse.iter().filter_map(|w| w.delay).collect();
        for (least, spread) in extra {
            fifo = false;
            delay += least + self.health[place].delays.time_below(spread);
        }
        let link = &mut self.health[place].link;
        let last = match (is_direct, way) {
            (true, Way::Up) => &mut link.direct_up,
            (true, Way::Down | Way::Both) => &mut link.direct_down,
            (false, Way::Up) => &mut link.up.last,
            (false, Way::Down | Way::Both) => &mut link.down.last,
        };
        let delay = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        let mut at = self.now.saturating_add(delay.max(1));
        if fifo {
            at = at.max(*last);
        }
        *last = at.max(*last);
        if !may_overtake {
            let sure = &mut self.direction(lower, way).sure;
            at = at.max(*sure);
            *sure = at;
        }
        at
    }

    // What the world does to nodes and links.

    pub(crate) fn cut(&mut self, lower: NodeId, way: Way, begins: bool) {
        let now = self.now;
        let link = &mut self.health[lower.0 as usize].link;
        let change = |cuts: &mut u32| {
            *cuts = if begins { *cuts + 1 } else { cuts.saturating_sub(1) };
        };
        if way != Way::Down {
            change(&mut link.up.cuts);
        }
        if way != Way::Up {
            change(&mut link.down.cuts);
        }
        let is_cut = link.up.cuts + link.down.cuts > 0;
        link.cut_since = if is_cut { link.cut_since.or(Some(now)) } else { None };
        for (lower, way, envelope) in std::mem::take(&mut self.waiting) {
            if self.is_cut(lower, way) {
                self.waiting.push((lower, way, envelope));
            } else {
                let at = self.arrival(lower, way, false, false);
                self.put(at, envelope);
            }
        }
        self.tell(lower, if begins { NodeChange::LinkWorse } else { NodeChange::LinkBetter });
    }

    pub(crate) fn degrade(&mut self, lower: NodeId, way: Way, worse: &Worse, begins: bool) {
        let ways = match way {
            Way::Both => &[Way::Up, Way::Down][..],
            Way::Up => &[Way::Up],
            Way::Down => &[Way::Down],
        };
        for way in ways {
            let list = &mut self.direction(lower, *way).worse;
            if begins {
                list.push(worse.clone());
            } else {
                list.retain(|w| w.fault != worse.fault);
            }
        }
        self.tell(lower, if begins { NodeChange::LinkWorse } else { NodeChange::LinkBetter });
    }

    pub(crate) fn change_clock(&mut self, node: NodeId, jump: Duration, drift_ppm: f64) {
        let clock = &mut self.health[node.0 as usize].clock;
        *clock = clock.changed(self.now, jump, drift_ppm);
        self.tell(node, NodeChange::ClockChanged);
    }

    /// Whether an event must wait because its node is paused; it is kept then.
    pub(crate) fn hold(&mut self, node: NodeId, event: Event) -> Option<Event> {
        let health = &mut self.health[node.0 as usize];
        if health.holds() {
            health.held.push(event);
            return None;
        }
        Some(event)
    }

    pub(crate) fn pause(&mut self, node: NodeId, whole: bool, begins: bool) {
        let health = &mut self.health[node.0 as usize];
        let pauses = if whole { &mut health.paused } else { &mut health.agent_paused };
        *pauses = if begins { *pauses + 1 } else { pauses.saturating_sub(1) };
        let goes_on = !health.holds();
        if goes_on {
            for event in std::mem::take(&mut health.held) {
                self.heap.push(self.now, event);
            }
        }
        self.tell(node, if begins { NodeChange::Paused } else { NodeChange::Resumed });
    }

    /// Whether a client asks: its process runs and is not paused.
    #[inline]
    pub(crate) fn asks(&self, client: usize) -> bool {
        let health = &self.health[client];
        health.runs && health.paused == 0
    }

    pub(crate) fn tell(&mut self, node: NodeId, change: NodeChange) {
        self.trace.number(self.now << 3 | 2);
        self.trace.number(u64::from(node.0) << 8 | change as u64);
        if let Some(observer) = &mut self.observer {
            observer.changed(self.now, node, change);
        }
    }
}
