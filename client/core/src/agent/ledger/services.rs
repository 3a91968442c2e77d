//! The service half of the ledger: the same rules for a handful of lines, named instead of
//! numbered.

use std::collections::BTreeMap;

use sluicegate_model::{Name, ServiceCounts};

use super::MAX_SERVICES;

/// A line a service.
#[derive(Debug, Default)]
pub(super) struct Services {
    pub(super) lines: Vec<Line>,
    at: BTreeMap<Name, usize>,
    /// How many lines have something to say.
    dirty: usize,
}

#[derive(Debug, Clone)]
pub(super) struct Line {
    /// Cumulative on this stream.
    pub(super) counts: ServiceCounts,
    /// Of that, what is acknowledged.
    pub(super) acked: ServiceCounts,
    /// The last state read from the table, to tell what is new.
    read: ServiceCounts,
    sent_seq: u32,
    dirty: bool,
    live: bool,
}

impl Services {
    /// See [`super::Ledger::count_services`].
    pub(super) fn count(&mut self, totals: impl Iterator<Item = ServiceCounts>) -> u64 {
        let mut refused = 0;
        self.lines.iter_mut().for_each(|s| s.live = false);
        for totals in totals {
            refused += u64::from(!self.count_one(totals));
        }
        for line in self.lines.iter_mut().filter(|s| !s.live) {
            line.read = no_counts(&line.counts.service);
        }
        refused
    }

    fn count_one(&mut self, totals: ServiceCounts) -> bool {
        let at = match self.at.get(&totals.service) {
            Some(at) => *at,
            None if self.lines.len() >= MAX_SERVICES => return false,
            None => {
                let none = no_counts(&totals.service);
                self.lines.push(Line {
                    counts: none.clone(),
                    acked: none.clone(),
                    read: none,
                    sent_seq: 0,
                    dirty: false,
                    live: true,
                });
                self.at.insert(totals.service.clone(), self.lines.len() - 1);
                self.lines.len() - 1
            }
        };
        let line = &mut self.lines[at];
        line.live = true;
        if totals != line.read {
            line.counts = plus(&line.counts, &less(&totals, &line.read));
            line.read = totals;
            self.dirty += usize::from(!line.dirty);
            line.dirty = true;
        }
        true
    }

    pub(super) fn start_stream(&mut self) {
        self.dirty = 0;
        self.lines.retain(|s| s.live || s.counts != s.acked);
        for line in &mut self.lines {
            line.counts = less(&line.counts, &line.acked);
            line.acked = no_counts(&line.counts.service);
            line.sent_seq = 0;
            line.dirty = line.counts != line.acked;
            self.dirty += usize::from(line.dirty);
        }
        let places = self.lines.iter().enumerate();
        self.at = places.map(|(at, s)| (s.counts.service.clone(), at)).collect();
    }

    pub(super) fn has_news(&self) -> bool {
        self.dirty > 0
    }

    /// What report `seq` has to say: what is new, and what is not acknowledged.
    pub(super) fn say(
        &mut self,
        seq: u32,
        acked_seq: u32,
        mut each: impl FnMut(usize, &ServiceCounts),
    ) {
        for (at, line) in self.lines.iter_mut().enumerate() {
            if line.dirty || line.sent_seq > acked_seq {
                (line.dirty, line.sent_seq) = (false, seq);
                each(at, &line.counts);
            }
        }
        self.dirty = 0;
    }

    /// A report that said `counts` of a line is taken in.
    pub(super) fn settle(&mut self, at: usize, counts: &ServiceCounts) {
        self.lines[at].acked.clone_from(counts);
    }
}

pub(super) fn no_counts(service: &Name) -> ServiceCounts {
    ServiceCounts {
        service: service.clone(),
        attempts: 0,
        admitted: 0,
        dropped_by_one: 0,
        dropped_by_several: 0,
    }
}

fn less(now: &ServiceCounts, earlier: &ServiceCounts) -> ServiceCounts {
    ServiceCounts {
        service: now.service.clone(),
        attempts: now.attempts.saturating_sub(earlier.attempts),
        admitted: now.admitted.saturating_sub(earlier.admitted),
        dropped_by_one: now.dropped_by_one.saturating_sub(earlier.dropped_by_one),
        dropped_by_several: now.dropped_by_several.saturating_sub(earlier.dropped_by_several),
    }
}

fn plus(counts: &ServiceCounts, more: &ServiceCounts) -> ServiceCounts {
    ServiceCounts {
        service: counts.service.clone(),
        attempts: counts.attempts.saturating_add(more.attempts),
        admitted: counts.admitted.saturating_add(more.admitted),
        dropped_by_one: counts.dropped_by_one.saturating_add(more.dropped_by_one),
        dropped_by_several: counts.dropped_by_several.saturating_add(more.dropped_by_several),
    }
}
