//! What passes between cores and world, as it passes (I5, I8, I9), and what nodes show of
//! themselves now and then (I3, I4, I5, I8, I9).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sluicegate_client_core::Limiter;
use sluicegate_law::View;
use sluicegate_model::{
    Configuration, Counts, Down, Invariant, KeyValues, Report, ServiceBuckets, ServiceCounts, Up,
    Update,
};

use super::books::{four, four_of_service};
use super::directory::What;
use super::{ClientModel, NodeModel, Oracle, Pace, SentDown};
use crate::node::NodeId;
use crate::observe::{Ask, Fate, Inside, NodeChange, Observer, Verdict};
use crate::product::ClientClock;
use crate::scenario::Tier;

/// Between two looks at what a node shows.
const SAMPLE_NS: u64 = 500_000_000;
/// The most messages that a node may send up in a second.
const MAX_UP_PER_SECOND: u64 = 250;
/// The most messages that may be sent to one child in a second.
const MAX_DOWN_PER_SECOND: u64 = 500;
/// Streams of one child that a parent may hold open at once: those that it does not know to be dead.
const MAX_STREAMS_PER_CHILD: usize = 16;
/// The most identities and values that may wait for an agent.
const MAX_WAITING: usize = 64;

impl Pace {
    fn count(&mut self, at: u64) -> u64 {
        let second = at / 1_000_000_000;
        if self.second != second {
            *self = Self { second, messages: 0 };
        }
        self.messages += 1;
        self.messages
    }
}

impl Observer for Oracle {
    fn decided(&mut self, at: u64, ask: &Ask, verdict: Verdict) -> Verdict {
        self.judge_decision(at, ask, verdict);
        verdict
    }

    fn up(&mut self, at: u64, from: NodeId, message: &mut Up) -> Fate {
        let messages = self.pace_up[from.0 as usize].count(at);
        self.check(messages <= MAX_UP_PER_SECOND, (Invariant::I9, at, from), || {
            (format!("at most {MAX_UP_PER_SECOND} messages up a second"), messages.to_string())
        });
        match message {
            Up::Hello(hello) => {
                let known = match self.above(from) {
                    None => {
                        (self.clients[from.0 as usize].term, self.clients[from.0 as usize].version)
                    }
                    Some(place) => (self.nodes[place].term, self.nodes[place].version),
                };
                let told = (hello.seen_term, hello.seen_version);
                let holds = told.0 >= known.0 && told.1 >= known.1;
                self.check(holds, (Invariant::I5, at, from), || {
                    (format!("a hello that knows of {known:?}"), format!("{told:?}"))
                });
            }
            Up::Report(report) => self.judge_report(at, from, report),
            Up::ConfigurationApplied(_) | Up::Seen { .. } => {}
        }
        Fate::Send
    }

    fn down(&mut self, at: u64, to: NodeId, message: &mut Down) -> Fate {
        let messages = self.pace_down[to.0 as usize].count(at);
        self.check(messages <= MAX_DOWN_PER_SECOND, (Invariant::I9, at, to), || {
            (format!("at most {MAX_DOWN_PER_SECOND} messages down a second"), messages.to_string())
        });
        match message {
            Down::Configuration(configuration) => self.judge_configuration(at, to, configuration),
            Down::Update(update) => self.judge_update(at, to, update),
        }
        Fate::Send
    }

    fn opened(&mut self, _at: u64, node: NodeId, stream: u32) {
        match self.above(node) {
            None => self.clients[node.0 as usize].opened(stream),
            Some(place) => self.nodes[place].sender.open(stream),
        }
    }

    fn up_arrived(&mut self, _at: u64, from: NodeId, stream: u32, message: &Up) {
        let Some(parent) = self.topology.parent(from) else { return };
        let Some(place) = self.above(parent) else { return };
        if let Up::Report(report) = message {
            let receiver = &mut self.nodes[place].receiver;
            receiver.take(&mut self.directory, &mut self.taken, (from, stream), report);
        }
    }

    fn down_arrived(&mut self, at: u64, to: NodeId, message: &Down) {
        match self.above(to) {
            None => self.told_client(at, to.0 as usize, message),
            Some(place) => {
                let node = &mut self.nodes[place];
                match message {
                    Down::Configuration(c) if c.term >= node.term => {
                        node.term = c.term;
                        node.version = node.version.max(c.version);
                    }
                    Down::Configuration(_) => {}
                    Down::Update(update) => node.sender.acknowledged(update.ack_seq),
                }
            }
        }
    }

    fn stepped(&mut self, at: u64, node: NodeId, inside: Inside<'_>) {
        if let Inside::Client(_, agent) = &inside {
            let client = &mut self.clients[node.0 as usize];
            let (before, now) = (client.shown_version, agent.version());
            client.shown_version = now;
            self.check(now >= before, (Invariant::I5, at, node), || {
                (format!("a configuration from {before} on"), now.to_string())
            });
        }
        if at < self.next_sample[node.0 as usize] {
            return;
        }
        self.next_sample[node.0 as usize] = at + SAMPLE_NS;
        match inside {
            Inside::Client(limiter, _) => self.sample_client(at, node, limiter),
            Inside::Aggregator(aggregator) => self.sample_node(at, node, &aggregator.view()),
            Inside::Controller(controller) => self.sample_node(at, node, &controller.view()),
        }
    }

    fn changed(&mut self, at: u64, node: NodeId, change: NodeChange) {
        self.disturb(at);
        match change {
            NodeChange::Started => {
                self.sent_down.remove(&node);
                for child in self.topology.all().filter(|c| self.topology.parent(*c) == Some(node))
                {
                    self.sent_down.remove(&child);
                }
                self.set_runs(node, true, at);
            }
            NodeChange::Crashed => self.crashed(at, node),
            NodeChange::Paused | NodeChange::Resumed => {
                if self.above(node).is_none() {
                    let begins = change == NodeChange::Paused;
                    self.clients[node.0 as usize].pause(at, begins);
                }
            }
            NodeChange::ClockChanged => {
                if self.above(node).is_none() {
                    self.clients[node.0 as usize].clock_changed(at);
                }
            }
            NodeChange::Opened
            | NodeChange::Closed
            | NodeChange::LinkWorse
            | NodeChange::LinkBetter => {}
        }
    }

    fn configured(&mut self, at: u64, node: NodeId, services: &[Arc<ServiceBuckets>]) {
        self.disturb(at);
        for service in services {
            if !self.ever.iter().any(|known| known == service) {
                self.ever.push(Arc::clone(service));
            }
        }
        if let Some(place) = self.above(node) {
            self.nodes[place].given = services.to_vec();
        }
    }
}

impl Oracle {
    /// What happens once the traffic has stopped disturbs nobody.
    pub(super) fn disturb(&mut self, at: u64) {
        if self.stops.is_none_or(|stops| at < stops) {
            self.disturbed = self.disturbed.max(at);
        }
    }

    fn set_runs(&mut self, node: NodeId, runs: bool, at: u64) {
        match self.above(node) {
            None => {
                self.clients[node.0 as usize] = ClientModel::new(at);
                self.clients[node.0 as usize].runs = runs;
            }
            Some(place) => {
                self.nodes[place] = NodeModel::new();
                self.nodes[place].runs = runs;
            }
        }
    }

    fn crashed(&mut self, at: u64, node: NodeId) {
        match self.above(node) {
            None => {
                let fresh = ClientModel::new(at);
                let dead = std::mem::replace(&mut self.clients[node.0 as usize], fresh);
                self.dead_clients.push((node, dead));
            }
            Some(place) => {
                let dead = std::mem::replace(&mut self.nodes[place], NodeModel::new());
                self.dead_nodes.push((node, dead));
            }
        }
    }

    fn judge_report(&mut self, at: u64, from: NodeId, report: &Report) {
        let sender = match self.above(from) {
            None => &mut self.clients[from.0 as usize].sender,
            Some(place) => &mut self.nodes[place].sender,
        };
        let before = sender.ids();
        sender.say(&mut self.directory, report);
        let known = before + report.new_keys.len();
        let ids: BTreeSet<u32> = report.entries.iter().map(|e| e.key).collect();
        let (entries, names) = (report.entries.len(), report.new_keys.len());
        let named: BTreeSet<u32> = report.new_keys.iter().map(|k| k.0).collect();
        let holds = ids.len() == entries && entries <= known && named.len() == names;
        self.check(holds, (Invariant::I9, at, from), || {
            let (few, fewer) = (ids.len(), named.len());
            let found = format!("{entries} entries for {few} ids, {names} names for {fewer}");
            (format!("a report of at most one entry and name for each of {known} ids"), found)
        });
        for entry in &report.entries {
            self.judge_counts(at, from, &entry.counts, || format!("an entry of id {}", entry.key));
        }
        for counts in &report.services {
            self.judge_service(at, from, counts);
        }
    }

    fn judge_counts(
        &mut self,
        at: u64,
        node: NodeId,
        counts: &Counts,
        of: impl FnOnce() -> String,
    ) {
        let [matched, offered, admitted, would_drop] = four(counts);
        let holds = would_drop <= admitted && admitted <= offered && offered <= matched;
        self.check(holds, (Invariant::I3, at, node), || {
            (
                "would-drop <= admitted <= offered <= matched".into(),
                format!("{counts:?} of {}", of()),
            )
        });
    }

    fn judge_service(&mut self, at: u64, node: NodeId, counts: &ServiceCounts) {
        let [attempts, admitted, one, several] = four_of_service(counts);
        self.check(attempts == admitted + one + several, (Invariant::I3, at, node), || {
            let of =
                format!("attempts = admitted + dropped by one + by several of {}", counts.service);
            (of, format!("{attempts}, {admitted}, {one}, {several}"))
        });
    }

    fn judge_configuration(&mut self, at: u64, to: NodeId, configuration: &Configuration) {
        let Configuration { version, term, services, .. } = configuration;
        let sent = self.sent_down.entry(to).or_default();
        let before = (sent.term, sent.version);
        (sent.term, sent.version) = (before.0.max(*term), before.1.max(*version));
        let holds = *term >= before.0 && *version >= before.1;
        self.check(holds, (Invariant::I5, at, to), || {
            let expected = format!("term and version from {before:?} on");
            (expected, format!("term {term}, version {version}"))
        });
        for service in services {
            let known = self.ever.iter().any(|known| known == service);
            self.check(known, (Invariant::I8, at, to), || {
                let buckets = service.buckets.len();
                let found = format!("{} with {buckets} buckets, which was never", service.service);
                ("a service as it was once configured".into(), found)
            });
        }
    }

    fn judge_update(&mut self, at: u64, to: NodeId, update: &Update) {
        let ids: BTreeSet<u32> = update.directives.iter().map(|d| d.0).collect();
        let (distinct, all) = (ids.len(), update.directives.len());
        self.check(distinct == all, (Invariant::I9, at, to), || {
            ("one directive a key".into(), format!("{all} for {distinct} keys"))
        });
        for (id, directive) in &update.directives {
            let sender = match self.above(to) {
                None => &self.clients[to.0 as usize].sender,
                Some(place) => &self.nodes[place].sender,
            };
            let Some(thing) = sender.key_of(*id) else { continue };
            let SentDown { directives, .. } = self.sent_down.entry(to).or_default();
            let before = directives.entry(thing).or_default();
            let (was, now) = (*before, directive.term);
            *before = was.max(now);
            self.check(now >= was, (Invariant::I5, at, to), || {
                (format!("a directive of term {was} or later"), format!("term {now}"))
            });
        }
    }

    fn told_client(&mut self, at: u64, place: usize, message: &Down) {
        match message {
            Down::Configuration(configuration) => {
                if self.clients[place].configure(self.rules, at, configuration) {
                    self.clients[place].forget_gone(&self.directory);
                    self.clients[place].change_tokens(&self.directory, self.rules, at);
                    self.disturb(at);
                }
            }
            Down::Update(update) => {
                let client = &mut self.clients[place];
                client.sender.acknowledged(update.ack_seq);
                let mut valid = update.directives.is_empty();
                for (id, directive) in &update.directives {
                    if directive.term < client.term {
                        continue;
                    }
                    (client.term, valid) = (directive.term, true);
                    if let Some(thing) = client.sender.key_of(*id) {
                        client.direct(at, thing, directive);
                    }
                }
                if valid {
                    client.hear(self.rules, at);
                }
            }
        }
    }

    fn sample_client(&mut self, at: u64, node: NodeId, limiter: &Limiter<ClientClock>) {
        let stats = limiter.stats();
        let fine = stats.waiting <= MAX_WAITING;
        self.check(fine, (Invariant::I9, at, node), || {
            (format!("at most {MAX_WAITING} waiting"), stats.waiting.to_string())
        });
        for key in &stats.keys {
            self.judge_counts(at, node, &key.counts, || key.name.to_string());
        }
        for service in &stats.services {
            self.judge_service(at, node, service);
        }
        let whole = stats.keys.iter().filter(|k| !matches!(k.name.values, KeyValues::Each(_)));
        let shown: BTreeMap<_, _> = whole
            .map(|k| ((k.name.service.clone(), k.name.bucket.clone()), (k.mode, k.limit)))
            .collect();
        let services = self.clients[node.0 as usize].services.values();
        let model: BTreeMap<_, _> = services
            .flat_map(|s| s.buckets.iter().map(move |b| (s, b)))
            .map(|(s, b)| {
                let key = if b.per.is_some() { KeyValues::Overflow } else { KeyValues::Whole };
                ((s.service.clone(), b.name.clone()), (b.mode, b.limit_of(&key)))
            })
            .collect();
        self.check(shown == model, (Invariant::I8, at, node), || {
            (format!("{model:?} in force"), format!("{shown:?}"))
        });
    }

    fn sample_node(&mut self, at: u64, node: NodeId, view: &View) {
        let Some(place) = self.above(node) else { return };
        let (was, now) = (self.nodes[place].shown, (view.term, view.version));
        self.nodes[place].shown = now;
        self.check(now.0 >= was.0 && now.1 >= was.1, (Invariant::I5, at, node), || {
            (format!("term and version from {was:?} on"), format!("{now:?}"))
        });
        for (invariant, broken) in view.counters.invariants() {
            self.check(broken == 0, (invariant, at, node), || {
                ("no promise that the node itself found broken".into(), format!("{broken} times"))
            });
        }
        self.sample_counts(at, node, place, view);
        let children = self.topology.all().filter(|c| self.topology.parent(*c) == Some(node));
        let children: Vec<NodeId> = children.collect();
        let (sessions, most) = (view.sessions.len(), children.len() * MAX_STREAMS_PER_CHILD);
        let (keys, things) = (view.keys.len(), self.directory.things.len());
        self.check(sessions <= most && keys <= things, (Invariant::I9, at, node), || {
            (format!("at most {most} sessions, {things} keys"), format!("{sessions}, {keys}"))
        });
        let alive = children.iter().filter(|child| match self.topology.place(**child).0 {
            Tier::Client => self.clients[child.0 as usize].runs,
            Tier::Aggregator | Tier::Controller => {
                self.above(**child).is_some_and(|place| self.nodes[place].runs)
            }
        });
        if sessions != alive.count() {
            self.disturb(at);
        }
    }

    /// What a node has counted is what the messages said that it took in.
    fn sample_counts(&mut self, at: u64, node: NodeId, place: usize, view: &View) {
        let mut seen = BTreeSet::new();
        let keys = view.keys.iter().map(|k| (What::Key(k.name.clone()), four(&k.counts)));
        let services = view.services.iter();
        let services =
            services.map(|s| (What::Service(s.counts.service.clone()), four_of_service(&s.counts)));
        for (what, shown) in keys.chain(services) {
            let thing = self.directory.thing(what);
            seen.insert(thing);
            let totals = &self.nodes[place].receiver.totals;
            let taken = totals.get(&thing).copied().unwrap_or_default();
            let name = self.directory.name(thing);
            self.check(shown == taken, (Invariant::I4, at, node), || {
                (format!("{taken:?} of {name}, as the reports said"), format!("{shown:?}"))
            });
        }
        let totals = &self.nodes[place].receiver.totals;
        let missing = totals.iter().find(|(t, taken)| !seen.contains(t) && **taken != [0; 4]);
        if let Some((thing, taken)) = missing.map(|(t, taken)| (*t, *taken)) {
            let name = self.directory.name(thing);
            self.check(false, (Invariant::I4, at, node), || {
                (format!("{taken:?} of {name}, as the reports said"), "nothing".into())
            });
        }
    }
}
