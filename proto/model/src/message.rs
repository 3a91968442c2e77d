//! The two directions of a stream. One shape serves both hops: client to aggregator, and aggregator
//! to controller.

use std::sync::Arc;

use crate::{Directive, KeyId, Law, Name, Report, ServiceBuckets};

/// Fences leaders: what carries a lower one than was seen is ignored.
pub type Term = u64;

/// Version of the whole configuration of a control plane. Grows with each change.
pub type ConfigVersion = u64;

/// The protocol that this code speaks.
pub const PROTOCOL_VERSION: u32 = 1;
/// The oldest protocol that this code still understands.
pub const PROTOCOL_VERSION_MIN: u32 = 1;

/// Who opens a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// An embedded client or a sidecar.
    Client,
    /// A zone's aggregator.
    Aggregator,
}

/// The first message of a stream, once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// What the sender is.
    pub role: Role,
    /// Its name, for people. Need not be unique.
    pub node: Name,
    /// Chosen at random at the start of the sender's process; with `node` its identity.
    pub session: u64,
    /// The sender's zone.
    pub zone: Name,
    /// The sender's region.
    pub region: Name,
    /// The protocol the sender speaks.
    pub protocol: u32,
    /// The services whose configuration the sender wants; empty means all.
    pub services: Vec<Name>,
    /// The highest term the sender (or anyone below it) has seen.
    pub seen_term: Term,
    /// The highest configuration version the sender (or anyone below it) has seen.
    pub seen_version: ConfigVersion,
}

/// Goes up.
#[derive(Debug, Clone, PartialEq)]
pub enum Up {
    /// Opens the stream.
    Hello(Hello),
    /// Counts.
    Report(Report),
    /// This configuration is in force at the sender.
    ConfigurationApplied(ConfigVersion),
    /// Somebody below has seen these; the receiver must go beyond them (an aggregator sends it when
    /// a client that connects later knows more than its hello said).
    Seen {
        /// Highest term seen.
        term: Term,
        /// Highest configuration version seen.
        version: ConfigVersion,
    },
}

/// Buckets on their way down: a snapshot or a change.
#[derive(Debug, Clone, PartialEq)]
pub struct Configuration {
    /// The version that this leads to.
    pub version: ConfigVersion,
    /// The term of the controller behind it.
    pub term: Term,
    /// The law of the control plane.
    pub law: Law,
    /// Whether `services` is everything (a snapshot) or only what changed.
    pub full: bool,
    /// Services new or changed.
    pub services: Vec<Arc<ServiceBuckets>>,
    /// Services gone.
    pub removed: Vec<Name>,
}

/// An acknowledgement, with directives.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Update {
    /// The highest report taken in so far; 0 before the first.
    pub ack_seq: u64,
    /// By the receiver's own ids.
    pub directives: Vec<(KeyId, Directive)>,
}

/// Goes down.
#[derive(Debug, Clone, PartialEq)]
pub enum Down {
    /// Buckets.
    Configuration(Configuration),
    /// Acknowledgement and directives. An empty one is a sign of life.
    Update(Update),
}
