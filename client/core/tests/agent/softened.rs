//! Buckets that enforce only a part of their drops, or never more than a share.

use sluicegate_model::{Bucket, Law, Mode, OnControlLoss};

use super::rig::{World, bucket, close_to, key, per_second, service};

const LAWS: [Law; 2] = [Law::Ratio, Law::Grant];

fn soft(limit: u64, enforce: f64, max_drop: f64) -> Bucket {
    Bucket { enforce, max_drop, ..bucket("b", per_second(limit, None)) }
}

fn world(law: Law, bucket: Bucket) -> World {
    let mut world = World::new(|_| {});
    world.law = law;
    world.connect();
    world.snapshot(vec![service("s", vec![bucket])]);
    world
}

/// Admitted, and what of it the limit was charged.
fn shares(world: &mut World, told: f64) -> (f64, f64) {
    world.offer("s", 1_000, 2);
    world.direct(&key("s", "b"), told);
    world.run_ms(1_200);
    let before = world.peer.totals[&key("s", "b")];
    world.offer("s", 1_000, 8);
    world.run_ms(1_200);
    let counts = world.peer.totals[&key("s", "b")].since(&before);
    assert_eq!(counts.matched, 8_000);
    (counts.admitted as f64 / 8_000.0, counts.charged() as f64 / 8_000.0)
}

#[test]
fn a_part_of_the_drops_is_enforced_and_the_rest_is_a_shadow() {
    for law in LAWS {
        for (enforce, max_drop, told, admitted) in [
            (0.5, 1.0, 0.4, 0.7),
            (0.1, 1.0, 0.0, 0.9),
            (1.0, 0.25, 0.4, 0.75),
            (1.0, 0.25, 0.9, 0.9),
            (0.5, 0.25, 0.2, 0.75),
            (0.5, 0.25, 1.0, 1.0),
        ] {
            let mut world = world(law, soft(2_000, enforce, max_drop));
            let (passed, charged) = shares(&mut world, told);
            let what = format!("{law:?}: told {told}, enforced {enforce}, at most {max_drop}");
            assert!((passed - admitted).abs() < 0.003, "{what}: {passed}");
            assert!((charged - told).abs() < 0.003, "{what}: {charged} charged");
        }
    }
}

#[test]
fn what_passed_before_a_directive_is_booked_by_the_old_one() {
    for law in LAWS {
        let mut world = world(law, soft(2_000, 0.5, 1.0));
        world.offer("s", 1_000, 2);
        world.direct(&key("s", "b"), 1.0);
        world.run_ms(1_200);
        let before = world.peer.totals[&key("s", "b")];
        for _ in 0..200 {
            // Both between two looks.
            assert!((0..4).all(|_| world.ask("s")));
            world.direct(&key("s", "b"), 0.0);
            world.run_ms(10);
            world.direct(&key("s", "b"), 1.0);
        }
        world.run_ms(1_200);
        let counts = world.peer.totals[&key("s", "b")].since(&before);
        assert_eq!((counts.admitted, counts.would_drop), (800, 0), "{law:?}");
    }
}

#[test]
fn there_is_no_cap() {
    for law in LAWS {
        let mut world = world(law, soft(100, 0.5, 1.0));
        assert_eq!(world.offer("s", 1_000, 5), 5_000, "{law:?}");
        let guarded = Bucket { guard: true, ..soft(2_000, 0.5, 1.0) };
        let mut world = self::world(law, guarded);
        world.offer("s", 100, 2);
        world.direct(&key("s", "b"), 1.0);
        assert_eq!(world.offer("s", 10_000, 1), 10_000, "{law:?}");
    }
}

#[test]
fn a_limit_of_zero_is_softened_too_and_from_the_first_request_on() {
    for law in LAWS {
        let mut world = world(law, soft(0, 0.25, 1.0));
        let admitted = world.offer("s", 1_000, 4);
        assert!(close_to(admitted, 3_000.0, 0.005), "{law:?}: {admitted}");
        world.run_ms(1_200);
        let counts = world.peer.totals[&key("s", "b")];
        assert_eq!((counts.admitted, counts.charged()), (admitted, 0), "{law:?}");
        // It rests, and is used again; and nobody is there to direct it.
        world.run_ms(30_000);
        world.disconnect();
        let admitted = world.offer("s", 1_000, 40);
        assert!(close_to(admitted, 30_000.0, 0.005), "{law:?}: {admitted}");
        world.delta(vec![], &[]);
        world.connect();
        world.snapshot(vec![service("s", vec![soft(0, 1.0, 1.0)])]);
        assert_eq!(world.offer("s", 100, 1), 0, "{law:?}: enforced whole");
        world.snapshot(vec![service("s", vec![soft(0, 1.0, 0.5)])]);
        let admitted = world.offer("s", 1_000, 2);
        assert!(close_to(admitted, 1_000.0, 0.01), "{law:?}: {admitted}");
        world.run_ms(1_200);
        let counts = world.peer.totals[&key("s", "b")];
        assert_eq!(counts.charged(), 0, "{law:?}");
        assert_eq!(counts.matched, 47_000 - 900, "{law:?}");
    }
}

#[test]
fn a_shadow_of_limit_zero_drops_nothing_and_says_all_of_it() {
    for law in LAWS {
        let shadow = Bucket { mode: Mode::Shadow, ..soft(0, 0.25, 1.0) };
        let mut world = world(law, shadow);
        assert_eq!(world.offer("s", 1_000, 2), 2_000);
        world.run_ms(1_200);
        let counts = world.peer.totals[&key("s", "b")];
        assert_eq!((counts.admitted, counts.would_drop), (2_000, 2_000), "{law:?}");
    }
}

#[test]
fn when_control_is_lost_what_the_owner_chose_is_softened() {
    for law in LAWS {
        let closed = Bucket { on_control_loss: OnControlLoss::Closed, ..soft(2_000, 1.0, 0.25) };
        let mut world = world(law, closed);
        world.offer("s", 1_000, 2);
        world.direct(&key("s", "b"), 0.5);
        world.disconnect();
        let last = (0..25).map(|_| world.offer("s", 1_000, 1)).next_back();
        assert!(close_to(last.expect("a second"), 750.0, 0.01), "{law:?}: {last:?}");
    }
}
