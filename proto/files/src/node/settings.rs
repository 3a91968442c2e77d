//! The settings of a node once they are checked, and every default.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use sluicegate_model::{Law, Name};

/// The zone and the region of a node that names none.
pub(super) const DEFAULT_PLACE: &str = "default";
pub(super) const DEFAULT_TICK_MS: u64 = 1_000;
pub(super) const DEFAULT_TTL_MS: u64 = 10_000;
pub(super) const DEFAULT_RAMP_MS: u64 = 10_000;
pub(super) const DEFAULT_BUCKETS_DIR: &str = "configs";
pub(super) const DEFAULT_LAW: Law = Law::Ratio;
pub(super) const DEFAULT_CONTROLLER: &str = "127.0.0.1:7400";
pub(super) const DEFAULT_AGGREGATOR: &str = "127.0.0.1:7401";
pub(super) const DEFAULT_MAX_IDENTITIES: u32 = 65_536;
pub(super) const DEFAULT_MAX_VALUES: u32 = 200_000;
pub(super) const DEFAULT_CALLER_KEY: &str = "caller";
pub(super) const DEFAULT_PROCEDURE_KEY: &str = "procedure";

pub(super) const TICK_MS: std::ops::RangeInclusive<u64> = 50..=60_000;
pub(super) const TTL_MS: std::ops::RangeInclusive<u64> = 200..=3_600_000;
pub(super) const RAMP_MS: std::ops::RangeInclusive<u64> = 0..=3_600_000;
/// A directive is renewed each quarter of its time to live, and at most once a tick.
pub(super) const MIN_TICKS_PER_TTL: u64 = 4;
pub(super) const MAX_ADDRESSES: usize = 16;
pub(super) const MAX_SERVICES: usize = 10_000;

/// The addresses of one kind of node: gRPC and HTTP.
pub(super) const fn loopback(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

/// The settings of a controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControllerSettings {
    /// Its name, for people.
    pub node: Name,
    /// Its region.
    pub region: Name,
    /// For gRPC.
    pub listen: SocketAddr,
    /// For `/metrics` and `/healthz`.
    pub http_listen: SocketAddr,
    /// Where the bucket files are.
    pub buckets_dir: PathBuf,
    /// Between two rounds of the law.
    pub tick: Duration,
    /// How long a directive holds.
    pub ttl: Duration,
    /// How directives follow from counts.
    pub law: Law,
    /// What streams may cost.
    pub limits: Limits,
}

/// The settings of an aggregator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AggregatorSettings {
    /// Its name, for people.
    pub node: Name,
    /// Its zone.
    pub zone: Name,
    /// Its region.
    pub region: Name,
    /// For gRPC.
    pub listen: SocketAddr,
    /// For `/metrics` and `/healthz`.
    pub http_listen: SocketAddr,
    /// The controllers of the region, `host:port`, at least one.
    pub controllers: Vec<String>,
    /// Between two roll-ups.
    pub tick: Duration,
    /// How long a directive of this node holds.
    pub ttl: Duration,
    /// What streams may cost.
    pub limits: Limits,
}

/// The settings of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientSettings {
    /// Its name, for people.
    pub node: Name,
    /// Its zone.
    pub zone: Name,
    /// Its region.
    pub region: Name,
    /// The aggregators of the zone, `host:port`, at least one.
    pub aggregators: Vec<String>,
    /// The services it needs; empty means all.
    pub services: Vec<Name>,
    /// Between two reports.
    pub tick: Duration,
    /// How long without the aggregator until control is lost.
    pub ttl: Duration,
    /// Over how long it then changes over.
    pub ramp: Duration,
    /// What it may remember.
    pub limits: ClientLimits,
}

/// The settings of a sidecar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SidecarSettings {
    /// The client in it.
    pub client: ClientSettings,
    /// For Envoy.
    pub listen: SocketAddr,
    /// For `/metrics` and `/healthz`.
    pub http_listen: SocketAddr,
    /// The descriptor entry that names the caller.
    pub caller_key: String,
    /// The descriptor entry that names the procedure.
    pub procedure_key: String,
    /// Whether refused requests are answered with headers.
    pub headers: bool,
}

/// What the streams of a controller or an aggregator may cost it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Streams open at once.
    pub max_sessions: u32,
    /// Keys of the node.
    pub max_keys: u32,
    /// Keys of one stream.
    pub max_keys_per_session: u32,
    /// Bytes of one message.
    pub max_message_bytes: u32,
    /// Requests a second that one stream may claim for one key.
    pub max_session_rps: u64,
}

impl Limits {
    /// The defaults of an aggregator, whose streams come from clients.
    pub const AGGREGATOR: Self = Self {
        max_sessions: 100_000,
        max_keys: 4_000_000,
        max_keys_per_session: 262_144,
        max_message_bytes: 4 * 1024 * 1024,
        max_session_rps: 10_000_000,
    };

    /// The defaults of a controller, whose streams come from aggregators.
    pub const CONTROLLER: Self = Self {
        max_sessions: 1_000,
        max_keys: 10_000_000,
        max_keys_per_session: 4_000_000,
        max_message_bytes: 4 * 1024 * 1024,
        max_session_rps: 1_000_000_000,
    };
}

/// What a client may remember.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientLimits {
    /// Combinations of service, caller and procedure.
    pub max_identities: u32,
    /// Values of `per` dimensions, over all buckets.
    pub max_values: u32,
}
