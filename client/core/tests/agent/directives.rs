//! What comes down: taken at once, only if it is newer, only for keys that are there.

use sluicegate_model::{AdmitRatio, Directive, Down, Mode, OnControlLoss, Update};

use super::rig::{TTL, World, bucket, close_to, key, per_second, service};

fn used() -> World {
    let mut world = World::with(vec![service("s", vec![bucket("b", per_second(100_000, None))])]);
    world.offer("s", 1_000, 2);
    world
}

#[test]
fn a_directive_holds_from_its_arrival_not_from_the_next_look() {
    let mut world = used();
    let directive = Directive { ttl: TTL, ..world.directive(0.0) };
    let id = world.peer.id_of(&key("s", "b"));
    world.send(id, directive);
    assert!((0..100).all(|_| !world.ask("s")));
    world.direct(&key("s", "b"), 1.0);
    assert!((0..100).all(|_| world.ask("s")));
}

#[test]
fn the_ratio_is_kept_to() {
    let mut world = used();
    for (ratio, seconds) in [(2.0 / 3.0, 5), (0.25, 5)] {
        world.direct(&key("s", "b"), ratio);
        let admitted = world.offer("s", 1_500, seconds);
        let expected = 1_500.0 * 5.0 * ratio;
        assert!(close_to(admitted, expected, 0.01), "{admitted} of {expected}");
    }
}

#[test]
fn older_terms_older_numbers_and_unknown_ids_change_nothing() {
    let mut world = used();
    let id = world.peer.id_of(&key("s", "b"));
    let newest = Directive { term: 5, seq: 9, ..world.directive(1.0) };
    world.send(id, newest);
    let none = Directive { admit: AdmitRatio::NONE, ..newest };
    world.send(id, Directive { term: 4, seq: 50, ..none });
    world.send(id, Directive { term: 5, seq: 8, ..none });
    world.send(id + 17, Directive { term: 5, seq: 51, ..none });
    assert!((0..100).all(|_| world.ask("s")));
    let counters = world.agent.counters();
    assert_eq!(counters.directives_older_term.get(), 1);
    assert_eq!(counters.directives_older_seq.get(), 1);
    assert_eq!(counters.directives_unknown_key.get(), 1);
    // A higher term numbers from the start again, and so does a new stream.
    world.send(id, Directive { term: 6, seq: 1, ..none });
    assert!(!world.ask("s"));
    world.send(id, Directive { term: 6, seq: 50, ..none });
    world.disconnect();
    world.connect();
    let id = world.peer.id_of(&key("s", "b"));
    world.send(id, Directive { term: 6, seq: 1, ..newest });
    assert!(world.ask("s"));
    world.send(id, Directive { term: 5, seq: 99, ..none });
    assert!(world.ask("s"), "terms go on over streams");
    let configured = world.agent.version();
    world.configuration(99, 5, true, Vec::new(), &[]);
    assert_eq!(world.agent.version(), configured, "of an older term");
    assert_eq!(counters.configurations_older_term.get(), 1);
}

#[test]
fn an_acknowledgement_of_what_was_never_sent_is_absorbed() {
    let mut world = used();
    world.down(Down::Update(Update { ack_seq: 1_000, directives: Vec::new() }));
    assert_eq!(world.agent.counters().acks_unknown.get(), 1);
    world.offer("s", 100, 2);
    world.run_ms(1_500);
    assert_eq!(world.peer.matched(&key("s", "b")), 2_200);
}

#[test]
fn messages_without_a_stream_are_absorbed() {
    let mut world = used();
    let id = world.peer.id_of(&key("s", "b"));
    let directive = world.directive(0.0);
    world.disconnect();
    world.send(id, directive);
    assert!(world.ask("s"));
    assert_eq!(world.agent.counters().messages_without_stream.get(), 1);
}

#[test]
fn a_limit_of_zero_drops_always_and_no_limit_never() {
    let mut closed = bucket("zero", per_second(0, None));
    closed.on_control_loss = OnControlLoss::Open;
    let mut world = World::with(vec![
        service("z", vec![closed]),
        service("u", vec![bucket("free", sluicegate_model::Limit::Unlimited)]),
    ]);
    assert_eq!(world.offer("z", 100, 3), 0);
    assert_eq!(world.offer("u", 100, 3), 300);
    world.direct(&key("z", "zero"), 1.0);
    world.direct(&key("u", "free"), 0.0);
    assert_eq!(world.offer("z", 100, 1), 0);
    assert_eq!(world.offer("u", 100, 1), 100);
    world.disconnect();
    assert_eq!(world.offer("z", 10, 60), 0, "nothing opens a limit of 0");
    world.pause(TTL * 100);
    assert!(!world.ask("z"), "not even an agent that is dead");
    assert!(world.ask("u"));
}

#[test]
fn a_shadow_drops_nothing_and_says_what_it_would_have() {
    let mut shadow = bucket("b", per_second(100_000, None));
    shadow.mode = Mode::Shadow;
    let mut world = World::with(vec![service("s", vec![shadow])]);
    world.offer("s", 1_000, 2);
    world.direct(&key("s", "b"), 0.25);
    assert_eq!(world.offer("s", 1_000, 4), 4_000);
    world.run_ms(1_500);
    let counts = world.peer.totals[&key("s", "b")];
    assert_eq!((counts.matched, counts.admitted), (6_000, 6_000));
    assert!(close_to(counts.would_drop, 3_000.0, 0.01), "{}", counts.would_drop);
}
