//! What a node says of itself to people: the answer to `sluice status`, as JSON.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sluicegate_law::{KeyView, SessionView, View};
use sluicegate_model::{Mode, Role, Scope};

use crate::pump::Published;
use crate::running::Identity;
use crate::tally::Tally;

/// Sessions, keys and services listed one by one, each; the busiest. The rest is only counted.
pub const MAX_STATUS_ROWS: usize = 1000;

/// A node at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// `aggregator` or `controller`.
    pub role: String,
    /// Its name.
    pub node: String,
    /// Its zone; a controller has none.
    pub zone: Option<String>,
    /// Its region.
    pub region: String,
    /// Since its start, in seconds.
    pub uptime_s: f64,
    /// Whether it has what it takes to serve.
    pub ready: bool,
    /// The highest term known.
    pub term: u64,
    /// The configuration in force; 0 before the first.
    pub configuration_version: u64,
    /// How long that has been in force, in seconds.
    pub configuration_age_s: f64,
    /// The way up, if there is one.
    pub parent: Option<ParentStatus>,
    /// Open streams of children.
    pub sessions_count: usize,
    /// Of those, the ones that should report and do not.
    pub sessions_silent: usize,
    /// Of those, the ones in which an older configuration is in force.
    pub sessions_behind: usize,
    /// The children.
    pub sessions: Vec<SessionStatus>,
    /// Keys that are counted.
    pub keys_count: usize,
    /// The busiest keys, ordered by what they are offered.
    pub keys: Vec<KeyStatus>,
    /// The services.
    pub services: Vec<ServiceStatus>,
    /// What the core took in, absorbed or refused, where that is not zero.
    pub core_events: BTreeMap<String, u64>,
    /// Invariants found broken; empty in a sound node.
    pub invariant_violations: BTreeMap<String, u64>,
    /// Streams refused or closed.
    pub refused: Vec<Refused>,
    /// Bucket files that are not in force as they stand; only a controller has them.
    pub configuration_errors: Vec<ConfigurationProblem>,
    /// What bucket files say that may not be meant.
    pub configuration_warnings: Vec<ConfigurationProblem>,
}

/// The stream to the parent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ParentStatus {
    /// Whether there is one now.
    pub connected: bool,
    /// The addresses that are tried in turn.
    pub addresses: Vec<String>,
    /// What happened to it, by kind.
    pub events: BTreeMap<String, u64>,
}

/// One child.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionStatus {
    /// Its name.
    pub node: String,
    /// `client` or `aggregator`.
    pub role: String,
    /// Its zone.
    pub zone: String,
    /// The configuration in force there.
    pub applied_version: u64,
    /// Keys it has named.
    pub keys: usize,
    /// Since its last message, in seconds.
    pub quiet_s: f64,
    /// Whether it is silent although it should report.
    pub silent: bool,
}

/// One key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeyStatus {
    /// The service.
    pub service: String,
    /// The bucket.
    pub bucket: String,
    /// The values of its `per` dimensions; empty without any.
    pub key: String,
    /// `zone`, `region` or `global`; none if its bucket is not configured here.
    pub scope: Option<String>,
    /// `deny`, `shadow` or `observe`; none if its bucket is not configured here.
    pub mode: Option<String>,
    /// The limit as a bucket file writes it.
    pub limit: String,
    /// The limit, requests a second; none if unlimited.
    pub limit_rps: Option<f64>,
    /// Offered, requests a second.
    pub offered_rps: f64,
    /// Admitted, requests a second.
    pub admitted_rps: f64,
    /// Dropped by this bucket alone, requests a second.
    pub dropped_rps: f64,
    /// Admitted only because the bucket is in shadow, requests a second.
    pub would_drop_rps: f64,
    /// The share that the directive in force drops, or would drop in shadow.
    pub drop_ratio: f64,
    /// Client sessions that reported it lately.
    pub sessions: u32,
    /// What is left of the directive in force, in seconds; none without one.
    pub directive_ttl_s: Option<f64>,
}

/// One service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServiceStatus {
    /// Its name.
    pub service: String,
    /// Whether its buckets are configured here.
    pub configured: bool,
    /// Attempts, requests a second.
    pub attempts_rps: f64,
    /// Admitted, requests a second.
    pub admitted_rps: f64,
}

/// Streams refused or closed for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// The reason.
    pub reason: String,
    /// More of it; may be empty.
    pub detail: String,
    /// How many.
    pub count: u64,
}

/// Something wrong with a bucket file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigurationProblem {
    /// The service, if it could be told.
    pub service: Option<String>,
    /// The file.
    pub path: String,
    /// From 1; 0 for the file as a whole.
    pub line: u32,
    /// From 1; 0 for the file as a whole.
    pub column: u32,
    /// What is wrong.
    pub message: String,
    /// What could be written instead.
    pub help: Option<String>,
}

/// The status that follows from what a node has published.
pub(crate) fn status(identity: &Identity, published: &Arc<Published>, tally: &Tally) -> Status {
    let view: &View = &published.view;
    let counters = |all: &mut dyn Iterator<Item = (String, u64)>| {
        all.filter(|(_, n)| *n > 0).collect::<BTreeMap<_, _>>()
    };
    let refused = tally.refused().into_iter().map(|((reason, detail), count)| Refused {
        reason: reason.to_owned(),
        detail: detail.to_owned(),
        count,
    });
    let mut keys: Vec<&KeyView> = view.keys.iter().collect();
    keys.sort_by(|a, b| b.offered_rps.total_cmp(&a.offered_rps));
    let services = view.services.iter().take(MAX_STATUS_ROWS).map(|s| ServiceStatus {
        service: s.counts.service.to_string(),
        configured: s.configured,
        attempts_rps: s.attempts_rps,
        admitted_rps: s.admitted_rps,
    });
    Status {
        role: identity.role.to_owned(),
        node: identity.node.to_string(),
        zone: identity.zone.as_ref().map(ToString::to_string),
        region: identity.region.to_string(),
        uptime_s: published.uptime.as_secs_f64(),
        ready: published.is_ready,
        term: view.term,
        configuration_version: view.version,
        configuration_age_s: published.version_age.as_secs_f64(),
        parent: None,
        sessions_count: view.sessions.len(),
        sessions_silent: view.sessions.iter().filter(|s| s.silent).count(),
        sessions_behind: view.sessions.iter().filter(|s| s.applied_version < view.version).count(),
        sessions: view.sessions.iter().take(MAX_STATUS_ROWS).map(session).collect(),
        keys_count: view.keys.len(),
        keys: keys.into_iter().take(MAX_STATUS_ROWS).map(key).collect(),
        services: services.collect(),
        core_events: counters(&mut view.counters.iter().map(|(n, v)| (n.to_owned(), v))),
        invariant_violations: counters(
            &mut view.counters.invariants().map(|(i, n)| (i.to_string(), n)),
        ),
        refused: refused.collect(),
        configuration_errors: Vec::new(),
        configuration_warnings: Vec::new(),
    }
}

fn session(session: &SessionView) -> SessionStatus {
    let role = match session.role {
        Role::Client => "client",
        Role::Aggregator => "aggregator",
    };
    SessionStatus {
        node: session.node.to_string(),
        role: role.to_owned(),
        zone: session.zone.to_string(),
        applied_version: session.applied_version,
        keys: session.keys,
        quiet_s: session.quiet.as_secs_f64(),
        silent: session.silent,
    }
}

fn key(key: &KeyView) -> KeyStatus {
    let scope = key.scope.map(|s| match s {
        Scope::Zone => "zone",
        Scope::Region => "region",
        Scope::Global => "global",
    });
    let mode = key.mode.map(|m| match m {
        Mode::Deny => "deny",
        Mode::Shadow => "shadow",
        Mode::Observe => "observe",
    });
    KeyStatus {
        service: key.name.service.to_string(),
        bucket: key.name.bucket.to_string(),
        key: key.name.values.to_string(),
        scope: scope.map(str::to_owned),
        mode: mode.map(str::to_owned),
        limit: key.limit.to_string(),
        limit_rps: key.limit.rate_rps(),
        offered_rps: key.offered_rps,
        admitted_rps: key.admitted_rps,
        dropped_rps: key.dropped_rps,
        would_drop_rps: key.would_drop_rps,
        drop_ratio: key.drop_ratio,
        sessions: key.sessions,
        directive_ttl_s: key.directive_ttl.map(|t| t.as_secs_f64()),
    }
}
