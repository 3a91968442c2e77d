//! The run itself: takes events in their order, lets requests come, lets faults happen. Knows a
//! fleet only as somebody who decides.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_model::ServiceBuckets;

use crate::fleet::Fleet;
use crate::heap::Place;
use crate::net::{Event, Net, Worse};
use crate::node::NodeId;
use crate::observe::{Ask, NodeChange, Verdict};
use crate::random::Rng;
use crate::scenario::{Fault, FaultKind, Tier, Which};
use crate::setup::{Setup, nanos, service};
use crate::workload::Source;

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// World time that is over, seconds.
    pub done_s: f64,
    /// World time in all, seconds.
    pub total_s: f64,
}

/// Between two calls of whoever watches the progress, in nanoseconds of world time.
const PROGRESS_NS: u64 = 100_000_000;
/// A client that churn took down is back after at most this.
const CHURN_DOWN_NS: u64 = 100_000_000;

/// A run under way.
pub(crate) struct World<'w, 'o, F: Fleet> {
    setup: &'w Setup<'w>,
    net: Net<'o, F::Message>,
    fleet: F,
    sources: Vec<Source>,
    /// What the buckets are now, those of services that were taken out included.
    services: Vec<Arc<ServiceBuckets>>,
    /// How many faults take each of them out.
    removed: Vec<u32>,
    /// For what the world itself draws.
    rng: Rng,
}

impl<'w, 'o, F: Fleet> World<'w, 'o, F> {
    pub(crate) fn new(setup: &'w Setup<'w>, net: Net<'o, F::Message>, fleet: F) -> Self {
        let clients = setup.topology.clients();
        let sources = setup.workloads.iter().zip(0..);
        let sources = sources.map(|(w, i)| Source::new(w, clients, setup.seed, i)).collect();
        let services = setup.services.clone();
        let removed = vec![0; services.len()];
        let rng = Rng::new(setup.seed, 4 << 40);
        Self { setup, net, fleet, sources, services, removed, rng }
    }

    /// Runs to the end, and gives back what there is to read from.
    pub(crate) fn run(mut self, progress: &mut dyn FnMut(Progress)) -> Net<'o, F::Message> {
        self.begin();
        let end = self.setup.end;
        let mut told = 0;
        loop {
            let source = self.next_source();
            let event = self.net.heap.next();
            let is_arrival = match (source, event) {
                (Some((place, _)), Some(event)) => place < event,
                (Some(_), None) => true,
                (None, _) => false,
            };
            let Some(at) = (if is_arrival { source.map(|s| s.0.at) } else { event.map(|e| e.at) })
            else {
                break;
            };
            if at >= end {
                break;
            }
            self.net.now = at;
            if at >= told + PROGRESS_NS {
                told = at;
                progress(self.progress(at));
            }
            match source {
                Some((_, source)) if is_arrival => self.arrive(source),
                _ => {
                    if let Some((_, event)) = self.net.heap.pop() {
                        self.happen(event);
                    }
                }
            }
        }
        progress(self.progress(end));
        self.net
    }

    #[expect(clippy::cast_precision_loss, reason = "for people")]
    fn progress(&self, at: u64) -> Progress {
        Progress { done_s: at as f64 / 1e9, total_s: self.setup.end as f64 / 1e9 }
    }

    /// Everything that is known beforehand.
    fn begin(&mut self) {
        self.fleet.configure(&mut self.net, &self.services);
        let s = self.setup.scenario;
        let (tick, look) = (Duration::from_millis(s.tick_ms), Duration::from_millis(s.look_ms));
        for node in self.setup.topology.all() {
            let within = match self.setup.topology.place(node).0 {
                Tier::Client => look,
                Tier::Aggregator | Tier::Controller => tick,
            };
            let at = self.rng.time_below(within);
            let at = u64::try_from(at.as_nanos()).unwrap_or(0);
            self.net.heap.push(at, Event::Start { node });
        }
        for (fault, place) in s.faults.iter().zip(0..) {
            let at = nanos(fault.at_s);
            self.net.heap.push(at, Event::Fault { place, begins: true });
            if let Some(for_s) = fault.for_s {
                self.net.heap.push(at + nanos(for_s), Event::Fault { place, begins: false });
            }
        }
        for source in 0..self.sources.len() {
            self.schedule(source);
        }
    }

    /// The workload whose next request comes first.
    #[inline]
    fn next_source(&self) -> Option<(Place, usize)> {
        match &self.sources[..] {
            [only] => (only.next.at != u64::MAX).then_some((only.next, 0)),
            many => {
                let all = many.iter().enumerate().map(|(i, s)| (s.next, i));
                all.filter(|(place, _)| place.at != u64::MAX).min()
            }
        }
    }

    #[inline]
    fn schedule(&mut self, source: usize) {
        let profile = &self.setup.workloads[source].profile;
        let at = self.sources[source].after(profile, self.net.now, self.setup.end);
        self.sources[source].next = self.net.heap.place(at);
    }

    #[inline]
    fn arrive(&mut self, source: usize) {
        let net = &self.net;
        let client = self.sources[source].client(|client| net.asks(client));
        if let (Some(client), Ok(workload)) = (client, u16::try_from(source)) {
            for _ in 0..self.sources[source].batch() {
                let kind = self.sources[source].kind();
                self.ask(Ask { client, workload, kind, tries: 0, at: self.net.now });
            }
        }
        self.schedule(source);
    }

    #[inline]
    fn ask(&mut self, ask: Ask) {
        let verdict = self.fleet.decide(&mut self.net, &ask);
        if verdict != Verdict::Later {
            self.decided(&ask, verdict);
        }
        if !self.net.answered.is_empty() {
            self.take_answers();
        }
    }

    #[cold]
    fn take_answers(&mut self) {
        for (ask, verdict) in std::mem::take(&mut self.net.answered) {
            self.decided(&ask, verdict);
        }
    }

    fn decided(&mut self, ask: &Ask, verdict: Verdict) {
        let now = self.net.now;
        let verdict = match &mut self.net.observer {
            Some(observer) => observer.decided(now, ask, verdict),
            None => verdict,
        };
        let code = match verdict {
            Verdict::Admit | Verdict::Later => 0,
            Verdict::WouldDrop(bucket) => 1 | u64::from(bucket.0) << 2,
            Verdict::Drop(bucket) => 2 | u64::from(bucket.0) << 2,
        };
        self.net.trace.number(now << 3);
        self.net.trace.number(
            u64::from(ask.client) << 44
                | u64::from(ask.workload & 0xff) << 36
                | u64::from(ask.kind) << 20
                | code,
        );
        let setup = self.setup;
        for bucket in &setup.workloads[ask.workload as usize].kinds[ask.kind as usize].buckets {
            let admitted = match verdict {
                Verdict::Admit | Verdict::Later => true,
                Verdict::WouldDrop(by) => by != *bucket,
                // What another bucket refuses was not offered to this one.
                Verdict::Drop(by) if by != *bucket => continue,
                Verdict::Drop(_) => false,
            };
            self.net.record.decided((ask.at, now), ask.client, *bucket, admitted);
        }
        if !verdict.is_admitted() {
            self.retry(ask);
        }
    }

    /// A caller may try again.
    fn retry(&mut self, ask: &Ask) {
        let setup = self.setup;
        let Some(retries) = &setup.workloads[ask.workload as usize].workload.retries else {
            return;
        };
        let rng = self.sources[ask.workload as usize].rng();
        if u32::from(ask.tries) >= retries.max || !rng.happens(retries.probability) {
            return;
        }
        let delay = retries.delay_ms.shortest() + rng.time_below(retries.delay_ms.spread());
        let at = self.net.now + u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        let ask = Ask { tries: ask.tries + 1, at, ..*ask };
        self.net.heap.push(at, Event::Retry { ask });
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Timer { node, life, timer } => {
                if self.net.health[node.0 as usize].life != life || !self.net.runs(node) {
                    return;
                }
                if self.net.hold(node, event).is_some() {
                    self.fleet.timer(&mut self.net, node, timer);
                }
            }
            Event::Deliver { slot } => self.deliver(slot),
            Event::Start { node } => self.start(node),
            Event::Retry { ask } => {
                if self.net.asks(ask.client as usize) {
                    self.ask(ask);
                }
            }
            Event::Fault { place, begins } => {
                let setup = self.setup;
                self.fault(&setup.scenario.faults[place as usize], place, begins);
            }
            Event::Churn { client, begins: true } => {
                self.crash(NodeId(client), true);
                let at = self.net.now + 1 + self.rng.below(CHURN_DOWN_NS);
                self.net.heap.push(at, Event::Churn { client, begins: false });
            }
            Event::Churn { client, begins: false } => self.start(NodeId(client)),
        }
        if !self.net.answered.is_empty() {
            self.take_answers();
        }
    }

    fn deliver(&mut self, slot: u32) {
        let Some(to) = self.net.recipient(slot) else { return };
        let runs = self.net.runs(to);
        if runs && self.net.hold(to, Event::Deliver { slot }).is_none() {
            return;
        }
        let Some(envelope) = self.net.take(slot) else { return };
        if runs {
            self.fleet.message(&mut self.net, envelope.from, envelope.to, envelope.message);
        }
    }

    fn start(&mut self, node: NodeId) {
        let health = &mut self.net.health[node.0 as usize];
        if health.runs {
            return;
        }
        health.runs = true;
        health.life += 1;
        self.net.tell(node, NodeChange::Started);
        self.fleet.start(&mut self.net, node);
    }

    fn crash(&mut self, node: NodeId, silent: bool) {
        let health = &mut self.net.health[node.0 as usize];
        if !health.runs {
            return;
        }
        health.runs = false;
        let held = std::mem::take(&mut health.held);
        for event in held {
            if let Event::Deliver { slot } = event {
                self.net.take(slot);
            }
        }
        self.net.tell(node, NodeChange::Crashed);
        self.fleet.crash(&mut self.net, node, silent);
    }

    fn fault(&mut self, fault: &Fault, place: u32, begins: bool) {
        match fault.fault {
            FaultKind::Limit => return self.change_limit(fault, begins),
            FaultKind::Remove => return self.remove(fault, begins),
            FaultKind::Load => {
                let factor = if begins { fault.load_x } else { 1.0 / fault.load_x.max(1e-9) };
                let topology = self.setup.topology;
                let all = self.nodes(fault);
                for source in &mut self.sources {
                    source.multiply(all.iter().map(|node| topology.place(*node).1), factor);
                }
                return self.reschedule();
            }
            FaultKind::OneClient => {
                let named = match fault.node {
                    Which::All => None,
                    Which::One(one) => u32::try_from(one).ok(),
                };
                for source in &mut self.sources {
                    if begins { source.move_to(named) } else { source.spread_again() }
                }
                return;
            }
            FaultKind::Churn | FaultKind::Break if !begins => return,
            FaultKind::Cut
            | FaultKind::Degrade
            | FaultKind::Crash
            | FaultKind::Pause
            | FaultKind::PauseAgent
            | FaultKind::Clock
            | FaultKind::Break
            | FaultKind::Churn => {}
        }
        for node in self.nodes(fault) {
            self.fault_of(fault, place, begins, node);
        }
    }

    fn fault_of(&mut self, fault: &Fault, place: u32, begins: bool, node: NodeId) {
        match fault.fault {
            FaultKind::Cut => {
                self.net.cut(node, fault.way, begins);
                if begins {
                    self.fleet.link_cut(&mut self.net, node);
                }
            }
            FaultKind::Degrade => {
                let worse = Worse {
                    fault: place,
                    loss: fault.loss,
                    duplicate: fault.duplicate,
                    delay: fault.delay_ms.map(|d| (d.shortest(), d.spread())),
                };
                self.net.degrade(node, fault.way, &worse, begins);
            }
            FaultKind::Crash if begins => self.crash(node, fault.silent),
            FaultKind::Crash => self.start(node),
            FaultKind::Pause => self.net.pause(node, true, begins),
            FaultKind::PauseAgent => self.net.pause(node, false, begins),
            FaultKind::Clock if begins => {
                let jump = Duration::from_secs_f64(fault.skew_ms / 1000.0);
                self.net.change_clock(node, jump, fault.drift_ppm);
            }
            FaultKind::Clock => self.net.change_clock(node, Duration::ZERO, 0.0),
            FaultKind::Churn => {
                let last = nanos(fault.for_s.unwrap_or(0.0)).max(1);
                let at = self.net.now + self.rng.below(last);
                self.net.heap.push(at, Event::Churn { client: node.0, begins: true });
            }
            FaultKind::Break => self.fleet.connection_broke(&mut self.net, node),
            FaultKind::Limit | FaultKind::Remove | FaultKind::Load | FaultKind::OneClient => {}
        }
    }

    /// The nodes that a fault is about.
    fn nodes(&self, fault: &Fault) -> Vec<NodeId> {
        let topology = self.setup.topology;
        let (count, node): (usize, Box<dyn Fn(usize) -> NodeId>) = match fault.tier {
            Tier::Client => (topology.clients(), Box::new(|i| topology.client(i))),
            Tier::Aggregator => (topology.zones(), Box::new(|i| topology.aggregator(i))),
            Tier::Controller => (topology.regions(), Box::new(|i| topology.controller(i))),
        };
        let in_zone = |i: &usize| match (fault.zone, fault.tier) {
            (None, _) => true,
            (Some(zone), Tier::Client) => topology.zone_of(*i) == zone,
            (Some(zone), Tier::Aggregator) => *i == zone,
            (Some(zone), Tier::Controller) => *i == topology.region_of(zone),
        };
        fault.node.of(count).filter(in_zone).map(node).collect()
    }

    /// The rates are others now: what was to come next is drawn again (the process has no memory).
    fn reschedule(&mut self) {
        for source in 0..self.sources.len() {
            if !self.sources[source].is_listed() {
                self.schedule(source);
            }
        }
    }

    fn change_limit(&mut self, fault: &Fault, begins: bool) {
        let s = self.setup.scenario;
        let limit =
            if begins { fault.limit_rps } else { s.limit_of(&fault.service, &fault.bucket) };
        let mut all = s.all_services();
        // Other changes in force stay so.
        for (written, now) in all.iter_mut().zip(&self.services) {
            for (bucket, now) in written.buckets.iter_mut().zip(&now.buckets) {
                if let Some(sluicegate_model::Limit::Tokens(t)) = Some(now.limit) {
                    bucket.limit_rps = Some(t.requests());
                }
            }
        }
        let Some(changed) = all.iter().position(|s| s.service == fault.service) else { return };
        let guarded = self.setup.scenario.guard == Switch::On;
        let bucket = all[changed].buckets.iter_mut().find(|b| b.bucket == fault.bucket);
        let Some(bucket) = bucket else { return };
        bucket.limit_rps = limit;
        self.services[changed] = Arc::new(service(&all[changed], guarded));
        if let Some(id) = self.setup.bucket(&fault.service, &fault.bucket) {
            #[expect(clippy::cast_precision_loss, reason = "at most 10^12")]
            self.net.record.limit(self.net.now, id, limit.map(|l| l as f64));
        }
        let in_force = self.in_force();
        self.fleet.configure(&mut self.net, &in_force);
    }

    fn remove(&mut self, fault: &Fault, begins: bool) {
        let named = self.services.iter().position(|s| s.service == fault.service[..]);
        let Some(place) = named else { return };
        let removed = &mut self.removed[place];
        *removed = if begins { *removed + 1 } else { removed.saturating_sub(1) };
        let in_force = self.in_force();
        self.fleet.configure(&mut self.net, &in_force);
    }

    /// The services that are not taken out.
    fn in_force(&self) -> Vec<Arc<ServiceBuckets>> {
        let all = self.services.iter().zip(&self.removed);
        all.filter(|(_, removed)| **removed == 0).map(|(service, _)| Arc::clone(service)).collect()
    }
}
