//! Every bound of a node, by name. What a bound refuses is counted in [`crate::Counters`].

use std::time::Duration;

/// The bounds of a node. All are counts unless their names say otherwise.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Streams open at once.
    pub max_sessions: usize,
    /// Services that one hello may ask for by name.
    pub max_services_wanted: usize,
    /// Key ids of one stream: each must be below this.
    pub max_keys_per_session: u32,
    /// Keys of the whole node.
    pub max_keys: u32,
    /// Buckets that are counted although no configuration names them, and services likewise.
    pub max_unknown_buckets: u32,
    /// Entries, new keys, retired keys and services of one report, each.
    pub max_report_entries: usize,
    /// The most a single stream may claim to be offered on one key, requests a second.
    pub max_session_rps: f64,
    /// Directives of one message; more go in the next.
    pub max_update_directives: usize,
    /// Client sessions that a single stream may claim to stand for.
    pub max_session_sessions: u32,
    /// Configuration changes kept so that a child can be sent the difference.
    pub max_changes_kept: usize,
    /// A key that nobody names any more is forgotten after this.
    pub forget_after: Duration,
}

impl Limits {
    /// Above this, sums of rates could overflow; larger settings are read as this.
    const MAX_SUM_RPS: f64 = 1e12;

    /// Bounds for a node whose children are clients.
    #[must_use]
    pub fn for_aggregator() -> Self {
        Self {
            max_sessions: 100_000,
            max_services_wanted: 10_000,
            max_keys_per_session: 1 << 20,
            max_keys: 4_000_000,
            max_unknown_buckets: 10_000,
            max_report_entries: 262_144,
            max_session_rps: 10_000_000.0,
            max_update_directives: 20_000,
            max_session_sessions: 1,
            max_changes_kept: 1024,
            forget_after: Duration::from_secs(600),
        }
    }

    /// Bounds for a node whose children are aggregators.
    #[must_use]
    pub fn for_controller() -> Self {
        Self {
            max_sessions: 1_000,
            max_keys_per_session: 4_000_000,
            max_keys: 10_000_000,
            max_session_rps: 1e9,
            max_session_sessions: 4_000_000,
            ..Self::for_aggregator()
        }
    }

    /// These, made safe: no bound is zero, and the largest sum of rates fits.
    #[must_use]
    pub(crate) fn sound(mut self) -> Self {
        self.max_sessions = self.max_sessions.clamp(1, 1 << 24);
        self.max_keys_per_session = self.max_keys_per_session.max(1);
        self.max_keys = self.max_keys.clamp(1, u32::MAX / 4);
        self.max_report_entries = self.max_report_entries.max(1);
        self.max_update_directives = self.max_update_directives.max(1);
        self.max_changes_kept = self.max_changes_kept.max(1);
        let most = u32::MAX / u32::try_from(self.max_sessions).unwrap_or(u32::MAX);
        self.max_session_sessions = self.max_session_sessions.clamp(1, most);
        if self.max_session_rps.is_nan() || self.max_session_rps < 1.0 {
            self.max_session_rps = 1.0;
        }
        #[expect(clippy::cast_precision_loss, reason = "at most 2^24")]
        let most = Self::MAX_SUM_RPS * 10.0 / self.max_sessions as f64;
        self.max_session_rps = self.max_session_rps.min(most);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_bounds_are_made_safe() {
        let mut l = Limits::for_aggregator();
        l.max_sessions = 0;
        l.max_session_rps = f64::NAN;
        let l = l.sound();
        assert_eq!(l.max_sessions, 1);
        assert!((l.max_session_rps - 1.0).abs() < f64::EPSILON);

        let mut l = Limits::for_controller();
        l.max_session_rps = f64::INFINITY;
        let l = l.sound();
        assert!(l.max_session_rps * 1000.0 <= 1.000_001e13);
    }
}
