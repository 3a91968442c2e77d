//! What the stream in use has been told, and what it has acknowledged: from counts of keys and
//! services to reports of which none can be lost.
//!
//! Every report repeats what an earlier one said without an acknowledgement yet. So whoever takes in
//! report `n` knows all that `1..=n` said, whatever became of them on the way, and an
//! acknowledgement of `n` covers them all. It knows no slots, no directives and no clock.

mod gauges;
mod services;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use sluicegate_model::{Counts, Entry, Flight, KeyId, KeyName, KeyValues, Report, ServiceCounts};

pub(super) use self::gauges::Stated;
use self::gauges::{GaugeId, Gauges, NO_RATES};
use self::services::Services;

use crate::KeyHandle;
use crate::grow::make_room;

/// The most entries of one report. More keys than that wait until what is on its way is
/// acknowledged.
pub const MAX_REPORT_ENTRIES: usize = 50_000;
/// The most bytes of key names of one report.
pub const MAX_REPORT_NAME_BYTES: usize = 1 << 20;
/// The most reports whose contents are remembered until they are acknowledged. Beyond, the newest
/// stands for those before it (it repeats what they said). More than a second's worth, as long as an
/// acknowledgement may wait, even with a report at each look.
pub const MAX_REPORTS_UNACKNOWLEDGED: usize = 128;
/// The most entries that those reports have together, the newest apart.
pub const MAX_ENTRIES_UNACKNOWLEDGED: usize = 100_000;
/// The most keys that are gone but have counts which nobody has acknowledged.
pub const MAX_LEAVING_KEYS: usize = 10_000;
/// The most services that are counted on one stream, those gone since it opened included.
pub const MAX_SERVICES: usize = 4096;

/// The most ids on one stream, those included that are lost because of [`MAX_LEAVING_KEYS`].
pub const MAX_IDS: usize = 1 << 24;

/// How many reports' memory, of how many entries each, is kept for the next ones.
const MAX_SPARE_REPORTS: usize = 4;
const MAX_SPARE_ENTRIES: usize = 4096;

const NO_ID: KeyId = KeyId::MAX;

/// Names one key's line of the ledger.
pub(super) type LineId = u32;

/// All of `counts` is acknowledged.
const ALL_ACKED: u32 = u32::MAX;

/// What one key has to say on the stream. Small: there is one for each value.
#[derive(Debug, Clone)]
struct Line {
    /// Cumulative on this stream.
    counts: Counts,
    /// Where in `acked` it stands what of that is acknowledged, or [`ALL_ACKED`].
    acked_at: u32,
    gauge_at: GaugeId,
    /// Its id on this stream.
    id: KeyId,
    /// The last report that held it, 0 if none on this stream did.
    sent_seq: u32,
    /// The last report sent before the line was this key's.
    opened_seq: u32,
    key: KeyHandle,
    life: Life,
    in_use: bool,
    /// Whether a report that named it is acknowledged.
    named: bool,
    /// Something is to be said.
    dirty: bool,
    /// Counts that are not said yet, due or not.
    waiting: bool,
    /// It stands in `pending`.
    pending: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    Live,
    /// The key is gone, its last counts are not acknowledged.
    Leaving,
    /// They are; its id is to be retired. Not before: a receiver that sees a repeated name after
    /// the id was retired would take it for a new key and count it twice.
    Retiring,
    /// Free for another key.
    Vacant,
}

/// What a report that is not acknowledged said.
#[derive(Debug, Default)]
struct Sent {
    seq: u32,
    lines: Vec<SentLine>,
    services: Vec<(usize, ServiceCounts)>,
}

#[derive(Debug, Clone, Copy)]
struct SentLine {
    id: LineId,
    counts: Counts,
    rates: Stated,
}

/// The books of one agent: a line a key and a line a service.
#[derive(Debug)]
pub(super) struct Ledger {
    max_entries: usize,
    lines: Vec<Line>,
    vacant: Vec<LineId>,
    /// What is acknowledged of lines of which not all is.
    acked: Vec<Counts>,
    acked_free: Vec<u32>,
    gauges: Gauges,
    /// The names of lines that are leaving or retiring: the table has them no more.
    leaving: BTreeMap<LineId, KeyName>,
    services: Services,
    /// Lines with something to say, or something said and not acknowledged.
    pending: Vec<LineId>,
    /// How many lines of keys are dirty.
    dirty: usize,
    /// Which line an id of this stream means.
    ids: Vec<LineId>,
    free_ids: Vec<KeyId>,
    /// Of a stream; 32 bits are years of reports.
    last_seq: u32,
    acked_seq: u32,
    sent: VecDeque<Sent>,
    spare: Vec<Sent>,
    interval: Duration,
}

/// What became of an acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Acknowledged {
    /// It is new, and taken in.
    Taken,
    /// Nothing new.
    Old,
    /// Of a report that was never sent on this stream.
    Unknown,
}

impl Ledger {
    pub(super) fn new(tick: Duration) -> Self {
        Self {
            max_entries: MAX_REPORT_ENTRIES,
            lines: Vec::new(),
            vacant: Vec::new(),
            acked: Vec::new(),
            acked_free: Vec::new(),
            gauges: Gauges::default(),
            leaving: BTreeMap::new(),
            services: Services::default(),
            pending: Vec::new(),
            dirty: 0,
            ids: Vec::new(),
            free_ids: Vec::new(),
            last_seq: 0,
            acked_seq: 0,
            sent: VecDeque::new(),
            spare: Vec::new(),
            interval: tick.max(Duration::from_nanos(1)),
        }
    }

    /// A line for a new key.
    pub(super) fn open(&mut self, key: KeyHandle) -> LineId {
        let mut line = Line {
            counts: Counts::default(),
            acked_at: ALL_ACKED,
            gauge_at: NO_RATES,
            id: NO_ID,
            sent_seq: 0,
            opened_seq: self.last_seq,
            key,
            life: Life::Live,
            in_use: false,
            named: false,
            dirty: false,
            waiting: false,
            pending: false,
        };
        if let Some(id) = self.vacant.pop() {
            line.pending = self.lines[id as usize].pending;
            self.lines[id as usize] = line;
            return id;
        }
        make_room(&mut self.lines, 1);
        self.lines.push(line);
        index(self.lines.len() - 1)
    }

    /// Adds what happened to a key since it was last told. It waits until the line is
    /// [due](Self::due), or has to be said for other reasons.
    pub(super) fn count(&mut self, id: LineId, more: &Counts) {
        if *more == Counts::default() {
            return;
        }
        let line = &mut self.lines[id as usize];
        if line.acked_at == ALL_ACKED {
            line.acked_at = self.acked_free.pop().unwrap_or_else(|| {
                self.acked.push(Counts::default());
                index(self.acked.len() - 1)
            });
            self.acked[line.acked_at as usize] = line.counts;
        }
        line.counts.add(more);
        line.waiting = true;
    }

    /// The next report says what was counted, if anything was.
    pub(super) fn due(&mut self, id: LineId) {
        if self.lines[id as usize].waiting {
            self.mark(id);
        }
    }

    /// The next report says of a line what was said before, as a sign of life.
    pub(super) fn repeat(&mut self, id: LineId) {
        self.mark(id);
    }

    /// The rates of a key from now on, and whether it had traffic lately; the line is due.
    pub(super) fn gauge(&mut self, id: LineId, rates: Stated, in_use: bool) {
        let line = &mut self.lines[id as usize];
        let same = self.gauges.now(line.gauge_at) == rates && line.in_use == in_use;
        if !same {
            self.gauges.set_now(&mut line.gauge_at, rates);
            line.in_use = in_use;
            self.mark(id);
        }
        self.due(id);
    }

    /// The rates that the last report stated which is acknowledged.
    pub(super) fn acked_rates(&self, id: LineId) -> Stated {
        self.gauges.acked(self.lines[id as usize].gauge_at)
    }

    /// Whether nothing is left to say of a key that anybody waits for.
    pub(super) fn is_settled(&self, id: LineId) -> bool {
        let line = &self.lines[id as usize];
        !line.dirty && line.sent_seq <= self.acked_seq && line.acked_at == ALL_ACKED
    }

    /// The key is gone. Its last counts are told and acknowledged before its id is used again.
    /// Whether that could be promised: false if too many such keys wait already.
    pub(super) fn close(&mut self, id: LineId, name: Option<KeyName>) -> bool {
        self.gauge(id, Stated::default(), false);
        let line = &self.lines[id as usize];
        if line.id == NO_ID && line.acked_at == ALL_ACKED {
            self.vacate(id);
            return true;
        }
        let Some(name) = name.filter(|_| self.can_close()) else {
            // Without its retirement told, the id must not come back.
            self.lines[id as usize].id = NO_ID;
            self.vacate(id);
            return false;
        };
        let settled = self.is_settled(id);
        self.lines[id as usize].life = if settled { Life::Retiring } else { Life::Leaving };
        self.leaving.insert(id, name);
        self.mark(id);
        true
    }

    /// Whether there is room for one more key that leaves.
    pub(super) fn can_close(&self) -> bool {
        self.leaving.len() < MAX_LEAVING_KEYS
    }

    /// The key that an id of this stream stands for.
    pub(super) fn key_of(&self, id: KeyId) -> Option<KeyHandle> {
        let line = *self.ids.get(id as usize)?;
        match self.lines.get(line as usize)? {
            Line { life: Life::Live, id: own, key, .. } if *own == id => Some(*key),
            _ => None,
        }
    }

    /// The totals of every service that the table counts now. One that is not among them is gone:
    /// if it comes back, the table counts it from 0. Returns how many had no room.
    pub(super) fn count_services(&mut self, totals: impl Iterator<Item = ServiceCounts>) -> u64 {
        self.services.count(totals)
    }

    /// A new stream: what is not acknowledged is said again, under ids given anew.
    pub(super) fn start_stream(&mut self) {
        (self.last_seq, self.acked_seq, self.dirty) = (0, 0, 0);
        while let Some(sent) = self.sent.pop_front() {
            self.recycle(sent);
        }
        self.ids.clear();
        self.free_ids.clear();
        self.pending.clear();
        for at in 0..self.lines.len() {
            let line = &mut self.lines[at];
            (line.dirty, line.pending) = (false, false);
            if line.life == Life::Vacant {
                continue;
            }
            if line.acked_at == ALL_ACKED {
                line.counts = Counts::default();
            } else {
                let acked = std::mem::take(&mut self.acked[line.acked_at as usize]);
                line.counts = line.counts.since(&acked);
            }
            (line.id, line.named) = (NO_ID, false);
            (line.sent_seq, line.opened_seq) = (0, 0);
            let told = line.acked_at == ALL_ACKED && !line.in_use;
            let live = line.life == Life::Live;
            if !told {
                self.mark(index(at));
            } else if !live {
                self.vacate(index(at));
            }
        }
        self.services.start_stream();
    }

    /// The time that the rates told last are over.
    pub(super) fn set_interval(&mut self, interval: Duration) {
        self.interval = interval.max(Duration::from_nanos(1));
    }

    /// Whether something is to be said of a key.
    pub(super) fn has_key_news(&self) -> bool {
        self.dirty > 0
    }

    /// Whether something is to be said at all.
    pub(super) fn has_news(&self) -> bool {
        self.has_key_news() || self.services.has_news()
    }

    /// Whether something was said and is not acknowledged.
    pub(super) fn awaits(&self) -> bool {
        self.acked_seq < self.last_seq
    }

    /// Everything to be said, as one report; `None` if that is nothing, or nothing for which there
    /// is room.
    pub(super) fn report(
        &mut self,
        name_of: impl Fn(KeyHandle) -> Option<KeyName>,
    ) -> Option<Report> {
        let seq = self.last_seq.checked_add(1)?;
        let mut report = Report { seq: seq.into(), interval: self.interval, ..Report::default() };
        let mut sent = self.spare.pop().unwrap_or_default();
        sent.seq = seq;
        let mut pending = std::mem::take(&mut self.pending);
        let mut name_bytes = 0;
        // What is on its way first: it has to be in every report until it is acknowledged.
        for &id in &pending {
            if self.lines[id as usize].sent_seq > self.acked_seq {
                name_bytes += self.say(id, seq, &name_of, &mut report);
                sent.lines.push(self.said(id));
            }
        }
        for at in 0..pending.len() {
            let (id, line) = (pending[at], &self.lines[pending[at] as usize]);
            if !line.dirty {
                continue;
            }
            if sent.lines.len() >= self.max_entries || name_bytes >= MAX_REPORT_NAME_BYTES {
                // Who found no room this time comes first the next time.
                pending.rotate_left(at);
                break;
            }
            if line.id == NO_ID && self.free_ids.is_empty() && self.ids.len() >= MAX_IDS {
                continue;
            }
            name_bytes += self.say(id, seq, &name_of, &mut report);
            sent.lines.push(self.said(id));
        }
        self.pending = pending;
        self.forget_settled();
        self.services.say(seq, self.acked_seq, |at, counts| {
            report.services.push(counts.clone());
            sent.services.push((at, counts.clone()));
        });
        if sent.lines.is_empty() && sent.services.is_empty() {
            self.recycle(sent);
            return None;
        }
        self.last_seq = seq;
        self.remember(sent);
        Some(report)
    }

    /// The receiver has taken in everything up to `seq`.
    pub(super) fn acknowledge(&mut self, seq: u64) -> Acknowledged {
        let Some(seq) = u32::try_from(seq).ok().filter(|s| *s <= self.last_seq) else {
            return Acknowledged::Unknown;
        };
        if seq <= self.acked_seq {
            return Acknowledged::Old;
        }
        self.acked_seq = seq;
        while self.sent.front().is_some_and(|s| s.seq <= seq) {
            let Some(sent) = self.sent.pop_front() else { break };
            for line in &sent.lines {
                self.settle(sent.seq, line);
            }
            for (at, counts) in &sent.services {
                self.services.settle(*at, counts);
            }
            self.recycle(sent);
        }
        Acknowledged::Taken
    }

    /// Report `seq`, which said this of a line, is taken in.
    fn settle(&mut self, seq: u32, &SentLine { id, counts, rates }: &SentLine) {
        let acked_seq = self.acked_seq;
        let line = &mut self.lines[id as usize];
        if line.life == Life::Vacant || seq <= line.opened_seq {
            return;
        }
        line.named = true;
        self.gauges.set_acked(&mut line.gauge_at, rates);
        if line.acked_at != ALL_ACKED {
            if line.counts == counts {
                self.acked_free.push(line.acked_at);
                line.acked_at = ALL_ACKED;
            } else {
                self.acked[line.acked_at as usize] = counts;
            }
        }
        if line.dirty || line.sent_seq > acked_seq {
            return;
        }
        match line.life {
            Life::Live | Life::Vacant => {}
            Life::Leaving => {
                line.life = Life::Retiring;
                self.mark(id);
            }
            Life::Retiring => self.vacate(id),
        }
    }

    fn mark(&mut self, id: LineId) {
        let line = &mut self.lines[id as usize];
        self.dirty += usize::from(!line.dirty);
        line.dirty = true;
        if !line.pending {
            line.pending = true;
            self.pending.push(id);
        }
    }

    /// Puts one line into a report; returns the bytes of its name if that is in it as well.
    fn say(
        &mut self,
        id: LineId,
        seq: u32,
        name_of: &impl Fn(KeyHandle) -> Option<KeyName>,
        report: &mut Report,
    ) -> usize {
        if self.lines[id as usize].id == NO_ID {
            self.lines[id as usize].id = self.new_id(id);
        }
        let line = &mut self.lines[id as usize];
        self.dirty -= usize::from(line.dirty);
        (line.dirty, line.waiting, line.sent_seq) = (false, false, seq);
        if line.life == Life::Retiring {
            report.retired_keys.push(line.id);
            return 0;
        }
        let rates = self.gauges.now(line.gauge_at);
        report.entries.push(Entry {
            key: line.id,
            counts: line.counts,
            offered_rps: rates.offered_rps.into(),
            usual_rps: rates.usual_rps.into(),
            flight: Flight::default(),
            sessions: line.in_use.into(),
        });
        if line.named {
            return 0;
        }
        let name = match line.life {
            Life::Live => name_of(line.key),
            Life::Leaving | Life::Retiring | Life::Vacant => self.leaving.get(&id).cloned(),
        };
        let bytes = name.as_ref().map_or(0, name_bytes);
        report.new_keys.extend(name.map(|name| (line.id, name)));
        bytes
    }

    /// What the report under way said of a line.
    fn said(&self, id: LineId) -> SentLine {
        let line = &self.lines[id as usize];
        SentLine { id, counts: line.counts, rates: self.gauges.now(line.gauge_at) }
    }

    fn new_id(&mut self, line: LineId) -> KeyId {
        if let Some(id) = self.free_ids.pop() {
            self.ids[id as usize] = line;
            return id;
        }
        make_room(&mut self.ids, 1);
        self.ids.push(line);
        index(self.ids.len() - 1)
    }

    /// Drops from `pending` what has nothing more to say and is acknowledged.
    fn forget_settled(&mut self) {
        let (lines, acked) = (&mut self.lines, self.acked_seq);
        self.pending.retain(|&id| {
            let line = &mut lines[id as usize];
            line.pending = line.life != Life::Vacant && (line.dirty || line.sent_seq > acked);
            line.pending
        });
    }

    fn vacate(&mut self, id: LineId) {
        let line = &mut self.lines[id as usize];
        self.dirty -= usize::from(line.dirty);
        let own = std::mem::replace(&mut line.id, NO_ID);
        (line.life, line.dirty, line.waiting, line.sent_seq) = (Life::Vacant, false, false, 0);
        self.gauges.clear(&mut line.gauge_at);
        let acked_at = std::mem::replace(&mut line.acked_at, ALL_ACKED);
        if acked_at != ALL_ACKED {
            self.acked_free.push(acked_at);
        }
        if own != NO_ID {
            self.free_ids.push(own);
        }
        self.leaving.remove(&id);
        self.vacant.push(id);
    }

    fn remember(&mut self, sent: Sent) {
        let entries = |sent: &VecDeque<Sent>| sent.iter().map(|s| s.lines.len()).sum::<usize>();
        while (self.sent.len() >= MAX_REPORTS_UNACKNOWLEDGED
            || entries(&self.sent) > MAX_ENTRIES_UNACKNOWLEDGED)
            && let Some(newest) = self.sent.pop_back()
        {
            self.recycle(newest);
        }
        self.sent.push_back(sent);
    }

    fn recycle(&mut self, mut sent: Sent) {
        sent.lines.clear();
        sent.services.clear();
        // A crowd that was here once is no reason to keep room for it.
        sent.lines.shrink_to(MAX_SPARE_ENTRIES);
        if self.spare.len() < MAX_SPARE_REPORTS {
            self.spare.push(sent);
        }
    }
}

fn name_bytes(name: &KeyName) -> usize {
    let values = match &name.values {
        KeyValues::Each(values) => values.iter().map(|v| v.len()).sum(),
        KeyValues::Whole | KeyValues::Overflow => 0,
    };
    name.service.as_str().len() + name.bucket.as_str().len() + values
}

fn index(at: usize) -> u32 {
    u32::try_from(at).expect("keys, services and ids are bounded far below 2^32")
}

#[cfg(test)]
mod tests;
