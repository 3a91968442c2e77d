//! The sending half of a stream of reports: what the controller has and what it lacks. It must not
//! know who counted what.
//!
//! A report holds every key whose counts or rates differ from those of the last report that was
//! acknowledged. So when one is acknowledged nothing before it can be missing, and a lost report
//! costs nothing but time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use sluicegate_law::node::{KeyState, Node, Totals};
use sluicegate_model::{Counts, Entry, KeyId, KeyName, KeyValues, Law, Name, Report, Time};

/// Reports that wait for their acknowledgement; beyond, the oldest is no longer waited for. What it
/// held stands in the later ones as well.
const MAX_IN_FLIGHT: usize = 16;

/// The most entries of one report, so that it stays far below what a message may weigh. More keys
/// than that wait until what is on its way is acknowledged, and then go at once.
const MAX_ENTRIES: usize = 50_000;
/// The most bytes of names of one report, about.
const MAX_NAME_BYTES: usize = 1 << 20;

/// Under `grant`: all keys that changed are reported so often,
const ALL_EVERY: Duration = Duration::from_secs(1);
/// and something is, while any key is in use. A parent takes a longer silence for a loss.
const HEARTBEAT: Duration = Duration::from_millis(500);

/// Stands for no id.
const NO_ID: KeyId = KeyId::MAX;

const ZERO: Counts = Counts { matched: 0, offered: 0, admitted: 0, would_drop: 0 };
const NOTHING: KeyState = KeyState { counts: ZERO, offered_rps: 0.0, usual_rps: 0.0, sessions: 0 };

/// One key on its way up.
#[derive(Debug, Clone, Copy)]
struct Line {
    /// Its number on this stream.
    id: KeyId,
    /// What was acknowledged before this stream began: cumulative counts start here.
    base: Counts,
    /// What the controller is known to have of it.
    acked: KeyState,
    /// A report that named the id was acknowledged.
    named: bool,
    /// Stands in [`Uplink::unsettled`].
    is_unsettled: bool,
}

/// One service on its way up.
#[derive(Debug, Clone, Copy, Default)]
struct ServiceLine {
    base: Totals,
    acked: Totals,
}

/// What one report held.
#[derive(Debug, Default)]
struct InFlight {
    seq: u64,
    keys: Vec<(u32, KeyState)>,
    services: Vec<(Name, Totals)>,
    retired: Vec<KeyId>,
}

/// The sending half of the stream to the controller, and what outlives a stream.
#[derive(Debug)]
pub(crate) struct Uplink {
    is_open: bool,
    stream: u64,
    seq: u64,
    max_entries: usize,
    /// By the node's number of the key.
    lines: Vec<Option<Line>>,
    /// Keys that may differ from what the controller is known to have.
    unsettled: VecDeque<u32>,
    /// How many of them, from the front, had no room in this tick's reports so far.
    waiting: usize,
    /// The key behind each id.
    ids: Vec<Option<u32>>,
    free_ids: Vec<KeyId>,
    /// Ids whose end the controller has not acknowledged.
    retiring: BTreeSet<KeyId>,
    services: BTreeMap<Name, ServiceLine>,
    in_flight: VecDeque<InFlight>,
    /// When the last report went, and when the last of all keys did.
    said: Time,
    said_all: Time,
}

impl Uplink {
    pub(crate) fn new(max_entries: usize) -> Self {
        Self {
            is_open: false,
            stream: 0,
            seq: 0,
            max_entries: max_entries.clamp(1, MAX_ENTRIES),
            lines: Vec::new(),
            unsettled: VecDeque::new(),
            waiting: 0,
            ids: Vec::new(),
            free_ids: Vec::new(),
            retiring: BTreeSet::new(),
            services: BTreeMap::new(),
            in_flight: VecDeque::new(),
            said: Time::ZERO,
            said_all: Time::ZERO,
        }
    }

    /// Begins a new stream with what the last one did not get acknowledged.
    pub(crate) fn open(&mut self) {
        self.close();
        self.is_open = true;
        self.stream += 1;
        for (key, line) in (0_u32..).zip(&mut self.lines) {
            let Some(line) = line else { continue };
            line.id = NO_ID;
            line.named = false;
            line.base = line.acked.counts;
            line.acked = KeyState { counts: line.base, ..NOTHING };
            if !std::mem::replace(&mut line.is_unsettled, true) {
                self.unsettled.push_back(key);
            }
        }
        for service in self.services.values_mut() {
            service.base = service.acked;
        }
    }

    /// Ends the stream. What was not acknowledged stays to be said.
    pub(crate) fn close(&mut self) {
        self.is_open = false;
        self.seq = 0;
        self.waiting = 0;
        self.ids.clear();
        self.free_ids.clear();
        self.retiring.clear();
        self.in_flight.clear();
    }

    /// Which stream this is, counted from 1.
    pub(crate) fn stream(&self) -> u64 {
        self.stream
    }

    /// The key behind an id of this stream.
    pub(crate) fn key_of(&self, id: KeyId) -> Option<u32> {
        *self.ids.get(id as usize)?
    }

    /// Whether the controller has all there is to know of a key, so that it may be forgotten.
    pub(crate) fn is_settled(&self, key: u32) -> bool {
        self.line(key).is_none_or(|line| !line.is_unsettled)
    }

    /// A key is forgotten: its id ends.
    pub(crate) fn retire(&mut self, key: u32) {
        let Some(line) = self.lines.get_mut(key as usize).and_then(Option::take) else { return };
        if let Some(id) = self.ids.get_mut(line.id as usize) {
            *id = None;
            self.retiring.insert(line.id);
        }
        for sent in &mut self.in_flight {
            sent.keys.retain(|(k, _)| *k != key);
        }
    }

    /// Takes note of what is in use. To be called once a tick, with or without a stream.
    pub(crate) fn observe(&mut self, node: &Node) {
        for key in node.keys_in_use() {
            self.unsettle(*key);
        }
    }

    /// Whether all keys that changed are to be reported at this tick. Under `grant` those that matter
    /// go when something happens to them.
    pub(crate) fn is_due(&self, now: Time, node: &Node) -> bool {
        node.law() == Law::Ratio || now.since(self.said_all) >= ALL_EVERY
    }

    /// The report of a tick; `None` if there is nothing to say.
    pub(crate) fn report(&mut self, now: Time, node: &mut Node) -> Option<Report> {
        self.waiting = self.unsettled.len();
        (self.said, self.said_all) = (now, now);
        self.next_report(node, &[])
    }

    /// A report of some keys, of what is not acknowledged, and, if there was none for long, of nothing:
    /// silence would be taken for a loss.
    pub(crate) fn report_of(&mut self, now: Time, node: &mut Node, keys: &[u32]) -> Option<Report> {
        let overdue = node.law() == Law::Grant
            && now.since(self.said) >= HEARTBEAT
            && !node.keys_in_use().is_empty();
        if !self.is_open || (keys.is_empty() && !overdue) {
            return None;
        }
        self.said = now;
        // What is not acknowledged is repeated, so that an acknowledgement covers all before it. Who has
        // no room stands among those that are not settled, and goes with all of them.
        let mut given: Vec<u32> =
            self.in_flight.iter().flat_map(|sent| &sent.keys).map(|(key, _)| *key).collect();
        given.extend(keys);
        given.sort_unstable();
        given.dedup();
        given.truncate(self.max_entries);
        self.next_report(node, &given).or_else(|| overdue.then(|| self.empty_report(node)))
    }

    fn empty_report(&mut self, node: &Node) -> Report {
        self.seq += 1;
        self.in_flight.push_back(InFlight { seq: self.seq, ..InFlight::default() });
        if self.in_flight.len() > MAX_IN_FLIGHT {
            self.in_flight.pop_front();
        }
        Report { seq: self.seq, interval: node.tick(), ..Report::default() }
    }

    /// What had no room in the reports of this tick, if anything.
    pub(crate) fn report_rest(&mut self, node: &mut Node) -> Option<Report> {
        if self.waiting == 0 { None } else { self.next_report(node, &[]) }
    }

    /// The keys given, or those that wait, as far as there is room.
    fn next_report(&mut self, node: &mut Node, given: &[u32]) -> Option<Report> {
        if !self.is_open {
            return None;
        }
        let mut report = Report { interval: node.tick(), ..Report::default() };
        let mut sent = InFlight::default();
        let mut name_bytes = 0;
        for key in given {
            self.unsettle(*key);
            if let Some((entry, state)) = self.entry(*key, node, &mut report.new_keys) {
                report.entries.push(entry);
                sent.keys.push((*key, state));
            } else if let Some(Some(line)) = self.lines.get_mut(*key as usize) {
                // It stands among the unsettled ones until its turn comes.
                line.is_unsettled = true;
            }
        }
        // Those that wait may be among those given; they go with the next report of all.
        while given.is_empty() && self.waiting > 0 {
            if report.entries.len() >= self.max_entries || name_bytes >= MAX_NAME_BYTES {
                node.counters_mut().report_entries_deferred += self.waiting as u64;
                break;
            }
            self.waiting -= 1;
            let Some(key) = self.unsettled.pop_front() else { break };
            let named = report.new_keys.len();
            let Some((entry, state)) = self.entry(key, node, &mut report.new_keys) else {
                continue;
            };
            name_bytes += report.new_keys[named..].iter().map(|(_, n)| weight(n)).sum::<usize>();
            report.entries.push(entry);
            sent.keys.push((key, state));
            self.unsettled.push_back(key);
        }
        self.add_services(node, &mut report, &mut sent);
        report.retired_keys = self.retiring.iter().copied().take(self.max_entries).collect();
        if report.entries.is_empty() && report.services.is_empty() && report.retired_keys.is_empty()
        {
            return None;
        }
        self.seq += 1;
        report.seq = self.seq;
        sent.seq = self.seq;
        sent.retired = report.retired_keys.clone();
        if self.in_flight.len() >= MAX_IN_FLIGHT {
            self.in_flight.pop_front();
        }
        self.in_flight.push_back(sent);
        Some(report)
    }

    /// The controller has taken in the report `seq`. Says whether that was waited for.
    pub(crate) fn acknowledge(&mut self, seq: u64) -> bool {
        while self.in_flight.front().is_some_and(|f| f.seq < seq) {
            self.in_flight.pop_front();
        }
        let Some(taken) = self.in_flight.pop_front_if(|f| f.seq == seq) else { return false };
        for (key, state) in taken.keys {
            if let Some(line) = self.lines.get_mut(key as usize).and_then(Option::as_mut) {
                line.acked = state;
                line.named = true;
            }
            // It may have come back meanwhile to what was acknowledged before.
            self.unsettle(key);
        }
        for (name, totals) in taken.services {
            self.services.entry(name).or_default().acked = totals;
        }
        for id in taken.retired {
            if self.retiring.remove(&id) {
                self.free_ids.push(id);
            }
        }
        true
    }

    fn line(&self, key: u32) -> Option<&Line> {
        self.lines.get(key as usize)?.as_ref()
    }

    fn unsettle(&mut self, key: u32) {
        let at = key as usize;
        if self.lines.len() <= at {
            self.lines.resize(at + 1, None);
        }
        let line = self.lines[at].get_or_insert(Line {
            id: NO_ID,
            base: ZERO,
            acked: NOTHING,
            named: false,
            is_unsettled: false,
        });
        if !std::mem::replace(&mut line.is_unsettled, true) {
            self.unsettled.push_back(key);
        }
    }

    /// What must be said of a key; `None`, and settled, if the controller has it all.
    fn entry(
        &mut self,
        key: u32,
        node: &Node,
        new_keys: &mut Vec<(KeyId, KeyName)>,
    ) -> Option<(Entry, KeyState)> {
        let line = self.lines.get_mut(key as usize)?.as_mut()?;
        let state = node.key_state(key).unwrap_or(NOTHING);
        if state == line.acked {
            line.is_unsettled = false;
            return None;
        }
        if line.id == NO_ID {
            line.id = self.free_ids.pop().unwrap_or_else(|| {
                self.ids.push(None);
                KeyId::try_from(self.ids.len() - 1).unwrap_or(NO_ID)
            });
            *self.ids.get_mut(line.id as usize)? = Some(key);
        }
        if !line.named {
            new_keys.push((line.id, node.key_name(key)?));
        }
        let counts = state.counts.since(&line.base);
        let KeyState { offered_rps, usual_rps, sessions, .. } = state;
        let flight = node.flight(key);
        Some((Entry { key: line.id, counts, offered_rps, usual_rps, sessions, flight }, state))
    }

    fn add_services(&mut self, node: &Node, report: &mut Report, sent: &mut InFlight) {
        for (name, totals) in node.service_totals() {
            let line = self.services.get(name).copied().unwrap_or_default();
            if *totals != line.acked && report.services.len() < self.max_entries {
                report.services.push(totals.since(&line.base).of(name.clone()));
                sent.services.push((name.clone(), *totals));
            }
        }
    }
}

/// The bytes of a name's texts.
fn weight(name: &KeyName) -> usize {
    let values = match &name.values {
        KeyValues::Each(values) => values.iter().map(|v| v.len()).sum(),
        KeyValues::Whole | KeyValues::Overflow => 0,
    };
    name.service.as_str().len() + name.bucket.as_str().len() + values
}
