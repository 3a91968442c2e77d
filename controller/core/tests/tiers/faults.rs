//! Tiers that die, come back with nothing, or are cut off.

use sluicegate_model::Law;
use std::time::Duration;

use sluicegate_model::{Scope, Up};

use crate::world::{TTL, Use, World, bucket, key, rate, service};

fn loaded(seed: u64) -> World {
    let buckets = vec![bucket("b", Scope::Region, rate(300)), bucket("z", Scope::Zone, rate(100))];
    let mut w = World::new(2, vec![service("s", buckets)], seed);
    for client in 0..10 {
        w.add_client(client % 2, vec![Use::of(key("s", "b"), 45.0), Use::of(key("s", "z"), 40.0)]);
    }
    w.run(Duration::from_secs(12));
    assert!(w.shares(&key("s", "b")).iter().all(|s| (s - 2.0 / 3.0).abs() < 0.01));
    w
}

fn all_near(shares: &[f64], wanted: f64) -> bool {
    shares.iter().all(|s| (s - wanted).abs() < 0.02)
}

#[test]
fn without_a_controller_its_directives_run_out_and_zone_limits_hold() {
    let mut w = loaded(1);
    w.kill_controller();
    w.run(TTL - Duration::from_secs(2));
    assert!(all_near(&w.shares(&key("s", "b")), 2.0 / 3.0), "{:?}", w.shares(&key("s", "b")));
    w.run(Duration::from_secs(3));
    assert!(w.shares(&key("s", "b")).iter().all(|s| *s > 0.999), "held beyond its ttl");
    assert!(all_near(&w.shares(&key("s", "z")), 0.5));
}

#[test]
fn a_controller_that_starts_with_nothing_enforces_within_three_seconds() {
    // Also with the first term of the one before, and with a lower and a higher one.
    for session in [1, 0, 500] {
        let mut w = loaded(2);
        let (term, version) = (w.view().term, w.view().version);
        w.kill_controller();
        w.run(Duration::from_secs(25));
        assert!(w.shares(&key("s", "b")).iter().all(|s| *s > 0.999));
        w.start_controller(session);
        w.run(Duration::from_secs(3));
        assert!(all_near(&w.shares(&key("s", "b")), 2.0 / 3.0), "{:?}", w.shares(&key("s", "b")));
        let view = w.view();
        assert!(view.term >= term && (view.term, view.version) > (term, version));
        assert!(w.clients.iter().all(|c| c.stale == 0 && c.seen_term == view.term));
        w.run(Duration::from_secs(1));
        assert!(w.clients.iter().all(|c| c.version == view.version));
    }
}

#[test]
fn a_controller_with_other_buckets_under_the_same_version_is_believed() {
    for session in 0..5 {
        let mut w = loaded(3);
        w.kill_controller();
        w.services = vec![service("s", vec![bucket("b", Scope::Region, rate(150))])];
        w.start_controller(session);
        w.run(Duration::from_secs(4));
        let shares = w.shares(&key("s", "b"));
        assert!(all_near(&shares, 1.0 / 3.0), "session {session}: {shares:?}");
        let view = w.aggregators[0].view();
        let zone = view.keys.iter().find(|k| k.name.bucket.as_str() == "z").expect("still counted");
        assert_eq!(zone.scope, None);
    }
}

#[test]
fn an_aggregator_that_starts_anew_is_told_by_its_clients_what_they_saw() {
    let mut w = loaded(4);
    w.kill_controller();
    // Everything but the clients forgets.
    w.restart_aggregator(0, 7);
    w.restart_aggregator(1, 8);
    w.start_controller(0);
    w.run(Duration::from_secs(5));
    assert!(all_near(&w.shares(&key("s", "b")), 2.0 / 3.0), "{:?}", w.shares(&key("s", "b")));
    assert!(all_near(&w.shares(&key("s", "z")), 0.5));
    assert!(w.view().counters.term_jumps >= 1);
    assert!(w.clients.iter().all(|c| c.seen_term == w.view().term));
}

#[test]
fn news_of_a_higher_term_from_below_moves_the_controller_beyond() {
    let mut w = loaded(5);
    let (before, now) = (w.view(), w.now);
    let session = first_session(&w);
    w.aggregators[0]
        .handle_child(now, session, Up::Seen { term: before.term + 50, version: 900 })
        .expect("taken");
    w.run(Duration::from_secs(3));
    let after = w.view();
    assert_eq!((after.term, after.version), (before.term + 51, 901));
    assert_eq!(after.counters.term_jumps, before.counters.term_jumps + 1);
    assert!(w.clients.iter().all(|c| c.seen_term == after.term && c.version == 901));
    assert!(all_near(&w.shares(&key("s", "b")), 2.0 / 3.0));
}

#[test]
fn a_parent_of_an_older_term_is_ignored_and_counted() {
    let mut w = loaded(6);
    let now = w.now;
    let before = w.aggregators[0].view();
    w.aggregators[0].handle_parent(
        now,
        sluicegate_model::Down::Configuration(sluicegate_model::Configuration {
            version: 999,
            term: before.term - 1,
            full: true,
            law: Law::Ratio,
            services: Vec::new(),
            removed: Vec::new(),
        }),
    );
    let after = w.aggregators[0].view();
    assert_eq!(after.counters.stale_terms, before.counters.stale_terms + 1);
    assert_eq!((after.version, after.term), (before.version, before.term));
}

#[test]
fn streams_that_break_again_and_again_do_not_stop_enforcement() {
    let mut w = loaded(7);
    for round in 0..20 {
        w.cut_parent(round % 2);
        w.cut_client(round % 10);
        w.run(Duration::from_millis(1700));
    }
    w.run(Duration::from_secs(4));
    assert!(all_near(&w.shares(&key("s", "b")), 2.0 / 3.0), "{:?}", w.shares(&key("s", "b")));
    assert_eq!(w.view().keys[0].sessions, 10);
}

fn first_session(w: &World) -> u64 {
    w.aggregators[0].view().sessions[0].id
}
