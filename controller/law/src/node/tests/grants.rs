//! The law `grant` in a node: who is told what, when, and what happens when somebody is missing.

use std::time::Duration;

use sluicegate_model::{
    AdmitRatio, Bucket, Classes, Configuration, Directive, Down, Entry, Flight, Grant, Hello,
    KeyId, KeyName, Law, Per, Report, Role, Scope, Sharing, Time,
};

use super::{
    admitted, at, bucket, configuration, drain, entry, hello, name, per, rate, report, service,
    settings, value, whole,
};
use crate::SessionId;
use crate::node::{Node, Settings, Tier};

const TICK: Duration = Duration::from_millis(100);

fn grant(tier: Tier, buckets: Vec<Bucket>) -> Node {
    let mut n = Node::new(Settings { tick: TICK, ..settings(tier) }, Time::ZERO);
    n.configure(&under(Law::Grant, 1, buckets));
    n
}

fn under(law: Law, version: u64, buckets: Vec<Bucket>) -> Configuration {
    Configuration { law, ..configuration(version, vec![service("s", buckets)]) }
}

fn aggregator(zone: &str) -> Hello {
    Hello { role: Role::Aggregator, node: name(zone), zone: name(zone), ..hello() }
}

/// Runs whatever is due up to `until`, and says what children were told and when.
fn run(n: &mut Node, until: Time) -> Vec<(u64, SessionId, KeyId, Directive)> {
    let mut told = Vec::new();
    loop {
        let now = n.poll_timeout().min(until);
        n.handle_timeout(now);
        let mut plans = vec![n.plan_due(now)];
        if n.is_tick_due(now) {
            let due = plans.remove(0);
            assert_eq!(n.publish(due), []);
            plans.push(n.plan(now));
        }
        for plan in plans {
            assert_eq!(n.publish(plan), []);
        }
        n.take_up(now);
        for (id, down) in drain(n) {
            let Down::Update(update) = down else { continue };
            let each =
                update.directives.into_iter().map(|(key, d)| (n.now.as_millis(), id, key, d));
            told.extend(each);
        }
        n.audit();
        if now >= until {
            return told;
        }
    }
}

/// One key's entry with a usual rate like the present one.
fn used(key: KeyId, count: u64, rps: f64) -> Entry {
    Entry { usual_rps: rps, ..entry(key, admitted(count), rps) }
}

fn send(n: &mut Node, ms: u64, id: SessionId, seq: u64, key: &KeyName, entries: &[Entry]) {
    let new: Vec<_> = entries.iter().map(|e| (e.key, key.clone())).collect();
    let report = Report { interval: TICK, ..report(seq, &new, entries) };
    super::send(n, at(ms), id, report);
}

fn near(a: f64, b: f64, within: f64) {
    assert!((a - b).abs() <= within, "{a} is not within {within} of {b}");
}

#[test]
fn a_surge_is_answered_when_it_is_reported_not_at_a_tick() {
    let mut n = grant(Tier::Aggregator, vec![bucket("b", Scope::Zone, rate(1000))]);
    n.open(at(0), 1, hello()).expect("taken");
    let key = whole("s", "b");
    for i in 1..=20 {
        send(&mut n, i * 100, 1, i, &key, &[used(0, i * 90, 900.0)]);
        run(&mut n, at(i * 100 + 99));
    }
    send(&mut n, 2110, 1, 21, &key, &[used(0, 1900, 16_000.0)]);
    let mut told = run(&mut n, at(2120));
    told.retain(|t| t.0 >= 2110);
    let (_, _, _, first) = told.first().expect("told within 10 ms");
    assert!(first.admit.share() < 0.12, "{first:?}");
    assert!(first.sigma > 0.0 && first.grant.is_none());
}

#[test]
fn zones_get_grants_that_add_up_to_the_limit() {
    let mut n = grant(Tier::Controller, vec![bucket("b", Scope::Region, rate(1000))]);
    let key = whole("s", "b");
    let (mut told, mut counts) = (Vec::new(), [0_u64; 2]);
    for (id, zone) in [(1, "a"), (2, "b")] {
        n.open(at(0), id, aggregator(zone)).expect("taken");
    }
    for i in 1..=40 {
        for (id, demand, admit) in [(1, 3000.0, 75), (2, 1000.0, 25)] {
            let at_zone = &mut counts[usize::try_from(id).expect("small") - 1];
            *at_zone += admit;
            send(&mut n, i * 100, id, i, &key, &[used(0, *at_zone, demand)]);
        }
        told.extend(run(&mut n, at(i * 100 + 99)));
    }
    let last = |id| told.iter().rev().find(|t| t.1 == id).expect("told").3;
    let (a, b) = (last(1).grant.expect("a grant"), last(2).grant.expect("a grant"));
    near(a.rps / b.rps, 3.0, 0.05);
    near(a.rps + b.rps, 1000.0, 60.0);
    assert!(a.base_rps <= a.rps && last(1).ttl > Duration::from_secs(50));
}

/// An aggregator with one client, told a grant by its controller.
fn leaf(demand_rps: f64) -> (Node, KeyName, u32) {
    let mut n = grant(Tier::Aggregator, vec![bucket("b", Scope::Region, rate(1000))]);
    n.open(at(0), 1, hello()).expect("taken");
    let key = whole("s", "b");
    send(&mut n, 100, 1, 1, &key, &[used(0, 10, demand_rps)]);
    run(&mut n, at(150));
    let number = n.key_of(&key).expect("counted");
    (n, key, number)
}

fn from_above(seq: u64, grant: Option<Grant>, share: f64) -> Directive {
    Directive {
        admit: AdmitRatio::from_share(share),
        headroom: 0.0,
        sigma: 0.0,
        limit_rps: 1000.0,
        sessions: 9,
        term: 1,
        seq,
        ttl: Duration::from_secs(60),
        grant,
    }
}

#[test]
fn a_grant_becomes_the_share_of_demand_that_it_covers() {
    let (mut n, _, number) = leaf(2000.0);
    assert!(n.directive(number).is_none(), "nobody has said anything yet");
    let given = Grant { rps: 500.0, base_rps: 500.0 };
    assert!(n.pass_on(1, number, from_above(1, Some(given), 0.1)));
    let told = run(&mut n, at(150));
    let (_, id, key, directive) = told.first().copied().expect("told at once");
    assert_eq!((id, key, directive.sessions, directive.grant), (1, 0, 9, None));
    near(directive.admit.share(), 0.25, 0.02);
    assert!(directive.ttl <= Duration::from_secs(10), "clients fail open sooner than zones");
    assert!(!n.pass_on(1, number, from_above(1, Some(given), 0.1)), "not news");
}

#[test]
fn a_zone_goes_on_with_its_last_grant_and_not_for_ever() {
    let (mut n, key, number) = leaf(2000.0);
    let given = Grant { rps: 500.0, base_rps: 500.0 };
    assert!(n.pass_on(1, number, from_above(1, Some(given), 0.1)));
    let mut count = 10;
    let mut last_told = 0;
    for i in 2..=750_u64 {
        count += 50;
        send(&mut n, i * 100, 1, i, &key, &[used(0, count, 2000.0)]);
        for (when, _, _, directive) in run(&mut n, at(i * 100 + 99)) {
            last_told = when;
            near(directive.admit.share(), 0.25, 0.1);
        }
    }
    assert!((59_000..=60_200).contains(&last_told), "{last_told}");
    assert!(n.directive(number).is_none(), "and it has run out with its clients");
}

#[test]
fn at_a_low_limit_the_root_sets_the_ratio() {
    let mut n = grant(Tier::Controller, vec![bucket("b", Scope::Region, rate(50))]);
    n.open(at(0), 1, aggregator("a")).expect("taken");
    let key = whole("s", "b");
    let (mut told, mut count, mut share) = (Vec::new(), 0.0, 1.0);
    for i in 1..=300 {
        count += 50.0 * share;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small")]
        send(&mut n, i * 100, 1, i, &key, &[used(0, count as u64, 500.0)]);
        told.extend(run(&mut n, at(i * 100 + 99)));
        share = told.last().map_or(share, |t| t.3.admit.share());
    }
    let last = told.last().expect("told").3;
    assert_eq!(last.grant, None);
    near(last.admit.share(), 0.1, 0.03);
    // Whoever passes it on takes it as it is.
    let (mut zone, _, number) = leaf(2000.0);
    assert!(zone.pass_on(1, number, from_above(1, None, 0.125)));
    let told = run(&mut zone, at(150));
    near(told.first().expect("told").3.admit.share(), 0.125, 1e-6);
}

/// Two zones with 600 a second each at a limit of 1,000, both admitting what they are granted.
fn two_zones() -> (Node, KeyName) {
    let mut n = grant(Tier::Controller, vec![bucket("b", Scope::Region, rate(1000))]);
    let key = whole("s", "b");
    for (id, zone) in [(1, "a"), (2, "b")] {
        n.open(at(0), id, aggregator(zone)).expect("taken");
    }
    for i in 1..=30 {
        for id in [1, 2] {
            let flight = Flight { requests: 0.0, rps: 500.0 };
            let entry = Entry { flight, ..used(0, i * 50, 600.0) };
            send(&mut n, i * 100, id, i, &key, &[entry]);
        }
        run(&mut n, at(i * 100 + 99));
    }
    (n, key)
}

/// The grants of zone `b`, which admits what it is granted, once zone `a` is gone.
fn grants_of_b(n: &mut Node, key: &KeyName, seconds: std::ops::Range<u64>) -> Vec<f64> {
    let (mut grants, mut rps, mut count) = (Vec::new(), 500.0, 1500.0);
    for i in seconds.start * 10..seconds.end * 10 {
        count += rps * 0.1;
        let flight = Flight { requests: 0.0, rps };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small")]
        let entry = Entry { flight, ..used(0, count as u64, 900.0) };
        send(n, i * 100, 2, i, key, &[entry]);
        let told = run(n, at(i * 100 + 99));
        grants.extend(told.iter().filter_map(|t| t.3.grant).map(|g| g.rps));
        rps = grants.last().copied().unwrap_or(rps);
    }
    grants
}

#[test]
fn what_a_silent_zone_may_still_admit_is_kept_for_it() {
    for close in [true, false] {
        let (mut n, key) = two_zones();
        if close {
            n.close(at(3100), 1);
        }
        let soon = grants_of_b(&mut n, &key, 4..14);
        assert!(soon.iter().all(|rps| *rps < 650.0), "closed: {close}: {soon:?}");
        let late = grants_of_b(&mut n, &key, 48..60);
        assert!(soon[1..].iter().all(|rps| *rps > 390.0), "closed: {close}: {soon:?}");
        near(*late.last().expect("told"), 1000.0, 120.0);
    }
}

#[test]
fn a_zone_that_is_back_is_not_charged_twice() {
    let (mut n, key) = two_zones();
    n.close(at(3100), 1);
    let _ = grants_of_b(&mut n, &key, 4..10);
    // All that it admitted meanwhile: what it was charged.
    n.open(at(10_000), 3, aggregator("a")).expect("taken");
    send(&mut n, 10_000, 3, 1, &key, &[used(0, 3500, 600.0)]);
    let told = run(&mut n, at(10_099));
    let granted: f64 =
        told.iter().filter(|t| t.1 == 3).filter_map(|t| t.3.grant).map(|g| g.rps).sum();
    assert!(granted > 300.0, "its debt is small: {granted}");
}

#[test]
fn a_new_root_says_nothing_until_its_children_have_spoken() {
    let mut n = grant(Tier::Controller, vec![bucket("b", Scope::Region, rate(1000))]);
    let key = whole("s", "b");
    for (id, zone) in [(1, "a"), (2, "b")] {
        n.open(at(0), id, aggregator(zone)).expect("taken");
    }
    send(&mut n, 100, 1, 1, &key, &[used(0, 10, 900.0)]);
    assert_eq!(run(&mut n, at(400)), []);
    send(&mut n, 500, 2, 1, &key, &[used(0, 10, 900.0)]);
    assert!(!run(&mut n, at(510)).is_empty(), "both have spoken");

    let mut n = grant(Tier::Controller, vec![bucket("b", Scope::Region, rate(1000))]);
    for (id, zone) in [(1, "a"), (2, "b")] {
        n.open(at(0), id, aggregator(zone)).expect("taken");
    }
    send(&mut n, 100, 1, 1, &key, &[used(0, 10, 900.0)]);
    let mut told = Vec::new();
    for i in 2..=25 {
        told.extend(run(&mut n, at(i * 100 - 1)));
        send(&mut n, i * 100, 1, i, &key, &[used(0, 10 + i, 900.0)]);
    }
    assert!(told.first().expect("told").0 >= 2000, "the other has nothing to say");
}

#[test]
fn a_change_of_law_leaves_no_gap() {
    let buckets = || vec![bucket("b", Scope::Zone, rate(1000))];
    let mut n = Node::new(Settings { tick: TICK, ..settings(Tier::Aggregator) }, Time::ZERO);
    n.configure(&under(Law::Ratio, 1, buckets()));
    n.open(at(0), 1, hello()).expect("taken");
    let key = whole("s", "b");
    let mut number = None;
    for i in 1..=150_u64 {
        if i % 50 == 0 {
            let law = if i == 100 { Law::Ratio } else { Law::Grant };
            n.configure(&under(law, i, buckets()));
        }
        send(&mut n, i * 100, 1, i, &key, &[used(0, i * 100, 4000.0)]);
        run(&mut n, at(i * 100 + 99));
        number = number.or_else(|| n.key_of(&key));
        if i > 3 {
            let directive = n.directive(number.expect("counted")).expect("one is in force");
            near(directive.admit.share(), 0.25, 0.05);
        }
    }
}

fn shared(sharing: Sharing) -> Bucket {
    Bucket {
        sharing: Some(sharing),
        per: Some(Per { dimensions: vec![name("user")], ..per(100) }),
        ..bucket("b", Scope::Zone, rate(1000))
    }
}

/// The share of its demand that each value may admit, after some seconds of it.
fn shares_of(sharing: Sharing, demands: &[(&str, u64)]) -> Vec<f64> {
    let mut n = grant(Tier::Aggregator, vec![shared(sharing)]);
    n.open(at(0), 1, hello()).expect("taken");
    let names: Vec<_> =
        (0..).zip(demands).map(|(id, (user, _))| (id, value("s", "b", user))).collect();
    let mut counts = vec![0.0; demands.len()];
    let mut shares = vec![1.0; demands.len()];
    for i in 1..=100_u64 {
        let mut entries = Vec::new();
        for (id, (_, rps)) in (0..).zip(demands) {
            let place = usize::try_from(id).expect("small");
            #[expect(clippy::cast_precision_loss, reason = "small")]
            let rps = *rps as f64;
            counts[place] += rps * 0.1 * shares[place];
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small")]
            let count = counts[place] as u64;
            entries.push(used(id, count, rps));
        }
        let report = Report { interval: TICK, ..report(i, &names, &entries) };
        super::send(&mut n, at(i * 100), 1, report);
        for (_, _, key, directive) in run(&mut n, at(i * 100 + 99)) {
            shares[key as usize] = directive.admit.share();
        }
    }
    shares
}

#[test]
fn values_share_a_limit_fairly_or_by_class() {
    let fair = shares_of(Sharing::Fair, &[("a", 90), ("b", 300), ("c", 20_000)]);
    near(fair[0], 1.0, 1e-6);
    near(fair[1], 1.0, 1e-6);
    near(fair[2], 610.0 / 20_000.0, 0.005);
    let order = ["gold", "silver", "bronze"].map(Into::into).to_vec();
    let classes = Sharing::Priority(Classes { order, default: 0 });
    let by_class = shares_of(classes, &[("bronze", 600), ("gold", 600), ("silver", 600)]);
    near(by_class[1], 1.0, 1e-6);
    near(by_class[2], 400.0 / 600.0, 0.05);
    assert!(by_class[0] < 0.05, "{by_class:?}");
}

#[test]
fn a_key_that_owes_is_not_forgotten() {
    let mut n = grant(
        Tier::Aggregator,
        vec![Bucket { per: Some(per(100)), ..bucket("b", Scope::Zone, rate(10)) }],
    );
    n.open(at(0), 1, hello()).expect("taken");
    let key = value("s", "b", "x");
    send(&mut n, 100, 1, 1, &key, &[used(0, 5000, 5000.0)]);
    run(&mut n, at(300));
    n.close(at(400), 1);
    assert_eq!(n.forget(|_| false), [], "too early");
    let forgotten: Vec<u32> = (1..2000)
        .flat_map(|s| {
            run(&mut n, at(400 + s * 1000));
            n.forget(|_| false)
        })
        .collect();
    assert_eq!(forgotten.len(), 1, "once its limit is whole again");
}
