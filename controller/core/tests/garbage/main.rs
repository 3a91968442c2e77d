//! Whatever aggregators say, and whatever is configured meanwhile: no panic, terms and versions only
//! grow, and what goes down is sound.

use sluicegate_model::Flight;
use sluicegate_model::Law;
use std::sync::Arc;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use sluicegate_controller_core::{Config, Controller, Limits};
use sluicegate_model::{
    AdmitRatio, Bucket, Counts, Down, Entry, Hello, KeyName, KeyValues, Limit, Match, Mode, Name,
    OnControlLoss, Owner, PROTOCOL_VERSION, Report, Role, Rule, Scope, Select, ServiceBuckets,
    Time, TokenRate, Up,
};

const TTL: Duration = Duration::from_secs(10);
const BUCKETS: [&str; 3] = ["zero", "some", "nobody"];

#[derive(Debug, Clone)]
enum Op {
    Open(u64, u64, u64),
    Close(u64),
    Up(u64, Up),
    Configure(u64, bool),
    Wait(u64),
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a sound name")
}

fn bucket(text: &str, scope: Scope, requests: u64) -> Bucket {
    Bucket {
        name: name(text),
        scope,
        rule: Rule { on: Match::default(), not: Vec::new() },
        limit: Limit::Tokens(TokenRate::per_second(requests, None).expect("sound")),
        mode: Mode::Deny,
        per: None,
        on_control_loss: OnControlLoss::Open,
        guard: false,
        enforce: 1.0,
        max_drop: 1.0,
        sharing: None,
    }
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0_u64..50, 1 => any::<u64>(), 1 => Just(u64::MAX), 1 => Just(1 << 62)]
}

fn up() -> impl Strategy<Value = Up> {
    let id = || prop_oneof![9 => 0_u32..4, 1 => any::<u32>()];
    let entry = (id(), [number(), number(), number(), number()], any::<f64>(), any::<u32>())
        .prop_map(|(key, [matched, offered, admitted, would_drop], offered_rps, sessions)| Entry {
            key,
            counts: Counts { matched, offered, admitted, would_drop },
            offered_rps: offered_rps.abs(),
            usual_rps: 0.0,
            flight: Flight::default(),
            sessions,
        });
    let report = (number(), vec((id(), 0_usize..3), 0..4), vec(id(), 0..2), vec(entry, 0..6))
        .prop_map(|(seq, new, retired_keys, entries)| {
            let key = |b: usize| KeyName {
                service: name("s"),
                bucket: name(BUCKETS[b]),
                values: KeyValues::Whole,
            };
            Up::Report(Report {
                seq,
                interval: Duration::from_secs(1),
                new_keys: new.into_iter().map(|(id, b)| (id, key(b))).collect(),
                retired_keys,
                entries,
                services: Vec::new(),
            })
        });
    prop_oneof![
        8 => report,
        1 => (number(), number()).prop_map(|(term, version)| Up::Seen { term, version }),
        1 => number().prop_map(Up::ConfigurationApplied),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (0_u64..3, number(), number()).prop_map(|(id, t, v)| Op::Open(id, t, v)),
        1 => (0_u64..3).prop_map(Op::Close),
        12 => (0_u64..3, up()).prop_map(|(id, up)| Op::Up(id, up)),
        1 => (1_u64..4, any::<bool>()).prop_map(|(n, all)| Op::Configure(n, all)),
        4 => (0_u64..3_000).prop_map(Op::Wait),
    ]
}

fn configure(c: &mut Controller, now: Time, requests: u64, all: bool) {
    let mut buckets = vec![bucket("zero", Scope::Region, 0)];
    if all {
        buckets.push(bucket("some", Scope::Global, requests));
    }
    let (service, owner, select) = (name("s"), Owner::default(), Select::All);
    let service = Arc::new(ServiceBuckets { service, owner, select, buckets });
    c.handle_configuration(now, vec![service], Vec::new());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn nothing_that_is_said_breaks_a_controller(ops in vec(op(), 1..100)) {
        let config = Config {
            node: name("controller"),
            session: 3,
            region: name("r"),
            tick: Duration::from_secs(1),
            law: Law::Ratio,
            ttl: TTL,
            grant_ttl: TTL * 6,
            switches: sluicegate_law::grant::Switches::default(),
            limits: Limits { max_sessions: 2, ..Limits::for_controller() },
        };
        let mut c = Controller::new(config, Time::ZERO);
        let mut now = Time::ZERO;
        let mut last = (0, 0);
        for op in ops {
            match op {
                Op::Open(id, seen_term, seen_version) => {
                    let hello = Hello {
                        role: Role::Aggregator,
                        node: name("a"),
                        session: id,
                        zone: name("z"),
                        region: name("r"),
                        protocol: PROTOCOL_VERSION,
                        services: Vec::new(),
                        seen_term,
                        seen_version,
                    };
                    let _ = c.handle_child_open(now, id, hello);
                }
                Op::Close(id) => c.handle_child_close(now, id),
                Op::Up(id, up) => {
                    let _ = c.handle_child(now, id, up);
                }
                Op::Configure(requests, all) => configure(&mut c, now, requests, all),
                Op::Wait(ms) => {
                    now = now + Duration::from_millis(ms);
                    c.handle_timeout(now);
                }
            }
            while let Some((_, down)) = c.poll_child() {
                match down {
                    Down::Configuration(sent) => {
                        prop_assert!(sent.term >= last.0 && sent.version >= last.1);
                    }
                    Down::Update(update) => for (_, d) in update.directives {
                        prop_assert!(!d.ttl.is_zero() && d.ttl <= TTL && d.term >= last.0);
                        prop_assert_eq!(d.limit_rps <= 0.0, d.admit == AdmitRatio::NONE);
                    },
                }
            }
            let view = c.view();
            prop_assert!(view.term >= last.0 && view.version >= last.1, "went back");
            last = (view.term, view.version);
            let sound = |i: sluicegate_model::Invariant| i == sluicegate_model::Invariant::I3;
            prop_assert!(view.counters.invariants().all(|(i, n)| sound(i) || n == 0));
            prop_assert!(view.keys.iter().all(|k| k.counts.is_consistent()));
        }
    }
}
