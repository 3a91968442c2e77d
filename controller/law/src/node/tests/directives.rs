//! What children are told: directives of the root here and of one above, and configuration.

use std::collections::BTreeMap;
use std::time::Duration;

use sluicegate_model::{
    AdmitRatio, Bucket, Configuration, Directive, Down, KeyId, Limit, Mode, Scope,
};

use super::{
    admitted, at, bucket, configuration, drain, entry, hello, name, node, rate, report, run, send,
    service, whole,
};
use crate::SessionId;
use crate::node::Node;

type Told = Vec<(SessionId, KeyId, Directive)>;

fn told(node: &mut Node) -> Told {
    let mut all = Vec::new();
    for (id, down) in drain(node) {
        if let Down::Update(update) = down {
            all.extend(update.directives.into_iter().map(|(key, d)| (id, key, d)));
        }
    }
    all
}

fn configurations(node: &mut Node) -> BTreeMap<SessionId, Configuration> {
    let mut all = BTreeMap::new();
    for (id, down) in drain(node) {
        if let Down::Configuration(c) = down {
            assert_eq!(all.insert(id, c), None);
        }
    }
    all
}

fn configured(buckets: Vec<Bucket>) -> Node {
    let mut n = node();
    n.configure(&configuration(1, vec![service("s", buckets)]));
    n
}

/// A child that reports a steady load on key 0 each second, up to `until`.
fn drive(n: &mut Node, id: SessionId, key: &str, rps: u64, seconds: std::ops::Range<u64>) -> Told {
    let mut all = Vec::new();
    for s in seconds {
        #[expect(clippy::cast_precision_loss, reason = "small")]
        let e = entry(0, admitted(rps * (s + 1)), rps as f64);
        send(n, at(s * 1000 + 500), id, report(s + 1, &[(0, whole("s", key))], &[e]));
        run(n, at(s * 1000 + 1400));
        all.extend(told(n));
    }
    all
}

#[test]
fn only_children_that_use_a_key_are_told_and_at_once_when_they_begin() {
    let mut n = configured(vec![bucket("b", Scope::Zone, rate(10))]);
    for id in 1..=3 {
        n.open(at(0), id, hello()).expect("taken");
    }
    send(&mut n, at(1), 2, report(1, &[(9, whole("s", "b"))], &[entry(9, admitted(0), 0.0)]));
    let all = drive(&mut n, 1, "b", 30, 0..5);
    assert!(all.iter().all(|(id, key, _)| (*id, *key) == (1, 0)));
    let latest = all.last().expect("told").2;
    assert!((0.3..0.4).contains(&latest.admit.share()));
    assert!(latest.limit_rps.to_bits() == 10.0_f64.to_bits() && latest.sessions == 1);

    // The next that begins does not wait for a tick, and gets what is left of its life.
    send(&mut n, at(5_600), 2, report(2, &[], &[entry(9, admitted(5), 5.0)]));
    let now = told(&mut n);
    assert_eq!(now.len(), 1);
    assert_eq!((now[0].0, now[0].1, now[0].2.admit), (2, 9, latest.admit));
    assert!(now[0].2.ttl < Duration::from_secs(10));
}

#[test]
fn an_unchanged_directive_is_repeated_every_quarter_of_its_life() {
    let mut n = configured(vec![bucket("b", Scope::Zone, rate(1000))]);
    n.open(at(0), 1, hello()).expect("taken");
    let all = drive(&mut n, 1, "b", 3, 0..40);
    assert!(all.iter().all(|(_, _, d)| d.admit == AdmitRatio::ALL));
    assert!((15..=22).contains(&all.len()), "{}", all.len());
    let seqs: Vec<u64> = all.iter().map(|(_, _, d)| d.seq).collect();
    assert!(seqs.windows(2).all(|w| w[0] < w[1]));

    // A key that is no longer used costs nothing: nobody is told anything.
    send(&mut n, at(41_000), 1, report(41, &[], &[entry(0, admitted(120), 0.0)]));
    run(&mut n, at(44_000));
    told(&mut n);
    assert_eq!(n.keys_in_use(), [] as [u32; 0]);
    run(&mut n, at(90_000));
    assert_eq!(told(&mut n), []);
}

#[test]
fn a_key_that_goes_quiet_is_let_go_of() {
    let mut n = configured(vec![bucket("b", Scope::Zone, rate(10))]);
    n.open(at(0), 1, hello()).expect("taken");
    drive(&mut n, 1, "b", 100, 0..5);
    send(&mut n, at(5_500), 1, report(6, &[], &[entry(0, admitted(500), 0.0)]));
    run(&mut n, at(6_500));
    let all = told(&mut n);
    assert_eq!(all.last().map(|(_, _, d)| d.admit), Some(AdmitRatio::ALL));
}

#[test]
fn limit_zero_shadow_observe_and_other_scopes() {
    let mut n = configured(vec![
        bucket("zero", Scope::Zone, rate(0)),
        Bucket { mode: Mode::Shadow, ..bucket("shadow", Scope::Zone, rate(10)) },
        Bucket { mode: Mode::Observe, ..bucket("observe", Scope::Zone, Limit::Unlimited) },
        bucket("region", Scope::Region, rate(10)),
    ]);
    let names = ["zero", "shadow", "observe", "region", "unknown"];
    n.open(at(0), 1, hello()).expect("taken");
    let keys: Vec<_> = (0..5_u32).map(|i| (i, whole("s", names[i as usize]))).collect();
    let entries: Vec<_> = (0..5).map(|i| entry(i, admitted(100), 100.0)).collect();
    send(&mut n, at(0), 1, report(1, &keys, &entries));
    run(&mut n, at(1_000));
    let all = told(&mut n);
    let ids: Vec<_> = all.iter().map(|(_, key, _)| *key).collect();
    assert_eq!(ids, [0, 1]);
    assert_eq!(all[0].2.admit, AdmitRatio::NONE);
    assert!(all[1].2.admit < AdmitRatio::ALL);
    assert_eq!(n.counters().keys_of_unknown_bucket, 1);
    let view = n.view(None);
    let unknown = view.keys.iter().find(|k| k.name.bucket.as_str() == "unknown").expect("counted");
    assert_eq!((unknown.scope, unknown.counts), (None, admitted(100)));
    assert!((unknown.admitted_rps - 100.0).abs() < 1.0);
}

#[test]
fn a_reload_keeps_what_did_not_change_and_takes_directives_back() {
    let mut n =
        configured(vec![bucket("a", Scope::Zone, rate(10)), bucket("b", Scope::Zone, rate(10))]);
    n.open(at(0), 1, hello()).expect("taken");
    drive(&mut n, 1, "a", 100, 0..5);
    let key = n.key_of(&whole("s", "a")).expect("counted");
    let before = (n.directive(key).copied(), n.key_state(key));
    let next = vec![bucket("a", Scope::Zone, rate(10)), bucket("b", Scope::Zone, rate(99))];
    n.configure(&configuration(2, vec![service("s", next)]));
    assert_eq!((n.directive(key).copied(), n.key_state(key)), before);

    let open = vec![bucket("a", Scope::Zone, Limit::Unlimited)];
    n.configure(&configuration(3, vec![service("s", open)]));
    assert_eq!(n.key_state(key), before.1);
    let all = drive(&mut n, 1, "a", 100, 5..7);
    assert_eq!(all.iter().map(|(_, _, d)| d.admit).collect::<Vec<_>>(), [AdmitRatio::ALL]);

    n.configure(&configuration(4, Vec::new()));
    assert_eq!(n.directive(key), None);
    assert_eq!(drive(&mut n, 1, "a", 100, 7..9), []);
}

#[test]
fn directives_from_above_are_passed_on_once_and_never_outlive_themselves() {
    let mut n = configured(vec![bucket("r", Scope::Region, rate(10))]);
    n.open(at(0), 1, hello()).expect("taken");
    send(&mut n, at(0), 1, report(1, &[(0, whole("s", "r"))], &[entry(0, admitted(1), 1.0)]));
    let key = n.key_of(&whole("s", "r")).expect("counted");
    let from_above = |seq, term| Directive {
        admit: AdmitRatio::from_share(0.5),
        headroom: 0.0,
        sigma: 0.0,
        grant: None,
        limit_rps: 10.0,
        sessions: 4,
        term,
        seq,
        ttl: Duration::from_secs(10),
    };
    assert!(n.pass_on(1, key, from_above(5, 3)));
    assert!(!n.pass_on(1, key, from_above(5, 3)), "repeated");
    assert!(!n.pass_on(1, key, from_above(4, 3)), "late");
    assert!(!n.pass_on(2, key, from_above(9, 2)), "an older term");
    assert!(n.pass_on(2, key, from_above(1, 3)), "a new stream counts from the start");
    assert_eq!(told(&mut n).len(), 1);
    assert_eq!(n.counters().stale_directives, 3);

    n.open(at(4_000), 2, hello()).expect("taken");
    send(&mut n, at(4_000), 2, report(1, &[(3, whole("s", "r"))], &[entry(3, admitted(1), 1.0)]));
    let late = told(&mut n);
    assert_eq!((late[0].1, late[0].2.ttl), (3, Duration::from_secs(6)));

    n.open(at(10_000), 3, hello()).expect("taken");
    send(&mut n, at(10_000), 3, report(1, &[(3, whole("s", "r"))], &[entry(3, admitted(1), 1.0)]));
    assert_eq!(told(&mut n), []);
    assert_eq!(n.directive(key), None);
}

#[test]
fn configuration_goes_to_those_who_want_it_first_whole_then_what_changed() {
    let mut n = node();
    let mut only_b = hello();
    only_b.services = vec![name("b")];
    n.open(at(0), 1, hello()).expect("taken");
    n.open(at(0), 2, only_b.clone()).expect("taken");
    assert_eq!(configurations(&mut n), BTreeMap::new());

    let one = |text: &str, n| service(text, vec![bucket("x", Scope::Zone, rate(n))]);
    n.configure(&configuration(5, vec![one("a", 1), one("b", 1)]));
    let sent = configurations(&mut n);
    assert!(sent.values().all(|c| c.full && c.version == 5 && c.removed.is_empty()));
    assert_eq!((sent[&1].services.len(), sent[&2].services.len()), (2, 1));

    n.configure(&configuration(6, vec![one("a", 2), one("b", 1)]));
    n.configure(&configuration(7, vec![one("a", 3)]));
    let sent = configurations(&mut n);
    assert!(sent.values().all(|c| !c.full && c.version == 7));
    assert_eq!(
        (sent[&1].services.clone(), sent[&1].removed.clone()),
        (vec![one("a", 3)], vec![name("b")])
    );
    assert_eq!((sent[&2].services.clone(), sent[&2].removed.clone()), (vec![], vec![name("b")]));

    n.raise(9, 12);
    let sent = configurations(&mut n);
    assert!(sent.values().all(|c| c.full && c.version == 12 && c.term == 9));
    n.open(at(1), 3, only_b).expect("taken");
    assert_eq!(configurations(&mut n)[&3].services, []);
}

#[test]
fn who_was_away_for_too_many_changes_gets_everything() {
    let mut n = node();
    n.configure(&configuration(1, Vec::new()));
    n.open(at(0), 1, hello()).expect("taken");
    assert!(configurations(&mut n)[&1].full);
    for version in 2..5000 {
        let s = service("a", vec![bucket("x", Scope::Zone, rate(version))]);
        n.configure(&configuration(version, vec![s]));
    }
    let sent = configurations(&mut n);
    assert!(sent[&1].full && sent[&1].version == 4999);
}

#[test]
fn more_directives_than_a_message_holds_go_in_several() {
    let mut limits = crate::Limits::for_aggregator();
    limits.max_update_directives = 3;
    let settings = super::settings(crate::node::Tier::Aggregator);
    let mut n = Node::new(crate::node::Settings { limits, ..settings }, at(0));
    let each = Bucket { per: Some(super::per(100)), ..bucket("b", Scope::Zone, rate(1)) };
    n.configure(&configuration(1, vec![service("s", vec![each])]));
    n.open(at(0), 1, hello()).expect("taken");
    let names: Vec<_> = (0..8_u32).map(|i| (i, super::value("s", "b", &i.to_string()))).collect();
    let entries: Vec<_> = (0..8).map(|i| entry(i, admitted(9), 9.0)).collect();
    send(&mut n, at(1), 1, report(1, &names, &entries));
    run(&mut n, at(1_000));
    let sizes: Vec<usize> = drain(&mut n)
        .into_iter()
        .filter_map(|(_, down)| match down {
            Down::Update(update) => Some(update.directives.len()),
            Down::Configuration(_) => None,
        })
        .filter(|len| *len > 0)
        .collect();
    assert_eq!(sizes, [3, 3, 2]);
}

#[test]
fn what_a_root_said_before_its_term_rose_is_told_under_the_new_one() {
    let mut n = configured(vec![bucket("b", Scope::Zone, rate(10))]);
    n.open(at(0), 1, hello()).expect("taken");
    drive(&mut n, 1, "b", 30, 0..3);
    n.raise(9, 2);
    n.open(at(2_500), 2, hello()).expect("taken");
    send(&mut n, at(2_500), 2, report(1, &[(0, whole("s", "b"))], &[entry(0, admitted(1), 1.0)]));
    let all = told(&mut n);
    assert_eq!(all.iter().map(|(id, _, d)| (*id, d.term)).collect::<Vec<_>>(), [(2, 9)]);
}
