//! Counts on their way up, as the messages tell them: what each stream said, what was taken in and
//! what the sender can know of that. A receiver of its own, by the words of the protocol; it must
//! not know the cores.

use std::collections::{BTreeMap, VecDeque};

use sluicegate_model::{Counts, KeyId, Report, ServiceCounts};

use super::directory::{Directory, Thing, What};
use crate::node::NodeId;

/// Matched, offered, admitted, would-drop of a key; attempts, admitted, dropped by one, dropped by
/// several of a service.
pub(super) type Four = [u64; 4];

pub(super) fn four(counts: &Counts) -> Four {
    [counts.matched, counts.offered, counts.admitted, counts.would_drop]
}

pub(super) fn four_of_service(counts: &ServiceCounts) -> Four {
    [counts.attempts, counts.admitted, counts.dropped_by_one, counts.dropped_by_several]
}

pub(super) fn add(sum: &mut Four, more: Four) {
    sum.iter_mut().zip(more).for_each(|(s, m)| *s = s.saturating_add(m));
}

/// `now - before`, or nothing if a count went back.
fn grown(now: Four, before: Four) -> Option<Four> {
    let mut grown = [0; 4];
    for (g, (n, b)) in grown.iter_mut().zip(now.into_iter().zip(before)) {
        *g = n.checked_sub(b)?;
    }
    Some(grown)
}

/// What the ids of one stream stand for, and what was said of each.
#[derive(Debug, Default)]
struct Ids {
    keys: BTreeMap<KeyId, (Thing, Four)>,
    services: BTreeMap<Thing, Four>,
}

impl Ids {
    /// What a report adds.
    fn read(&mut self, directory: &mut Directory, report: &Report) -> Vec<(Thing, Four)> {
        let mut news = Vec::new();
        for (id, name) in &report.new_keys {
            let thing = directory.thing(What::Key(name.clone()));
            let held = self.keys.entry(*id).or_insert((thing, [0; 4]));
            if held.0 != thing {
                *held = (thing, [0; 4]);
            }
        }
        for entry in &report.entries {
            let Some((thing, before)) = self.keys.get_mut(&entry.key) else { continue };
            let now = four(&entry.counts);
            if let Some(more) = grown(now, *before) {
                *before = now;
                news.push((*thing, more));
            }
        }
        for counts in &report.services {
            let thing = directory.thing(What::Service(counts.service.clone()));
            let before = self.services.entry(thing).or_default();
            let now = four_of_service(counts);
            if let Some(more) = grown(now, *before) {
                *before = now;
                news.push((thing, more));
            }
        }
        for id in &report.retired_keys {
            self.keys.remove(id);
        }
        news
    }
}

/// The receiving end of one stream.
#[derive(Debug, Default)]
struct Intake {
    seq: u64,
    ids: Ids,
}

/// What a process has taken in since it started.
#[derive(Debug, Default)]
pub(super) struct Receiver {
    pub(super) totals: BTreeMap<Thing, Four>,
    streams: BTreeMap<(NodeId, u32), Intake>,
}

/// What was taken in of each stream, by child and number, whatever became of the process that took
/// it.
pub(super) type Taken = BTreeMap<(NodeId, u32), BTreeMap<Thing, Four>>;

impl Receiver {
    /// A report arrived: older ones than the last are repeats.
    pub(super) fn take(
        &mut self,
        directory: &mut Directory,
        taken: &mut Taken,
        from: (NodeId, u32),
        report: &Report,
    ) {
        let intake = self.streams.entry(from).or_default();
        if report.seq <= intake.seq || report.interval.is_zero() {
            return;
        }
        intake.seq = report.seq;
        let of_stream = taken.entry(from).or_default();
        for (thing, more) in intake.ids.read(directory, report) {
            add(self.totals.entry(thing).or_default(), more);
            add(of_stream.entry(thing).or_default(), more);
        }
    }
}

/// How many reports a sender tells apart until they are acknowledged. What it no longer tells apart
/// it says again on its next stream.
#[derive(Debug, Clone, Copy)]
pub(super) enum Memory {
    /// So many; a new one takes the place of the newest.
    OldestFirst(usize),
    /// So many; a new one takes the place of the oldest.
    NewestFirst(usize),
}

/// One stream at its sending end.
#[derive(Debug, Default)]
struct Said {
    number: u32,
    /// Reports that the sender tells apart.
    remembered: VecDeque<u64>,
    /// The last of those that it knows to be taken in.
    acked: u64,
    ids: Ids,
    /// Of each thing: up to which report how much was said.
    history: BTreeMap<Thing, Vec<(u64, Four)>>,
}

impl Said {
    fn up_to(&self, thing: Thing, seq: u64) -> Four {
        let history = self.history.get(&thing).map_or(&[][..], Vec::as_slice);
        let behind = history.partition_point(|(at, _)| *at <= seq);
        behind.checked_sub(1).map_or([0; 4], |last| history[last].1)
    }
}

/// What a process has said since it started, on all its streams.
#[derive(Debug)]
pub(super) struct Sender {
    memory: Memory,
    streams: Vec<Said>,
}

impl Sender {
    pub(super) fn new(memory: Memory) -> Self {
        Self { memory, streams: Vec::new() }
    }

    pub(super) fn open(&mut self, number: u32) {
        self.streams.push(Said { number, ..Said::default() });
    }

    pub(super) fn say(&mut self, directory: &mut Directory, report: &Report) {
        let Some(said) = self.streams.last_mut() else { return };
        match self.memory {
            Memory::OldestFirst(most) if said.remembered.len() >= most => {
                said.remembered.pop_back();
            }
            Memory::NewestFirst(most) if said.remembered.len() >= most => {
                said.remembered.pop_front();
            }
            Memory::OldestFirst(_) | Memory::NewestFirst(_) => {}
        }
        said.remembered.push_back(report.seq);
        for (thing, more) in said.ids.read(directory, report) {
            if more == [0; 4] {
                continue;
            }
            let history = said.history.entry(thing).or_default();
            let mut now = history.last().map_or([0; 4], |last| last.1);
            add(&mut now, more);
            history.push((report.seq, now));
        }
    }

    pub(super) fn acknowledged(&mut self, ack: u64) {
        let Some(said) = self.streams.last_mut() else { return };
        while let Some(seq) = said.remembered.front().copied().filter(|seq| *seq <= ack) {
            said.acked = seq;
            said.remembered.pop_front();
        }
    }

    /// The key that an id of the stream in use stands for.
    pub(super) fn key_of(&self, id: KeyId) -> Option<Thing> {
        self.streams.last()?.ids.keys.get(&id).map(|held| held.0)
    }

    /// The ids of the stream in use.
    pub(super) fn ids(&self) -> usize {
        self.streams.last().map_or(0, |said| said.ids.keys.len())
    }

    /// Of one thing: what was taken in of all streams of this process, and how much of that it may
    /// have said once more, because its streams ended before it knew.
    pub(super) fn reconcile(&self, taken: &Taken, node: NodeId, thing: Thing) -> (Four, Four) {
        let (mut sum, mut twice) = ([0; 4], [0; 4]);
        for (place, said) in self.streams.iter().enumerate() {
            let stream = taken.get(&(node, said.number));
            let of_stream = stream.and_then(|t| t.get(&thing)).copied().unwrap_or_default();
            add(&mut sum, of_stream);
            if place + 1 < self.streams.len() {
                let known = said.up_to(thing, said.acked);
                add(&mut twice, grown(of_stream, known).unwrap_or_default());
            }
        }
        (sum, twice)
    }

    /// Everything that was ever said.
    pub(super) fn things(&self) -> impl Iterator<Item = Thing> + '_ {
        let all = self.streams.iter().flat_map(|said| said.history.keys().copied());
        all.collect::<std::collections::BTreeSet<_>>().into_iter()
    }
}
