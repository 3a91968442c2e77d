//! The formula, through all tiers: what is over the limit is dropped, by every client alike.

use std::time::Duration;

use sluicegate_model::{Bucket, Mode, Scope};

use crate::world::{Use, World, bucket, key, name, rate, service};

const SETTLE: Duration = Duration::from_secs(12);

fn assert_every_share(world: &World, bucket: &str, wanted: f64, within: f64) {
    let shares = world.shares(&key("s", bucket));
    assert!(!shares.is_empty());
    for share in shares {
        assert!((share - wanted).abs() <= within, "{share} instead of {wanted}");
    }
}

fn world(zones: usize, buckets: Vec<Bucket>) -> World {
    World::new(zones, vec![service("s", buckets)], 42)
}

#[test]
fn half_above_a_region_limit_is_dropped_at_a_third_by_every_client() {
    let mut w = world(2, vec![bucket("b", Scope::Region, rate(400))]);
    for client in 0..20 {
        w.add_client(client % 2, vec![Use::of(key("s", "b"), 30.0)]);
    }
    w.run(SETTLE);
    for _ in 0..30 {
        w.run(Duration::from_secs(1));
        assert_every_share(&w, "b", 2.0 / 3.0, 0.01);
    }
    let view = w.view();
    let seen = &view.keys[0];
    assert!((seen.offered_rps - 600.0).abs() < 15.0, "{seen:?}");
    assert!((seen.admitted_rps - 400.0).abs() < 15.0 && (seen.dropped_rps - 200.0).abs() < 15.0);
    assert!((seen.drop_ratio - 1.0 / 3.0).abs() < 0.01);
    assert_eq!((seen.sessions, view.sessions.len()), (20, 2));
}

#[test]
fn a_zone_limit_is_each_zones_own_and_its_counts_reach_the_controller() {
    let mut w = world(2, vec![bucket("b", Scope::Zone, rate(100))]);
    for zone in [0, 0, 0, 1] {
        w.add_client(zone, vec![Use::of(key("s", "b"), 50.0)]);
    }
    w.run(SETTLE);
    for _ in 0..10 {
        w.run(Duration::from_secs(1));
        let shares = w.shares(&key("s", "b"));
        assert!(shares[..3].iter().all(|s| (s - 2.0 / 3.0).abs() < 0.01), "{shares:?}");
        assert!((shares[3] - 1.0).abs() < 1e-9);
    }
    let view = w.view();
    assert_eq!((view.keys[0].scope, view.keys[0].drop_ratio), (Some(Scope::Zone), 0.0));
    assert!((view.keys[0].offered_rps - 200.0).abs() < 5.0);
}

#[test]
fn two_zones_five_to_one_share_one_limit_and_shadow_drops_nothing() {
    let shadow = Bucket { mode: Mode::Shadow, ..bucket("shadow", Scope::Region, rate(300)) };
    let mut w = world(2, vec![bucket("b", Scope::Global, rate(300)), shadow]);
    for client in 0..6 {
        let mut shadow = Use::of(key("s", "shadow"), 150.0);
        shadow.shadow = true;
        w.add_client(usize::from(client == 5), vec![Use::of(key("s", "b"), 150.0), shadow]);
    }
    w.run(SETTLE);
    let before = w.total(&key("s", "b"));
    w.run(Duration::from_secs(10));
    let admitted = w.total(&key("s", "b")).since(&before).admitted;
    assert!((2_900..=3_100).contains(&admitted), "{admitted}");
    assert_every_share(&w, "b", 1.0 / 3.0, 0.01);

    let counts = w.total(&key("s", "shadow"));
    assert_eq!(counts.admitted, counts.offered);
    let view = w.view();
    let seen = view.keys.iter().find(|k| k.name.bucket.as_str() == "shadow").expect("counted");
    assert!((seen.would_drop_rps - 600.0).abs() < 30.0, "{seen:?}");
    assert!(seen.dropped_rps < 1.0);
}

#[test]
fn a_changed_limit_and_a_closed_client_are_followed_within_three_ticks() {
    let mut w =
        world(2, vec![bucket("b", Scope::Region, rate(300)), bucket("c", Scope::Region, rate(50))]);
    for client in 0..10 {
        w.add_client(client % 2, vec![Use::of(key("s", "b"), 45.0), Use::of(key("s", "c"), 10.0)]);
    }
    w.run(SETTLE);
    assert_every_share(&w, "b", 2.0 / 3.0, 0.01);

    let next = vec![bucket("b", Scope::Region, rate(150)), bucket("c", Scope::Region, rate(50))];
    w.services = vec![service("s", next)];
    let (now, services) = (w.now, w.services.clone());
    w.controller.as_mut().expect("running").handle_configuration(now, services, Vec::new());
    w.run(Duration::from_secs(3));
    assert_every_share(&w, "b", 1.0 / 3.0, 0.01);
    assert_every_share(&w, "c", 0.5, 0.01);

    for client in 0..5 {
        w.kill_client(client);
    }
    w.run(Duration::from_secs(3));
    assert_every_share(&w, "b", 2.0 / 3.0, 0.02);
    assert_eq!(w.clients.iter().map(|c| c.stale).sum::<u64>(), 0);
}

#[test]
fn a_limit_of_zero_denies_all_and_an_idle_fleet_says_nothing() {
    let mut w = world(1, vec![bucket("b", Scope::Region, rate(0))]);
    w.add_client(0, vec![Use::of(key("s", "b"), 45.0)]);
    w.run(Duration::from_secs(4));
    assert_eq!(w.last(&key("s", "b")), (45, 0));

    w.clients[0].uses[0].offered_rps = 0.0;
    w.run(Duration::from_secs(30));
    let reports = w.view().counters.reports;
    w.run(Duration::from_secs(60));
    assert_eq!(w.view().counters.reports, reports);
    assert_eq!(w.view().keys[0].offered_rps.to_bits(), 0.0_f64.to_bits());
}

#[test]
fn a_reload_of_one_service_leaves_the_others_alone() {
    let services = |n| {
        vec![
            service("s", vec![bucket("b", Scope::Region, rate(300))]),
            service("t", vec![bucket("b", Scope::Region, rate(n))]),
        ]
    };
    let mut w = World::new(1, services(100), 42);
    for _ in 0..10 {
        w.add_client(0, vec![Use::of(key("s", "b"), 45.0), Use::of(key("t", "b"), 45.0)]);
    }
    w.run(SETTLE);
    let before = w.view();
    let now = w.now;
    let controller = w.controller.as_mut().expect("running");
    controller.handle_configuration(now, services(100), Vec::new());
    assert_eq!(controller.view().version, before.version, "nothing changed");
    controller.handle_configuration(now, services(200), vec![name("nobody")]);
    let after = controller.view();
    assert_eq!(after.version, before.version + 1);
    assert_eq!(after.keys[0], before.keys[0]);
    w.run(Duration::from_secs(3));
    assert_every_share(&w, "b", 2.0 / 3.0, 0.01);
    let t = w.shares(&key("t", "b"));
    assert!(t.iter().all(|s| (s - 200.0 / 450.0).abs() < 0.02), "{t:?}");
    assert_eq!(w.view().sessions[0].applied_version, after.version);
    assert!(w.clients.iter().all(|c| c.version == after.version));
}
