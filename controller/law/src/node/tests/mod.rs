//! Tests of the node: fixtures, and an audit of what must always hold inside.

mod against_reference;
mod children;
mod directives;
mod grants;
mod layout;

use std::sync::Arc;
use std::time::Duration;

use sluicegate_model::{
    Bucket, Configuration, Counts, Down, Entry, Flight, Hello, KeyId, KeyName, KeyValues, Law,
    Limit, Match, Mode, Name, OnControlLoss, Overflow, PROTOCOL_VERSION, Per, Report, Role, Rule,
    Scope, Select, ServiceBuckets, Time, TokenRate, Up,
};

use super::keys::micros;
use super::{Node, Settings, Tier};
use crate::{Limits, SessionId};

pub(super) fn name(text: &str) -> Name {
    Name::new(text).expect("a sound name")
}

pub(super) fn at(ms: u64) -> Time {
    Time::from_millis(ms)
}

pub(super) fn settings(tier: Tier) -> Settings {
    let limits = match tier {
        Tier::Aggregator => Limits::for_aggregator(),
        Tier::Controller => Limits::for_controller(),
    };
    let (tick, ttl) = (Duration::from_secs(1), Duration::from_secs(10));
    let switches = crate::grant::Switches::default();
    Settings { tier, tick, ttl, grant_ttl: ttl * 6, switches, limits, seed: 7 }
}

pub(super) fn node() -> Node {
    Node::new(settings(Tier::Aggregator), Time::ZERO)
}

pub(super) fn hello() -> Hello {
    Hello {
        role: Role::Client,
        node: name("client"),
        session: 1,
        zone: name("a"),
        region: name("r"),
        protocol: PROTOCOL_VERSION,
        services: Vec::new(),
        seen_term: 0,
        seen_version: 0,
    }
}

pub(super) fn rate(requests: u64) -> Limit {
    Limit::Tokens(TokenRate::per_second(requests, None).expect("a sound limit"))
}

pub(super) fn bucket(text: &str, scope: Scope, limit: Limit) -> Bucket {
    Bucket {
        name: name(text),
        scope,
        rule: Rule { on: Match::default(), not: Vec::new() },
        limit,
        mode: Mode::Deny,
        per: None,
        on_control_loss: OnControlLoss::Open,
        guard: false,
        enforce: 1.0,
        max_drop: 1.0,
        sharing: None,
    }
}

pub(super) fn per(max_keys: u32) -> Per {
    Per {
        dimensions: vec![name("user")],
        values: std::collections::BTreeMap::new(),
        max_keys,
        overflow: Overflow::Observe,
    }
}

pub(super) fn service(text: &str, buckets: Vec<Bucket>) -> Arc<ServiceBuckets> {
    Arc::new(ServiceBuckets {
        service: name(text),
        owner: sluicegate_model::Owner::default(),
        select: Select::All,
        buckets,
    })
}

pub(super) fn configuration(version: u64, services: Vec<Arc<ServiceBuckets>>) -> Configuration {
    Configuration { version, term: 1, full: true, law: Law::Ratio, services, removed: Vec::new() }
}

pub(super) fn whole(service: &str, bucket: &str) -> KeyName {
    KeyName { service: name(service), bucket: name(bucket), values: KeyValues::Whole }
}

pub(super) fn value(service: &str, bucket: &str, value: &str) -> KeyName {
    let values = KeyValues::Each([value.into()].into());
    KeyName { service: name(service), bucket: name(bucket), values }
}

/// Counts of requests that were all admitted.
pub(super) fn admitted(n: u64) -> Counts {
    Counts { matched: n, offered: n, admitted: n, would_drop: 0 }
}

pub(super) fn entry(key: KeyId, counts: Counts, offered_rps: f64) -> Entry {
    Entry {
        key,
        counts,
        offered_rps,
        usual_rps: 0.0,
        flight: Flight::default(),
        sessions: u32::from(offered_rps > 0.0),
    }
}

pub(super) fn report(seq: u64, new: &[(KeyId, KeyName)], entries: &[Entry]) -> Report {
    Report {
        seq,
        interval: Duration::from_secs(1),
        new_keys: new.to_vec(),
        entries: entries.to_vec(),
        ..Report::default()
    }
}

pub(super) fn drain(node: &mut Node) -> Vec<(SessionId, Down)> {
    std::iter::from_fn(|| node.poll_child()).collect()
}

/// Runs the node's own timers up to `until`.
pub(super) fn run(node: &mut Node, until: Time) {
    while node.poll_timeout() <= until {
        let now = node.poll_timeout();
        step(node, now);
    }
    step(node, until);
}

fn step(node: &mut Node, now: Time) {
    node.handle_timeout(now);
    if node.is_tick_due(now) {
        let plan = node.plan(now);
        assert_eq!(node.publish(plan), []);
    }
}

pub(super) fn send(node: &mut Node, now: Time, id: SessionId, report: Report) {
    node.handle(now, id, Up::Report(report)).expect("a sound report");
}

impl Node {
    /// Everything that is kept twice, checked against itself.
    pub(super) fn audit(&self) {
        let mut in_use_of_sessions = std::collections::BTreeMap::new();
        for (key, cold) in self.keys.iter() {
            let (mut offered, mut usual, mut sessions) = (0, 0, 0);
            for (place, user) in cold.users.iter().enumerate() {
                let session = self.children.get(user.slot).expect("users are open sessions");
                let held = session.held(user.id).expect("users hold their keys");
                assert_eq!((held.key, held.place as usize), (key, place));
                assert_eq!(held.is_in_use(), place < cold.in_use as usize, "key {key}");
                *in_use_of_sessions.entry(user.slot).or_insert(0) += u32::from(held.is_in_use());
                offered += micros(held.rate_rps);
                usual += micros(held.usual_rps());
                sessions += held.sessions;
            }
            let state = self.keys.state(key).expect("a live key");
            assert!((state.offered_rps - super::keys::rps(offered)).abs() < f64::EPSILON);
            assert!((state.usual_rps - super::keys::rps(usual)).abs() < f64::EPSILON);
            assert_eq!(state.sessions, sessions);
            assert!(state.counts.is_consistent());
            assert_eq!(self.keys.find(cold.bucket, &cold.values), Some(key));
            let listed = self.keys.active().contains(&key);
            assert!(listed || (offered == 0 && sessions == 0), "key {key} is used but not active");
        }
        for slot in self.children.slots() {
            let session = self.children.get(slot).expect("open");
            let counted = in_use_of_sessions.get(&slot).copied().unwrap_or(0);
            assert_eq!(session.in_use, counted);
            for (id, held) in session.iter() {
                let cold = self.keys.get(held.key).expect("held keys exist");
                assert_eq!(cold.users[held.place as usize].id, id);
            }
        }
    }
}
