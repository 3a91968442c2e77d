//! What goes up: exact, once a tick, nothing when there is nothing to say.

use std::time::Duration;

use proptest::prelude::*;
use sluicegate_model::{KeyName, KeyValues, Limit, Report, Up};

use super::rig::{World, bucket, key, name, per_second, per_value, service, value_key};

fn observed() -> World {
    World::with(vec![service("s", vec![bucket("b", per_second(1_000, None))])])
}

#[test]
fn one_report_a_tick_with_exact_counts_and_the_rate_of_the_tick() {
    let mut world = observed();
    world.offer("s", 200, 10);
    let reports = &world.peer.reports;
    assert!((9..=11).contains(&reports.len()), "{} reports in 10 ticks", reports.len());
    for pair in reports.windows(2) {
        let gap = pair[1].0.since(pair[0].0);
        assert!(gap >= Duration::from_millis(980) && gap <= Duration::from_millis(1020), "{gap:?}");
        let entry = pair[1].1.entries[0];
        assert!((entry.offered_rps - 200.0).abs() < 8.0, "{}", entry.offered_rps);
        assert_eq!(entry.sessions, 1);
    }
    world.run_ms(1_500);
    assert_eq!(world.peer.matched(&key("s", "b")), 2_000);
    assert_eq!(world.peer.attempts[&name("s")], 2_000);
}

#[test]
fn a_key_that_goes_quiet_is_told_once_and_then_nothing_is_sent() {
    let mut world = observed();
    world.offer("s", 50, 3);
    world.run_ms(2_500);
    let told = world.peer.reports.len();
    let last = &world.peer.reports[told - 1].1;
    assert_eq!((last.entries[0].offered_rps, last.entries[0].sessions), (0.0, 0));
    world.run(Duration::from_secs(120));
    assert_eq!(world.peer.reports.len(), told, "nothing to say, nothing sent");
    assert!(world.ask("s"));
    world.run_ms(1_100);
    assert_eq!(world.peer.reports.len(), told + 1);
    let rate = world.peer.rates[&key("s", "b")];
    assert!(rate > 0.9 && rate < 1.1, "over the tick, not over the silence: {rate}");
}

#[test]
fn ticks_of_different_clients_fall_apart() {
    let phase = |seed| {
        let mut world = World::seeded(seed, |_| {});
        world.connect();
        world.snapshot(vec![service("s", vec![bucket("b", per_second(1_000, None))])]);
        world.offer("s", 100, 2);
        world.peer.reports[0].0.as_millis() % 1_000 / 100
    };
    let phases: std::collections::BTreeSet<u64> = (0..40).map(phase).collect();
    assert!(phases.len() >= 8, "{phases:?}");
    assert_eq!(phase(3), phase(3), "the seed decides");
}

#[test]
fn a_shell_that_does_not_send_makes_nothing_pile_up() {
    let mut world = observed();
    world.offer("s", 100, 2);
    world.drains = false;
    world.offer("s", 100, 20);
    world.offer_with(100, 20, |w| w.ask("s"));
    let mut waiting: Vec<Up> = Vec::new();
    while let Some(up) = world.agent.poll_up() {
        waiting.push(up);
    }
    assert_eq!(waiting.len(), 1, "one report stands for all: {waiting:?}");
    let counters = world.agent.counters();
    assert!(counters.reports_superseded.get() >= 35);
    for up in waiting {
        world.peer.take(world.now, up);
    }
    world.drains = true;
    world.run_ms(1_500);
    assert_eq!(world.peer.matched(&key("s", "b")), 4_200);
}

#[test]
fn what_nobody_acknowledges_is_repeated_but_seldom() {
    let mut world = observed();
    world.acks = false;
    assert!(world.ask("s"));
    world.run_ms(2_500);
    let told = world.peer.reports.len();
    world.run(Duration::from_secs(30));
    let more = world.peer.reports.len() - told;
    assert!((8..=11).contains(&more), "{more} repeats in 30 s");
    world.acks = true;
    world.run_ms(5_000);
    let told = world.peer.reports.len();
    world.run(Duration::from_secs(30));
    assert_eq!(world.peer.reports.len(), told);
    assert_eq!(world.peer.matched(&key("s", "b")), 1);
}

#[test]
fn a_report_after_a_pause_states_the_rate_over_the_true_time() {
    let mut world = observed();
    world.offer("s", 100, 3);
    for _ in 0..30_000 {
        let _ = world.ask("s");
    }
    world.pause(Duration::from_secs(30));
    world.run_ms(50);
    let (_, report) = world.peer.reports.last().expect("a report");
    assert!(report.interval >= Duration::from_secs(30), "{:?}", report.interval);
    let rate = report.entries[0].offered_rps;
    assert!((rate - 1_000.0).abs() < 50.0, "{rate}");
}

#[test]
fn a_new_stream_starts_with_what_the_old_one_did_not_acknowledge() {
    let mut world = observed();
    world.offer("s", 100, 3);
    world.run_ms(1_500);
    assert_eq!(world.peer.matched(&key("s", "b")), 300);
    world.disconnect();
    world.offer("s", 100, 3);
    world.connect();
    let (_, first) = world.peer.reports.last().expect("at once");
    assert_eq!(first.seq, 1, "what is known is told at once");
    assert_eq!(first.new_keys.len(), 1);
    let hello = world.peer.hello.clone().expect("a hello");
    assert_eq!((hello.seen_term, hello.seen_version), (1, 1));
    world.run_ms(1_500);
    assert_eq!(world.peer.matched(&key("s", "b")), 600);
    assert_eq!(world.peer.attempts[&name("s")], 600);
}

#[test]
fn values_and_the_overflow_key_are_reported_by_name() {
    let mut values = per_value("b", Limit::Unlimited);
    values.per.as_mut().expect("per").max_keys = 3;
    let mut world = World::with(vec![service("s", vec![values])]);
    for round in 0..50 {
        for value in ["a", "b", "c", "d", "e"] {
            assert!(world.ask_for("s", value), "round {round}");
        }
        world.run_ms(100);
    }
    world.run_ms(2_000);
    let each: Vec<u64> =
        ["a", "b", "c"].map(|v| world.peer.matched(&value_key("s", "b", v))).to_vec();
    assert!(each.iter().all(|n| *n == 49), "the first of each came before its key: {each:?}");
    let overflow = KeyName { values: KeyValues::Overflow, ..key("s", "b") };
    assert_eq!(world.peer.matched(&overflow), 250 - 3 * 49);
}

#[derive(Debug, Clone, Copy)]
enum Fate {
    Arrives,
    ArrivesTwice,
    IsLost,
    IsLate,
    LosesItsAck,
    BreaksAfter,
    BreaksUnacknowledged,
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        4 => Just(Fate::Arrives),
        1 => Just(Fate::ArrivesTwice),
        1 => Just(Fate::IsLost),
        1 => Just(Fate::IsLate),
        1 => Just(Fate::LosesItsAck),
        1 => Just(Fate::BreaksAfter),
        1 => Just(Fate::BreaksUnacknowledged),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever becomes of reports and streams, what the aggregator counted is what the limiter
    /// counted, plus what it had taken in when a stream broke before the client heard of it.
    #[test]
    fn counts_are_exact_over_a_bad_network(
        fates in proptest::collection::vec((fate(), 0_u64..30), 5..40),
        granting in any::<bool>(),
    ) {
        let services = vec![
            service("s", vec![bucket("b", per_second(1_000, None))]),
            service("t", vec![per_value("v", Limit::Unlimited)]),
        ];
        let mut world = match granting {
            true => World::granting(services, |_| {}),
            false => World::with(services),
        };
        (world.drains, world.acks) = (false, false);
        let mut asked = 0;
        // As of the last acknowledgement that arrived, and what breaks hid from the client.
        let (mut known, mut doubled) = (Taken::default(), Taken::default());
        let mut late: Option<Report> = None;
        for (fate, n) in fates {
            for _ in 0..n {
                let _ = world.ask("s");
                let _ = world.ask_for("t", "x");
            }
            asked += n;
            world.run_ms(1_000);
            while let Some(up) = world.agent.poll_up() {
                match (up, fate) {
                    (Up::Report(report), Fate::IsLate) => late = Some(report),
                    (Up::Report(_), Fate::IsLost) => {}
                    (Up::Report(report), _) => {
                        world.peer.take_report(&report);
                        if let Some(late) = late.take() {
                            world.peer.take_report(&late);
                        }
                        if matches!(fate, Fate::ArrivesTwice) {
                            world.peer.take_report(&report);
                        }
                    }
                    (up, _) => world.peer.take(world.now, up),
                }
            }
            if !matches!(fate, Fate::LosesItsAck | Fate::BreaksUnacknowledged) {
                world.ack();
                known = Taken::by(&world);
            }
            if matches!(fate, Fate::BreaksUnacknowledged | Fate::BreaksAfter) {
                late = None;
                doubled.add_break(&Taken::by(&world), &known);
                known = Taken::by(&world);
                world.disconnect();
                world.connect();
                let hello = world.agent.poll_up().expect("a hello");
                world.peer.take(world.now, hello);
            }
        }
        doubled.add_break(&Taken::by(&world), &known);
        // From here on all goes well.
        world.disconnect();
        (world.drains, world.acks) = (true, true);
        world.connect();
        world.run_ms(5_000);
        let taken = Taken::by(&world);
        prop_assert_eq!(taken.key, asked + doubled.key);
        prop_assert_eq!(taken.values, asked + doubled.values);
        prop_assert_eq!(taken.service, asked + doubled.service);
    }
}

/// What the aggregator has counted.
#[derive(Default)]
struct Taken {
    key: u64,
    values: u64,
    service: u64,
}

impl Taken {
    fn by(world: &World) -> Self {
        let overflow = KeyName { values: KeyValues::Overflow, ..key("t", "v") };
        Self {
            key: world.peer.matched(&key("s", "b")),
            values: world.peer.matched(&value_key("t", "v", "x")) + world.peer.matched(&overflow),
            service: world.peer.attempts.get(&name("s")).copied().unwrap_or(0),
        }
    }

    fn add_break(&mut self, now: &Self, known: &Self) {
        self.key += now.key - known.key;
        self.values += now.values - known.values;
        self.service += now.service - known.service;
    }
}
