//! What the agent's thread tells of itself. Written by that thread alone, read by anyone.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use sluicegate_model::{ConfigVersion, Term, Time};
use sluicegate_proto::link;
use sluicegate_proto::transport::Address;

/// The state of the connection to the aggregators.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Connection {
    /// The aggregator in use; `None` while there is none.
    pub aggregator: Option<String>,
    /// How long it has been in use, or how long there has been none.
    pub since: Duration,
    /// Streams opened after the first one.
    pub reconnects: u64,
    /// Attempts that led to no stream, and streams that broke.
    pub failures: u64,
    /// Messages that could not be read; each one closes its stream.
    pub decode_errors: u64,
    /// Streams given up because the aggregator took messages too slowly.
    pub overflows: u64,
    /// Why the last stream ended; `None` before the first time.
    pub last_error: Option<String>,
    /// The version of the buckets in force; 0 before the first.
    pub configuration_version: ConfigVersion,
    /// The highest term that buckets came with.
    pub term: Term,
}

#[derive(Debug)]
pub(crate) struct Status {
    state: Mutex<State>,
    link: OnceLock<Arc<link::Stats>>,
}

#[derive(Debug)]
struct State {
    aggregator: Option<String>,
    since: Time,
    last_error: Option<String>,
    configuration_version: ConfigVersion,
    term: Term,
}

impl Status {
    pub(crate) fn new(now: Time) -> Self {
        let state = State {
            aggregator: None,
            since: now,
            last_error: None,
            configuration_version: 0,
            term: 0,
        };
        Self { state: Mutex::new(state), link: OnceLock::new() }
    }

    /// Takes the counters from `link`, the one of this client.
    pub(crate) fn follow(&self, link: Arc<link::Stats>) {
        let _ = self.link.set(link);
    }

    pub(crate) fn connected(&self, address: &Address, now: Time) {
        self.change(|s| {
            s.aggregator = Some(address.to_string());
            s.since = now;
        });
    }

    pub(crate) fn disconnected(&self, now: Time, reason: String) {
        self.change(|s| {
            s.aggregator = None;
            s.since = now;
            s.last_error = Some(reason);
        });
    }

    pub(crate) fn configured(&self, version: ConfigVersion, term: Term) {
        self.change(|s| {
            s.configuration_version = version;
            s.term = s.term.max(term);
        });
    }

    pub(crate) fn connection(&self, now: Time) -> Connection {
        let counters = || self.link.get().into_iter().flat_map(|link| link.counters());
        let count = |name| counters().find(|(n, _)| *n == name).map_or(0, |(_, count)| count);
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        Connection {
            aggregator: state.aggregator.clone(),
            since: now.since(state.since),
            reconnects: count("opened").saturating_sub(1),
            failures: count("failed"),
            decode_errors: count("malformed"),
            overflows: count("overflowed"),
            last_error: state.last_error.clone(),
            configuration_version: state.configuration_version,
            term: state.term,
        }
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_tells_where_and_since_when() {
        let status = Status::new(Time::from_millis(1000));
        assert_eq!(status.connection(Time::from_millis(1500)).since, Duration::from_millis(500));
        status.connected(&"b:1".parse().expect("address"), Time::from_millis(2000));
        let up = status.connection(Time::from_millis(2100));
        assert_eq!((up.aggregator.as_deref(), up.since.as_millis()), (Some("b:1"), 100));
        status.disconnected(Time::from_millis(3000), "gone".into());
        let down = status.connection(Time::from_millis(3007));
        assert_eq!((down.aggregator, down.since.as_millis()), (None, 7));
        assert_eq!(down.last_error.as_deref(), Some("gone"));
    }
}
