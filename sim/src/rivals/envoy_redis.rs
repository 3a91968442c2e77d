//! Law `envoy-redis`: a central fixed window that every request asks.
//!
//! Source: Envoy's rate limit filter with its reference service, whose counters are keys of a Redis
//! that expire with their window, as its documentation describes them. Each request asks and waits;
//! the service adds one to the counters of all buckets that match, over the limit or not, and
//! refuses if any is over. Without an answer in time the request goes through (Envoy's default is
//! 20 ms, and to fail open). Nothing is cached.
//!
//! Parameters: `rivals.envoy_redis.window_ms`, `.timeout_ms`, `.store`. With the store `near`, a call
//! passes the client's link to its aggregator, where a service stands that shares the count with
//! those of the region's other zones at no cost; it does not answer while the region's controller,
//! which stands for the store, is down or cut off from it. With `far`, a call passes both links, and
//! the timeout should be raised. Windows begin at full multiples of their length on the store's
//! clock.

use std::collections::VecDeque;
use std::sync::Arc;

use sluicegate_model::{Mode, ServiceBuckets, Time};

use super::keys::Keys;
use super::parameters::{EnvoyRedis, Store};
use super::window::{FixedWindow, quota};
use crate::fleet::Traced;
use crate::net::Net;
use crate::node::{NodeId, Topology};
use crate::observe::{Ask, Verdict};
use crate::scenario::Tier;
use crate::setup::Setup;
use crate::trace::Trace;

const NANOS_PER_MS: u64 = 1_000_000;

/// A call, by its number at its client, or the answer to it.
#[derive(Debug, Clone)]
pub(crate) enum Message {
    Call { number: u64, ask: Ask },
    Answer { number: u64, verdict: Verdict },
}

impl Traced for Message {
    fn trace(&self, trace: &mut Trace) {
        match self {
            Self::Call { number, ask } => {
                trace.number(number << 1);
                trace.number(u64::from(ask.workload) << 16 | u64::from(ask.kind));
            }
            Self::Answer { number, verdict } => {
                trace.number(number << 1 | 1);
                trace.number(match verdict {
                    Verdict::Admit | Verdict::Later => 0,
                    Verdict::WouldDrop(bucket) => 1 | u64::from(bucket.0) << 2,
                    Verdict::Drop(bucket) => 2 | u64::from(bucket.0) << 2,
                });
            }
        }
    }
}

/// All clients, services and stores.
pub(crate) struct Fleet {
    keys: Keys,
    topology: Topology,
    window: u64,
    timeout: u64,
    store: Store,
    clients: Vec<Calls>,
    /// The windows of each aggregator and controller that owns counts, by key.
    windows: Vec<Vec<FixedWindow>>,
}

/// A client's calls that are not answered.
#[derive(Debug, Default)]
struct Calls {
    /// The number of the first in `open`.
    first: u64,
    /// In the order in which they were made; `None` once answered. With the time at which the
    /// client does not wait any longer.
    open: VecDeque<Option<(Ask, Time)>>,
    /// Whether a timer runs.
    is_timed: bool,
}

impl Fleet {
    pub(crate) fn new(setup: &Setup<'_>, parameters: &EnvoyRedis) -> Self {
        let keys = Keys::new(setup);
        let topology = setup.topology;
        let servers = topology.zones() + topology.regions();
        Self {
            window: parameters.window_ms * NANOS_PER_MS,
            timeout: parameters.timeout_ms * NANOS_PER_MS,
            store: parameters.store,
            clients: (0..topology.clients()).map(|_| Calls::default()).collect(),
            windows: vec![vec![FixedWindow::default(); keys.len()]; servers],
            keys,
            topology,
        }
    }

    /// The service that a client calls.
    fn service(&self, client: usize) -> NodeId {
        let zone = self.topology.zone_of(client);
        match self.store {
            Store::Near => self.topology.aggregator(zone),
            Store::Far => self.topology.controller(self.topology.region_of(zone)),
        }
    }

    /// Counts a request, and says what becomes of it; nothing if the store cannot be reached.
    fn count(&mut self, net: &Net<'_, Message>, at: NodeId, ask: &Ask) -> Option<Verdict> {
        let is_near = self.topology.place(at).0 == Tier::Aggregator;
        if let (true, Some(store)) = (is_near, self.topology.parent(at))
            && !(net.runs(store) && net.is_linked(at))
        {
            return None;
        }
        let mut verdict = Verdict::Admit;
        for id in self.keys.of(ask) {
            let key = self.keys.get(*id);
            let Some(limit) = key.limit else { continue };
            let root = self.keys.root(*id, self.topology, ask.client as usize);
            let now = net.local(root).as_nanos();
            let window = &mut self.windows[root.0 as usize - self.topology.clients()][*id as usize];
            #[expect(clippy::cast_precision_loss, reason = "counts of one run")]
            let count = window.add(now, self.window, 1) as f64;
            if count <= quota(limit.rps, self.window) {
                continue;
            }
            verdict = match (key.mode, verdict) {
                (Mode::Deny, Verdict::Admit | Verdict::WouldDrop(_)) => Verdict::Drop(key.bucket),
                (Mode::Shadow, Verdict::Admit) => Verdict::WouldDrop(key.bucket),
                (_, verdict) => verdict,
            };
        }
        Some(verdict)
    }
}

impl crate::fleet::Fleet for Fleet {
    type Message = Message;

    fn start(&mut self, _net: &mut Net<'_, Message>, node: NodeId) {
        match self.topology.place(node) {
            (Tier::Client, client) => {
                // Answers to the calls of the process before are nobody's.
                let first = self.clients[client].end();
                self.clients[client] = Calls { first, ..Calls::default() };
            }
            (Tier::Aggregator | Tier::Controller, _) => {
                self.windows[node.0 as usize - self.topology.clients()]
                    .fill(FixedWindow::default());
            }
        }
    }

    fn decide(&mut self, net: &mut Net<'_, Message>, ask: &Ask) -> Verdict {
        if self.keys.of(ask).is_empty() {
            return Verdict::Admit;
        }
        let (node, client) = (NodeId(ask.client), ask.client as usize);
        let to = self.service(client);
        let gives_up = Time::from_nanos(net.local(node).as_nanos() + self.timeout);
        let calls = &mut self.clients[client];
        let number = calls.end();
        calls.open.push_back(Some((*ask, gives_up)));
        if !calls.is_timed {
            calls.is_timed = true;
            net.set_timer(node, net.world(node, gives_up), 0);
        }
        net.send(node, to, Message::Call { number, ask: *ask });
        Verdict::Later
    }

    fn message(&mut self, net: &mut Net<'_, Message>, from: NodeId, to: NodeId, message: Message) {
        match message {
            Message::Call { number, ask } => {
                if let Some(verdict) = self.count(net, to, &ask) {
                    net.send(to, from, Message::Answer { number, verdict });
                }
            }
            Message::Answer { number, verdict } => {
                if let (Tier::Client, client) = self.topology.place(to)
                    && let Some(ask) = self.clients[client].close(number)
                {
                    net.answer(&ask, verdict);
                }
            }
        }
    }

    fn timer(&mut self, net: &mut Net<'_, Message>, node: NodeId, _timer: u64) {
        let now = net.local(node);
        let calls = &mut self.clients[node.0 as usize];
        while let Some(ask) = calls.late(now) {
            net.answer(&ask, Verdict::Admit);
        }
        calls.is_timed = false;
        if let Some(gives_up) = calls.next() {
            calls.is_timed = true;
            net.set_timer(node, net.world(node, gives_up), 0);
        }
    }

    fn configure(&mut self, _: &mut Net<'_, Message>, services: &[Arc<ServiceBuckets>]) {
        self.keys.configure(services);
    }
}

impl Calls {
    /// The number of the call after the last.
    fn end(&self) -> u64 {
        self.first + self.open.len() as u64
    }

    /// Ends a call; nothing if it is over or another process's.
    fn close(&mut self, number: u64) -> Option<Ask> {
        let place = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let (ask, _) = self.open.get_mut(place)?.take()?;
        self.forget();
        Some(ask)
    }

    /// Ends a call for which it is too late.
    fn late(&mut self, now: Time) -> Option<Ask> {
        let (ask, _) = (*self.open.front()?).filter(|(_, gives_up)| *gives_up <= now)?;
        self.open.front_mut()?.take();
        self.forget();
        Some(ask)
    }

    /// When the first that is open is too late.
    fn next(&self) -> Option<Time> {
        self.open.front().copied().flatten().map(|(_, gives_up)| gives_up)
    }

    fn forget(&mut self) {
        while let Some(None) = self.open.front() {
            self.open.pop_front();
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(count: u64) -> Calls {
        let ask = |i: u64| Ask { client: 0, workload: 0, kind: 0, tries: 0, at: i };
        let open = (0..count).map(|i| Some((ask(i), Time::from_nanos(100 + i)))).collect();
        Calls { first: 10, open, is_timed: true }
    }

    #[test]
    fn an_answer_counts_once_and_only_for_a_call_that_waits() {
        let mut calls = calls(3);
        assert_eq!(calls.close(11).map(|a| a.at), Some(1));
        assert_eq!(calls.close(11), None);
        assert_eq!(calls.close(9), None);
        assert_eq!(calls.close(13), None);
        assert_eq!(calls.close(10).map(|a| a.at), Some(0));
        assert_eq!((calls.first, calls.open.len(), calls.end()), (12, 1, 13));
    }

    #[test]
    fn who_waits_too_long_goes_through_in_order() {
        let mut calls = calls(3);
        calls.close(11);
        assert_eq!(calls.next(), Some(Time::from_nanos(100)));
        assert_eq!(calls.late(Time::from_nanos(99)), None);
        assert_eq!(calls.late(Time::from_nanos(102)).map(|a| a.at), Some(0));
        assert_eq!(calls.late(Time::from_nanos(102)).map(|a| a.at), Some(2));
        assert_eq!(calls.late(Time::from_nanos(102)), None);
        assert_eq!((calls.next(), calls.end()), (None, 13));
    }
}
