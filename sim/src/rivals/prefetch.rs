//! Law `prefetch`: leases of capacity that clients draw on.
//!
//! Source: Doorman, a cooperative limiter whose code and design text are public. A client asks for
//! the capacity it wants and says what it has; the server grants a lease, which the client spends
//! with a token bucket of that rate and renews at intervals. Servers form a tree: an aggregator holds
//! a lease for what its clients want together, and shares that out. Leases in force never sum up to
//! more than the capacity, so who comes late waits until others renew theirs. Without a new lease
//! in time, a client falls back to the safe capacity it was told, an equal part. A server that has
//! just started grants everybody what they say they have.
//!
//! Parameters: `rivals.prefetch.refresh_ms`, `.lease_ms`, `.learning_ms`, `.burst_ms`, `.headroom_x`,
//! `.sharing`. Doorman's own leases are minutes long; the defaults favour it. Clients of a few requests
//! an interval need headroom and burst, or they drop what no limit asks for. Until its first lease
//! of a key, a client admits everything.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use sluicegate_model::{Mode, ServiceBuckets, Time};

use super::keys::{KeyId, Keys};
use super::parameters::{Prefetch, Sharing};
use crate::fleet::Traced;
use crate::net::Net;
use crate::node::{NodeId, Topology};
use crate::observe::{Ask, Verdict};
use crate::scenario::Tier;
use crate::setup::Setup;
use crate::trace::Trace;

const NANOS_PER_MS: u64 = 1_000_000;

/// What a node wants of a key, and has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Want {
    key: KeyId,
    wants_rps: f64,
    has_rps: f64,
}

/// What a server grants.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Grant {
    key: KeyId,
    rps: f64,
    safe_rps: f64,
}

/// `at` is the life and the sequence number of who asks; an answer repeats it.
#[derive(Debug, Clone)]
pub(crate) enum Message {
    Ask { at: (u32, u64), wants: Rc<[Want]> },
    Answer { at: (u32, u64), grants: Rc<[Grant]> },
}

impl Traced for Message {
    fn trace(&self, trace: &mut Trace) {
        let (Self::Ask { at, .. } | Self::Answer { at, .. }) = self;
        trace.number(u64::from(at.0));
        match self {
            Self::Ask { at, wants } => {
                trace.number(at.1 << 1);
                for want in &**wants {
                    trace.number(u64::from(want.key));
                    trace.number(want.wants_rps.to_bits());
                    trace.number(want.has_rps.to_bits());
                }
            }
            Self::Answer { at, grants } => {
                trace.number(at.1 << 1 | 1);
                for grant in &**grants {
                    trace.number(u64::from(grant.key));
                    trace.number(grant.rps.to_bits());
                    trace.number(grant.safe_rps.to_bits());
                }
            }
        }
    }
}

/// Capacity that a node may use until its lease ends, and what it may use after that.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Lease {
    rps: f64,
    safe_rps: f64,
    until: u64,
}

impl Lease {
    fn capacity(&self, now: u64) -> f64 {
        if now < self.until { self.rps } else { self.safe_rps }
    }
}

/// All clients and servers.
pub(crate) struct Fleet {
    parameters: Prefetch,
    keys: Keys,
    topology: Topology,
    lives: Vec<u32>,
    /// What each node has asked and got, by key. Controllers ask nobody.
    nodes: Vec<Node>,
    clients: Vec<Vec<Spent>>,
    /// Of aggregators and controllers.
    servers: Vec<Server>,
}

#[derive(Debug, Clone, Default)]
struct Node {
    seq: u64,
    answered: u64,
    last_tick: u64,
    leases: Vec<Option<Lease>>,
}

/// A key at a client.
#[derive(Debug, Clone, Copy, Default)]
struct Spent {
    tokens: f64,
    filled: u64,
    offered: u64,
    passes: bool,
}

#[derive(Debug, Clone, Default)]
struct Server {
    started: u64,
    keys: Vec<Holders>,
}

/// Who holds, or wants, capacity of a key.
type Holders = BTreeMap<NodeId, Holder>;

#[derive(Debug, Clone, Copy, PartialEq)]
struct Holder {
    at: (u32, u64),
    wants_rps: f64,
    has_rps: f64,
    until: u64,
}

impl Fleet {
    pub(crate) fn new(setup: &Setup<'_>, parameters: &Prefetch) -> Self {
        let keys = Keys::new(setup);
        let topology = setup.topology;
        let servers = topology.zones() + topology.regions();
        Self {
            parameters: parameters.clone(),
            lives: vec![0; topology.nodes()],
            nodes: vec![Node::default(); topology.nodes()],
            clients: vec![vec![Spent::default(); keys.len()]; topology.clients()],
            servers: vec![Server::default(); servers],
            keys,
            topology,
        }
    }

    fn place(&self, server: NodeId) -> usize {
        server.0 as usize - self.topology.clients()
    }

    /// Whether an aggregator passes wants of a key on, rather than owning its count.
    fn passes_on(&self, node: NodeId, key: KeyId) -> bool {
        self.topology.place(node).0 == Tier::Aggregator && !self.keys.is_zonal(key)
    }

    /// What a server may share out; `None` while it does not know.
    fn capacity(&self, server: NodeId, key: KeyId, now: u64) -> Option<f64> {
        if self.passes_on(server, key) {
            let lease = self.nodes[server.0 as usize].leases[key as usize]?;
            return Some(lease.capacity(now));
        }
        self.keys.get(key).limit.map(|limit| limit.rps)
    }

    /// What a client asks for, now that an interval is over.
    fn client_wants(&mut self, client: usize, now: u64) -> Vec<Want> {
        let node = &mut self.nodes[client];
        let passed = seconds(now.saturating_sub(node.last_tick));
        node.last_tick = now;
        let mut wants = Vec::new();
        for (key, spent) in (0..).zip(&mut self.clients[client]) {
            let has_rps = node.leases[key as usize].map_or(0.0, |l| l.capacity(now));
            let offered = std::mem::take(&mut spent.offered);
            if passed > 0.0 && (offered > 0 || has_rps > 0.0) {
                #[expect(clippy::cast_precision_loss, reason = "counts of one run")]
                let wants_rps = offered as f64 / passed * self.parameters.headroom_x;
                wants.push(Want { key, wants_rps, has_rps });
            }
        }
        wants
    }

    /// What an aggregator asks for.
    fn server_wants(&self, server: NodeId, now: u64) -> Vec<Want> {
        let all = (0..).zip(&self.servers[self.place(server)].keys);
        let open = all.filter(|(key, holders)| !holders.is_empty() && self.passes_on(server, *key));
        let leases = &self.nodes[server.0 as usize].leases;
        open.map(|(key, holders)| Want {
            key,
            wants_rps: holders.values().filter(|h| now < h.until).map(|h| h.wants_rps).sum(),
            has_rps: leases[key as usize].map_or(0.0, |l| l.capacity(now)),
        })
        .collect()
    }

    /// A server is asked, and grants what it can.
    fn grant(
        &mut self,
        server: NodeId,
        now: u64,
        (from, at): (NodeId, (u32, u64)),
        wants: &[Want],
    ) -> Vec<Grant> {
        let place = self.place(server);
        let lease = self.parameters.lease_ms * NANOS_PER_MS;
        let learns = self.parameters.learning_ms * NANOS_PER_MS;
        let is_learning = now < self.servers[place].started.saturating_add(learns);
        let mut grants = Vec::new();
        for want in wants {
            let capacity = self.capacity(server, want.key, now);
            let holders = &mut self.servers[place].keys[want.key as usize];
            holders.retain(|_, holder| now < holder.until);
            if holders.get(&from).is_some_and(|known| at <= known.at) {
                continue;
            }
            let Want { wants_rps, has_rps, .. } = *want;
            let mut holder = Holder { at, wants_rps, has_rps, until: now.saturating_add(lease) };
            holders.insert(from, holder);
            let Some(capacity) = capacity else { continue };
            let others: f64 =
                holders.iter().filter(|(n, _)| **n != from).map(|(_, h)| h.has_rps).sum();
            let all: Vec<f64> = holders.values().map(|h| h.wants_rps).collect();
            let part = share(self.parameters.sharing, capacity, &all, wants_rps);
            holder.has_rps = part.min(capacity - others).max(0.0);
            if is_learning {
                holder.has_rps = holder.has_rps.max(has_rps);
            }
            holders.insert(from, holder);
            #[expect(clippy::cast_precision_loss, reason = "as many as there are nodes")]
            let safe_rps = capacity / holders.len() as f64;
            grants.push(Grant { key: want.key, rps: holder.has_rps, safe_rps });
        }
        grants
    }

    fn take_leases(&mut self, to: NodeId, now: u64, at: (u32, u64), grants: &[Grant]) {
        let length = self.parameters.lease_ms * NANOS_PER_MS;
        let node = &mut self.nodes[to.0 as usize];
        if at.0 != self.lives[to.0 as usize] || at.1 <= node.answered {
            return;
        }
        node.answered = at.1;
        for Grant { key, rps, safe_rps } in grants {
            let lease = Lease { rps: *rps, safe_rps: *safe_rps, until: now.saturating_add(length) };
            node.leases[*key as usize] = Some(lease);
        }
    }
}

impl crate::fleet::Fleet for Fleet {
    type Message = Message;

    fn start(&mut self, net: &mut Net<'_, Message>, node: NodeId) {
        let now = net.local(node).as_nanos();
        let count = self.keys.len();
        self.lives[node.0 as usize] += 1;
        self.nodes[node.0 as usize] =
            Node { last_tick: now, leases: vec![None; count], ..Node::default() };
        match self.topology.place(node) {
            (Tier::Client, client) => {
                self.clients[client] = vec![Spent { filled: now, ..Spent::default() }; count];
            }
            (Tier::Aggregator | Tier::Controller, _) => {
                let place = self.place(node);
                self.servers[place] = Server { started: now, keys: vec![Holders::new(); count] };
            }
        }
        let refresh = self.parameters.refresh_ms * NANOS_PER_MS;
        let first = now + 1 + net.rng(node).below(refresh);
        net.set_timer(node, net.world(node, Time::from_nanos(first)), 0);
    }

    fn decide(&mut self, net: &mut Net<'_, Message>, ask: &Ask) -> Verdict {
        let now = net.local(NodeId(ask.client)).as_nanos();
        let client = ask.client as usize;
        let (leases, own) = (&self.nodes[client].leases, &mut self.clients[client]);
        let burst_s = seconds(self.parameters.burst_ms * NANOS_PER_MS);
        let mut verdict = Verdict::Admit;
        for id in self.keys.of(ask) {
            let (key, spent) = (self.keys.get(*id), &mut own[*id as usize]);
            let lease = leases[*id as usize].filter(|_| key.limit.is_some());
            spent.passes = lease.is_none_or(|lease| {
                spent.fill(lease.capacity(now), burst_s, now);
                spent.tokens >= 1.0
            });
            match key.mode {
                Mode::Deny if !spent.passes => {
                    spent.offered += 1;
                    return Verdict::Drop(key.bucket);
                }
                Mode::Shadow if !spent.passes && verdict == Verdict::Admit => {
                    verdict = Verdict::WouldDrop(key.bucket);
                }
                Mode::Deny | Mode::Shadow | Mode::Observe => {}
            }
        }
        for id in self.keys.of(ask) {
            let spent = &mut own[*id as usize];
            spent.offered += 1;
            if spent.passes {
                spent.tokens = (spent.tokens - 1.0).max(0.0);
            }
        }
        verdict
    }

    fn message(&mut self, net: &mut Net<'_, Message>, from: NodeId, to: NodeId, message: Message) {
        let now = net.local(to).as_nanos();
        match message {
            Message::Ask { at, wants } => {
                let grants = self.grant(to, now, (from, at), &wants);
                if !grants.is_empty() {
                    net.send(to, from, Message::Answer { at, grants: grants.into() });
                }
            }
            Message::Answer { at, grants } => self.take_leases(to, now, at, &grants),
        }
    }

    fn timer(&mut self, net: &mut Net<'_, Message>, node: NodeId, _timer: u64) {
        let now = net.local(node).as_nanos();
        let Some(to) = self.topology.parent(node) else { return };
        let wants = match self.topology.place(node) {
            (Tier::Client, client) => self.client_wants(client, now),
            (Tier::Aggregator | Tier::Controller, _) => self.server_wants(node, now),
        };
        if !wants.is_empty() {
            self.nodes[node.0 as usize].seq += 1;
            let at = (self.lives[node.0 as usize], self.nodes[node.0 as usize].seq);
            net.send(node, to, Message::Ask { at, wants: wants.into() });
        }
        let next = now + self.parameters.refresh_ms * NANOS_PER_MS;
        net.set_timer(node, net.world(node, Time::from_nanos(next)), 0);
    }

    fn configure(&mut self, _: &mut Net<'_, Message>, services: &[Arc<ServiceBuckets>]) {
        self.keys.configure(services);
    }
}

impl Spent {
    fn fill(&mut self, rps: f64, burst_s: f64, now: u64) {
        let passed = seconds(now.saturating_sub(self.filled));
        self.filled = now;
        let depth = if rps > 0.0 { (rps * burst_s).max(1.0) } else { 0.0 };
        self.tokens = (self.tokens + rps * passed).min(depth);
    }
}

/// What somebody who wants `own` gets of `capacity`, where all want `all` (that included).
#[expect(clippy::cast_precision_loss, reason = "as many as there are nodes")]
fn share(sharing: Sharing, capacity: f64, all: &[f64], own: f64) -> f64 {
    if all.iter().sum::<f64>() <= capacity {
        return own;
    }
    let equal = capacity / all.len().max(1) as f64;
    match sharing {
        Sharing::Proportional => {
            if own <= equal {
                return own;
            }
            let left: f64 = all.iter().map(|w| (equal - w).max(0.0)).sum();
            let wanted: f64 = all.iter().map(|w| (w - equal).max(0.0)).sum();
            equal + (own - equal) * left / wanted
        }
        Sharing::Fair => {
            let mut sorted = all.to_vec();
            sorted.sort_by(f64::total_cmp);
            let mut left = capacity;
            for (place, want) in sorted.iter().enumerate() {
                let cap = left / (sorted.len() - place) as f64;
                if *want > cap {
                    return own.min(cap);
                }
                left -= want;
            }
            own
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "below 2^52")]
fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-6 * (1.0 + b.abs())
    }

    #[test]
    fn enough_for_all_is_what_all_want() {
        for sharing in [Sharing::Proportional, Sharing::Fair] {
            assert!(close(share(sharing, 100.0, &[10.0, 90.0], 90.0), 90.0));
        }
    }

    #[test]
    fn who_wants_little_gets_it_and_the_rest_is_shared() {
        let all = [10.0, 60.0, 130.0];
        let of = |sharing, own| share(sharing, 120.0, &all, own);
        // Equal parts are 40; 30 are left over, for 20 and 90 more that are wanted.
        assert!(close(of(Sharing::Proportional, 10.0), 10.0));
        assert!(close(of(Sharing::Proportional, 60.0), 40.0 + 30.0 * 20.0 / 110.0));
        assert!(close(of(Sharing::Proportional, 130.0), 40.0 + 30.0 * 90.0 / 110.0));
        assert!(close(of(Sharing::Fair, 60.0), 55.0));
        assert!(close(of(Sharing::Fair, 130.0), 55.0));
    }

    proptest! {
        #[test]
        fn all_parts_together_are_the_capacity_or_all_that_is_wanted(
            capacity in 0.0..1000.0_f64,
            all in proptest::collection::vec(0.0..500.0_f64, 1..20),
        ) {
            for sharing in [Sharing::Proportional, Sharing::Fair] {
                let sum: f64 = all.iter().map(|own| share(sharing, capacity, &all, *own)).sum();
                prop_assert!(close(sum, capacity.min(all.iter().sum())));
            }
        }
    }

    #[test]
    fn a_lease_falls_back_to_the_safe_capacity() {
        let lease = Lease { rps: 10.0, safe_rps: 2.0, until: 100 };
        assert!(close(lease.capacity(99), 10.0));
        assert!(close(lease.capacity(100), 2.0));
    }

    #[test]
    fn a_bucket_fills_to_its_depth_and_holds_one_at_least() {
        let mut spent = Spent::default();
        spent.fill(100.0, 0.1, 1_000_000_000);
        assert!(close(spent.tokens, 10.0));
        spent.fill(2.0, 0.1, 2_000_000_000);
        assert!(close(spent.tokens, 1.0));
        spent.fill(0.0, 0.1, 3_000_000_000);
        assert!(close(spent.tokens, 0.0));
    }

    #[test]
    fn leases_in_force_never_exceed_the_capacity() {
        let scenario = crate::Scenario {
            clients: 3,
            limit_rps: 100,
            workload: crate::scenario::Workload { load_x: Some(1.0), ..Default::default() },
            ..crate::Scenario::default()
        };
        let setup = crate::prepare(&scenario, 1).expect("makes sense");
        let parameters = Prefetch { learning_ms: 0, ..Prefetch::default() };
        let mut fleet = Fleet::new(&setup, &parameters);
        let root = setup.topology.controller(0);
        let place = fleet.place(root);
        fleet.servers[place].keys = vec![Holders::new(); 1];
        let mut ask = |node: u32, seq, now, wants_rps, has_rps| {
            let wants = [Want { key: 0, wants_rps, has_rps }];
            let grants = fleet.grant(root, now, (NodeId(node), (1, seq)), &wants);
            grants.first().map(|grant| grant.rps)
        };
        assert_eq!(ask(3, 1, 0, 90.0, 0.0), Some(90.0));
        // The second gets what is left until the first renews.
        assert_eq!(ask(4, 1, 0, 90.0, 0.0), Some(10.0));
        assert_eq!(ask(3, 2, 0, 90.0, 90.0), Some(50.0));
        assert_eq!(ask(4, 2, 0, 90.0, 10.0), Some(50.0));
        // A message that comes late or twice changes nothing.
        assert_eq!(ask(3, 1, 0, 500.0, 0.0), None);
        // Who does not renew loses its lease.
        assert_eq!(ask(4, 3, 20_000_000_000, 90.0, 50.0), Some(90.0));
    }
}
