//! The node beside a model that keeps everything by name and adds it all up anew: whatever children
//! send, the sums are the same.

use sluicegate_model::Flight;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use sluicegate_model::{
    Counts, Entry, KeyId, KeyName, KeyValues, Limit, Report, Scope, ServiceCounts, Time, Up,
};

use super::{bucket, configuration, drain, hello, name, node, per, rate, service, value, whole};
use crate::SessionId;

const MAX_VALUES: u32 = 2;

#[derive(Debug, Clone)]
enum Op {
    Open(SessionId),
    Close(SessionId),
    Report(SessionId, Shape),
    Configure(bool),
    Tick,
}

#[derive(Debug, Clone)]
struct Shape {
    /// Added to the last number of the stream.
    seq_step: i64,
    no_interval: bool,
    names: Vec<(KeyId, usize)>,
    entries: Vec<(KeyId, Change, f64)>,
    retired: Vec<KeyId>,
    attempts: Option<u64>,
}

#[derive(Debug, Clone)]
enum Change {
    /// More of each, in an order that can be true.
    Add(u64, u64, u64, u64),
    /// Exactly this.
    Is(u64, u64, u64, u64),
}

fn key_names() -> Vec<KeyName> {
    let values = ["x", "y", "z", "w"].map(|v| value("s", "each", v));
    let others = [
        whole("s", "one"),
        whole("s", "two"),
        whole("nobody", "knows"),
        KeyName { values: KeyValues::Overflow, ..whole("s", "each") },
    ];
    values.into_iter().chain(others).collect()
}

fn change() -> impl Strategy<Value = Change> {
    let small = 0_u64..1000;
    let add = (small.clone(), 0_u64..100, 0_u64..100, 0_u64..100)
        .prop_map(|(a, b, c, d)| Change::Add(a, b, c, d));
    let any = (any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>())
        .prop_map(|(a, b, c, d)| Change::Is(a, b, c, d));
    prop_oneof![12 => add, 1 => any, 1 => Just(Change::Is(0, 0, 0, 0))]
}

fn rates() -> impl Strategy<Value = f64> {
    prop_oneof![
        6 => 0.0_f64..1e5,
        4 => Just(0.0),
        1 => Just(f64::NAN),
        1 => Just(f64::INFINITY),
        1 => Just(-1.0),
        1 => any::<f64>(),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let id = prop_oneof![20 => 0_u32..6, 1 => any::<u32>()];
    let shape = (
        prop_oneof![10 => Just(1_i64), 1 => Just(0), 1 => -3_i64..4],
        prop_oneof![20 => Just(false), 1 => Just(true)],
        vec((id.clone(), 0_usize..8), 0..3),
        vec((id.clone(), change(), rates()), 0..6),
        prop_oneof![4 => Just(Vec::new()), 1 => vec(id, 0..3)],
        proptest::option::of(0_u64..1000),
    )
        .prop_map(|(seq_step, no_interval, names, entries, retired, attempts)| Shape {
            seq_step,
            no_interval,
            names,
            entries,
            retired,
            attempts,
        });
    prop_oneof![
        2 => (1_u64..5).prop_map(Op::Open),
        1 => (1_u64..5).prop_map(Op::Close),
        20 => ((1_u64..5), shape).prop_map(|(id, shape)| Op::Report(id, shape)),
        1 => any::<bool>().prop_map(Op::Configure),
        2 => Just(Op::Tick),
    ]
}

#[derive(Default)]
struct RefSession {
    seq: u64,
    keys: BTreeMap<KeyId, RefHeld>,
    attempts: u64,
}

struct RefHeld {
    key: KeyName,
    seen: Counts,
    rate: f64,
    sessions: u32,
}

/// The model: by name, nothing cached.
#[derive(Default)]
struct Reference {
    sessions: BTreeMap<SessionId, RefSession>,
    totals: BTreeMap<KeyName, Counts>,
    values: BTreeSet<KeyName>,
    attempts: u64,
}

impl Reference {
    fn resolve(&mut self, name: &KeyName) -> KeyName {
        if !matches!(name.values, KeyValues::Each(_)) {
            return name.clone();
        }
        if self.values.contains(name) || self.values.len() < MAX_VALUES as usize {
            self.values.insert(name.clone());
            return name.clone();
        }
        KeyName { values: KeyValues::Overflow, ..name.clone() }
    }

    fn name(&mut self, session: SessionId, id: KeyId, name: &KeyName) {
        if id >= crate::Limits::for_aggregator().max_keys_per_session {
            return;
        }
        let held = self.sessions[&session].keys.get(&id).map(|h| h.key.clone());
        if let Some(held) = held {
            let overflowed = held.values == KeyValues::Overflow
                && held.bucket == name.bucket
                && matches!(name.values, KeyValues::Each(_));
            if held == *name || overflowed {
                return;
            }
        }
        let key = self.resolve(name);
        self.totals.entry(key.clone()).or_default();
        let held = RefHeld { key, seen: Counts::default(), rate: 0.0, sessions: 0 };
        self.sessions.get_mut(&session).expect("open").keys.insert(id, held);
    }

    fn report(&mut self, session: SessionId, report: &Report) {
        let state = self.sessions.get_mut(&session).expect("open");
        if report.seq <= state.seq || report.interval.is_zero() {
            return;
        }
        state.seq = report.seq;
        for (id, name) in &report.new_keys {
            self.name(session, *id, name);
        }
        let state = self.sessions.get_mut(&session).expect("open");
        for entry in &report.entries {
            let Some(held) = state.keys.get_mut(&entry.key) else { continue };
            if !entry.counts.is_consistent() || !entry.counts.covers(&held.seen) {
                continue;
            }
            let total = self.totals.get_mut(&held.key).expect("named");
            total.add(&entry.counts.since(&held.seen));
            held.seen = entry.counts;
            if entry.offered_rps >= 0.0 {
                held.rate = entry.offered_rps.min(1e7);
                held.sessions = entry.sessions.min(1);
            }
        }
        for service in &report.services {
            if service.attempts >= state.attempts {
                self.attempts += service.attempts - state.attempts;
                state.attempts = service.attempts;
            }
        }
        for id in &report.retired_keys {
            state.keys.remove(id);
        }
    }

    fn offered(&self, key: &KeyName) -> (f64, u32) {
        let held = self.sessions.values().flat_map(|s| s.keys.values()).filter(|h| h.key == *key);
        held.fold((0.0, 0), |(rate, sessions), h| (rate + h.rate, sessions + h.sessions))
    }
}

fn build(shape: &Shape, state: &RefSession) -> Report {
    let mut now: BTreeMap<KeyId, Counts> = state.keys.iter().map(|(k, h)| (*k, h.seen)).collect();
    let entries = shape.entries.iter().map(|(key, change, offered_rps)| {
        let seen = now.entry(*key).or_default();
        let counts = match *change {
            Change::Is(matched, offered, admitted, would_drop) => {
                Counts { matched, offered, admitted, would_drop }
            }
            Change::Add(would_drop, a, b, c) => {
                let mut counts = *seen;
                counts.add(&Counts {
                    would_drop,
                    admitted: would_drop + a,
                    offered: would_drop + a + b,
                    matched: would_drop + a + b + c,
                });
                counts
            }
        };
        if counts.is_consistent() && counts.covers(seen) {
            *seen = counts;
        }
        Entry {
            key: *key,
            counts,
            offered_rps: *offered_rps,
            usual_rps: 0.0,
            flight: Flight::default(),
            sessions: u32::from(*offered_rps > 1.0),
        }
    });
    let entries = entries.collect();
    let names = key_names();
    let counts = shape.attempts.map(|attempts| ServiceCounts {
        service: name("s"),
        attempts,
        admitted: attempts,
        dropped_by_one: 0,
        dropped_by_several: 0,
    });
    Report {
        seq: state.seq.saturating_add_signed(shape.seq_step),
        interval: if shape.no_interval { Duration::ZERO } else { Duration::from_secs(60) },
        new_keys: shape.names.iter().map(|(id, n)| (*id, names[*n].clone())).collect(),
        retired_keys: shape.retired.clone(),
        entries,
        services: counts.into_iter().collect(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn sums_equal_those_of_a_simple_model(ops in vec(op(), 1..80)) {
        let mut real = node();
        let mut reference = Reference::default();
        let mut now = Time::ZERO;
        let limited = |n| vec![service("s", vec![
            bucket("one", Scope::Zone, rate(n)),
            bucket("two", Scope::Region, Limit::Unlimited),
            sluicegate_model::Bucket {
                per: Some(per(MAX_VALUES)), ..bucket("each", Scope::Zone, rate(n))
            },
        ])];
        real.configure(&configuration(1, limited(10)));
        let mut version = 1;
        for op in ops {
            now = now + Duration::from_millis(37);
            match op {
                Op::Open(id) => {
                    let fresh = !reference.sessions.contains_key(&id);
                    prop_assert_eq!(real.open(now, id, hello()).is_ok(), fresh);
                    reference.sessions.entry(id).or_default();
                }
                Op::Close(id) => {
                    real.close(now, id);
                    reference.sessions.remove(&id);
                }
                Op::Report(id, shape) => {
                    let Some(state) = reference.sessions.get(&id) else {
                        let report = build(&shape, &RefSession::default());
                        prop_assert!(real.handle(now, id, Up::Report(report)).is_err());
                        continue;
                    };
                    let report = build(&shape, state);
                    prop_assert!(real.handle(now, id, Up::Report(report.clone())).is_ok());
                    reference.report(id, &report);
                }
                Op::Configure(high) => {
                    version += 1;
                    let n = if high { 1000 } else { 10 };
                    real.configure(&configuration(version, limited(n)));
                }
                Op::Tick => {
                    now = now + Duration::from_secs(1);
                    super::run(&mut real, now);
                    drain(&mut real);
                }
            }
            real.audit();
        }
        for (key, total) in &reference.totals {
            let number = real.key_of(key).expect("counted");
            let state = real.key_state(number).expect("counted");
            prop_assert_eq!(state.counts, *total, "{}", key);
            let (offered, sessions) = reference.offered(key);
            prop_assert!((state.offered_rps - offered).abs() <= offered * 1e-6 + 1e-5);
            prop_assert_eq!(state.sessions, sessions);
        }
        prop_assert_eq!(real.keys().count(), reference.totals.len());
        let attempts: u64 =
            real.service_totals().filter(|(n, _)| n.as_str() == "s").map(|(_, t)| t.attempts).sum();
        prop_assert_eq!(attempts, reference.attempts);
        for id in 1..5 {
            real.close(now, id);
        }
        real.audit();
    }
}
