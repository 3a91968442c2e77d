//! What a client is told about itself, and the bounds it keeps to. Plain data.

use std::time::Duration;

use sluicegate_model::{Name, Time};

/// A clock that may be coarse (a few milliseconds) but must be cheap and never go back. Only a
/// drop reads it, never the way to an admit.
pub trait CoarseClock {
    /// The time now, on the same scale as the `now` that the agent is handed.
    fn now(&self) -> Time;
}

/// Who a client is, how often its agent works, and every bound of its memory.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Its name, for people. Need not be unique.
    pub node: Name,
    /// Chosen at random when the process starts; with `node` its identity.
    pub session: u64,
    /// Its zone.
    pub zone: Name,
    /// Its region.
    pub region: Name,
    /// The services whose buckets it wants; empty means all.
    pub services: Vec<Name>,
    /// Between two reports.
    pub tick: Duration,
    /// How long without a valid message from an aggregator until control counts as lost.
    pub ttl: Duration,
    /// From there, how long until what `on_control_loss` says holds fully.
    pub ramp: Duration,
    /// Between two looks of the agent at the counters.
    pub look: Duration,
    /// How long a value's key may be without a request until its place may go to another value.
    pub value_idle: Duration,
    /// The most combinations of service, caller and procedure that are remembered. Others are
    /// matched anew with each request: right, but slower.
    pub max_identities: usize,
    /// The most value keys (of buckets with `per`) over all buckets, at most 2^24. Beyond it, and
    /// beyond a bucket's own `max_keys`, values are counted on the overflow key.
    pub max_values: usize,
    /// How many identities and values not known yet may wait for the agent.
    pub max_waiting: usize,
    /// The most threads with counters of their own; further ones share. 0 for a limiter that only
    /// ever uses shared counters and no thread-local state for them (a simulator's).
    pub max_stripes: usize,
    /// The most keys and services, together, that threads count apart; at most 2^16 - 1.
    pub max_striped_keys: usize,
}

impl Settings {
    /// The usual settings for a node of that name.
    #[must_use]
    pub fn new(node: Name, session: u64, zone: Name, region: Name) -> Self {
        Self {
            node,
            session,
            zone,
            region,
            services: Vec::new(),
            tick: Duration::from_millis(1000),
            ttl: Duration::from_secs(10),
            ramp: Duration::from_secs(10),
            look: Duration::from_millis(10),
            value_idle: Duration::from_secs(60),
            max_identities: 65_536,
            max_values: 200_000,
            max_waiting: 1024,
            max_stripes: 256,
            max_striped_keys: 4095,
        }
    }
}
