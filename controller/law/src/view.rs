//! What a node shows of itself: plain data for status and metrics.

use std::time::Duration;

use sluicegate_model::{
    ConfigVersion, Counts, KeyName, Limit, Mode, Name, Role, Scope, ServiceCounts, Term,
};

use crate::{Counters, SessionId};

/// The state of a node at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct View {
    /// The highest term known.
    pub term: Term,
    /// The configuration in force; 0 before the first.
    pub version: ConfigVersion,
    /// Open streams of children.
    pub sessions: Vec<SessionView>,
    /// Every key that is counted, ordered by name.
    pub keys: Vec<KeyView>,
    /// Every service that is configured or counted, ordered by name.
    pub services: Vec<ServiceView>,
    /// What was absorbed and refused.
    pub counters: Counters,
    /// Whether the parent's stream is open; `None` if this node has no parent.
    pub parent_open: Option<bool>,
}

/// One child.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionView {
    /// The stream.
    pub id: SessionId,
    /// What the child is.
    pub role: Role,
    /// Its name.
    pub node: Name,
    /// Its zone.
    pub zone: Name,
    /// The configuration it said is in force there.
    pub applied_version: ConfigVersion,
    /// Keys it has named.
    pub keys: usize,
    /// Time since its last message.
    pub quiet: Duration,
    /// Whether it is silent although it should report.
    pub silent: bool,
}

/// One key. Rates are over the last tick; `offered_rps` is what the children say of now.
#[derive(Debug, Clone, PartialEq)]
pub struct KeyView {
    /// Which.
    pub name: KeyName,
    /// Over what its limit is summed; `None` if its bucket is not configured here.
    pub scope: Option<Scope>,
    /// Its bucket's mode; `None` if its bucket is not configured here.
    pub mode: Option<Mode>,
    /// Its limit.
    pub limit: Limit,
    /// Sum of what the children are offered, requests a second.
    pub offered_rps: f64,
    /// Admitted, requests a second.
    pub admitted_rps: f64,
    /// Dropped by this bucket alone, requests a second.
    pub dropped_rps: f64,
    /// Admitted only because the bucket is in shadow, requests a second.
    pub would_drop_rps: f64,
    /// The share that the directive in force drops (or, in shadow, would); 0 without one.
    pub drop_ratio: f64,
    /// Client sessions that reported it lately.
    pub sessions: u32,
    /// Counted here since the key was first named.
    pub counts: Counts,
    /// What is left of the directive in force; `None` without one.
    pub directive_ttl: Option<Duration>,
}

/// One service.
#[derive(Debug, Clone, PartialEq)]
pub struct ServiceView {
    /// Counted here since this node started.
    pub counts: ServiceCounts,
    /// Attempts a second over the last tick.
    pub attempts_rps: f64,
    /// Admitted, requests a second over the last tick.
    pub admitted_rps: f64,
    /// Whether its buckets are configured here.
    pub configured: bool,
}
