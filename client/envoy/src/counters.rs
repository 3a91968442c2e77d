//! What the sidecar counts of its own service. The client's counts are the client's.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts since the start.
#[derive(Debug, Default)]
pub struct Counters {
    pub(crate) ok: AtomicU64,
    pub(crate) over_limit: AtomicU64,
    pub(crate) invalid: AtomicU64,
    pub(crate) overrides_ignored: AtomicU64,
    pub(crate) refunds_ignored: AtomicU64,
}

impl Counters {
    /// The counters by name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        [
            // Requests answered OK.
            ("ok", self.ok.load(Relaxed)),
            // Requests answered OVER_LIMIT.
            ("over_limit", self.over_limit.load(Relaxed)),
            // Requests refused with INVALID_ARGUMENT.
            ("invalid", self.invalid.load(Relaxed)),
            // Descriptors that brought a limit of their own; the configured one was applied.
            ("overrides_ignored", self.overrides_ignored.load(Relaxed)),
            // Descriptors that asked for hits back; nothing was charged or given back.
            ("refunds_ignored", self.refunds_ignored.load(Relaxed)),
        ]
        .into_iter()
    }
}

pub(crate) fn add(counter: &AtomicU64, n: u64) {
    if n > 0 {
        counter.fetch_add(n, Relaxed);
    }
}
