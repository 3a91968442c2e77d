//! Streams: taken or refused, acknowledged, kept awake, silent, closed.

use std::time::Duration;

use sluicegate_model::{Counts, Down, KeyName, Report, Role, Time, Up, Update};

use super::{
    admitted, at, configuration, drain, entry, hello, name, node, report, run, send, service,
    settings, value, whole,
};
use crate::node::{Node, Settings, Tier};
use crate::{Limits, Refusal, SessionId};

fn state(node: &Node, key: &KeyName) -> crate::node::KeyState {
    node.key_state(node.key_of(key).expect("counted")).expect("counted")
}

fn updates(node: &mut Node) -> Vec<(SessionId, Update)> {
    drain(node)
        .into_iter()
        .filter_map(|(id, down)| match down {
            Down::Update(update) => Some((id, update)),
            Down::Configuration(_) => None,
        })
        .collect()
}

#[test]
fn a_hello_is_checked() {
    let mut limits = Limits::for_aggregator();
    limits.max_sessions = 1;
    limits.max_services_wanted = 1;
    let mut n = Node::new(Settings { limits, ..settings(Tier::Aggregator) }, Time::ZERO);
    let mut wrong = hello();
    wrong.protocol = 99;
    assert_eq!(n.open(at(0), 1, wrong), Err(Refusal::Protocol { offered: 99 }));
    let mut wrong = hello();
    wrong.role = Role::Aggregator;
    let expected = Refusal::Role { expected: Role::Client, found: Role::Aggregator };
    assert_eq!(n.open(at(0), 1, wrong), Err(expected));
    let mut wrong = hello();
    wrong.services = vec![name("a"), name("b")];
    assert_eq!(n.open(at(0), 1, wrong), Err(Refusal::Services { found: 2, max: 1 }));
    assert_eq!(n.open(at(0), 1, hello()), Ok(()));
    assert_eq!(n.open(at(0), 1, hello()), Err(Refusal::AlreadyOpen));
    assert_eq!(n.open(at(0), 2, hello()), Err(Refusal::Full { max: 1 }));
    assert_eq!(n.counters().sessions_refused, 5);
    n.close(at(1), 1);
    assert_eq!(n.open(at(1), 2, hello()), Ok(()));
}

#[test]
fn a_second_hello_closes_the_stream() {
    let mut n = node();
    n.open(at(0), 1, hello()).expect("taken");
    send(&mut n, at(1), 1, report(1, &[(0, whole("s", "b"))], &[entry(0, admitted(5), 5.0)]));
    assert_eq!(n.handle(at(2), 1, Up::Hello(hello())), Err(Refusal::SecondHello));
    assert_eq!(n.handle(at(3), 1, Up::Report(report(2, &[], &[]))), Err(Refusal::NotOpen));
    let left = state(&n, &whole("s", "b"));
    assert_eq!((left.counts, left.sessions), (admitted(5), 0));
    n.audit();
}

#[test]
fn a_report_with_too_many_parts_closes_the_stream() {
    let mut limits = Limits::for_aggregator();
    limits.max_report_entries = 3;
    let mut n = Node::new(Settings { limits, ..settings(Tier::Aggregator) }, Time::ZERO);
    n.open(at(0), 1, hello()).expect("taken");
    let long = Report { retired_keys: vec![0; 4], ..report(1, &[], &[]) };
    let refused = Refusal::ReportTooLarge { part: "retired keys", found: 4, max: 3 };
    assert_eq!(n.handle(at(1), 1, Up::Report(long)), Err(refused));
}

#[test]
fn a_report_is_acknowledged_soon_and_a_quiet_child_hears_every_two_seconds() {
    let mut n = node();
    n.open(at(0), 1, hello()).expect("taken");
    send(&mut n, at(100), 1, report(1, &[], &[]));
    send(&mut n, at(110), 1, report(2, &[], &[]));
    assert_eq!(n.poll_timeout(), at(120));
    run(&mut n, at(119));
    assert_eq!(updates(&mut n), []);
    run(&mut n, at(120));
    let ack = Update { ack_seq: 2, directives: Vec::new() };
    assert_eq!(updates(&mut n), [(1, ack.clone())]);

    let mut heard = vec![at(120)];
    for ms in (130..10_000).step_by(10) {
        run(&mut n, at(ms));
        for (_, update) in updates(&mut n) {
            assert_eq!(update, ack);
            heard.push(at(ms));
        }
    }
    let gaps: Vec<Duration> = heard.windows(2).map(|w| w[1].since(w[0])).collect();
    assert!(gaps.iter().all(|g| *g <= Duration::from_secs(2)), "{gaps:?}");
    assert!(gaps.len() <= 8, "{gaps:?}");
}

#[test]
fn a_repeated_report_counts_nothing_and_is_acknowledged_again() {
    let mut n = node();
    n.open(at(0), 1, hello()).expect("taken");
    let first = report(5, &[(0, whole("s", "b"))], &[entry(0, admitted(5), 5.0)]);
    send(&mut n, at(0), 1, first.clone());
    run(&mut n, at(20));
    drain(&mut n);
    send(&mut n, at(30), 1, first);
    send(&mut n, at(30), 1, report(4, &[], &[entry(0, admitted(9), 9.0)]));
    run(&mut n, at(50));
    assert_eq!(updates(&mut n), [(1, Update { ack_seq: 5, directives: Vec::new() })]);
    assert_eq!(state(&n, &whole("s", "b")).counts, admitted(5));
    assert_eq!(n.counters().reports_repeated, 2);
}

#[test]
fn bad_reports_are_absorbed_and_counted() {
    let mut n = node();
    n.open(at(0), 1, hello()).expect("taken");
    let key = whole("s", "b");
    send(&mut n, at(0), 1, report(1, &[(0, key.clone())], &[entry(0, admitted(5), 5.0)]));
    let none = Report { interval: Duration::ZERO, ..report(2, &[], &[entry(0, admitted(6), 6.0)]) };
    send(&mut n, at(1), 1, none);
    let lies = Counts { matched: 1, offered: 2, admitted: 3, would_drop: 4 };
    send(
        &mut n,
        at(2),
        1,
        report(
            2,
            &[],
            &[
                entry(0, admitted(4), 4.0),
                entry(0, lies, 4.0),
                entry(77, admitted(9), 9.0),
                entry(0, admitted(6), f64::NAN),
                entry(0, admitted(7), -1.0),
                entry(0, admitted(8), 1e300),
            ],
        ),
    );
    send(
        &mut n,
        at(3),
        1,
        Report { retired_keys: vec![55], ..report(3, &[(u32::MAX, key.clone())], &[]) },
    );
    assert_eq!(state(&n, &key).counts, admitted(8));
    assert!((state(&n, &key).offered_rps - 1e7).abs() < 1.0);
    let c = n.counters();
    assert_eq!(
        [
            c.reports_without_interval,
            c.entries_went_back,
            c.entries_inconsistent,
            c.entries_unknown_key,
            c.entries_bad_rate,
            c.entries_clamped,
            c.key_ids_out_of_range,
            c.retired_unknown,
        ],
        [1, 1, 1, 1, 2, 1, 1, 1]
    );
    n.audit();
}

#[test]
fn a_silent_child_is_carried_and_then_taken_out() {
    let mut n = node();
    n.open(at(0), 1, hello()).expect("taken");
    n.open(at(0), 2, hello()).expect("taken");
    let key = whole("s", "b");
    send(&mut n, at(0), 1, report(1, &[(0, key.clone())], &[entry(0, admitted(5), 50.0)]));
    send(&mut n, at(0), 2, report(1, &[(0, key.clone())], &[entry(0, admitted(5), 0.0)]));
    run(&mut n, at(3_000));
    assert_eq!(n.counters().sessions_silent, 0);
    run(&mut n, at(4_000));
    // A child without traffic has nothing to report, so only one counts as silent.
    assert_eq!(n.counters().sessions_silent, 1);
    assert!(n.view(None).sessions[0].silent);
    run(&mut n, at(6_000));
    assert!((state(&n, &key).offered_rps - 50.0).abs() < 1e-3);
    run(&mut n, at(7_000));
    assert!(state(&n, &key).offered_rps.abs() < 1e-9);
    assert_eq!((state(&n, &key).sessions, n.counters().sessions_zeroed), (0, 1));
    n.audit();

    send(&mut n, at(9_000), 1, report(2, &[], &[entry(0, admitted(9), 20.0)]));
    assert!((state(&n, &key).offered_rps - 20.0).abs() < 1e-3);
    assert_eq!(state(&n, &key).counts, admitted(14));
    assert!(!n.view(None).sessions[0].silent);
}

#[test]
fn ids_are_retired_reused_and_redefined() {
    let mut n = node();
    n.open(at(0), 1, hello()).expect("taken");
    let (a, b) = (whole("s", "a"), whole("s", "b"));
    send(&mut n, at(0), 1, report(1, &[(0, a.clone())], &[entry(0, admitted(5), 5.0)]));
    send(
        &mut n,
        at(1),
        1,
        Report { retired_keys: vec![0], ..report(2, &[], &[entry(0, admitted(6), 6.0)]) },
    );
    assert_eq!(state(&n, &a).counts, admitted(6));
    assert_eq!(state(&n, &a).sessions, 0);
    send(&mut n, at(2), 1, report(3, &[(0, b.clone())], &[entry(0, admitted(1), 1.0)]));
    assert_eq!(state(&n, &b).counts, admitted(1));
    assert_eq!(n.counters().key_ids_redefined, 0);
    // Given to another key without being retired: the counts begin anew.
    send(&mut n, at(3), 1, report(4, &[(0, a.clone())], &[entry(0, admitted(2), 2.0)]));
    assert_eq!((state(&n, &a).counts, state(&n, &b).counts), (admitted(8), admitted(1)));
    assert_eq!((state(&n, &b).sessions, n.counters().key_ids_redefined), (0, 1));
    n.audit();
}

#[test]
fn keys_nobody_names_are_forgotten_unless_their_burst_is_not_back() {
    let mut n = node();
    let minute = sluicegate_model::TokenRate::per_window(60_000, Duration::from_secs(3600), None);
    let slow = sluicegate_model::Limit::Tokens(minute.expect("sound"));
    let buckets = vec![super::bucket("slow", sluicegate_model::Scope::Zone, slow)];
    n.configure(&configuration(1, vec![service("s", buckets)]));
    n.open(at(0), 1, hello()).expect("taken");
    let (known, other) = (whole("s", "slow"), value("x", "y", "v"));
    let entries = [entry(0, admitted(50_000), 5.0), entry(1, admitted(5), 5.0)];
    send(&mut n, at(0), 1, report(1, &[(0, known.clone()), (1, other.clone())], &entries));
    run(&mut n, at(2_000));
    n.close(at(2_000), 1);
    run(&mut n, at(601_000));
    assert_eq!(n.forget(|_| false), [] as [u32; 0]);
    run(&mut n, at(603_000));
    let number = n.key_of(&other).expect("still counted");
    assert_eq!(n.forget(|key| key == number), [] as [u32; 0]);
    run(&mut n, at(1_300_000));
    assert_eq!(n.forget(|_| false), [number]);
    assert_eq!((n.key_of(&other), n.key_of(&known).is_some()), (None, true));
    n.audit();
}

#[test]
fn values_beyond_max_keys_are_counted_on_the_overflow_key() {
    let mut n = node();
    let mut b = super::bucket("each", sluicegate_model::Scope::Zone, super::rate(10));
    b.per = Some(super::per(2));
    n.configure(&configuration(1, vec![service("s", vec![b])]));
    n.open(at(0), 1, hello()).expect("taken");
    let names: Vec<_> = (0..5_u32).map(|i| (i, value("s", "each", &i.to_string()))).collect();
    let entries: Vec<_> = (0..5).map(|i| entry(i, admitted(10), 1.0)).collect();
    send(&mut n, at(0), 1, report(1, &names, &entries));
    // Repeated until acknowledged, as children do.
    send(&mut n, at(1), 1, report(2, &names, &entries));
    let overflow = KeyName { values: sluicegate_model::KeyValues::Overflow, ..whole("s", "each") };
    assert_eq!(state(&n, &overflow).counts, admitted(30));
    assert_eq!((n.keys().count(), n.counters().keys_overflowed), (3, 3));
    n.audit();
    n.close(at(2), 1);
    n.audit();
}

#[test]
fn a_million_distinct_keys_stay_within_the_bounds() {
    let mut limits = Limits::for_aggregator();
    limits.max_keys = 1_000;
    limits.max_unknown_buckets = 50;
    let mut n = Node::new(Settings { limits, ..settings(Tier::Aggregator) }, Time::ZERO);
    n.open(at(0), 1, hello()).expect("taken");
    n.open(at(0), 2, hello()).expect("taken");
    send(&mut n, at(0), 2, report(1, &[(0, whole("s", "b"))], &[entry(0, admitted(3), 1.0)]));
    for seq in 1..=200_u32 {
        let key = |i: u32| value("s", &format!("b{}", i % 70), &format!("{seq}-{i}"));
        let ids = (seq - 1) * 1000..seq * 1000;
        let names: Vec<_> = ids.clone().map(|i| (i, key(i))).collect();
        let entries: Vec<_> = ids.map(|i| entry(i, admitted(1), 1.0)).collect();
        send(&mut n, at(u64::from(seq)), 1, report(u64::from(seq), &names, &entries));
    }
    assert!(n.keys().count() <= 1_100, "{}", n.keys().count());
    assert!(n.counters().keys_refused > 0 && n.counters().keys_overflowed > 0);
    assert_eq!(state(&n, &whole("s", "b")).counts, admitted(3));
    n.close(at(9_000), 1);
    n.audit();
}

#[test]
fn absurd_claims_of_what_was_seen_are_ignored() {
    let mut n = node();
    let mut h = hello();
    h.seen_term = u64::MAX;
    n.open(at(0), 1, h).expect("taken");
    assert_eq!((n.seen(), n.counters().seen_out_of_range), ((0, 0), 1));
    n.handle(at(1), 1, Up::Seen { term: 7, version: 3 }).expect("taken");
    assert_eq!(n.seen(), (7, 3));
}
