//! Whatever children and parent say, in whatever order: no panic, and the bounds hold.

use sluicegate_model::Flight;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use sluicegate_aggregator_core::Limits;
use sluicegate_model::{
    AdmitRatio, Counts, Directive, Down, Entry, KeyId, Report, ServiceCounts, Time, Up, Update,
};

use super::{aggregator, configuration, hello, limits, name, value};

#[derive(Debug, Clone)]
enum Op {
    ChildOpen(u64, u64),
    ChildClose(u64),
    Child(u64, Up),
    ParentOpen,
    ParentClose,
    Parent(Down),
    Wait(u64),
    /// Time that seems to go back.
    Back(u64),
}

fn id() -> impl Strategy<Value = KeyId> {
    prop_oneof![9 => 0_u32..8, 1 => any::<u32>()]
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![6 => 0_u64..100, 1 => any::<u64>(), 1 => Just(u64::MAX), 1 => Just(1 << 62)]
}

fn entry() -> impl Strategy<Value = Entry> {
    let counts = (number(), number(), number(), number()).prop_map(|(a, b, c, d)| {
        let mut sorted = [a, b, c, d];
        sorted.sort_unstable();
        let [would_drop, admitted, offered, matched] = sorted;
        Counts { matched, offered, admitted, would_drop }
    });
    (id(), counts, any::<f64>(), any::<u32>()).prop_map(|(key, counts, offered_rps, sessions)| {
        Entry { key, counts, offered_rps, usual_rps: 0.0, flight: Flight::default(), sessions }
    })
}

fn up() -> impl Strategy<Value = Up> {
    let report = (
        number(),
        number(),
        vec((id(), 0_u8..5), 0..4),
        vec(id(), 0..3),
        vec(entry(), 0..6),
        vec((0_u8..3, number(), number()), 0..3),
    )
        .prop_map(|(seq, ms, new, retired_keys, entries, services)| {
            let services = services.into_iter().map(|(s, attempts, admitted)| ServiceCounts {
                service: name(["s", "t", "u"][s as usize]),
                attempts,
                admitted,
                dropped_by_one: attempts,
                dropped_by_several: admitted,
            });
            Up::Report(Report {
                seq,
                interval: Duration::from_millis(ms),
                new_keys: new.into_iter().map(|(id, v)| (id, value(&v.to_string()))).collect(),
                retired_keys,
                entries,
                services: services.collect(),
            })
        });
    prop_oneof![
        10 => report,
        1 => Just(Up::Hello(hello())),
        1 => number().prop_map(Up::ConfigurationApplied),
        1 => (number(), number()).prop_map(|(term, version)| Up::Seen { term, version }),
    ]
}

fn down() -> impl Strategy<Value = Down> {
    let directive = (any::<u32>(), any::<f32>(), any::<f64>(), number(), number(), number())
        .prop_map(|(bits, guard, limit_rps, term, seq, ttl)| Directive {
            admit: AdmitRatio::from_bits(bits),
            headroom: guard,
            sigma: guard,
            grant: None,
            limit_rps,
            sessions: bits,
            term,
            seq,
            ttl: Duration::from_millis(ttl),
        });
    prop_oneof![
        4 => (number(), vec((id(), directive), 0..4))
            .prop_map(|(ack_seq, directives)| Down::Update(Update { ack_seq, directives })),
        1 => (1_u64..100, number(), any::<bool>()).prop_map(|(v, t, full)| configuration(v, t, full)),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (0_u64..4, number()).prop_map(|(id, seen)| Op::ChildOpen(id, seen)),
        1 => (0_u64..4).prop_map(Op::ChildClose),
        12 => ((0_u64..4), up()).prop_map(|(id, up)| Op::Child(id, up)),
        1 => Just(Op::ParentOpen),
        1 => Just(Op::ParentClose),
        6 => down().prop_map(Op::Parent),
        4 => (0_u64..100_000).prop_map(Op::Wait),
        1 => (0_u64..1_000).prop_map(Op::Back),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn nothing_that_is_said_breaks_an_aggregator(ops in vec(op(), 1..100)) {
        let limits = Limits { max_keys: 3, max_sessions: 3, max_unknown_buckets: 2, ..limits() };
        let mut a = aggregator(limits);
        let mut now = Time::ZERO;
        let mut last = (0, 0);
        for op in ops {
            match op {
                Op::ChildOpen(id, seen) => {
                    let mut h = hello();
                    (h.seen_term, h.seen_version) = (seen, seen / 2);
                    let _ = a.handle_child_open(now, id, h);
                }
                Op::ChildClose(id) => a.handle_child_close(now, id),
                Op::Child(id, up) => {
                    let _ = a.handle_child(now, id, up);
                }
                Op::ParentOpen => a.handle_parent_open(now),
                Op::ParentClose => a.handle_parent_close(now),
                Op::Parent(down) => a.handle_parent(now, down),
                Op::Wait(ms) => {
                    now = now + Duration::from_millis(ms);
                    a.handle_timeout(now);
                }
                Op::Back(ms) => {
                    let back = now.as_nanos().saturating_sub(ms * 1_000_000);
                    a.handle_timeout(Time::from_nanos(back));
                }
            }
            while let Some((_, down)) = a.poll_child() {
                if let Down::Update(update) = down {
                    for (_, d) in update.directives {
                        prop_assert!(!d.ttl.is_zero() && d.limit_rps >= 0.0);
                        prop_assert!(d.headroom.is_finite() && d.sigma.is_finite());
                    }
                }
            }
            while a.poll_parent().is_some() {}
            let view = a.view();
            prop_assert!((view.term, view.version) >= last, "went back");
            last = (view.term, view.version);
            prop_assert!(view.sessions.len() <= 3 && view.keys.len() <= 3 + 2);
            prop_assert!(view.keys.iter().all(|k| k.counts.is_consistent()));
            prop_assert!(view.keys.iter().all(|k| k.offered_rps.is_finite() && k.offered_rps >= 0.0));
            let broken: u64 = view.counters.invariants().map(|(_, n)| n).sum();
            prop_assert_eq!(broken, 0);
        }
    }
}
