//! Counts on their way up.

use std::time::Duration;

use crate::{KeyName, Name};

/// The number that stands for a key on one stream, chosen by the sender.
pub type KeyId = u32;

/// What happened to the requests that matched a key. Cumulative; always
/// `admitted <= offered <= matched` and `would_drop <= offered`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Attempts that match the bucket.
    pub matched: u64,
    /// Those of them that every other deny bucket admits.
    pub offered: u64,
    /// Those that went through.
    pub admitted: u64,
    /// Those that went through only because the bucket is in shadow.
    pub would_drop: u64,
}

impl Counts {
    /// What the limit is charged: what went through, without what a shadow would have dropped.
    #[must_use]
    pub fn charged(&self) -> u64 {
        self.admitted.saturating_sub(self.would_drop)
    }

    /// What this bucket alone dropped.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.offered.saturating_sub(self.admitted)
    }

    /// This, less an earlier state of the same counts.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            matched: self.matched.saturating_sub(earlier.matched),
            offered: self.offered.saturating_sub(earlier.offered),
            admitted: self.admitted.saturating_sub(earlier.admitted),
            would_drop: self.would_drop.saturating_sub(earlier.would_drop),
        }
    }

    /// Adds `more`.
    pub fn add(&mut self, more: &Self) {
        self.matched = self.matched.saturating_add(more.matched);
        self.offered = self.offered.saturating_add(more.offered);
        self.admitted = self.admitted.saturating_add(more.admitted);
        self.would_drop = self.would_drop.saturating_add(more.would_drop);
    }

    /// Whether every count is at least what it was in `earlier`.
    #[must_use]
    pub fn covers(&self, earlier: &Self) -> bool {
        self.matched >= earlier.matched
            && self.offered >= earlier.offered
            && self.admitted >= earlier.admitted
            && self.would_drop >= earlier.would_drop
    }

    /// Whether the counts can be true of each other.
    #[must_use]
    pub fn is_consistent(&self) -> bool {
        self.admitted <= self.offered
            && self.offered <= self.matched
            && self.would_drop <= self.admitted
    }
}

/// One key of a report.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Entry {
    /// Which key, by the id given in this or an earlier report of the stream.
    pub key: KeyId,
    /// Cumulative since the key was first named on this stream.
    pub counts: Counts,
    /// Offered requests a second now: of a client over its last window, of an aggregator the sum
    /// over its sessions. Finite, not negative.
    pub offered_rps: f64,
    /// The usual rate of offered requests, a second: of a client its mean over the last seconds, or
    /// the present rate if that is higher; of an aggregator the sum. 0 under `ratio`.
    pub usual_rps: f64,
    /// How many client sessions stand behind the entry and have reported the key lately.
    pub sessions: u32,
    /// What was admitted and stands in no count yet. Nothing from a client, whose counts are up to
    /// date, and under `ratio`.
    pub flight: Flight,
}

/// Requests that are estimated to have been admitted, beyond those counted.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Flight {
    /// So many when the report was made.
    pub requests: f64,
    /// And so many more each second after it.
    pub rps: f64,
}

/// The attempts at one service. Cumulative over the stream;
/// `attempts = admitted + dropped_by_one + dropped_by_several` at rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceCounts {
    /// The service.
    pub service: Name,
    /// Requests that reached the client, retries included.
    pub attempts: u64,
    /// Requests that went through.
    pub admitted: u64,
    /// Requests that exactly one bucket dropped.
    pub dropped_by_one: u64,
    /// Requests that two or more buckets dropped.
    pub dropped_by_several: u64,
}

/// One message of counts, from a client to its aggregator or from an aggregator to a controller.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Report {
    /// Grows by one with each report of the stream, from 1.
    pub seq: u64,
    /// The time that this report's rates are over. Never zero.
    pub interval: Duration,
    /// Names of ids, repeated in each report until one that held them is acknowledged.
    pub new_keys: Vec<(KeyId, KeyName)>,
    /// Ids that will not be used again. Their last counts stand in this or an earlier report.
    pub retired_keys: Vec<KeyId>,
    /// Keys whose counts or rate changed.
    pub entries: Vec<Entry>,
    /// Services whose counts changed.
    pub services: Vec<ServiceCounts>,
}
