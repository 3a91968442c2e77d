//! What happens when nothing comes down any more: ttl, ramp, and what the owner chose; and back.

use std::time::Duration;

use sluicegate_model::OnControlLoss;

use super::rig::{TTL, World, bucket, close_to, key, per_second, service};

/// A client offered 1,000 a second that was told to admit a quarter; the stream broke just then.
fn cut_off(on_loss: OnControlLoss) -> World {
    let mut rule = bucket("b", per_second(600, None));
    rule.on_control_loss = on_loss;
    let mut world = World::with(vec![service("s", vec![rule])]);
    world.offer("s", 400, 2);
    for _ in 0..5 {
        world.direct(&key("s", "b"), 0.25);
        world.offer("s", 1_000, 2);
    }
    world.direct(&key("s", "b"), 0.25);
    world.disconnect();
    world
}

/// Admitted in each of the coming seconds.
fn seconds(world: &mut World, rate: u64, many: usize) -> Vec<u64> {
    (0..many).map(|_| world.offer("s", rate, 1)).collect()
}

#[test]
fn open_ramps_to_everything_and_no_cap() {
    let mut world = cut_off(OnControlLoss::Open);
    let admitted = seconds(&mut world, 1_000, 30);
    for (second, n) in admitted.iter().enumerate() {
        let expected = match second {
            0..=9 => 250.0,
            // The middle of each second of the ramp.
            10..=14 => 250.0 + 75.0 * (second as f64 - 9.5),
            // The cap holds as long as the ramp lasts, after the burst of 60 and what is lent.
            15..=19 => 600.0,
            _ => 1_000.0,
        };
        let burst = if second == 15 { 0.15 } else { 0.0 };
        assert!(close_to(*n, expected, 0.06 + burst), "second {second}: {n}, not {expected}");
    }
    assert_eq!(admitted[21..].iter().sum::<u64>(), 9_000);
}

#[test]
fn last_keeps_the_ratio_for_ever() {
    let mut world = cut_off(OnControlLoss::Last);
    for (second, n) in seconds(&mut world, 1_000, 60).iter().enumerate() {
        assert!(close_to(*n, 250.0, 0.03), "second {second}: {n}");
    }
    let capped: u64 = seconds(&mut world, 10_000, 10).iter().sum();
    assert!(close_to(capped, 6_060.0, 0.03), "and the cap: {capped}");
}

#[test]
fn closed_ramps_to_nothing() {
    let mut world = cut_off(OnControlLoss::Closed);
    let admitted = seconds(&mut world, 1_000, 25);
    for (second, n) in admitted.iter().enumerate() {
        let expected = match second {
            0..=9 => 250.0,
            10..=19 => 250.0 * (1.0 - (second as f64 - 9.5) / 10.0),
            _ => 0.0,
        };
        assert!((*n as f64 - expected).abs() < 8.0, "second {second}: {n}, not {expected}");
    }
    world.pause(Duration::from_secs(3_600));
    assert!(!world.ask("s"), "a dead agent opens nothing that is to be closed");
}

#[test]
fn share_goes_on_with_what_this_client_admitted() {
    let mut world = cut_off(OnControlLoss::Share);
    let _ = seconds(&mut world, 1_000, 21);
    for rate in [1_000, 3_000, 500, 2_000] {
        let kept: u64 = seconds(&mut world, rate, 40).iter().sum();
        assert!(close_to(kept, 250.0 * 40.0, 0.05), "offered {rate}: {kept} in 40 s");
    }
    let below = seconds(&mut world, 200, 15);
    assert_eq!(below[8..].iter().sum::<u64>(), 7 * 200, "what is below it passes: {below:?}");
}

#[test]
fn a_new_directive_ends_the_loss_at_once() {
    for on_loss in
        [OnControlLoss::Open, OnControlLoss::Last, OnControlLoss::Share, OnControlLoss::Closed]
    {
        let mut world = cut_off(on_loss);
        let _ = seconds(&mut world, 1_000, 40);
        world.connect();
        world.direct(&key("s", "b"), 0.5);
        let n = world.offer("s", 1_000, 2);
        assert!(close_to(n, 1_000.0, 0.03), "{on_loss:?}: {n}");
    }
}

#[test]
fn a_directive_that_is_not_refreshed_runs_out_though_the_stream_is_open() {
    let mut world = cut_off(OnControlLoss::Open);
    world.connect();
    let admitted = seconds(&mut world, 500, 22);
    assert!(close_to(admitted[5], 125.0, 0.05), "{admitted:?}");
    assert!(close_to(admitted[21], 500.0, 0.01), "{admitted:?}");
}

#[test]
fn a_key_that_was_quiet_when_its_directive_ran_out_has_not_lost_control() {
    let mut world = cut_off(OnControlLoss::Closed);
    world.connect();
    world.run(Duration::from_secs(60));
    assert!((0..50).all(|_| world.ask("s")), "nobody refreshes the directive of a quiet key");
    // But the cap is there, since the control plane is.
    let n = world.offer("s", 2_000, 3);
    assert!(n <= 1_900, "{n}");
}

#[test]
fn a_key_never_directed_is_capped_only_while_the_control_plane_is_there() {
    let mut world = World::with(vec![service("s", vec![bucket("b", per_second(100, None))])]);
    let n = world.offer("s", 1_000, 5);
    assert!((500..=520).contains(&n), "{n}");
    world.disconnect();
    let _ = world.offer("s", 1_000, 10);
    assert_eq!(world.offer("s", 1_000, 5), 5_000);
    world.connect();
    world.run_ms(100);
    world.snapshot(vec![service("s", vec![bucket("b", per_second(100, None))])]);
    let n = world.offer("s", 1_000, 5);
    assert!((500..=620).contains(&n), "capped again: {n}");
}

#[test]
fn a_quiet_key_closed_by_a_loss_is_open_with_the_first_message_after_it() {
    let mut rule = bucket("b", per_second(100, None));
    rule.on_control_loss = OnControlLoss::Closed;
    let services = || vec![service("s", vec![rule.clone()])];
    let mut world = World::with(services());
    world.run_ms(5_000);
    world.disconnect();
    world.run(TTL * 3);
    assert!(world.ask("s"), "the slot of a key at rest is not written until it is used");
    world.run_ms(5_000);
    assert!(!world.ask("s"), "closed");
    world.run_ms(5_000);
    world.connect();
    world.ack();
    assert!(world.ask("s"), "nobody will direct a key that nobody uses");
}

#[test]
fn before_the_first_configuration_everything_is_admitted() {
    let mut world = World::new(|_| {});
    assert_eq!(world.offer("s", 1_000, 2), 2_000);
    world.connect();
    assert_eq!(world.offer("s", 1_000, 2), 2_000);
    assert!(world.peer.reports.is_empty());
}

#[test]
fn a_dead_agent_drops_no_longer_than_ttl_and_ramp() {
    let mut world = cut_off(OnControlLoss::Open);
    world.pause(TTL * 2 + Duration::from_millis(100));
    assert!((0..1_000).all(|_| world.ask("s")));
}

#[test]
fn an_agent_that_was_stopped_goes_on_where_time_is_now() {
    let mut world = cut_off(OnControlLoss::Open);
    world.connect();
    world.direct(&key("s", "b"), 0.25);
    for _ in 0..20_000 {
        let _ = world.ask("s");
    }
    world.pause(Duration::from_secs(30));
    // One look: the directive ran out 20 s ago, the ramp is over.
    world.run_ms(1);
    assert!((0..5_000).all(|_| world.ask("s")));
    world.direct(&key("s", "b"), 1.0);
    world.run_ms(200);
    assert!((0..60).all(|_| world.ask("s")), "what passed meanwhile is no debt");
}
