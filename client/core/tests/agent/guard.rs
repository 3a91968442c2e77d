//! The guard: what a client admits of a surge before word of it has come back.

use std::time::Duration;

use sluicegate_client_core::Settings;
use sluicegate_model::{Bucket, Directive};

use super::rig::{World, bucket, close_to, key, per_second, service};

/// What a root says: share, sigma, limit, sessions.
type Said = (f64, f32, f64, u32);
/// A tenth of 20,000 a second is this client's part; half of what there is in use.
const CALM: Said = (1.0, 2.0, 20_000.0, 10);

fn guarded() -> Bucket {
    Bucket { guard: true, ..bucket("b", per_second(20_000, None)) }
}

fn tell(world: &mut World, (admit, sigma, limit_rps, sessions): Said) {
    let id = world.peer.id_of(&key("s", "b"));
    let directive = Directive { sigma, limit_rps, sessions, ..world.directive(admit) };
    world.send(id, directive);
}

/// A client that was offered `rate` for some seconds and told `said` all the while.
fn steady(bucket: Bucket, rate: u64, said: Said, change: impl FnOnce(&mut Settings)) -> World {
    let mut world = World::granting(vec![service("s", vec![bucket])], change);
    world.offer("s", rate, 1);
    for _ in 0..3 {
        tell(&mut world, said);
        world.offer("s", rate, 1);
    }
    tell(&mut world, said);
    world
}

/// Admitted of a surge of 10,000 a second in half a second in which no word of it comes back.
fn half_a_second_of_surge(world: &mut World) -> u64 {
    world.acks = false;
    let start = world.now;
    let mut admitted = 0;
    for n in 1..=5_000 {
        world.run_until(start + Duration::from_micros(n * 100));
        admitted += u64::from(world.ask("s"));
    }
    admitted
}

#[test]
fn a_surge_is_cut_off_at_once() {
    let mut world = steady(guarded(), 1_000, CALM, |_| {});
    let n = half_a_second_of_surge(&mut world);
    // 1.5 * 1,000 and a quarter of 2,000 a second, and 30 ms of that.
    assert!(close_to(n, 1_000.0 + 60.0, 0.03), "{n}");
}

#[test]
fn without_a_guard_it_is_not() {
    let plain = bucket("b", per_second(20_000, None));
    assert_eq!(half_a_second_of_surge(&mut steady(plain, 1_000, CALM, |_| {})), 5_000);
    let mut off = steady(guarded(), 1_000, CALM, |s| s.switches.guard = false);
    assert_eq!(half_a_second_of_surge(&mut off), 5_000);
}

#[test]
fn limits_too_low_or_too_thinly_spread_are_not_guarded() {
    let small = Bucket { guard: true, ..bucket("b", per_second(20_000, None)) };
    let thin = (1.0, 2.0, 20_000.0, 20_001);
    assert_eq!(half_a_second_of_surge(&mut steady(small, 1_000, thin, |_| {})), 5_000);
    let low = Bucket { guard: true, ..bucket("b", per_second(200, Some(10_000))) };
    let said = (1.0, 2.0, 200.0, 1);
    assert!(half_a_second_of_surge(&mut steady(low, 100, said, |_| {})) > 4_500);
}

#[test]
fn nothing_is_dropped_before_the_first_directive() {
    let mut world = World::granting(vec![service("s", vec![guarded()])], |_| {});
    world.offer("s", 1_000, 2);
    assert_eq!(half_a_second_of_surge(&mut world), 5_000);
}

#[test]
fn a_steady_load_loses_nothing() {
    for (rate, admit) in [(50, 1.0), (1_000, 1.0), (5_000, 1.0)] {
        let mut world = steady(guarded(), rate, (admit, 2.0, 20_000.0, 10), |_| {});
        let mut admitted = 0;
        for _ in 0..20 {
            tell(&mut world, (admit, 2.0, 20_000.0, 10));
            admitted += world.offer("s", rate, 1);
        }
        assert_eq!(admitted, rate * 20, "{rate} a second");
    }
}

#[test]
fn under_a_ratio_it_leaves_the_ratio_alone() {
    let said = (0.25, 0.25, 20_000.0, 10);
    let mut world = steady(guarded(), 8_000, said, |_| {});
    let mut admitted = 0;
    for _ in 0..10 {
        tell(&mut world, said);
        admitted += world.offer("s", 8_000, 1);
    }
    assert!(close_to(admitted, 20_000.0, 0.005), "{admitted}");
}

/// What was acknowledged counts, not what is: until the root knows of more, there is no more.
#[test]
fn it_follows_what_was_acknowledged() {
    let mut world = steady(guarded(), 1_000, CALM, |_| {});
    world.acks = false;
    for _ in 0..2 {
        tell(&mut world, CALM);
        let n = world.offer("s", 4_000, 1);
        assert!(close_to(n, 2_060.0, 0.04), "{n}");
    }
    world.acks = true;
    tell(&mut world, CALM);
    // It fills from here on.
    let n = world.offer("s", 4_000, 1);
    assert!(n >= 3_960, "{n}");
}

#[test]
fn it_is_tighter_without_a_directive_holds_through_the_ramp_and_then_goes() {
    // At first 1.5 * 500 and a quarter of 2,000; then 500 and a tenth of 2,000. Or 1,000 told.
    for (admit, first, later) in [(0.5, 1_250.0, 700.0), (1.0, 2_000.0, 1_200.0)] {
        let mut world = steady(guarded(), 1_000, (admit, 0.5, 20_000.0, 10), |_| {});
        world.disconnect();
        let seconds: Vec<u64> = (0..26).map(|_| world.offer("s", 4_000, 1)).collect();
        assert!(close_to(seconds[1], first, 0.04), "{seconds:?}");
        for n in &seconds[3..19] {
            assert!(close_to(*n, later, 0.04), "{seconds:?}");
        }
        assert_eq!(seconds[22..], [4_000; 4], "{seconds:?}");
    }
}

#[test]
fn stripes_overshoot_once_and_pay_it_back() {
    let mut world = steady(guarded(), 4_000, CALM, |settings| settings.max_stripes = 8);
    assert_eq!(world.agent.counters().keys_promoted.get(), 1);
    world.acks = false;
    let n = world.offer("s", 20_000, 2);
    // 6,500 a second, and 195 in the guard, once for this stripe and once for the shared cells.
    assert!((13_000..=13_000 + 2 * 195 + 130).contains(&n), "{n}");
}
