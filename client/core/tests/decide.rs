//! The decision path as its users see it: attribution, caps, loss of control, values, reloads.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{World, bucket, counts, each, patterns, per, per_second, request, service, settings};
use sluicegate_client_core::{Decision, KeyEvent, StalePolicy};
use sluicegate_model::{
    AdmitRatio, KeyValues, Limit, Mode, OnControlLoss, Overflow, Request, Select, Time,
};

const RETRY: Duration = Duration::from_millis(1500);

#[test]
fn a_drop_names_its_bucket_and_when_to_come_back() {
    let of = service("shop", Select::All, vec![bucket("all", Mode::Deny)]);
    let mut world = World::new(&settings(), &[of]);
    assert!(world.limiter.decide(&request("web", &[])).is_admitted());
    world.keeper.set_admit(world.whole("all"), AdmitRatio::NONE, RETRY);
    let Decision::Drop { bucket, retry_after } =
        world.limiter.decide(&request("web", &[])).details()
    else {
        panic!("admitted at ratio 0")
    };
    assert_eq!(retry_after, RETRY);
    let name = world.limiter.bucket(bucket).expect("configured");
    assert_eq!((name.service.as_str(), name.bucket.as_str()), ("shop", "all"));
}

#[test]
fn each_request_is_attributed_to_whoever_dropped_it() {
    let of = service(
        "shop",
        Select::All,
        vec![
            bucket("a", Mode::Deny),
            bucket("b", Mode::Deny),
            bucket("s", Mode::Shadow),
            bucket("o", Mode::Observe),
        ],
    );
    for prepared in [false, true] {
        for striped in [false, true] {
            let mut world = World::new(&settings(), std::slice::from_ref(&of));
            let (a, b, s) = (world.whole("a"), world.whole("b"), world.whole("s"));
            if striped {
                for key in world.keeper.keys().collect::<Vec<_>>() {
                    assert!(world.keeper.promote(key));
                }
            }
            let handle = world.limiter.prepare(&request("web", &[]));
            let limiter = world.limiter.clone();
            let decide = || {
                if prepared { handle.decide() } else { limiter.decide(&request("web", &[])) }
            };
            assert!(decide().is_admitted());
            world.keeper.set_admit(s, AdmitRatio::NONE, RETRY);
            let Decision::Admit { shadow_dropped_by: Some(shadow) } = decide().details() else {
                panic!("a shadow drops nothing, and says so")
            };
            assert_eq!(limiter.bucket(shadow).expect("there").bucket.as_str(), "s");
            world.keeper.set_admit(a, AdmitRatio::NONE, RETRY);
            assert!(!decide().is_admitted());
            world.keeper.set_admit(b, AdmitRatio::NONE, RETRY);
            assert!(!decide().is_admitted());
            // 4 requests: 1 admitted, 1 admitted but for the shadow, 1 dropped by a, 1 by a and b.
            assert_eq!(world.totals("a"), counts(4, 3, 2, 0));
            assert_eq!(world.totals("b"), counts(4, 2, 2, 0));
            assert_eq!(world.totals("s"), counts(4, 2, 2, 1));
            assert_eq!(world.totals("o"), counts(4, 2, 2, 0));
            let shop = world.keeper.service_totals().next().expect("one service");
            assert_eq!((shop.attempts, shop.admitted), (4, 2));
            assert_eq!((shop.dropped_by_one, shop.dropped_by_several), (1, 1));
            assert_eq!(world.limiter.stats().services, [shop]);
        }
    }
}

#[test]
fn a_limit_of_zero_denies_at_once_and_charges_nobody() {
    let mut zero = bucket("zero", Mode::Deny);
    zero.limit = per_second(0);
    zero.rule.on.caller = patterns(&["batch"]);
    let of = service("shop", Select::All, vec![zero, bucket("all", Mode::Deny)]);
    let mut world = World::new(&settings(), &[of]);
    let key = world.whole("zero");
    world.keeper.set_admit(key, AdmitRatio::ALL, RETRY);
    world.keeper.set_stale_policy(key, StalePolicy::Admit);
    for round in 0..3 {
        assert!(!world.limiter.decide(&request("batch", &[])).is_admitted(), "round {round}");
        world.look();
        world.pass(Duration::from_secs(3600));
    }
    assert_eq!(world.totals("all"), counts(3, 0, 0, 0));
    assert_eq!(world.totals("zero"), counts(3, 3, 0, 0));
}

#[test]
fn the_cap_holds_until_it_is_refilled_or_the_refill_is_late() {
    let of = service("shop", Select::All, vec![bucket("all", Mode::Deny), bucket("x", Mode::Deny)]);
    for striped in [false, true] {
        let mut world = World::new(&settings(), std::slice::from_ref(&of));
        let key = world.whole("all");
        if striped {
            assert!(world.keeper.promote(key) && world.keeper.promote(world.whole("x")));
        }
        let admitted = |world: &World, n: usize| {
            (0..n).filter(|_| world.limiter.decide(&request("web", &[])).is_admitted()).count()
        };
        // The thread claims its stripe first: a new one is without a cap until the next look.
        assert_eq!(admitted(&world, 1), 1);
        world.keeper.set_budget(key, Some(5));
        assert_eq!(admitted(&world, 20), 5);
        world.keeper.set_budget(key, Some(2));
        world.keeper.set_admit(world.whole("x"), AdmitRatio::NONE, RETRY);
        assert_eq!(admitted(&world, 3), 0);
        world.keeper.set_admit(world.whole("x"), AdmitRatio::ALL, RETRY);
        assert_eq!(admitted(&world, 20), 2, "what another dropped used nothing up");
        world.pass(Duration::from_millis(51));
        assert_eq!(admitted(&world, 20), 20, "a late refill admits");
        world.look();
        assert_eq!(admitted(&world, 20), 0);
        world.keeper.set_budget(key, None);
        assert_eq!(admitted(&world, 20), 20);
    }
}

#[test]
fn a_dead_agent_drops_nothing_unless_told_to_keep() {
    let of = service("shop", Select::All, vec![bucket("all", Mode::Deny)]);
    for striped in [false, true] {
        let mut world = World::new(&settings(), std::slice::from_ref(&of));
        let key = world.whole("all");
        assert!(!striped || world.keeper.promote(key));
        world.keeper.set_admit(key, AdmitRatio::NONE, RETRY);
        world.pass(Duration::from_secs(20));
        assert!(!world.limiter.decide(&request("web", &[])).is_admitted());
        world.pass(Duration::from_millis(1));
        assert!(world.limiter.decide(&request("web", &[])).is_admitted());
        world.keeper.set_stale_policy(key, StalePolicy::Keep);
        assert!(!world.limiter.decide(&request("web", &[])).is_admitted());
        world.keeper.set_stale_policy(key, StalePolicy::Admit);
        world.look();
        assert!(!world.limiter.decide(&request("web", &[])).is_admitted(), "it lives again");
        assert_eq!(world.totals("all"), counts(4, 4, 1, 0));
    }
    let mut closed = bucket("all", Mode::Deny);
    closed.on_control_loss = OnControlLoss::Closed;
    let mut world = World::new(&settings(), &[service("shop", Select::All, vec![closed])]);
    world.keeper.set_admit(world.whole("all"), AdmitRatio::NONE, RETRY);
    world.pass(Duration::from_secs(60));
    assert!(!world.limiter.decide(&request("web", &[])).is_admitted());
}

#[test]
fn hits_count_whole_and_zero_only_asks() {
    let of = service("shop", Select::All, vec![bucket("all", Mode::Deny)]);
    let mut world = World::new(&settings(), &[of]);
    let handle = world.limiter.prepare(&request("web", &[]));
    assert!(world.limiter.decide_n(&request("web", &[]), 7).is_admitted());
    assert!(handle.decide_n(3).is_admitted());
    assert!(handle.decide_n(0).is_admitted());
    assert_eq!(world.totals("all"), counts(10, 10, 10, 0));
    world.keeper.set_admit(world.whole("all"), AdmitRatio::NONE, RETRY);
    assert!(!world.limiter.decide_n(&request("web", &[]), 0).is_admitted());
    assert!(!handle.decide_n(0).is_admitted());
    assert!(!handle.decide_n(2).is_admitted());
    assert_eq!(world.totals("all"), counts(12, 12, 10, 0));
    let shop = world.keeper.service_totals().next().expect("one service");
    assert_eq!((shop.attempts, shop.dropped_by_one), (12, 2));
}

#[test]
fn several_descriptors_are_one_decision() {
    let mut paid = bucket("paid", Mode::Deny);
    paid.rule.on.dimensions.insert(common::name("plan"), patterns(&["paid"]));
    let of = service("shop", Select::All, vec![bucket("all", Mode::Deny), paid]);
    let mut world = World::new(&settings(), &[of]);
    let mut verdicts = Vec::new();
    let plan = [("plan", "paid")];
    let both = [request("web", &[]), request("web", &plan)];
    for _ in 0..2 {
        // The first time by the rules, the second by the known identity.
        assert!(world.limiter.decide_each(&both, 1, &mut verdicts).is_admitted());
        world.look();
    }
    assert_eq!(
        (world.totals("all"), world.totals("paid")),
        (counts(2, 2, 2, 0), counts(2, 2, 2, 0))
    );
    world.keeper.set_admit(world.whole("paid"), AdmitRatio::NONE, RETRY);
    assert!(!world.limiter.decide_each(&both, 1, &mut verdicts).is_admitted());
    assert_eq!(verdicts.iter().map(|v| v.admitted).collect::<Vec<_>>(), [true, false]);
    let denied = world.limiter.bucket(verdicts[1].bucket.expect("one denies")).expect("there");
    assert_eq!(denied.bucket.as_str(), "paid");
    assert_eq!((verdicts[1].retry_after, verdicts[1].limit), (RETRY, per_second(1000)));
    assert_eq!(world.totals("all"), counts(3, 2, 2, 0), "nothing charged where another denies");
    assert_eq!(world.totals("paid"), counts(3, 3, 2, 0));
    assert!(!world.limiter.decide_each(&both, 0, &mut verdicts).is_admitted());
    assert_eq!(world.totals("paid"), counts(3, 3, 2, 0), "asking counts nothing");
    let shop = world.keeper.service_totals().next().expect("one service");
    assert_eq!((shop.attempts, shop.dropped_by_one), (3, 1), "one attempt a request");
    let unknown = Request { service: "nobody", ..Request::default() };
    assert!(world.limiter.decide_each(&[unknown], 1, &mut verdicts).is_admitted());
    assert!(verdicts[0].admitted && verdicts[0].bucket.is_none());
}

#[test]
fn values_have_keys_of_their_own_within_their_bounds() {
    let mut each_one = bucket("each", Mode::Deny);
    let mut rules = per(&["ws", "caller"], 2);
    rules.values.insert(vec!["vip".into(), "web".into()], Limit::Unlimited);
    rules.values.insert(vec!["banned".into(), "web".into()], per_second(0));
    rules.overflow = Overflow::Limit(per_second(10));
    each_one.per = Some(rules);
    let mut world = World::new(&settings(), &[service("shop", Select::All, vec![each_one])]);
    let decide = |world: &World, ws: &str| {
        world.limiter.decide(&request("web", &[("ws", ws)])).is_admitted()
    };
    assert!(!decide(&world, "banned"), "a value's limit of 0 holds before its first report");
    assert!(decide(&world, "a"), "counted on overflow until the agent looks");
    let events = world.look();
    assert_eq!(events.len(), 1);
    let a = world.key("each", &each(&["a", "web"]));
    assert_eq!(events, [KeyEvent::New(a)]);
    for _ in 0..3 {
        assert!(decide(&world, "a"));
    }
    for ws in ["b", "c", "vip"] {
        assert!(decide(&world, ws) && world.look().is_empty(), "{ws} is one too many");
    }
    assert!(decide(&world, &"x".repeat(1025)), "too long for a key");
    assert!(
        world.limiter.decide(&request("web", &[])).is_admitted(),
        "no such dimension: no match"
    );
    let overflow = world.key("each", &KeyValues::Overflow);
    assert_eq!(world.keeper.totals(overflow), counts(5, 5, 5, 0));
    assert_eq!(world.keeper.totals(a), counts(3, 3, 3, 0));
    assert_eq!(world.keeper.limit(overflow), per_second(10));
    let stats = world.limiter.stats();
    assert_eq!((stats.values, stats.refused_values), (2, 3 + 1));
    assert_eq!(stats.keys.len(), 3);
    assert!(world.keeper.evict(world.now, a) && !world.keeper.evict(world.now, a));
    let banned = world.key("each", &each(&["banned", "web"]));
    assert!(!world.keeper.evict(world.now, banned), "a limit of 0 stays in force");
    world.pass(Duration::from_secs(1));
    assert_eq!(world.look(), [KeyEvent::Retired(a)]);
    assert_eq!(world.retired, [("shop/each[a, web]".to_owned(), counts(3, 3, 3, 0))]);
    assert!(decide(&world, "vip"));
    assert_eq!(world.look().len(), 1, "its place is free");
    let vip = world.key("each", &each(&["vip", "web"]));
    assert_eq!(world.keeper.limit(vip), Limit::Unlimited);
    world.keeper.set_admit(vip, AdmitRatio::NONE, RETRY);
    assert!(decide(&world, "vip"), "nothing limits what is unlimited");
    assert_eq!(world.keeper.totals(vip), counts(1, 1, 1, 0), "from 0, whatever its slot counted");
}

#[test]
fn numbers_of_evicted_values_are_used_again() {
    let mut settings = settings();
    settings.max_values = 64;
    let mut each_one = bucket("each", Mode::Deny);
    each_one.per = Some(per(&["ws"], 1000));
    let mut world = World::new(&settings, &[service("shop", Select::All, vec![each_one])]);
    for round in 0..20_u64 {
        let values: Vec<String> = (0..40).map(|i| format!("round-{round}-value-{i:040}")).collect();
        for _ in 0..2 {
            for value in &values {
                let _ = world.limiter.decide(&request("web", &[("ws", value)]));
            }
            world.look();
        }
        for value in &values {
            let key = world.key("each", &each(&[value]));
            assert_eq!(world.keeper.totals(key), counts(1, 1, 1, 0), "{value}");
            assert!(world.keeper.evict(world.now, key));
        }
        world.pass(Duration::from_secs(1));
        world.look();
    }
    assert_eq!(world.retired.len(), 20 * 40);
    let overflow = world.key("each", &KeyValues::Overflow);
    assert_eq!(world.keeper.totals(overflow).matched, 20 * 40);
    assert_eq!(world.limiter.stats().values, 0);
}

#[test]
fn only_touched_values_are_looked_at() {
    let mut each_one = bucket("each", Mode::Deny);
    each_one.per = Some(per(&["ws"], 1000));
    let mut world = World::new(&settings(), &[service("shop", Select::All, vec![each_one])]);
    for i in 0..200 {
        let _ = world.limiter.decide(&request("web", &[("ws", &format!("v{i}"))]));
    }
    world.look();
    let touched = |world: &mut World| {
        let mut keys = Vec::new();
        world.keeper.take_touched(|key| keys.push(key));
        keys.retain(|key| world.keeper.is_value(*key));
        keys
    };
    assert_eq!(touched(&mut world), []);
    let _ = world.limiter.decide(&request("web", &[("ws", "v77")]));
    let v77 = world.key("each", &each(&["v77"]));
    assert_eq!(touched(&mut world), [v77]);
    assert_eq!(touched(&mut world), [v77], "once more, for what was counted just behind");
    assert_eq!(touched(&mut world), []);
}

#[test]
fn identities_are_bounded_and_still_right() {
    let mut settings = settings();
    settings.max_identities = 10;
    settings.max_waiting = 16;
    let mut web = bucket("web", Mode::Deny);
    web.rule.on.caller = patterns(&["web-*"]);
    let mut world = World::new(&settings, &[service("shop", Select::All, vec![web])]);
    world.pass(Duration::from_secs(1));
    for round in 0..5 {
        for i in 0..100 {
            assert!(world.limiter.decide(&request(&format!("web-{i}"), &[])).is_admitted());
            let _ = world.limiter.decide(&request(&format!("job-{i}"), &[]));
        }
        world.look();
        let stats = world.limiter.stats();
        assert!(stats.identities <= 10 && stats.waiting <= 16, "round {round}: {stats:?}");
    }
    assert_eq!(world.totals("web"), counts(500, 500, 500, 0));
    assert!(world.limiter.stats().refused_identities > 0);
}

#[test]
fn a_reload_keeps_what_did_not_change_and_follows_what_did() {
    let mut old = bucket("changes", Mode::Deny);
    old.rule.on.caller = patterns(&["web"]);
    let of = service("shop", Select::All, vec![old.clone(), bucket("goes", Mode::Deny)]);
    let other = service("other", Select::All, vec![bucket("stays", Mode::Deny)]);
    let mut world = World::new(&settings(), &[of, other.clone()]);
    let handle = world.limiter.prepare(&request("web", &[]));
    let at_other = Request { service: "other", ..Request::default() };
    let stays = world.whole("stays");
    world.keeper.set_admit(stays, AdmitRatio::NONE, RETRY);
    for _ in 0..10 {
        assert!(handle.decide().is_admitted());
        assert!(!world.limiter.decide(&at_other).is_admitted());
    }
    let changes = world.whole("changes");
    world.keeper.set_admit(changes, AdmitRatio::NONE, RETRY);
    let mut new = old;
    new.limit = per_second(77);
    let of = service("shop", Select::All, vec![bucket("comes", Mode::Deny), new.clone()]);
    world.keeper.configure(world.now, &[of, other.clone()]);
    assert_eq!(world.look().len(), 2, "one new, one changed");
    assert_eq!(world.keeper.limit(changes), per_second(77));
    assert!(!handle.decide().is_admitted(), "the ratio stays too");
    assert_eq!(world.totals("changes"), counts(11, 11, 10, 0));
    assert_eq!(world.totals("comes"), counts(1, 0, 0, 0));
    assert_eq!(world.totals("stays"), counts(10, 10, 0, 0));
    assert!(!world.limiter.decide(&at_other).is_admitted());
    world.pass(Duration::from_secs(1));
    world.look();
    assert_eq!(world.retired, [("shop/goes".to_owned(), counts(10, 10, 10, 0))]);

    new.mode = Mode::Shadow;
    world.keeper.configure(world.now, &[service("shop", Select::All, vec![new]), other]);
    assert!(handle.decide().is_admitted(), "in shadow now");
    assert_eq!(world.totals("changes"), counts(12, 12, 11, 1));

    world.keeper.configure(world.now, &[]);
    assert!(handle.decide().is_admitted() && world.limiter.decide(&at_other).is_admitted());
    world.pass(Duration::from_secs(3));
    world.look();
    assert_eq!(world.keeper.keys().count(), 0);
    assert_eq!(world.keeper.service_totals().count(), 0);
}

#[test]
fn threads_that_decide_through_reloads_lose_no_count() {
    let of = |limit| {
        let mut all = bucket("all", Mode::Deny);
        all.limit = per_second(limit);
        let mut values = bucket("values", Mode::Shadow);
        values.limit = per_second(limit + 1);
        values.per = Some(per(&["ws"], 100));
        service("shop", Select::All, vec![all, values])
    };
    let mut world = World::new(&settings(), &[of(1)]);
    let all = world.whole("all");
    world.keeper.promote(all);
    let stop = Arc::new(AtomicBool::new(false));
    let (limiter, keeper, now) = (world.limiter.clone(), &mut world.keeper, world.now);
    let decided: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|t| {
                let (limiter, stop) = (limiter.clone(), stop.clone());
                scope.spawn(move || {
                    let values: Vec<String> = (0..50).map(|i| format!("{}", i * (t + 1))).collect();
                    let handle = limiter.prepare(&request("web", &[("ws", "0")]));
                    let mut n = 0;
                    let mut turn = values.iter().cycle();
                    while !stop.load(Ordering::Relaxed) {
                        let ws = turn.next().expect("a cycle");
                        let _ = limiter.decide(&request("web", &[("ws", ws)]));
                        let _ = handle.decide();
                        n += 2;
                    }
                    n
                })
            })
            .collect();
        for i in 0..300_u64 {
            keeper.configure(now, &[of(i % 7 + 1)]);
            keeper.adopt(now, 100);
            while keeper.poll_event().is_some() {}
            keeper.beat(now);
            std::thread::sleep(Duration::from_micros(200));
        }
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().map(|t| t.join().expect("no panic")).sum()
    });
    assert_eq!(world.totals("all").matched, decided);
    let values = world.keeper.keys().filter(|k| *k != all);
    let matched: u64 = values.map(|k| world.keeper.totals(k).matched).sum();
    assert_eq!(matched, decided, "every value once, on its own key or on overflow");
    let shop = world.keeper.service_totals().next().expect("one service");
    assert_eq!(shop.attempts, decided);
}

#[test]
fn one_thread_can_use_many_limiters_in_turn() {
    let of = service("shop", Select::All, vec![bucket("all", Mode::Deny)]);
    let mut worlds: Vec<World> =
        (0..20).map(|_| World::new(&settings(), std::slice::from_ref(&of))).collect();
    for world in &mut worlds {
        assert!(world.keeper.promote(world.whole("all")));
    }
    let handles: Vec<_> = worlds.iter().map(|w| w.limiter.prepare(&request("web", &[]))).collect();
    for _ in 0..100 {
        for (world, handle) in worlds.iter().zip(&handles) {
            assert!(world.limiter.decide(&request("web", &[])).is_admitted());
            assert!(handle.decide().is_admitted());
        }
    }
    for world in &worlds {
        assert_eq!(world.totals("all"), counts(200, 200, 200, 0));
        assert!(world.limiter.stats().stripes <= 20);
    }
}

#[test]
fn the_share_that_passes_is_the_ratio_over_stripes_and_shared_cells() {
    let of = service("shop", Select::All, vec![bucket("a", Mode::Deny), bucket("b", Mode::Deny)]);
    for striped in [false, true] {
        let mut world = World::new(&settings(), std::slice::from_ref(&of));
        for (key, share) in [(world.whole("a"), 2.0 / 3.0), (world.whole("b"), 0.5)] {
            assert!(!striped || world.keeper.promote(key));
            world.keeper.set_admit(key, AdmitRatio::from_share(share), RETRY);
        }
        let n = 60_000;
        let admitted =
            (0..n).filter(|_| world.limiter.decide(&request("web", &[])).is_admitted()).count();
        let joint = admitted as f64 / f64::from(n);
        assert!((joint - 1.0 / 3.0).abs() < 0.02, "{joint}");
        let (a, b) = (world.totals("a"), world.totals("b"));
        // Offered to a is what b admits: its share is exact, whatever a does.
        assert!((a.offered as f64 / f64::from(n) - 0.5).abs() < 1e-4, "{a:?}");
        assert!((b.offered as f64 / f64::from(n) - 2.0 / 3.0).abs() < 1e-4, "{b:?}");
    }
}

#[test]
fn nothing_is_known_before_the_first_configuration() {
    let world = World::new(&settings(), &[]);
    assert!(world.limiter.decide(&request("web", &[])).is_admitted());
    assert!(world.limiter.prepare(&request("web", &[])).decide().is_admitted());
    assert!(world.limiter.stats().services.is_empty());
    assert_eq!(world.limiter.stats().agent_silent, Duration::ZERO);
    assert_eq!(world.now, Time::from_millis(1000));
}
