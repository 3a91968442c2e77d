//! What a process refused, by reason, and further numbers that a tier's shell adds.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tracing::{debug, warn};

/// How often at most a log line tells of connections refused, and of silent ones closed.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Counters of the streams of one node.
#[derive(Debug, Default)]
pub struct Tally {
    pub(crate) streams_opened: AtomicU64,
    pub(crate) messages: AtomicU64,
    pub(crate) throttled: AtomicU64,
    connections_refused: AtomicU64,
    connections_silent: AtomicU64,
    refused_told: Seldom,
    silent_told: Seldom,
    pub(crate) accept_errors: AtomicU64,
    /// By reason and detail. Every reason and detail is a literal of some program text, so this is
    /// bounded; and it is touched only when something goes wrong.
    refused: Mutex<BTreeMap<(&'static str, &'static str), u64>>,
}

impl Tally {
    /// Counts a connection refused because all `most` places are taken, and tells of it at times.
    pub(crate) fn refuse_connection(&self, most: usize) {
        let count = self.connections_refused.fetch_add(1, Relaxed) + 1;
        if self.refused_told.is_due() {
            warn!(most, count, "a connection was refused: all places are taken");
        }
    }

    /// Counts a connection closed because no request came within `limit`, and tells of it at times.
    pub(crate) fn close_silent_connection(&self, limit: Duration) {
        let count = self.connections_silent.fetch_add(1, Relaxed) + 1;
        if self.silent_told.is_due() {
            warn!(?limit, count, "a connection was closed: no request came on it in time");
        }
    }

    /// Connections closed so far because no request came on them in time.
    #[must_use]
    pub fn silent_connections(&self) -> u64 {
        self.connections_silent.load(Relaxed)
    }

    /// Counts one stream refused or closed for `reason`; `detail` may be empty. Logs the first, the
    /// second, the fourth and so on: a thousand broken children must not fill a disk.
    pub(crate) fn refuse(&self, reason: &'static str, detail: &'static str, message: &str) {
        let count = {
            let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
            let count = refused.entry((reason, detail)).or_default();
            *count += 1;
            *count
        };
        if count.is_power_of_two() {
            warn!(reason, detail, message, count, "a child's stream was refused or closed");
        } else {
            debug!(reason, detail, message, count, "a child's stream was refused or closed");
        }
    }

    /// Streams refused or closed so far, by reason and detail.
    #[must_use]
    pub fn refused(&self) -> BTreeMap<(&'static str, &'static str), u64> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Streams refused or closed for `reason` so far, whatever the detail.
    #[must_use]
    pub fn refused_for(&self, reason: &str) -> u64 {
        self.refused().iter().filter(|((r, _), _)| *r == reason).map(|(_, n)| n).sum()
    }

    /// The plain counters, with what they count.
    pub(crate) fn plain(&self) -> [(&'static str, &'static str, u64); 6] {
        [
            (
                "streams_opened",
                "Streams of children that began with an accepted hello.",
                self.streams_opened.load(Relaxed),
            ),
            ("messages", "Messages of children taken in.", self.messages.load(Relaxed)),
            (
                "streams_throttled",
                "Seconds in which a stream was not read any further because of its message rate.",
                self.throttled.load(Relaxed),
            ),
            (
                "connections_refused",
                "Connections closed at once because too many were open.",
                self.connections_refused.load(Relaxed),
            ),
            (
                "connections_silent",
                "Connections closed because no request came on them in time.",
                self.connections_silent.load(Relaxed),
            ),
            (
                "accept_errors",
                "Connections that the operating system failed to hand over.",
                self.accept_errors.load(Relaxed),
            ),
        ]
    }
}

/// Keeps one kind of log line to one each [`LOG_INTERVAL`].
#[derive(Debug, Default)]
struct Seldom(Mutex<Option<Instant>>);

impl Seldom {
    /// Whether a line may be written now; if so, it counts as written.
    fn is_due(&self) -> bool {
        let now = Instant::now();
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = last.is_none_or(|at| now.duration_since(at) >= LOG_INTERVAL);
        if is_due {
            *last = Some(now);
        }
        is_due
    }
}

/// One further number of a tier's shell.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The name, without prefix; a counter's without `_total`.
    pub name: &'static str,
    /// What it is.
    pub help: &'static str,
    /// Whether it only grows.
    pub is_counter: bool,
    /// One label, if it has one: name and value.
    pub label: Option<(&'static str, String)>,
    /// The number.
    pub value: f64,
}

/// Gives the further numbers of a tier's shell as they are now.
pub type Samples = std::sync::Arc<dyn Fn() -> Vec<Sample> + Send + Sync>;
