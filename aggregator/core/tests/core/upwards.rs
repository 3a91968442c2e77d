//! What goes to the controller: hello, reports, what was seen below.

use std::collections::BTreeMap;

use sluicegate_aggregator_core::{Aggregator, Limits};
use sluicegate_model::{Down, KeyId, KeyName, Up};

use super::{
    ack, admitted, aggregator, at, configuration, hello, limits, report, reports, run, value,
};

fn drain(a: &mut Aggregator) -> Vec<Up> {
    std::iter::from_fn(|| a.poll_parent()).collect()
}

#[test]
fn the_hello_tells_what_clients_saw_and_a_later_client_adds_to_it() {
    let mut a = aggregator(limits());
    let mut wise = hello();
    (wise.seen_term, wise.seen_version) = (7, 30);
    a.handle_child_open(at(1), 1, wise.clone()).expect("taken");
    assert_eq!(drain(&mut a), []);
    a.handle_parent_open(at(2));
    let up = drain(&mut a);
    let [Up::Hello(h)] = &up[..] else { panic!("{up:?}") };
    assert_eq!((h.seen_term, h.seen_version, h.session), (7, 30, 77));

    (wise.seen_term, wise.seen_version) = (6, 31);
    a.handle_child_open(at(3), 2, wise.clone()).expect("taken");
    assert_eq!(drain(&mut a), [Up::Seen { term: 7, version: 31 }]);
    a.handle_parent(at(4), configuration(40, 9, true));
    assert_eq!(drain(&mut a), [Up::ConfigurationApplied(40)]);
    // What the controller itself sent down is no news to it.
    (wise.seen_term, wise.seen_version) = (9, 40);
    a.handle_child_open(at(5), 3, wise).expect("taken");
    assert_eq!(drain(&mut a), []);
}

#[test]
fn a_client_that_ignored_what_it_was_sent_is_sent_everything_once_that_is_new_to_it() {
    let mut a = aggregator(limits());
    a.handle_parent_open(at(0));
    a.handle_parent(at(0), configuration(1, 2, true));
    drain(&mut a);
    let mut wise = hello();
    (wise.seen_term, wise.seen_version) = (7, 4);
    a.handle_child_open(at(1), 1, wise).expect("taken");
    let down = |a: &mut Aggregator| -> Vec<(u64, bool, usize)> {
        let all = std::iter::from_fn(|| a.poll_child());
        let of = |(_, down)| match down {
            Down::Configuration(c) => Some((c.version, c.full, c.services.len())),
            Down::Update(_) => None,
        };
        all.filter_map(of).collect()
    };
    assert_eq!(down(&mut a), [(1, true, 1)]);
    // The same buckets under a higher number: for the client, which holds others, all is new.
    let Down::Configuration(mut again) = configuration(1, 8, true) else { unreachable!() };
    again.version = 5;
    a.handle_parent(at(2), Down::Configuration(again.clone()));
    assert_eq!(down(&mut a), [(5, true, 1)]);
    again.version = 6;
    a.handle_parent(at(3), Down::Configuration(again));
    assert_eq!(down(&mut a), [(6, false, 0)]);
}

#[test]
fn older_configuration_and_changes_before_a_snapshot_are_ignored() {
    let mut a = aggregator(limits());
    a.handle_parent_open(at(0));
    drain(&mut a);
    a.handle_parent(at(1), configuration(5, 1, false));
    assert_eq!((a.view().version, a.view().counters.stale_versions), (0, 1));
    a.handle_parent(at(1), configuration(5, 1, true));
    a.handle_parent(at(2), configuration(4, 1, true));
    a.handle_parent(at(2), configuration(5, 1, false));
    assert_eq!((a.view().version, a.view().counters.stale_versions), (5, 3));
    a.handle_parent(at(3), configuration(6, 0, true));
    assert_eq!((a.view().version, a.view().counters.stale_terms), (5, 1));
    a.handle_parent(at(3), configuration(6, 2, false));
    assert_eq!((a.view().version, a.view().term), (6, 2));
    // After the stream is gone nothing of it counts.
    a.handle_parent_close(at(4));
    a.handle_parent(at(4), configuration(9, 9, true));
    assert_eq!(a.view().version, 6);
}

#[test]
fn names_and_counts_are_repeated_until_they_are_acknowledged_and_then_nothing_is_said() {
    let mut a = aggregator(limits());
    a.handle_parent_open(at(0));
    a.handle_child_open(at(0), 1, hello()).expect("taken");
    a.handle_child(at(1), 1, report(1, &[(0, value("x"))], &[(0, 5, 5.0)])).expect("taken");
    let sent = reports(run(&mut a, at(3_000)));
    assert_eq!(sent.len(), 3);
    for (seq, r) in (1..).zip(&sent) {
        assert_eq!((r.seq, r.new_keys.len(), r.entries.len()), (seq, 1, 1));
        assert_eq!((r.entries[0].counts, r.entries[0].sessions), (admitted(5), 1));
        assert!((r.entries[0].offered_rps - 5.0).abs() < 1e-9);
    }
    a.handle_parent(at(3_100), ack(3));
    assert_eq!(reports(run(&mut a, at(5_000))), []);

    a.handle_child(at(5_100), 1, report(2, &[], &[(0, 7, 5.0)])).expect("taken");
    let sent = reports(run(&mut a, at(6_000)));
    assert_eq!((sent[0].new_keys.len(), sent[0].entries[0].counts), (0, admitted(7)));

    // A new stream names again, and begins with what the old one did not get acknowledged.
    a.handle_parent_close(at(6_100));
    a.handle_parent_open(at(6_200));
    let sent = reports(run(&mut a, at(7_000)));
    assert_eq!((sent[0].seq, sent[0].new_keys.len()), (1, 1));
    assert_eq!(sent[0].entries[0].counts, admitted(2));
}

#[test]
fn acknowledgements_that_come_very_late_still_settle() {
    let mut a = aggregator(limits());
    a.handle_parent_open(at(0));
    a.handle_child_open(at(0), 1, hello()).expect("taken");
    for s in 0..100 {
        let up = report(s + 1, &[(0, value("x"))], &[(0, s + 1, 1.0)]);
        a.handle_child(at(s * 1000 + 500), 1, up).expect("taken");
        assert_eq!(reports(run(&mut a, at((s + 1) * 1000))).len(), 1);
    }
    // Too old to be waited for, unknown, and the last.
    a.handle_parent(at(100_100), ack(3));
    a.handle_parent(at(100_100), ack(7_000));
    assert_eq!(reports(run(&mut a, at(101_000))).len(), 1);
    a.handle_parent(at(101_100), ack(101));
    assert_eq!(reports(run(&mut a, at(103_000))), []);
}

#[test]
fn a_report_that_was_not_taken_away_is_not_followed_by_another() {
    let mut a = aggregator(limits());
    a.handle_parent_open(at(0));
    a.handle_child_open(at(0), 1, hello()).expect("taken");
    for s in 0..10 {
        let up = report(s + 1, &[(0, value("x"))], &[(0, s + 1, 1.0)]);
        a.handle_child(at(s * 1000 + 500), 1, up).expect("taken");
        a.handle_timeout(at((s + 1) * 1000));
    }
    let waiting = reports(drain(&mut a));
    assert_eq!(waiting.len(), 1);
    assert_eq!(waiting[0].entries[0].counts, admitted(1));
    assert_eq!(reports(run(&mut a, at(11_000)))[0].entries[0].counts, admitted(10));
}

/// The controller's side, as far as these tests need it.
#[derive(Default)]
struct Parent {
    keys: BTreeMap<KeyId, (KeyName, u64)>,
    retired: Vec<KeyId>,
    seq: u64,
}

impl Parent {
    fn take(&mut self, up: Vec<Up>) {
        for r in reports(up) {
            for (id, name) in r.new_keys {
                let held = self.keys.entry(id).or_insert((name.clone(), 0));
                assert_eq!(held.0, name, "an id in use was given away");
            }
            for e in r.entries {
                self.keys.get_mut(&e.key).expect("named before").1 = e.counts.matched;
            }
            for id in r.retired_keys {
                if self.keys.remove(&id).is_some() {
                    self.retired.push(id);
                }
            }
            self.seq = r.seq;
        }
    }
}

#[test]
fn more_keys_than_a_report_holds_go_in_turns() {
    let mut a = aggregator(Limits { max_report_entries: 10, ..limits() });
    a.handle_parent_open(at(0));
    a.handle_child_open(at(0), 1, hello()).expect("taken");
    for batch in 0..5_u32 {
        let ids = batch * 10..(batch + 1) * 10;
        let names: Vec<_> = ids.clone().map(|i| (i, value(&i.to_string()))).collect();
        let entries: Vec<_> = ids.map(|i| (i, 3, 1.0)).collect();
        a.handle_child(at(1), 1, report(u64::from(batch) + 1, &names, &entries)).expect("taken");
    }
    let mut parent = Parent::default();
    parent.take(run(&mut a, at(1_000)));
    assert_eq!(parent.keys.len(), 10);
    // The rest does not wait for ticks, only for acknowledgements.
    for s in 0..5 {
        a.handle_parent(at(1_010 + s), ack(parent.seq));
        parent.take(drain(&mut a));
    }
    assert_eq!(parent.keys.len(), 50);
    assert!(parent.keys.values().all(|(_, n)| *n == 3));
    assert!(a.view().counters.report_entries_deferred > 0);
    parent.seq = 0;
    parent.take(run(&mut a, at(6_000)));
    assert_eq!(parent.seq, 0, "said something although all is known");
}

#[test]
fn a_forgotten_key_is_retired_above_and_its_id_used_again_only_then() {
    let mut a = aggregator(limits());
    a.handle_parent_open(at(0));
    let mut parent = Parent::default();
    for round in 0..4_u64 {
        let begin = round * 100_000;
        a.handle_child_open(at(begin), round, hello()).expect("taken");
        let up = report(1, &[(0, value(&round.to_string()))], &[(0, 5, 5.0)]);
        a.handle_child(at(begin + 1), round, up).expect("taken");
        for s in 0..99 {
            let now = begin + (s + 1) * 1000;
            parent.take(run(&mut a, at(now)));
            a.handle_parent(at(now + 50), ack(parent.seq));
            if s == 5 {
                a.handle_child_close(at(now + 60), round);
            }
        }
        assert_eq!(a.view().keys.len(), 0);
    }
    assert!(parent.keys.is_empty());
    assert_eq!(parent.retired, [0; 4]);
}

#[test]
fn a_key_is_kept_while_the_controller_lacks_its_counts() {
    let mut a = aggregator(limits());
    a.handle_child_open(at(0), 1, hello()).expect("taken");
    a.handle_child(at(1), 1, report(1, &[(0, value("x"))], &[(0, 5, 5.0)])).expect("taken");
    a.handle_child_close(at(2), 1);
    run(&mut a, at(200_000));
    assert_eq!(a.view().keys.len(), 1);
    a.handle_parent_open(at(200_001));
    let mut parent = Parent::default();
    parent.take(run(&mut a, at(202_000)));
    assert_eq!(parent.keys.values().map(|(_, n)| *n).collect::<Vec<_>>(), [5]);
    a.handle_parent(at(202_001), ack(parent.seq));
    run(&mut a, at(300_000));
    assert_eq!(a.view().keys.len(), 0);
}
