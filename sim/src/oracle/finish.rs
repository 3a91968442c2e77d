//! What can be said once a run is over: whether every count arrived (I4), whether what was
//! configured is in force (I8), whether limits were kept again (I7).

use std::collections::BTreeMap;

use sluicegate_model::{Invariant, Limit};

use super::books::{Four, Sender, Taken};
use super::client::Range;
use super::directory::{Directory, Thing, What};
use super::{Oracle, Report};
use crate::node::NodeId;

/// A span that limits are held against is at least so long, and at least so many ticks.
const LEAST_SPAN_NS: u64 = 2_000_000_000;

impl Oracle {
    /// The run is over.
    #[must_use]
    pub fn finish(mut self) -> Report {
        let mut report = Report {
            violations: Vec::new(),
            violations_total: 0,
            checks: 0,
            decisions: self.decisions,
            keys_settled: 0,
            keys_not_settled: 0,
            clients_reconciled: 0,
            counted_twice: 0,
        };
        self.settled(&mut report);
        if self.stops.is_some() {
            self.configured_everywhere();
            self.reconcile_clients(&mut report);
            self.reconcile_nodes();
        }
        report.checks = self.findings.checks;
        report.violations_total = self.findings.total;
        report.violations = self.findings.kept;
        report
    }

    fn settled(&mut self, report: &mut Report) {
        let until = self.stops.unwrap_or(self.end);
        let from = self.disturbed.max(self.healed) + self.settle.within();
        if from + LEAST_SPAN_NS.max(self.settle.within() / 2) > until {
            return;
        }
        let given: Vec<_> = self.nodes.iter().flat_map(|n| &n.given).cloned().collect();
        let directory = &self.directory;
        let limits = |thing: Thing| -> Option<Limit> {
            let What::Key(key) = &directory.things[thing] else { return None };
            let service = given.iter().find(|s| s.service == key.service)?;
            let (_, bucket) = service.bucket(key.bucket.as_str())?;
            Some(bucket.limit_of(&key.values))
        };
        let (held, skipped) = self.settle.judge(directory, &limits, (from, until));
        (report.keys_settled, report.keys_not_settled) = (held.len() as u64, skipped);
        for one in held {
            let name = self.directory.name(one.thing);
            let (from_s, until_s) = (from / 1_000_000, until / 1_000_000);
            self.findings.check(one.is_fine(), (Invariant::I7, until, NodeId(0)), || {
                let expected = format!(
                    "{:.1} to {:.1} requests a second of {name} in unit {} from {from_s} to \
                     {until_s} ms",
                    one.least, one.most, one.unit
                );
                let found = format!(
                    "{:.1}, limit {:.1}, offered {:.1}",
                    one.admitted_rps, one.limit_rps, one.offered_rps
                );
                (expected, found)
            });
        }
    }

    /// Every client that runs has what its region's controller was given last.
    fn configured_everywhere(&mut self) {
        for place in 0..self.clients.len() {
            let region = self.topology.region_of(self.topology.zone_of(place));
            let controller = self.topology.controller(region);
            let Some(above) = self.above(controller) else { continue };
            let (client, node) = (&self.clients[place], NodeId(u32::try_from(place).unwrap_or(0)));
            if !client.runs || !self.nodes[above].runs {
                continue;
            }
            let given = &self.nodes[above].given;
            let same = given.len() == client.services.len()
                && given.iter().all(|s| client.services.get(&s.service) == Some(s));
            let (version, has) = (client.version, client.services.len());
            let expected = given.len();
            self.findings.check(same, (Invariant::I8, self.end, node), || {
                let found = format!("{has} services of version {version}, not all the same");
                (format!("the {expected} services that are configured, in force"), found)
            });
        }
    }

    fn reconcile_clients(&mut self, report: &mut Report) {
        let alive = self.clients.iter().zip(0..).map(|(c, n)| (NodeId(n), c));
        let dead = self.dead_clients.iter().map(|(n, c)| (*n, c));
        let mut results = Vec::new();
        for (node, client) in alive.chain(dead) {
            report.clients_reconciled += u64::from(client.runs);
            let books = Books { node, sender: &client.sender, taken: &self.taken };
            let counted = by_total(&self.directory, &client.counted);
            let whole = node_is_current(&self.clients, node, client);
            results.extend(books.reconcile(&self.directory, &counted, whole));
            for thing in client.sender.things() {
                let (_, twice) = client.sender.reconcile(&self.taken, node, thing);
                if matches!(self.directory.things[thing], What::Service(_)) {
                    report.counted_twice += twice[0];
                }
            }
        }
        self.note(results);
    }

    fn reconcile_nodes(&mut self) {
        let first = u32::try_from(self.topology.clients()).unwrap_or(u32::MAX);
        let alive = self.nodes.iter().zip(first..).map(|(n, id)| (NodeId(id), n, true));
        let dead = self.dead_nodes.iter().map(|(id, n)| (*id, n, false));
        let mut results = Vec::new();
        for (node, model, whole) in alive.chain(dead) {
            if self.topology.parent(node).is_none() {
                continue;
            }
            let books = Books { node, sender: &model.sender, taken: &self.taken };
            let totals = &model.receiver.totals;
            let counted = totals.iter().map(|(t, n)| (*t, Range { least: *n, most: *n })).collect();
            results.extend(books.reconcile(&self.directory, &counted, whole && model.runs));
        }
        self.note(results);
    }

    fn note(&mut self, results: Vec<Reconciled>) {
        for one in results {
            let at = (Invariant::I4, self.end, one.node);
            self.findings.check(one.holds, at, || (one.expected, one.found));
        }
    }
}

fn node_is_current(clients: &[super::ClientModel], node: NodeId, it: &super::ClientModel) -> bool {
    clients.get(node.0 as usize).is_some_and(|c| std::ptr::eq(c, it)) && it.runs
}

/// A value's requests may have been counted on its bucket's overflow key: what is certain is their
/// sum. So all keys of a bucket with values become one.
fn by_total(directory: &Directory, counted: &BTreeMap<Thing, Range>) -> BTreeMap<Thing, Range> {
    let mut sums: BTreeMap<Thing, Range> = BTreeMap::new();
    for (thing, range) in counted {
        let sum = sums.entry(stands_for(directory, *thing)).or_default();
        super::books::add(&mut sum.least, range.least);
        super::books::add(&mut sum.most, range.most);
    }
    sums
}

/// The first of the keys that share a bucket; everything else stands for itself.
fn stands_for(directory: &Directory, thing: Thing) -> Thing {
    let What::Key(key) = &directory.things[thing] else { return thing };
    let same = |other: &What| match other {
        What::Key(o) => o.service == key.service && o.bucket == key.bucket,
        What::Service(_) => false,
    };
    directory.things.iter().position(same).unwrap_or(thing)
}

/// One process's books.
struct Books<'a> {
    node: NodeId,
    sender: &'a Sender,
    taken: &'a Taken,
}

struct Reconciled {
    node: NodeId,
    holds: bool,
    expected: String,
    found: String,
}

impl Books<'_> {
    /// Holds what was counted against what was taken in of it: no less, unless the process died,
    /// and no more than what was said twice.
    fn reconcile(
        &self,
        directory: &Directory,
        counted: &BTreeMap<Thing, Range>,
        whole: bool,
    ) -> Vec<Reconciled> {
        let mut taken: BTreeMap<Thing, (Four, Four)> = BTreeMap::new();
        for thing in self.sender.things() {
            let (sum, twice) = self.sender.reconcile(self.taken, self.node, thing);
            let of = taken.entry(stands_for(directory, thing)).or_default();
            super::books::add(&mut of.0, sum);
            super::books::add(&mut of.1, twice);
        }
        let mut counted = by_total(directory, counted);
        taken.keys().for_each(|thing| {
            counted.entry(*thing).or_default();
        });
        let all = counted.into_iter().map(|(thing, range)| {
            let (sum, twice) = taken.get(&thing).copied().unwrap_or_default();
            let each = (0..4).all(|i| {
                let most = range.most[i].saturating_add(twice[i]);
                sum[i] <= most && (!whole || sum[i] >= range.least[i])
            });
            let name = directory.name(thing);
            let again =
                if twice == [0; 4] { String::new() } else { format!(" and up to {twice:?} twice") };
            let least = if whole { range.least } else { [0; 4] };
            Reconciled {
                node: self.node,
                holds: each,
                expected: format!("{least:?} to {:?} of {name} taken in{again}", range.most),
                found: format!("{sum:?}"),
            }
        });
        all.collect()
    }
}
