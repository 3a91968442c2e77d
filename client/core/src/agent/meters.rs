//! What an agent counts about itself, readable from any thread.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])+ $name:ident,)+) => {
        /// Everything that an agent did, refused or absorbed, since it began.
        #[derive(Debug, Default)]
        pub struct AgentCounters {
            $($(#[$doc])+ pub $name: Counter,)+
        }

        impl AgentCounters {
            /// Every counter with its name, in a fixed order.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
                [$((stringify!($name), self.$name.get()),)+].into_iter()
            }
        }
    };
}

counters! {
    /// Looks at the counters.
    looks,
    /// Looks that came later than a budget reaches.
    looks_late,
    /// Reports handed out.
    reports,
    /// Ticks whose report took the place of one that nobody had fetched.
    reports_superseded,
    /// Messages that arrived while no stream was open.
    messages_without_stream,
    /// Acknowledgements of reports that were never sent.
    acks_unknown,
    /// Directives that took effect.
    directives,
    /// Directives for an id that stands for no key (any more).
    directives_unknown_key,
    /// Directives of an older term than was seen.
    directives_older_term,
    /// Directives older than the one in force.
    directives_older_seq,
    /// Configurations that took effect.
    configurations,
    /// Configurations of an older term than was seen.
    configurations_older_term,
    /// Configurations older than the one in force, or the same again.
    configurations_older_version,
    /// Services beyond the bound, not limited.
    services_refused,
    /// Services whose attempts are not reported because of the bound on one stream.
    services_uncounted,
    /// Keys that count in cells of every thread.
    keys_promoted,
    /// Keys that should, but for the bound.
    promotions_refused,
    /// Value keys given up because they were idle.
    keys_evicted,
    /// Keys whose last counts are not reported because of the bound on those leaving.
    keys_forgotten,
}

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Its value.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, more: u64) {
        // Only the agent writes.
        self.0.store(self.get().wrapping_add(more), Ordering::Relaxed);
    }

    pub(super) fn hit(&self) {
        self.add(1);
    }
}
