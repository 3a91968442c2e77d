//! The product as a fleet: its own cores, wired up as its shells wire them. What is here is only
//! the wiring: streams that open, break and come back, timers, and what a decision is called.

mod message;
mod process;
mod stream;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use sluicegate_client_core::CoarseClock;
use sluicegate_model::{Down, Law, ServiceBuckets, Time, Up};

pub(crate) use self::message::Message;
use self::process::{Client, Parts, Timer};
use self::stream::{KEEPALIVE_NS, Stream};
use crate::fleet::{Fleet, Traced};
use crate::net::Net;
use crate::node::NodeId;
use crate::observe::{Ask, Fate, Inside, NodeChange, Verdict};
use crate::random::Rng;
use crate::scenario::Tier;
use crate::setup::Setup;

/// The clock of one client: the world sets it before it lets the client do anything.
#[derive(Debug, Clone, Default)]
pub struct ClientClock(Rc<Cell<u64>>);

impl ClientClock {
    fn set(&self, now: Time) {
        self.0.set(now.as_nanos());
    }
}

impl CoarseClock for ClientClock {
    fn now(&self) -> Time {
        Time::from_nanos(self.0.get())
    }
}

/// All nodes of the product.
pub(crate) struct Product<'s> {
    parts: Parts<'s>,
    clients: Vec<Option<Client>>,
    aggregators: Vec<Option<sluicegate_aggregator_core::Aggregator>>,
    controllers: Vec<Option<sluicegate_controller_core::Controller>>,
    /// By the node below: clients, then aggregators.
    streams: Vec<Stream>,
    /// When each node's timer is set for; `u64::MAX` for not at all.
    armed: Vec<u64>,
    services: Vec<Arc<ServiceBuckets>>,
}

impl<'s> Product<'s> {
    pub(crate) fn new(setup: &'s Setup<'_>, law: Law) -> Self {
        let topology = setup.topology;
        let below = topology.clients() + topology.zones();
        let stream = |i| Stream::new(Rng::new(setup.seed, (1 << 40) + i as u64));
        Self {
            parts: Parts::new(setup, law),
            clients: (0..topology.clients()).map(|_| None).collect(),
            aggregators: (0..topology.zones()).map(|_| None).collect(),
            controllers: (0..topology.regions()).map(|_| None).collect(),
            streams: (0..below).map(stream).collect(),
            armed: vec![u64::MAX; topology.nodes()],
            services: Vec::new(),
        }
    }

    /// A node has done something: sends what it has to say, and sets its timer.
    fn pump(&mut self, net: &mut Net<'_, Message>, node: NodeId) {
        let (tier, place) = net.topology().place(node);
        let due = match tier {
            Tier::Client => {
                let Some(client) = &mut self.clients[place] else { return };
                let stream = &self.streams[place];
                while let Some(up) = client.agent.poll_up() {
                    send_up(net, node, stream.number(), up);
                }
                client.agent.poll_timeout()
            }
            Tier::Aggregator => {
                let Some(aggregator) = &mut self.aggregators[place] else { return };
                let stream = &self.streams[node.0 as usize];
                while let Some(up) = aggregator.poll_parent() {
                    send_up(net, node, stream.number(), up);
                }
                while let Some((session, down)) = aggregator.poll_child() {
                    send_down(net, &self.streams, node, session, down);
                }
                aggregator.poll_timeout()
            }
            Tier::Controller => {
                let Some(controller) = &mut self.controllers[place] else { return };
                while let Some((session, down)) = controller.poll_child() {
                    send_down(net, &self.streams, node, session, down);
                }
                controller.poll_timeout()
            }
        };
        self.arm(net, node, due);
        if net.observer.is_some() {
            self.show(net, node);
        }
    }

    fn arm(&mut self, net: &mut Net<'_, Message>, node: NodeId, due: Time) {
        if due == Time::NEVER {
            return;
        }
        let at = net.world(node, due).max(net.now());
        let armed = &mut self.armed[node.0 as usize];
        if at < *armed {
            *armed = at;
            net.set_timer(node, at, Timer::Due.code());
        }
    }

    #[cold]
    fn show(&self, net: &mut Net<'_, Message>, node: NodeId) {
        let (tier, place) = net.topology().place(node);
        let inside = match tier {
            Tier::Client => {
                self.clients[place].as_ref().map(|c| Inside::Client(&c.limiter, &c.agent))
            }
            Tier::Aggregator => self.aggregators[place].as_ref().map(Inside::Aggregator),
            Tier::Controller => self.controllers[place].as_ref().map(Inside::Controller),
        };
        if let (Some(observer), Some(inside)) = (&mut net.observer, inside) {
            observer.stepped(net.now, node, inside);
        }
    }

    /// The node's own timer.
    fn due(&mut self, net: &mut Net<'_, Message>, node: NodeId) {
        let armed = &mut self.armed[node.0 as usize];
        if net.now() < *armed {
            return;
        }
        *armed = u64::MAX;
        let now = net.local(node);
        let (tier, place) = net.topology().place(node);
        match tier {
            Tier::Client => {
                if let Some(client) = &mut self.clients[place] {
                    client.clock.set(now);
                    client.agent.handle_timeout(now);
                }
            }
            Tier::Aggregator => {
                if let Some(aggregator) = &mut self.aggregators[place] {
                    aggregator.handle_timeout(now);
                }
            }
            Tier::Controller => {
                if let Some(controller) = &mut self.controllers[place] {
                    controller.handle_timeout(now);
                }
            }
        }
        self.pump(net, node);
    }

    /// Tries to open the stream to the tier above.
    fn connect(&mut self, net: &mut Net<'_, Message>, node: NodeId) {
        let Some(parent) = net.topology().parent(node) else { return };
        let stream = &mut self.streams[node.0 as usize];
        if stream.is_open() {
            return;
        }
        if net.is_linked(node) && net.runs(parent) {
            let number = stream.begin();
            let trip = net.round_trip(node);
            let at = net.now() + u64::try_from(trip.as_nanos()).unwrap_or(u64::MAX);
            net.set_timer(node, at, Timer::Opened(number).code());
        } else {
            let wait = stream.failed(net.is_linked(node));
            net.set_timer(node, net.now() + wait, Timer::Connect.code());
        }
    }

    /// The stream that was begun is there, if the peer still is.
    fn opened(&mut self, net: &mut Net<'_, Message>, node: NodeId, number: u32) {
        let Some(parent) = net.topology().parent(node) else { return };
        let stream = &mut self.streams[node.0 as usize];
        if stream.is_open() || stream.number() != number {
            return;
        }
        if !net.runs(parent) || !net.is_linked(node) || stream.missed(number) {
            let wait = stream.failed(net.is_linked(node));
            net.set_timer(node, net.now() + wait, Timer::Connect.code());
            return;
        }
        stream.open();
        if let Some(observer) = &mut net.observer {
            observer.opened(net.now, node, number);
        }
        let now = net.local(node);
        let (tier, place) = net.topology().place(node);
        match tier {
            Tier::Client => {
                if let Some(client) = &mut self.clients[place] {
                    client.clock.set(now);
                    client.agent.handle_open(now);
                }
            }
            Tier::Aggregator => {
                if let Some(aggregator) = &mut self.aggregators[place] {
                    aggregator.handle_parent_open(now);
                }
            }
            Tier::Controller => {}
        }
        net.tell(node, NodeChange::Opened);
        self.pump(net, node);
    }

    /// The node below finds its stream closed.
    fn closed(&mut self, net: &mut Net<'_, Message>, node: NodeId, number: u32) {
        let stream = &mut self.streams[node.0 as usize];
        if !stream.is_open() || stream.number() != number {
            return;
        }
        let wait = stream.close();
        let now = net.local(node);
        let (tier, place) = net.topology().place(node);
        match tier {
            Tier::Client => {
                if let Some(client) = &mut self.clients[place] {
                    client.clock.set(now);
                    client.agent.handle_close(now);
                }
            }
            Tier::Aggregator => {
                if let Some(aggregator) = &mut self.aggregators[place] {
                    aggregator.handle_parent_close(now);
                }
            }
            Tier::Controller => {}
        }
        net.tell(node, NodeChange::Closed);
        net.set_timer(node, net.now() + wait, Timer::Connect.code());
        self.pump(net, node);
    }

    /// The node above finds the stream of a child closed.
    fn child_closed(&mut self, net: &mut Net<'_, Message>, child: NodeId, number: u32) {
        let Some(parent) = net.topology().parent(child) else { return };
        if !self.streams[child.0 as usize].forget(number) {
            return;
        }
        let now = net.local(parent);
        let session = Stream::session(child, number);
        let (tier, place) = net.topology().place(parent);
        match tier {
            Tier::Aggregator => {
                if let Some(aggregator) = &mut self.aggregators[place] {
                    aggregator.handle_child_close(now, session);
                }
            }
            Tier::Controller => {
                if let Some(controller) = &mut self.controllers[place] {
                    controller.handle_child_close(now, session);
                }
            }
            Tier::Client => {}
        }
        self.pump(net, parent);
    }

    /// A message came up.
    fn up(&mut self, net: &mut Net<'_, Message>, child: NodeId, at: NodeId, number: u32, up: Up) {
        let stream = &mut self.streams[child.0 as usize];
        let session = Stream::session(child, number);
        let now = net.local(at);
        let (tier, place) = net.topology().place(at);
        if !matches!(up, Up::Hello(_)) && !stream.serves(number) {
            // Of a closed stream, or it overtook the hello.
            return;
        }
        let is_first = stream.serve(number);
        if let (Some(observer), true) = (&mut net.observer, is_first.is_some()) {
            observer.up_arrived(net.now, child, number, &up);
        }
        let handled = match (tier, is_first, up) {
            (_, None, _) => return,
            (Tier::Aggregator, Some(first), up) => {
                let Some(node) = &mut self.aggregators[place] else { return };
                match (first, up) {
                    (true, Up::Hello(hello)) => node.handle_child_open(now, session, hello).is_ok(),
                    (true, _) => false,
                    (false, up) => node.handle_child(now, session, up).is_ok(),
                }
            }
            (Tier::Controller, Some(first), up) => {
                let Some(node) = &mut self.controllers[place] else { return };
                match (first, up) {
                    (true, Up::Hello(hello)) => node.handle_child_open(now, session, hello).is_ok(),
                    (true, _) => false,
                    (false, up) => node.handle_child(now, session, up).is_ok(),
                }
            }
            (Tier::Client, ..) => return,
        };
        if handled {
            self.pump(net, at);
        } else {
            self.child_closed(net, child, number);
            net.send_surely(at, child, Message::Closed(number));
        }
    }

    /// A message came down.
    fn down(&mut self, net: &mut Net<'_, Message>, node: NodeId, number: u32, down: Down) {
        let stream = &self.streams[node.0 as usize];
        if !stream.is_open() || stream.number() != number {
            return;
        }
        if let Some(observer) = &mut net.observer {
            observer.down_arrived(net.now, node, &down);
        }
        let now = net.local(node);
        let (tier, place) = net.topology().place(node);
        match tier {
            Tier::Client => {
                if let Some(client) = &mut self.clients[place] {
                    client.clock.set(now);
                    client.agent.handle_down(now, down);
                }
            }
            Tier::Aggregator => {
                if let Some(aggregator) = &mut self.aggregators[place] {
                    aggregator.handle_parent(now, down);
                }
            }
            Tier::Controller => {}
        }
        self.pump(net, node);
    }

    /// A connection over a cut link counts as dead once probes have had no answer for long enough.
    fn probe(&mut self, net: &mut Net<'_, Message>, node: NodeId) {
        let dead = net.cut_since(node).is_some_and(|since| since + KEEPALIVE_NS <= net.now());
        if !dead {
            return;
        }
        for number in self.streams[node.0 as usize].served() {
            self.child_closed(net, node, number);
        }
        let number = self.streams[node.0 as usize].number();
        self.closed(net, node, number);
    }
}

fn send_up(net: &mut Net<'_, Message>, node: NodeId, number: u32, mut up: Up) {
    let Some(parent) = net.topology().parent(node) else { return };
    let fate = match &mut net.observer {
        Some(observer) => observer.up(net.now, node, &mut up),
        None => Fate::Send,
    };
    send(net, fate, (node, parent), Message::Up(number, up));
}

fn send_down(
    net: &mut Net<'_, Message>,
    streams: &[Stream],
    node: NodeId,
    session: u64,
    mut down: Down,
) {
    let (child, number) = Stream::of_session(session);
    if !streams[child.0 as usize].serves(number) {
        return;
    }
    let fate = match &mut net.observer {
        Some(observer) => observer.down(net.now, child, &mut down),
        None => Fate::Send,
    };
    send(net, fate, (node, child), Message::Down(number, down));
}

/// Reports and updates are what a bad link may lose, repeat and reorder: they are made for it. The
/// rest stands for what a stream must bring whole and in order, or break.
fn send(net: &mut Net<'_, Message>, fate: Fate, (from, to): (NodeId, NodeId), message: Message) {
    if fate == Fate::Lose {
        return;
    }
    if fate == Fate::Twice {
        net.send(from, to, message.clone());
    }
    if message.counts() {
        net.send(from, to, message);
    } else {
        net.send_surely(from, to, message);
    }
}

impl Fleet for Product<'_> {
    type Message = Message;

    fn start(&mut self, net: &mut Net<'_, Message>, node: NodeId) {
        let (tier, place) = net.topology().place(node);
        let now = net.local(node);
        self.armed[node.0 as usize] = u64::MAX;
        match tier {
            Tier::Client => {
                let clock = ClientClock::default();
                clock.set(now);
                let client = self.parts.client(net, place, clock, now);
                self.clients[place] = Some(client);
            }
            Tier::Aggregator => {
                self.aggregators[place] = Some(self.parts.aggregator(net, place, now));
            }
            Tier::Controller => {
                let mut controller = self.parts.controller(net, place, now);
                controller.handle_configuration(now, self.services.clone(), Vec::new());
                self.controllers[place] = Some(controller);
                if let Some(observer) = &mut net.observer {
                    observer.configured(net.now, node, &self.services);
                }
            }
        }
        if tier != Tier::Controller {
            net.set_timer(node, net.now(), Timer::Connect.code());
        }
        self.pump(net, node);
    }

    fn crash(&mut self, net: &mut Net<'_, Message>, node: NodeId, silent: bool) {
        let (tier, place) = net.topology().place(node);
        match tier {
            Tier::Client => self.clients[place] = None,
            Tier::Aggregator => self.aggregators[place] = None,
            Tier::Controller => self.controllers[place] = None,
        }
        if let Some(parent) = net.topology().parent(node) {
            let stream = &mut self.streams[node.0 as usize];
            stream.lose();
            for number in stream.served() {
                if silent {
                    let gone = Timer::ChildGone(node, number).code();
                    net.set_timer(parent, net.now() + KEEPALIVE_NS, gone);
                } else {
                    net.send_surely(node, parent, Message::Closed(number));
                }
            }
        }
        for child in net.topology().all() {
            if net.topology().parent(child) != Some(node) {
                continue;
            }
            let stream = &mut self.streams[child.0 as usize];
            stream.forget_all();
            let number = stream.number();
            if silent {
                net.set_timer(child, net.now() + KEEPALIVE_NS, Timer::ParentGone(number).code());
            } else {
                net.send_surely(node, child, Message::Closed(number));
            }
        }
    }

    #[inline]
    fn decide(&mut self, net: &mut Net<'_, Message>, ask: &Ask) -> Verdict {
        let Some(client) = &mut self.clients[ask.client as usize] else { return Verdict::Admit };
        client.clock.set(net.local(NodeId(ask.client)));
        client.decide(&self.parts, ask)
    }

    fn message(&mut self, net: &mut Net<'_, Message>, from: NodeId, to: NodeId, message: Message) {
        match message {
            Message::Up(number, up) => self.up(net, from, to, number, up),
            Message::Down(number, down) => self.down(net, to, number, down),
            Message::Closed(number) if from > to => self.closed(net, to, number),
            Message::Closed(number) => self.child_closed(net, from, number),
        }
    }

    fn timer(&mut self, net: &mut Net<'_, Message>, node: NodeId, timer: u64) {
        match Timer::from_code(timer) {
            Timer::Due => self.due(net, node),
            Timer::Connect => self.connect(net, node),
            Timer::Opened(number) => self.opened(net, node, number),
            Timer::Probe => self.probe(net, node),
            Timer::ParentGone(number) => self.closed(net, node, number),
            Timer::ChildGone(child, number) => self.child_closed(net, child, number),
        }
    }

    fn link_cut(&mut self, net: &mut Net<'_, Message>, node: NodeId) {
        net.set_timer(node, net.now() + KEEPALIVE_NS, Timer::Probe.code());
    }

    fn connection_broke(&mut self, net: &mut Net<'_, Message>, node: NodeId) {
        for number in self.streams[node.0 as usize].served() {
            self.child_closed(net, node, number);
        }
        let number = self.streams[node.0 as usize].number();
        self.closed(net, node, number);
    }

    fn configure(&mut self, net: &mut Net<'_, Message>, services: &[Arc<ServiceBuckets>]) {
        let gone = |s: &&Arc<ServiceBuckets>| services.iter().all(|n| n.service != s.service);
        let removed: Vec<_> =
            self.services.iter().filter(gone).map(|s| s.service.clone()).collect();
        self.services = services.to_vec();
        for region in 0..self.controllers.len() {
            let node = net.topology().controller(region);
            let now = net.local(node);
            let Some(controller) = &mut self.controllers[region] else { continue };
            controller.handle_configuration(now, services.to_vec(), removed.clone());
            if let Some(observer) = &mut net.observer {
                observer.configured(net.now, node, services);
            }
            self.pump(net, node);
        }
    }
}
