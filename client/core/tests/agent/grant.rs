//! The law `grant`: keys are reported when they are due, surges at once.

use std::time::Duration;

use sluicegate_client_core::Switches;
use sluicegate_model::{AdmitRatio, Directive, KeyName, Law, Limit, Time};

use super::rig::{World, bucket, key, name, per_second, per_value, service, value_key};

const CALM: (f64, f32) = (1.0, 20.0);
const BUSY: (f64, f32) = (1.0, 2.0);

fn world() -> World {
    switched(|_| {})
}

fn switched(change: impl FnOnce(&mut Switches)) -> World {
    let services = vec![service("s", vec![bucket("b", per_second(20_000, None))])];
    World::granting(services, |settings| change(&mut settings.switches))
}

/// A directive of the root of `key`, for one of ten clients.
fn tell(world: &mut World, key: &KeyName, (admit, sigma): (f64, f32)) {
    let directive = world.directive(admit);
    let id = world.peer.id_of(key);
    let directive = Directive { sigma, limit_rps: 20_000.0, sessions: 10, ..directive };
    world.send(id, directive);
}

/// Even load for some seconds, with a directive every one of them; the reports of the last ones.
fn reports_of(world: &mut World, rate: u64, seconds: u64, said: (f64, f32)) -> usize {
    world.offer("s", rate, 1);
    let before = world.peer.reports.len();
    for _ in 0..seconds {
        tell(world, &key("s", "b"), said);
        world.offer("s", rate, 1);
    }
    world.peer.reports.len() - before
}

fn since(world: &World, start: Time, told: usize) -> Vec<u64> {
    let new = world.peer.reports[told..].iter();
    new.map(|(at, _)| at.since(start).as_millis().try_into().expect("small")).collect()
}

#[test]
fn a_busy_key_is_reported_at_each_tick_and_a_calm_one_each_second() {
    for (said, expected) in [(CALM, 20), (BUSY, 200), ((0.9, 20.0), 200)] {
        let mut world = world();
        let n = reports_of(&mut world, 300, 20, said);
        assert!(n.abs_diff(expected) <= 1, "{said:?}: {n} reports in 20 s");
        world.run_ms(1_200);
        assert_eq!(world.peer.matched(&key("s", "b")), 300 * 21);
    }
    let mut world = switched(|s| s.adaptive_period = false);
    assert!(reports_of(&mut world, 300, 20, CALM).abs_diff(200) <= 1);
}

#[test]
fn a_key_without_a_directive_is_reported_at_each_tick_and_one_without_a_limit_each_second() {
    let mut world = world();
    world.offer("s", 300, 10);
    assert!(world.peer.reports.len().abs_diff(101) <= 4, "{}", world.peer.reports.len());
    let free = vec![service("s", vec![bucket("b", Limit::Unlimited)])];
    let mut world = World::granting(free, |_| {});
    world.offer("s", 300, 10);
    assert!(world.peer.reports.len().abs_diff(10) <= 1, "{}", world.peer.reports.len());
}

#[test]
fn the_time_that_a_client_may_stay_silent_is_said() {
    let mut world = world();
    let last = |world: &World| world.peer.reports.last().expect("a report").1.interval;
    reports_of(&mut world, 300, 3, BUSY);
    assert_eq!(last(&world), Duration::from_millis(100));
    reports_of(&mut world, 300, 3, CALM);
    assert_eq!(last(&world), Duration::from_secs(1));
    world.run_ms(3_000);
    assert_eq!(last(&world), Duration::from_secs(10));
    let told = world.peer.reports.len();
    world.run_ms(60_000);
    assert_eq!(world.peer.reports.len(), told + 1, "that it is gone, and nothing else");
    let entry = world.peer.reports.last().expect("a report").1.entries[0];
    assert_eq!((entry.offered_rps, entry.usual_rps, entry.sessions), (0.0, 0.0, 0));
}

#[test]
fn a_calm_key_waits_while_a_busy_one_is_told() {
    let services = vec![service("s", vec![per_value("v", per_second(20_000, None))])];
    let mut world = World::granting(services, |_| {});
    let both = |world: &mut World| {
        world.offer_with(500, 1, |w| w.ask_for("s", "busy"));
        assert!((0..5).all(|_| world.ask_for("s", "calm")));
    };
    both(&mut world);
    both(&mut world);
    world.run_ms(300);
    let told = world.peer.reports.len();
    for _ in 0..10 {
        tell(&mut world, &value_key("s", "v", "busy"), BUSY);
        tell(&mut world, &value_key("s", "v", "calm"), CALM);
        both(&mut world);
    }
    let reports = &world.peer.reports[told..];
    assert!(reports.len().abs_diff(100) <= 4, "{}", reports.len());
    let id = world.peer.id_of(&value_key("s", "v", "calm"));
    let held = reports.iter().filter(|(_, r)| r.entries.iter().any(|e| e.key == id)).count();
    assert!((8..=14).contains(&held), "{held} reports hold the calm key");
    let attempts: u64 = 505 * 12;
    world.run_ms(1_500);
    assert_eq!(world.peer.attempts[&name("s")], attempts);
}

#[test]
fn a_surge_is_reported_at_the_next_look_or_two_and_followed_up() {
    // Of a calm key the jump has to make up for the time since its last report.
    for (said, most_ms) in [(CALM, 120), (BUSY, 20)] {
        let mut world = world();
        reports_of(&mut world, 100, 5, said);
        let (told, start) = (world.peer.reports.len(), world.now);
        world.offer("s", 3_000, 1);
        let at = since(&world, start, told);
        assert!(at[0] <= most_ms, "{at:?}");
        let rates: Vec<f64> =
            world.peer.reports[told..].iter().map(|(_, r)| r.entries[0].offered_rps).collect();
        assert!(rates[0] > 300.0, "{rates:?}");
        let good = at.iter().zip(&rates).find(|(_, r)| (**r - 3_000.0).abs() < 300.0);
        assert!(*good.expect("the true rate").0 <= most_ms + 60, "{at:?} {rates:?}");
        assert!(at.len() <= 20, "{at:?}");
    }
}

#[test]
fn a_calm_key_that_grows_within_its_own_share_can_wait() {
    // A tenth of 20,000 a second is this client's part: below 400 a second there is no hurry.
    let first = |world: &mut World, from: u64, to: u64| {
        reports_of(world, from, 5, CALM);
        world.run_ms(1_000);
        let (told, start) = (world.peer.reports.len(), world.now);
        world.offer("s", to, 3);
        let reports = &world.peer.reports[told..];
        (since(world, start, told)[0], reports.len())
    };
    let (_, calm) = first(&mut world(), 10, 300);
    assert!(calm <= 4, "{calm} reports in 3 s");
    let (at, _) = first(&mut world(), 10, 3_000);
    assert!(at <= 170, "{at}");
    let (_, own) = first(&mut switched(|s| s.own_share = false), 10, 3_000);
    assert!(own <= 4, "only ticks: {own}");
    let (_, early) = first(&mut switched(|s| s.early = false), 10, 3_000);
    assert!(early <= 4, "only ticks: {early}");
}

#[test]
fn with_a_low_limit_whatever_is_admitted_is_told_at_the_next_look() {
    let services = || vec![service("s", vec![bucket("b", per_second(50, None))])];
    let mut world = World::granting(services(), |_| {});
    world.offer("s", 5, 4);
    let rate = world.peer.rates[&key("s", "b")];
    for _ in 0..5 {
        tell(&mut world, &key("s", "b"), BUSY);
        world.run_ms(203);
        let (told, at) = (world.peer.reports.len(), world.now);
        assert!(world.ask("s"));
        world.run_ms(15);
        let (heard, report) = world.peer.reports.last().expect("a report");
        assert_eq!(world.peer.reports.len(), told + 1);
        assert!(heard.since(at) <= Duration::from_millis(11));
        assert!(report.entries[0].offered_rps <= rate * 2.5, "{:?}", report.entries);
    }
    tell(&mut world, &key("s", "b"), (0.0, 0.0));
    let told = world.peer.reports.len();
    assert!((0..3).all(|_| !world.ask("s")), "nothing is admitted");
    world.run_ms(60);
    assert!(world.peer.reports.len() <= told + 1, "at a tick if at all");
    let mut world = World::granting(services(), |settings| settings.switches.on_admit = false);
    world.offer("s", 10, 10);
    assert!(world.peer.reports.len() <= 110, "{}", world.peer.reports.len());
}

/// The time-average of what the aggregator knows is the true rate, with reports at every admit.
#[test]
fn reports_of_admits_do_not_raise_the_rate() {
    let services = vec![service("s", vec![bucket("b", per_second(50, None))])];
    let mut world = World::granting(services, |_| {});
    let (mut sum, mut n, mut random) = (0.0, 0.0, 12_345_u64);
    for _ in 0..4_000 {
        tell_if_known(&mut world);
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        // 3 a second, at random.
        if random >> 32 < (1_u64 << 32) / 33 {
            assert!(world.ask("s"));
            n += 1.0;
        }
        world.run_ms(10);
        sum += world.peer.rates.get(&key("s", "b")).copied().unwrap_or(0.0) * 0.01;
    }
    assert!((sum / n - 1.0_f64).abs() < 0.12, "{sum} of {n}");
}

fn tell_if_known(world: &mut World) {
    if world.peer.ids.values().any(|(name, _)| *name == key("s", "b")) {
        tell(world, &key("s", "b"), BUSY);
    }
}

#[test]
fn when_keys_become_busy_clients_do_not_report_in_step() {
    let phase = |seed| {
        let mut world = World::seeded(seed, |s| s.tick = Duration::from_millis(100));
        world.law = Law::Grant;
        world.connect();
        world.snapshot(vec![service("s", vec![bucket("b", per_second(20_000, None))])]);
        reports_of(&mut world, 100, 3, CALM);
        tell(&mut world, &key("s", "b"), BUSY);
        let (told, start) = (world.peer.reports.len(), world.now);
        world.offer("s", 100, 1);
        let at = since(&world, start, told)[0];
        assert!(at <= 110, "{at}");
        at / 10
    };
    let phases: std::collections::BTreeSet<u64> = (0..40).map(phase).collect();
    assert!(phases.len() >= 8, "{phases:?}");
    let slow = |seed| {
        let mut world = World::seeded(seed, |s| s.tick = Duration::from_millis(100));
        world.law = Law::Grant;
        world.connect();
        world.snapshot(vec![service("s", vec![bucket("b", per_second(20_000, None))])]);
        reports_of(&mut world, 100, 3, CALM);
        world.peer.reports.last().expect("a report").0.as_millis() % 1_000 / 100
    };
    let phases: std::collections::BTreeSet<u64> = (0..40).map(slow).collect();
    assert!(phases.len() >= 8, "{phases:?}");
}

#[test]
fn acknowledgements_may_wait_for_a_second() {
    let mut world = world();
    reports_of(&mut world, 300, 2, BUSY);
    world.acks = false;
    let told = world.peer.reports.len();
    for _ in 0..10 {
        world.offer("s", 300, 1);
        let id = world.peer.id_of(&key("s", "b"));
        let directive = Directive { sigma: 2.0, ..world.directive(1.0) };
        world.acks = true;
        world.send(id, directive);
        world.acks = false;
    }
    let reports = &world.peer.reports[told..];
    assert!(reports.len().abs_diff(100) <= 1, "{}", reports.len());
    assert!(reports.iter().all(|(_, r)| r.entries.len() == 1 && r.new_keys.is_empty()));
    assert_eq!(world.agent.counters().acks_unknown.get(), 0);
}

#[test]
fn the_law_may_change_in_flight() {
    let mut world = world();
    let buckets = || vec![service("s", vec![bucket("b", per_second(20_000, None))])];
    for _ in 0..5 {
        for law in [Law::Ratio, Law::Grant] {
            world.law = law;
            world.snapshot(buckets());
            let before = world.peer.reports.len();
            world.offer("s", 333, 2);
            let n = world.peer.reports.len() - before;
            assert!(n.abs_diff(20) <= 3, "{n} reports in 2 s under {law:?}");
            let usual = world.peer.reports.last().expect("one").1.entries[0].usual_rps;
            assert_eq!(usual > 0.0, law == Law::Grant);
        }
    }
    world.law = Law::Ratio;
    world.snapshot(buckets());
    world.run_ms(1_500);
    assert_eq!(world.peer.matched(&key("s", "b")), 6_660);
    assert_eq!(world.peer.attempts[&name("s")], 6_660);
}

#[test]
fn a_ratio_still_holds_from_its_arrival() {
    let mut world = world();
    reports_of(&mut world, 1_000, 2, BUSY);
    let id = world.peer.id_of(&key("s", "b"));
    let none = Directive { admit: AdmitRatio::NONE, ..world.directive(0.0) };
    world.send(id, none);
    assert!((0..100).all(|_| !world.ask("s")));
}

/// Of a low limit, so many clients together would else be far above it with their first requests.
#[test]
fn keys_with_low_limits_have_a_directive_before_the_first_request() {
    let many = || (0..70).map(|n| bucket(&format!("b{n}"), per_second(50, None))).collect();
    let mut world = World::granting(vec![service("s", many())], |_| {});
    world.run_ms(500);
    let in_use = |world: &World| {
        let entries = world.peer.reports.iter().flat_map(|(_, r)| &r.entries);
        entries
            .filter(|e| e.sessions == 1)
            .map(|e| e.key)
            .collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(in_use(&world).len(), 64, "bounded");
    let told = world.peer.reports.len();
    world.run_ms(100_000);
    let more = world.peer.reports.len() - told;
    assert!((8..=12).contains(&more), "signs of life: {more} in 100 s");
    // The rest of them are, after all, like other keys.
    assert!(world.ask("s"));
    world.run_ms(500);
    assert_eq!(in_use(&world).len(), 70);

    let mut world =
        World::granting(vec![service("s", vec![bucket("b", per_second(50, None))])], |_| {});
    world.run_ms(500);
    tell(&mut world, &key("s", "b"), (0.0, 0.0));
    assert!(!world.ask("s"), "the first request");
    world.snapshot(vec![service("s", vec![bucket("b", per_second(5_000, None))])]);
    world.run_ms(15_000);
    let last = world.peer.reports.last().expect("a report").1.entries[0];
    assert_eq!(last.sessions, 0, "a high limit is not in use for long without a request");
    world.law = Law::Ratio;
    world.snapshot(vec![service("s", vec![bucket("b", per_second(50, None))])]);
    let told = world.peer.reports.len();
    world.run_ms(60_000);
    assert_eq!(world.peer.reports.len(), told);
    world.law = Law::Grant;
    world.snapshot(vec![service("s", vec![bucket("b", per_second(50, None))])]);
    world.run_ms(500);
    let last = world.peer.reports.last().expect("a report").1.entries[0];
    assert_eq!(last.sessions, 1, "the law came back");
}
