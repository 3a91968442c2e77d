//! What flows between the product's nodes, and how it is traced.

use sluicegate_model::{Down, KeyName, KeyValues, Report, Up};

use crate::fleet::Traced;
use crate::trace::Trace;

/// A message of the stream of that number.
#[derive(Debug, Clone)]
pub(crate) enum Message {
    /// To the tier above.
    Up(u32, Up),
    /// To the tier below.
    Down(u32, Down),
    /// The other end is closed.
    Closed(u32),
}

impl Traced for Message {
    fn trace(&self, trace: &mut Trace) {
        match self {
            Self::Up(number, up) => {
                trace.number(u64::from(*number) << 3);
                up.trace(trace);
            }
            Self::Down(number, down) => {
                trace.number(u64::from(*number) << 3 | 1);
                down.trace(trace);
            }
            Self::Closed(number) => trace.number(u64::from(*number) << 3 | 2),
        }
    }

    /// Counted are reports on the way up, acknowledgements and directives on the way down.
    fn counts(&self) -> bool {
        matches!(self, Self::Up(_, Up::Report(_)) | Self::Down(_, Down::Update(_)))
    }
}

impl Traced for Up {
    fn trace(&self, trace: &mut Trace) {
        match self {
            Self::Hello(hello) => {
                trace.number(1);
                trace.number(hello.session);
                trace.text(hello.node.as_str());
                trace.text(hello.zone.as_str());
                trace.text(hello.region.as_str());
                trace.number(hello.seen_term);
                trace.number(hello.seen_version);
                trace.number(hello.services.len() as u64);
            }
            Self::Report(report) => {
                trace.number(2);
                report.trace(trace);
            }
            Self::ConfigurationApplied(version) => {
                trace.number(3);
                trace.number(*version);
            }
            Self::Seen { term, version } => {
                trace.number(4);
                trace.number(*term);
                trace.number(*version);
            }
        }
    }
}

impl Traced for Report {
    fn trace(&self, trace: &mut Trace) {
        trace.number(self.seq);
        trace.number(u64::try_from(self.interval.as_nanos()).unwrap_or(u64::MAX));
        trace.number(self.new_keys.len() as u64);
        for (id, key) in &self.new_keys {
            trace.number(u64::from(*id));
            key.trace(trace);
        }
        trace.number(self.retired_keys.len() as u64);
        self.retired_keys.iter().for_each(|id| trace.number(u64::from(*id)));
        trace.number(self.entries.len() as u64);
        for entry in &self.entries {
            trace.number(u64::from(entry.key) << 32 | u64::from(entry.sessions));
            trace.number(entry.counts.matched);
            trace.number(entry.counts.offered);
            trace.number(entry.counts.admitted);
            trace.number(entry.counts.would_drop);
            trace.number(entry.offered_rps.to_bits());
        }
        trace.number(self.services.len() as u64);
        for counts in &self.services {
            trace.text(counts.service.as_str());
            trace.number(counts.attempts);
            trace.number(counts.admitted);
            trace.number(counts.dropped_by_one);
            trace.number(counts.dropped_by_several);
        }
    }
}

impl Traced for KeyName {
    fn trace(&self, trace: &mut Trace) {
        trace.text(self.service.as_str());
        trace.text(self.bucket.as_str());
        match &self.values {
            KeyValues::Whole => trace.number(0),
            KeyValues::Overflow => trace.number(1),
            KeyValues::Each(values) => {
                trace.number(2 + values.len() as u64);
                values.iter().for_each(|value| trace.text(value));
            }
        }
    }
}

impl Traced for Down {
    fn trace(&self, trace: &mut Trace) {
        match self {
            Self::Configuration(c) => {
                trace.number(1);
                trace.number(c.version);
                trace.number(c.term);
                trace.number(u64::from(c.full) | (c.removed.len() as u64) << 1);
                trace.number(c.services.len() as u64);
                c.services.iter().for_each(|s| trace.text(s.service.as_str()));
            }
            Self::Update(update) => {
                trace.number(2);
                trace.number(update.ack_seq);
                trace.number(update.directives.len() as u64);
                for (id, d) in &update.directives {
                    trace.number(u64::from(*id) << 32 | u64::from(d.admit.bits()));
                    trace.number(
                        u64::from(d.headroom.to_bits()) << 32 | u64::from(d.sigma.to_bits()),
                    );
                    trace.number(d.limit_rps.to_bits());
                    trace.number(u64::from(d.sessions) ^ d.term << 32);
                    trace.number(d.seq);
                    trace.number(u64::try_from(d.ttl.as_nanos()).unwrap_or(u64::MAX));
                }
            }
        }
    }
}
