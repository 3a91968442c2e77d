//! Keys of values come and go: bounded, counted to the end, and never as an amnesty.

use std::time::Duration;

use sluicegate_model::OnControlLoss;

use super::rig::{World, per_second, per_value, service, value_key};

const IDLE: Duration = Duration::from_secs(20);

fn world(max_keys: u32) -> World {
    let mut rule = per_value("v", per_second(1_000, None));
    rule.per.as_mut().expect("per").max_keys = max_keys;
    let mut world = World::new(|settings| settings.value_idle = IDLE);
    world.connect();
    world.snapshot(vec![service("s", vec![rule])]);
    world
}

fn use_value(world: &mut World, value: &str) -> u64 {
    world.offer_with(50, 2, |w| w.ask_for("s", value))
}

#[test]
fn an_idle_value_gives_its_key_up_after_its_counts_are_acknowledged() {
    let mut world = world(2);
    for value in ["a", "b", "c"] {
        let _ = use_value(&mut world, value);
    }
    world.run(IDLE + Duration::from_secs(5));
    assert_eq!(world.agent.counters().keys_evicted.get(), 2);
    assert_eq!(world.peer.retired, 2);
    let first = world.peer.matched(&value_key("s", "v", "a"));
    assert!((97..=99).contains(&first), "all but those before the key was made: {first}");
    // There is room for another value now, and a value that returns counts on.
    let _ = use_value(&mut world, "d");
    let _ = use_value(&mut world, "a");
    world.run_ms(2_500);
    let (a, d) = (value_key("s", "v", "a"), value_key("s", "v", "d"));
    assert!(world.peer.matched(&d) >= 97 && world.peer.matched(&a) >= first + 97);
    let all: u64 = world.peer.totals.values().map(|c| c.matched).sum();
    assert_eq!(all, 500);
}

#[test]
fn a_value_whose_counts_nobody_has_keeps_its_key() {
    let mut world = world(10);
    let _ = use_value(&mut world, "a");
    world.disconnect();
    let _ = use_value(&mut world, "b");
    world.run(IDLE * 5);
    assert_eq!(world.agent.counters().keys_evicted.get(), 0);
    world.connect();
    world.run(Duration::from_secs(5));
    assert!(world.peer.matched(&value_key("s", "v", "b")) >= 97);
    assert_eq!(world.agent.counters().keys_evicted.get(), 2);
}

#[test]
fn a_value_whose_directive_drops_is_not_let_off() {
    let mut world = world(10);
    let _ = use_value(&mut world, "a");
    // Refreshed though the value is quiet.
    for _ in 0..30 {
        world.direct(&value_key("s", "v", "a"), 0.0);
        world.run(Duration::from_secs(2));
    }
    assert_eq!(world.agent.counters().keys_evicted.get(), 0);
    assert!(!world.ask_for("s", "a"));
    world.run(IDLE * 3);
    assert_eq!(world.agent.counters().keys_evicted.get(), 1, "once it has run out");
    assert!(world.ask_for("s", "a"));
}

#[test]
fn a_value_kept_out_by_a_lost_control_plane_is_not_let_off() {
    let mut rule = per_value("v", per_second(1_000, None));
    rule.on_control_loss = OnControlLoss::Last;
    let mut world = World::new(|settings| settings.value_idle = IDLE);
    world.connect();
    world.snapshot(vec![service("s", vec![rule])]);
    let _ = use_value(&mut world, "a");
    world.run_ms(1_500);
    world.direct(&value_key("s", "v", "a"), 0.0);
    let _ = use_value(&mut world, "a");
    world.run_ms(1_500);
    world.disconnect();
    world.run(IDLE * 5);
    assert_eq!(use_value(&mut world, "a"), 0);
    assert_eq!(world.agent.counters().keys_evicted.get(), 0);
}

#[test]
fn many_values_that_come_and_go_take_no_more_room() {
    let mut world = world(50);
    for round in 0..30 {
        for n in 0..50 {
            let value = format!("{round}-{n}");
            let _ = world.ask_for("s", &value);
            world.run_ms(20);
            let _ = world.ask_for("s", &value);
        }
        world.run(IDLE + Duration::from_secs(4));
    }
    assert_eq!(world.agent.counters().keys_evicted.get(), 1_500);
    let ids = world.peer.reports.iter().flat_map(|(_, r)| &r.new_keys).map(|(id, _)| *id);
    assert!(ids.max().expect("ids") <= 51, "ids are used again");
    assert_eq!(world.peer.ids.len(), 1, "only the overflow key is left");
}
