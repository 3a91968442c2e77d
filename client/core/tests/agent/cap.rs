//! The cap: one client alone stays at the limit, and drops nothing that the limit allows.

use std::time::Duration;

use proptest::prelude::*;
use sluicegate_model::{Limit, Pattern, Request, TokenRate};

use super::rig::{World, bucket, key, per_second, per_value, service};

/// Nothing comes down but the configuration, and nobody misses more, so that only the cap can drop.
fn capped(limit: Limit) -> World {
    let mut world = World::new(|settings| settings.ttl = Duration::from_secs(24 * 3600));
    world.connect();
    world.snapshot(vec![service("s", vec![bucket("b", limit)])]);
    world
}

#[test]
fn a_smooth_load_over_the_limit_is_held_to_it() {
    let mut world = capped(per_second(200, Some(20)));
    let first = world.offer("s", 600, 1);
    assert!(first >= 218, "limit and burst pass: {first}");
    let n = first + world.offer("s", 600, 9);
    // In any 10 s: limit, burst, and what a budget lends for 50 ms.
    assert!((2_018..=2_030).contains(&n), "{n}");
}

#[test]
fn a_load_at_the_limit_loses_nothing() {
    let mut world = capped(per_second(200, Some(20)));
    assert_eq!(world.offer("s", 200, 20), 4_000);
    assert_eq!(world.offer("s", 199, 20), 3_980);
}

#[test]
fn bursts_within_the_depth_lose_nothing_and_beyond_are_cut() {
    let mut world = capped(per_second(100, Some(50)));
    for second in 0..30 {
        let n = (0..100).filter(|_| world.ask("s")).count();
        // 50 are in the bucket, at most 5 more are lent.
        assert!((50..=55).contains(&n), "second {second}: {n}");
        world.run_ms(1_000);
    }
    for _ in 0..30 {
        assert!((0..50).all(|_| world.ask("s")));
        world.run_ms(500);
    }
}

#[test]
fn a_limit_over_a_window_admits_all_of_it_at_once() {
    let minute = TokenRate::per_window(60, Duration::from_secs(60), None).expect("a limit");
    let mut world = capped(Limit::Tokens(minute));
    assert_eq!((0..100).filter(|_| world.ask("s")).count(), 60);
    let n = world.offer("s", 10, 60);
    assert!((59..=61).contains(&n), "{n}");
}

#[test]
fn every_value_has_a_cap_of_its_own() {
    let rule = per_value("v", per_second(10, Some(10)));
    let mut world = World::with(vec![service("s", vec![rule])]);
    for value in ["a", "b"] {
        let _ = world.ask_for("s", value);
    }
    world.run_ms(50);
    let a = world.offer_with(100, 10, |w| w.ask_for("s", "a"));
    assert!((109..=112).contains(&a), "{a}");
    assert!((0..10).all(|_| world.ask_for("s", "b")));
}

#[test]
fn the_cap_is_back_after_a_long_rest() {
    let mut world = capped(per_second(100, Some(10)));
    let _ = world.offer("s", 1_000, 1);
    world.run(Duration::from_secs(600));
    let n = world.offer("s", 1_000, 1);
    assert!((109..=120).contains(&n), "{n}");
}

#[test]
fn among_thousands_of_buckets_one_that_wakes_up_loses_nothing() {
    let many = |from: usize, to: usize| {
        let rule = |n| {
            let mut rule = bucket(&format!("b{n}"), per_second(1_000, Some(100)));
            rule.rule.on.procedure = vec![Pattern::parse(&format!("p{n}"))];
            rule
        };
        (from..to).map(rule).collect::<Vec<_>>()
    };
    let ask = |world: &mut World, n: usize| {
        let procedure = format!("p{n}");
        let request = Request { service: "s", procedure: &procedure, ..Request::default() };
        world.limiter.decide(&request).is_admitted()
    };
    let mut world = World::with(vec![service("s", many(0, 10))]);
    world.run_ms(3_000);
    world.delta(vec![service("s", many(0, 3_000))], &[]);
    for n in [0, 5, 7, 1_000, 2_999] {
        assert_eq!(world.offer_with(1_000, 2, |w| ask(w, n)), 2_000, "b{n}, at its limit");
        world.run_ms(3_000);
        // What a key may have admitted before its turn to be looked at comes on top, once.
        let over = world.offer_with(3_000, 2, |w| ask(w, n));
        assert!((2_100..=2_100 + 400).contains(&over), "b{n}: {over}");
    }
}

#[test]
fn a_limit_that_changes_in_flight_is_the_cap_from_then_on() {
    let mut world = capped(per_second(100, Some(10)));
    let _ = world.offer("s", 2_000, 2);
    world.delta(vec![service("s", vec![bucket("b", per_second(1_000, Some(10)))])], &[]);
    let up = world.offer("s", 2_000, 2);
    assert!((1_990..=2_070).contains(&up), "{up}");
    world.delta(vec![service("s", vec![bucket("b", per_second(50, Some(10)))])], &[]);
    let down = world.offer("s", 2_000, 4);
    assert!((150..=215).contains(&down), "what was lent is owed: {down}");
    world.delta(vec![service("s", vec![bucket("b", Limit::Unlimited)])], &[]);
    assert_eq!(world.offer("s", 2_000, 2), 4_000);
    world.delta(vec![service("s", vec![bucket("b", per_second(0, None))])], &[]);
    assert_eq!(world.offer("s", 2_000, 1), 0);
    world.delta(vec![service("s", vec![bucket("b", per_second(100, Some(10)))])], &[]);
    let again = world.offer("s", 2_000, 2);
    assert!((205..=220).contains(&again), "{again}");
    world.run_ms(1_500);
    assert_eq!(world.peer.matched(&key("s", "b")), 2_000 * 13);
}

#[test]
fn what_passed_before_a_limit_fell_is_charged_to_the_old_one() {
    let mut world = capped(per_second(1_000, Some(100)));
    let _ = world.offer("s", 500, 1);
    world.run_ms(3);
    // Refilled at the old rate long before the new limit comes, both between two looks.
    assert!(world.ask("s"));
    world.run_ms(5);
    world.delta(vec![service("s", vec![bucket("b", per_second(1, Some(1)))])], &[]);
    world.run_ms(20);
    assert!(world.ask("s"), "the bucket of the new limit is full");
}

#[test]
fn what_passed_while_a_key_rested_is_not_charged_to_a_lower_limit() {
    let mut world = capped(per_second(1_000, Some(100)));
    world.run_ms(15);
    assert!(world.ask("s") && world.ask("s") && world.ask("s"));
    world.run_ms(3);
    world.delta(vec![service("s", vec![bucket("b", per_second(1, Some(1)))])], &[]);
    world.run_ms(20);
    assert!(world.ask("s"), "the bucket of the new limit is full");
}

#[test]
fn a_limit_that_the_root_raised_already_is_not_cut_short() {
    let mut world = capped(per_second(100, Some(10)));
    let _ = world.offer("s", 100, 2);
    let id = world.peer.id_of(&key("s", "b"));
    let raised = sluicegate_model::Directive { limit_rps: 400.0, ..world.directive(1.0) };
    world.send(id, raised);
    assert_eq!(world.offer("s", 400, 5), 2_000);
}

#[test]
fn stripes_overshoot_once_and_pay_it_back() {
    let mut world = World::new(|settings| settings.max_stripes = 8);
    world.connect();
    world.snapshot(vec![service("s", vec![bucket("b", per_second(2_000, Some(200)))])]);
    let n = world.offer("s", 6_000, 10);
    assert!((20_190..=20_400).contains(&n), "{n}");
    assert_eq!(world.agent.counters().keys_promoted.get(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Beside a token bucket that is asked at each request: never fewer, never more than the lent.
    #[test]
    fn against_a_token_bucket(
        limit in 20_u64..2_000,
        burst in 1_u64..200,
        waves in proptest::collection::vec((0_u64..400, 1_u64..300), 1..60),
    ) {
        let mut world = capped(per_second(limit, Some(burst)));
        let (rate, depth) = (limit as f64, burst as f64);
        let (start, mut level, mut at) = (world.now, depth, world.now);
        let (mut owed, mut admitted) = (0_u64, 0_u64);
        for (gap_ms, many) in waves {
            world.run_ms(gap_ms);
            level = (level + rate * world.now.since(at).as_secs_f64()).min(depth);
            at = world.now;
            for _ in 0..many {
                if level >= 1.0 {
                    level -= 1.0;
                    owed += 1;
                }
                admitted += u64::from(world.ask("s"));
            }
            let span = world.now.since(start).as_secs_f64();
            let most = depth + rate * (span + 0.05) + 1.0;
            prop_assert!(admitted >= owed, "{} of {} owed at {:?}", admitted, owed, span);
            prop_assert!(admitted as f64 <= most, "{} of at most {}", admitted, most);
        }
    }
}
