//! Buckets that come and change: whole per service, in order of version, disturbing nobody else.

use std::time::Duration;

use sluicegate_model::{Mode, OnControlLoss};

use super::rig::{World, bucket, close_to, key, name, per_second, per_value, service, value_key};

fn two_services() -> World {
    World::with(vec![
        service("a", vec![bucket("a1", per_second(5_000, None))]),
        service(
            "b",
            vec![bucket("b1", per_second(5_000, None)), per_value("b2", per_second(5_000, None))],
        ),
    ])
}

#[test]
fn a_configuration_is_acknowledged_and_an_older_one_ignored() {
    let mut world = two_services();
    assert_eq!(world.peer.applied, [1]);
    world.delta(vec![service("c", vec![bucket("c1", per_second(0, None))])], &[]);
    assert_eq!(world.peer.applied, [1, 2]);
    assert!(!world.ask("c"));
    // A delta again, an older delta, an older snapshot.
    let open = || vec![service("c", vec![bucket("c1", per_second(10, None))])];
    world.configuration(2, 1, false, open(), &[]);
    world.configuration(1, 1, false, open(), &[]);
    world.configuration(1, 1, true, open(), &[]);
    assert!(!world.ask("c"));
    assert_eq!(world.peer.applied, [1, 2]);
    assert_eq!(world.agent.version(), 2);
    let counters = world.agent.counters();
    assert_eq!(counters.configurations_older_version.get(), 3);
    assert_eq!(counters.configurations.get(), 2);
}

#[test]
fn a_control_plane_that_began_anew_is_believed_once_it_goes_beyond_the_hello() {
    let mut world = two_services();
    world.configuration(40, 6, true, vec![service("a", vec![])], &[]);
    world.disconnect();
    world.connect();
    let hello = world.peer.hello.clone().expect("a hello");
    assert_eq!((hello.seen_term, hello.seen_version), (6, 40));
    let zero = || vec![service("a", vec![bucket("a1", per_second(0, None))])];
    world.configuration(1, 1, true, zero(), &[]);
    assert!(world.ask("a"), "of an older term");
    world.configuration(41, 7, true, zero(), &[]);
    assert!(!world.ask("a"));
    // The same version again, as a snapshot on a new stream, is applied and acknowledged again.
    world.disconnect();
    world.connect();
    world.configuration(41, 7, true, zero(), &[]);
    assert_eq!(world.peer.applied.last(), Some(&41));
}

#[test]
fn a_reload_of_one_service_disturbs_no_other() {
    let mut world = two_services();
    let both = |world: &mut World| world.ask("a") & world.ask_for("b", "x");
    let _ = world.offer_with(1_000, 2, both);
    for rule in [key("b", "b1"), value_key("b", "b2", "x")] {
        world.direct(&rule, 0.5);
    }
    let before = world.offer_with(1_000, 2, |w| w.ask_for("b", "x"));
    assert!(close_to(before, 500.0, 0.1), "{before}");
    world.delta(vec![service("a", vec![bucket("a1", per_second(9, None))])], &[]);
    world.delta(vec![service("c", vec![bucket("c1", per_second(9, None))])], &["a"]);
    let after = world.offer_with(1_000, 2, |w| w.ask_for("b", "x"));
    assert!(close_to(after, 500.0, 0.1), "the directives are in force: {after}");
    world.run_ms(1_500);
    assert_eq!(world.peer.matched(&key("b", "b1")), 6_000);
    assert_eq!(world.peer.attempts[&name("b")], 6_000);
    let ids = world.peer.ids.values().filter(|(n, _)| n.service == name("b")).count();
    assert!(ids <= 3, "no key of b was made again");
    assert_eq!(world.peer.ids.values().filter(|(n, _)| n.service == name("a")).count(), 0);
}

#[test]
fn a_service_that_goes_is_counted_to_the_end_and_may_come_back() {
    let mut world = two_services();
    let _ = world.offer("a", 100, 2);
    for _ in 0..50 {
        let _ = world.ask("a");
    }
    world.delta(vec![], &["a"]);
    assert!((0..20).all(|_| world.ask("a")), "no bucket matches any more");
    world.run_ms(5_000);
    assert_eq!(world.peer.matched(&key("a", "a1")), 250);
    assert_eq!(world.peer.attempts[&name("a")], 250);
    assert_eq!(world.peer.retired, 1, "its id is given back");
    world.delta(vec![service("a", vec![bucket("a1", per_second(5_000, None))])], &[]);
    let _ = world.offer("a", 100, 1);
    world.run_ms(2_500);
    assert_eq!(world.peer.matched(&key("a", "a1")), 350);
    assert_eq!(world.peer.attempts[&name("a")], 350);
}

#[test]
fn a_snapshot_takes_away_what_it_does_not_name() {
    let mut world = two_services();
    world.snapshot(vec![service("a", vec![bucket("a1", per_second(0, None))])]);
    assert!(!world.ask("a"));
    assert!(world.ask_for("b", "x"));
    let _ = world.offer("b", 100, 2);
    world.run_ms(1_500);
    assert_eq!(world.peer.matched(&key("b", "b1")), 0);
}

#[test]
fn a_changed_limit_or_mode_keeps_counts_and_directive() {
    let mut world = two_services();
    let _ = world.offer("a", 1_000, 2);
    world.direct(&key("a", "a1"), 0.5);
    world.delta(vec![service("a", vec![bucket("a1", per_second(7_000, None))])], &[]);
    let n = world.offer("a", 1_000, 2);
    assert!(close_to(n, 1_000.0, 0.02), "{n}");
    let mut shadow = bucket("a1", per_second(7_000, None));
    shadow.mode = Mode::Shadow;
    world.delta(vec![service("a", vec![shadow.clone()])], &[]);
    assert_eq!(world.offer("a", 1_000, 2), 2_000);
    shadow.mode = Mode::Deny;
    shadow.on_control_loss = OnControlLoss::Last;
    world.delta(vec![service("a", vec![shadow])], &[]);
    world.direct(&key("a", "a1"), 0.5);
    world.run(Duration::from_secs(1));
    world.disconnect();
    let _ = world.offer("a", 1_000, 25);
    let n = world.offer("a", 1_000, 2);
    assert!(close_to(n, 1_000.0, 0.02), "what is to happen at a loss may change too: {n}");
    world.connect();
    world.run_ms(2_000);
    assert_eq!(world.peer.matched(&key("a", "a1")), 33_000);
}
