//! Clients that report in batches, aggregators that sum up, and the owner of a count that answers
//! all: what `proxy-bucket`, `batch-window`, `batch-rate` and `batch-bucket` share. What they say
//! and what they make of it is a [`Design`].
//!
//! Reports are cumulative within the life of a process, so losing or doubling one does no harm.
//! Every node's interval has a phase of its own. The owner speaks at each of its steps to everybody
//! who uses the key; aggregators pass that on at once. A child that has been silent for three
//! intervals offers nothing. A client that has heard nothing for the scenario's `ttl_s` fails open.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use sluicegate_model::{Mode, ServiceBuckets, Time};

use super::design::{Design, Own, Sum};
use super::keys::{KeyId, Keys};
use super::parameters::Route;
use crate::fleet::{Fleet, Traced};
use crate::net::Net;
use crate::node::{NodeId, Topology};
use crate::observe::{Ask, Verdict};
use crate::scenario::Tier;
use crate::setup::{Setup, nanos};
use crate::trace::Trace;

const NANOS_PER_MS: u64 = 1_000_000;
/// After so many intervals without a word a child offers nothing; on top of that comes the time
/// that messages may need.
const SILENT_INTERVALS: u64 = 3;
const SILENT_SLACK_NS: u64 = 60 * NANOS_PER_MS;

/// What a node tells the one above of a key, since its process started.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Entry {
    key: KeyId,
    offered: u64,
    admitted: u64,
    offered_rps: f64,
}

/// What these nodes send each other.
pub(crate) enum Message<D: Design> {
    Report { life: u32, seq: u64, entries: Rc<[Entry]> },
    Words { life: u32, seq: u64, words: Words<D> },
}

type Words<D> = Rc<[(KeyId, <D as Design>::Word)]>;

impl<D: Design> Clone for Message<D> {
    fn clone(&self) -> Self {
        match self {
            Self::Report { life, seq, entries } => {
                Self::Report { life: *life, seq: *seq, entries: entries.clone() }
            }
            Self::Words { life, seq, words } => {
                Self::Words { life: *life, seq: *seq, words: words.clone() }
            }
        }
    }
}

impl<D: Design> Traced for Message<D> {
    fn trace(&self, trace: &mut Trace) {
        match self {
            Self::Report { life, seq, entries } => {
                trace.number(u64::from(*life) << 1);
                trace.number(*seq);
                for entry in &**entries {
                    trace.number(u64::from(entry.key));
                    trace.number(entry.offered);
                    trace.number(entry.admitted);
                    trace.number(entry.offered_rps.to_bits());
                }
            }
            Self::Words { life, seq, words } => {
                trace.number(u64::from(*life) << 1 | 1);
                trace.number(*seq);
                for (key, word) in &**words {
                    trace.number(u64::from(*key));
                    D::trace(*word, trace);
                }
            }
        }
    }
}

/// Every node of such a design.
pub(crate) struct Batch<D: Design> {
    design: D,
    keys: Keys,
    topology: Topology,
    interval: u64,
    ttl: u64,
    /// How often each node's process has started.
    lives: Vec<u32>,
    clients: Vec<Client<D>>,
    /// Aggregators, then controllers.
    servers: Vec<Server<D>>,
}

struct Client<D: Design> {
    seq: u64,
    last_tick: u64,
    keys: Vec<Used<D::Gate>>,
}

/// A key at a client.
struct Used<G> {
    gate: G,
    offered: u64,
    admitted: u64,
    reported: Option<Entry>,
    /// The last word: whose, and when it came.
    heard: (u32, u64),
    heard_at: Option<u64>,
    /// Whether the request that is being decided passes.
    passes: bool,
}

struct Server<D: Design> {
    seq: u64,
    children: BTreeMap<NodeId, Child>,
    keys: Vec<Count<D::Root>>,
}

struct Child {
    life: u32,
    seq: u64,
    heard_at: u64,
    /// The last entry of each key that it uses.
    keys: BTreeMap<KeyId, Entry>,
}

/// A key at a server: sums over its children since it started.
struct Count<R> {
    root: R,
    offered: u64,
    admitted: u64,
    /// Of `admitted`, what the last step knew of.
    booked: u64,
    reported: Option<Entry>,
}

impl<D: Design> Batch<D> {
    pub(crate) fn new(setup: &Setup<'_>, design: D) -> Self {
        let keys = Keys::new(setup);
        let topology = setup.topology;
        let clients = (0..topology.clients()).map(|_| Client::new(&design, keys.len()));
        let servers = topology.zones() + topology.regions();
        let servers = (0..servers).map(|_| Server::new(&design, keys.len()));
        Self {
            interval: design.interval_ms() * NANOS_PER_MS,
            ttl: nanos(setup.scenario.ttl_s),
            lives: vec![0; topology.nodes()],
            clients: clients.collect(),
            servers: servers.collect(),
            design,
            keys,
            topology,
        }
    }

    fn server(&mut self, node: NodeId) -> Option<&mut Server<D>> {
        let place = (node.0 as usize).checked_sub(self.topology.clients())?;
        self.servers.get_mut(place)
    }

    /// Where a client sends what it has to say of a key.
    fn above(&self, client: usize, key: KeyId) -> NodeId {
        match self.design.route() {
            Route::Tiers => self.topology.aggregator(self.topology.zone_of(client)),
            Route::Direct => self.keys.root(key, self.topology, client),
        }
    }

    /// A client's interval is over: it reports what is new.
    fn tick_client(&mut self, net: &mut Net<'_, Message<D>>, client: usize) {
        let node = self.topology.client(client);
        let now = net.local(node).as_nanos();
        let own = &mut self.clients[client];
        let seconds = seconds(now.saturating_sub(own.last_tick));
        own.last_tick = now;
        own.seq += 1;
        let mut entries: BTreeMap<NodeId, Vec<Entry>> = BTreeMap::new();
        for key in 0..self.keys.len() {
            let id = KeyId::try_from(key).unwrap_or(KeyId::MAX);
            let to = self.above(client, id);
            let used = &mut self.clients[client].keys[key];
            let entry = used.entry(id, seconds);
            if used.heard_at.is_some_and(|at| now.saturating_sub(at) > self.ttl) {
                used.heard_at = None;
                used.gate = self.design.gate();
            }
            if let Some(limit) = self.keys.get(id).limit {
                let own = Own { offered_rps: entry.offered_rps, seconds };
                self.design.interval_over(&mut used.gate, limit, own);
            }
            if is_news(used.reported, entry) {
                used.reported = Some(entry);
                entries.entry(to).or_default().push(entry);
            }
        }
        let (life, seq) = (self.lives[node.0 as usize], self.clients[client].seq);
        for (to, entries) in entries {
            net.send(node, to, Message::Report { life, seq, entries: entries.into() });
        }
    }

    /// A server's interval is over: it steps what it owns, and passes the sums of the rest up.
    fn tick_server(&mut self, net: &mut Net<'_, Message<D>>, node: NodeId) {
        let now = net.local(node).as_nanos();
        let silent = SILENT_INTERVALS * self.interval + SILENT_SLACK_NS;
        let is_aggregator = self.topology.place(node).0 == Tier::Aggregator;
        let Self { design, keys, servers, topology, lives, .. } = &mut *self;
        let server = &mut servers[node.0 as usize - topology.clients()];
        let rates = server.rates(now, silent);
        server.seq += 1;
        let (mut words, mut entries) = (Vec::new(), Vec::new());
        for ((count, offered_rps), key) in server.keys.iter_mut().zip(rates).zip(0..) {
            if count.offered == 0 {
                continue;
            }
            if is_aggregator && !keys.is_zonal(key) {
                let Count { offered, admitted, .. } = *count;
                let entry = Entry { key, offered, admitted, offered_rps };
                if is_news(count.reported, entry) {
                    count.reported = Some(entry);
                    entries.push(entry);
                }
            } else if let Some(limit) = keys.get(key).limit {
                let sum = Sum { offered_rps, admitted: count.admitted - count.booked };
                count.booked = count.admitted;
                words.push((key, design.step(&mut count.root, limit, now, sum)));
            }
        }
        let (life, seq) = (lives[node.0 as usize], server.seq);
        if let (false, Some(to)) = (entries.is_empty(), topology.parent(node)) {
            net.send(node, to, Message::Report { life, seq, entries: entries.into() });
        }
        self.tell(net, node, (life, seq), &words.into());
    }

    /// Says it to all children of a server that use the keys.
    fn tell(
        &mut self,
        net: &mut Net<'_, Message<D>>,
        node: NodeId,
        (life, seq): (u32, u64),
        words: &Words<D>,
    ) {
        let Some(server) = self.server(node) else { return };
        for (child, known) in &server.children {
            let uses = |key: KeyId| known.keys.contains_key(&key);
            let words = match words.iter().filter(|(key, _)| uses(*key)).count() {
                0 => continue,
                all if all == words.len() => words.clone(),
                _ => words.iter().copied().filter(|(key, _)| uses(*key)).collect(),
            };
            net.send(node, *child, Message::Words { life, seq, words });
        }
    }

    fn hear(&mut self, client: usize, now: u64, from: (u32, u64), words: &Words<D>) {
        for (key, word) in &**words {
            let used = &mut self.clients[client].keys[*key as usize];
            if from > used.heard {
                used.heard = from;
                used.heard_at = Some(now);
                self.design.hear(&mut used.gate, *word);
            }
        }
    }
}

impl<D: Design> Fleet for Batch<D> {
    type Message = Message<D>;

    fn start(&mut self, net: &mut Net<'_, Self::Message>, node: NodeId) {
        self.lives[node.0 as usize] += 1;
        let now = net.local(node);
        match self.topology.place(node) {
            (Tier::Client, client) => {
                let fresh = Client::new(&self.design, self.keys.len());
                self.clients[client] = Client { last_tick: now.as_nanos(), ..fresh };
            }
            (Tier::Aggregator | Tier::Controller, _) => {
                let fresh = Server::new(&self.design, self.keys.len());
                if let Some(server) = self.server(node) {
                    *server = fresh;
                }
            }
        }
        let phase = 1 + net.rng(node).below(self.interval);
        let at = net.world(node, Time::from_nanos(now.as_nanos() + phase));
        net.set_timer(node, at, 0);
    }

    fn decide(&mut self, net: &mut Net<'_, Self::Message>, ask: &Ask) -> Verdict {
        let node = NodeId(ask.client);
        let now = net.local(node).as_nanos();
        let own = &mut self.clients[ask.client as usize].keys;
        let mut verdict = Verdict::Admit;
        for id in self.keys.of(ask) {
            let (key, used) = (self.keys.get(*id), &mut own[*id as usize]);
            used.passes =
                key.limit.is_none() || self.design.admits(&mut used.gate, now, net.rng(node));
            match key.mode {
                Mode::Deny if !used.passes => {
                    // What one bucket refuses was not offered to the others.
                    used.offered += 1;
                    return Verdict::Drop(key.bucket);
                }
                Mode::Shadow if !used.passes && verdict == Verdict::Admit => {
                    verdict = Verdict::WouldDrop(key.bucket);
                }
                Mode::Deny | Mode::Shadow | Mode::Observe => {}
            }
        }
        for id in self.keys.of(ask) {
            let used = &mut own[*id as usize];
            used.offered += 1;
            if used.passes {
                used.admitted += 1;
                self.design.take(&mut used.gate);
            }
        }
        verdict
    }

    fn message(
        &mut self,
        net: &mut Net<'_, Self::Message>,
        from: NodeId,
        to: NodeId,
        message: Self::Message,
    ) {
        let now = net.local(to).as_nanos();
        match (message, self.topology.place(to)) {
            (Message::Report { life, seq, entries }, _) => {
                if let Some(server) = self.server(to) {
                    server.take_in(from, now, (life, seq), &entries);
                }
            }
            (Message::Words { life, seq, words }, (Tier::Client, client)) => {
                self.hear(client, now, (life, seq), &words);
            }
            (Message::Words { life, seq, words }, _) => self.tell(net, to, (life, seq), &words),
        }
    }

    fn timer(&mut self, net: &mut Net<'_, Self::Message>, node: NodeId, _timer: u64) {
        match self.topology.place(node) {
            (Tier::Client, client) => self.tick_client(net, client),
            (Tier::Aggregator | Tier::Controller, _) => self.tick_server(net, node),
        }
        let next = Time::from_nanos(net.local(node).as_nanos() + self.interval);
        net.set_timer(node, net.world(node, next), 0);
    }

    fn configure(&mut self, _: &mut Net<'_, Self::Message>, services: &[Arc<ServiceBuckets>]) {
        self.keys.configure(services);
    }
}

impl<D: Design> Client<D> {
    fn new(design: &D, keys: usize) -> Self {
        let used = |_| Used {
            gate: design.gate(),
            offered: 0,
            admitted: 0,
            reported: None,
            heard: (0, 0),
            heard_at: None,
            passes: true,
        };
        Self { seq: 0, last_tick: 0, keys: (0..keys).map(used).collect() }
    }
}

impl<G> Used<G> {
    #[expect(clippy::cast_precision_loss, reason = "counts of one run")]
    fn entry(&self, key: KeyId, seconds: f64) -> Entry {
        let new = self.offered - self.reported.map_or(0, |r| r.offered);
        let offered_rps = if seconds > 0.0 { new as f64 / seconds } else { 0.0 };
        Entry { key, offered: self.offered, admitted: self.admitted, offered_rps }
    }
}

impl<D: Design> Server<D> {
    fn new(design: &D, keys: usize) -> Self {
        let count =
            |_| Count { root: design.root(), offered: 0, admitted: 0, booked: 0, reported: None };
        Self { seq: 0, children: BTreeMap::new(), keys: (0..keys).map(count).collect() }
    }

    fn take_in(&mut self, from: NodeId, now: u64, at: (u32, u64), entries: &[Entry]) {
        let (life, seq) = at;
        let unknown = || Child { life, seq: 0, heard_at: now, keys: BTreeMap::new() };
        let child = self.children.entry(from).or_insert_with(unknown);
        if at <= (child.life, child.seq) {
            return;
        }
        if life != child.life {
            *child = unknown();
        }
        child.seq = seq;
        child.heard_at = now;
        for entry in entries {
            let before = child.keys.insert(entry.key, *entry);
            let before = before.map_or((0, 0), |b| (b.offered, b.admitted));
            let count = &mut self.keys[entry.key as usize];
            count.offered += entry.offered.saturating_sub(before.0);
            count.admitted += entry.admitted.saturating_sub(before.1);
        }
    }

    /// What children offer, by key.
    fn rates(&self, now: u64, silent: u64) -> Vec<f64> {
        let mut rates = vec![0.0; self.keys.len()];
        let heard = self.children.values().filter(|c| now.saturating_sub(c.heard_at) <= silent);
        for entry in heard.flat_map(|child| child.keys.values()) {
            rates[entry.key as usize] += entry.offered_rps;
        }
        rates
    }
}

/// Whether there is something to report: a key that goes quiet is reported once as such, then no
/// more.
fn is_news(reported: Option<Entry>, entry: Entry) -> bool {
    match reported {
        None => entry.offered > 0,
        Some(last) => last.offered != entry.offered || last.offered_rps > 0.0,
    }
}

#[expect(clippy::cast_precision_loss, reason = "below 2^52")]
fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::super::batch_bucket::Law;
    use super::super::parameters::BatchBucket;
    use super::*;

    const MS: u64 = NANOS_PER_MS;

    fn server() -> Server<Law> {
        Server::new(&Law(BatchBucket::default()), 1)
    }

    fn entry(offered: u64, admitted: u64, offered_rps: f64) -> Entry {
        Entry { key: 0, offered, admitted, offered_rps }
    }

    #[test]
    fn lost_late_and_doubled_reports_count_once() {
        let mut server = server();
        let from = NodeId(3);
        server.take_in(from, 0, (1, 1), &[entry(10, 8, 100.0)]);
        server.take_in(from, MS, (1, 1), &[entry(10, 8, 100.0)]);
        // The second is lost, the third brings both, the second comes after all.
        server.take_in(from, MS, (1, 3), &[entry(30, 20, 90.0)]);
        server.take_in(from, MS, (1, 2), &[entry(20, 15, 95.0)]);
        assert_eq!((server.keys[0].offered, server.keys[0].admitted), (30, 20));
        assert_eq!(server.rates(MS, 10 * MS), [90.0]);
    }

    #[test]
    fn a_new_process_counts_from_zero_and_the_old_one_is_not_heard_again() {
        let mut server = server();
        let from = NodeId(3);
        server.take_in(from, 0, (1, 9), &[entry(10, 8, 100.0)]);
        server.take_in(from, 0, (2, 1), &[entry(5, 5, 50.0)]);
        server.take_in(from, 0, (1, 10), &[entry(12, 10, 100.0)]);
        assert_eq!((server.keys[0].offered, server.keys[0].admitted), (15, 13));
        assert_eq!(server.rates(0, MS), [50.0]);
    }

    #[test]
    fn the_silent_offer_nothing() {
        let mut server = server();
        server.take_in(NodeId(1), 0, (1, 1), &[entry(10, 8, 100.0)]);
        server.take_in(NodeId(2), 300 * MS, (1, 1), &[entry(10, 8, 7.0)]);
        assert_eq!(server.rates(300 * MS, 360 * MS), [107.0]);
        assert_eq!(server.rates(400 * MS, 360 * MS), [7.0]);
    }

    #[test]
    fn a_key_that_goes_quiet_is_reported_once() {
        assert!(!is_news(None, entry(0, 0, 0.0)));
        assert!(is_news(None, entry(1, 1, 10.0)));
        assert!(is_news(Some(entry(1, 1, 10.0)), entry(1, 1, 0.0)));
        assert!(!is_news(Some(entry(1, 1, 0.0)), entry(1, 1, 0.0)));
    }
}
