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
    /// Which parts of the client's side of the law `grant` work: all of them, but for experiments.
    pub switches: Switches,
}

/// Parts of what a client does under the law `grant`, each of which a simulator can leave out to show
/// what it is for. No file and no flag sets them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches, one for each part")]
pub struct Switches {
    /// A key whose rate jumps is reported at once, not at the next tick.
    pub early: bool,
    /// A key far below its limit is, too, if its rate is a good part of this client's own share.
    pub own_share: bool,
    /// An early report is followed by one that puts its rate right.
    pub follow_up: bool,
    /// Keys far below their limit are reported less often.
    pub adaptive_period: bool,
    /// What counts as a jump depends on how bursty the key has been.
    pub dispersion: bool,
    /// A key with a low limit is reported whenever something of it was admitted.
    pub on_admit: bool,
    /// Buckets that ask for a guard have one.
    pub guard: bool,
}

impl Default for Switches {
    fn default() -> Self {
        Self {
            early: true,
            own_share: true,
            follow_up: true,
            adaptive_period: true,
            dispersion: true,
            on_admit: true,
            guard: true,
        }
    }
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
            switches: Switches::default(),
        }
    }
}
