//! That the world does to nodes, links and requests what a scenario says, seen through an observer.

use std::collections::{BTreeMap, BTreeSet};

use sluicegate_model::{Down, Up};
use sluicegate_sim::scenario::{self, Scenario};
use sluicegate_sim::{
    Ask, Fate, Inside, Law, NodeChange, NodeId, Observer, Run, Verdict, run, run_observed,
};

const SECOND: u64 = 1_000_000_000;
/// Of the world below: ten clients, two aggregators, one controller.
const AGGREGATOR: NodeId = NodeId(10);
const CONTROLLER: NodeId = NodeId(12);

fn world(more: &str) -> Scenario {
    let text = format!(
        "{{clients: 10, zones: 2, duration_s: 20, warmup_s: 2, limit_rps: 1000, \
         workload: {{load_x: 3, zipf: 0}}, {more}}}"
    );
    scenario::parse("world.yaml", &text, &[]).expect("a good scenario")
}

/// Writes down what it sees; may lose what it is told to.
#[derive(Default)]
struct Diary {
    asks: Vec<(u64, Ask, bool)>,
    stepped: BTreeMap<NodeId, Vec<u64>>,
    ups: Vec<(u64, NodeId)>,
    downs_arrived: Vec<(u64, NodeId)>,
    changes: Vec<(u64, NodeId, NodeChange)>,
    sessions: BTreeSet<u64>,
    lose_reports: bool,
    drop_all: bool,
}

impl Observer for Diary {
    fn decided(&mut self, at: u64, ask: &Ask, verdict: Verdict) -> Verdict {
        self.asks.push((at, *ask, verdict.is_admitted()));
        if self.drop_all { Verdict::Drop(sluicegate_sim::BucketId(0)) } else { verdict }
    }

    fn up(&mut self, at: u64, from: NodeId, message: &mut Up) -> Fate {
        self.ups.push((at, from));
        if let Up::Hello(hello) = message {
            self.sessions.insert(hello.session);
        }
        let is_report = matches!(message, Up::Report(_));
        if self.lose_reports && is_report { Fate::Lose } else { Fate::Send }
    }

    fn down_arrived(&mut self, at: u64, to: NodeId, _message: &Down) {
        self.downs_arrived.push((at, to));
    }

    fn stepped(&mut self, at: u64, node: NodeId, _inside: Inside<'_>) {
        self.stepped.entry(node).or_default().push(at);
    }

    fn changed(&mut self, at: u64, node: NodeId, change: NodeChange) {
        self.changes.push((at, node, change));
    }
}

impl Diary {
    fn steps(&self, node: NodeId, from_s: u64, to_s: u64) -> usize {
        let span = from_s * SECOND..to_s * SECOND;
        self.stepped.get(&node).map_or(0, |all| all.iter().filter(|at| span.contains(at)).count())
    }

    fn asks_of(&self, client: u32, from_s: u64, to_s: u64) -> usize {
        let span = from_s * SECOND..to_s * SECOND;
        self.asks.iter().filter(|(at, ask, _)| ask.client == client && span.contains(at)).count()
    }

    fn when(&self, node: NodeId, change: NodeChange) -> Vec<u64> {
        let all = self.changes.iter().filter(|(_, n, c)| (*n, *c) == (node, change));
        all.map(|(at, ..)| *at).collect()
    }
}

fn watch(scenario: &Scenario, mut diary: Diary) -> (Run, Diary) {
    let run = run_observed(scenario, Law::Ratio, 5, &mut |_| {}, &mut diary).expect("it runs");
    (run, diary)
}

#[test]
fn who_only_watches_changes_nothing() {
    let scenario = world("hops: {loss: 0.05}");
    let (watched, _) = watch(&scenario, Diary::default());
    assert_eq!(run(&scenario, Law::Ratio, 5, &mut |_| {}).expect("it runs"), watched);
}

#[test]
fn a_paused_process_does_nothing_and_goes_on_with_what_waited() {
    let scenario = world(
        "faults: [{fault: pause, tier: aggregator, node: 0, at_s: 5, for_s: 3}, \
         {fault: pause, node: 1, at_s: 5, for_s: 3}]",
    );
    let (_, diary) = watch(&scenario, Diary::default());
    assert!(diary.steps(AGGREGATOR, 4, 5) > 0);
    assert_eq!(diary.steps(AGGREGATOR, 5, 8), 0);
    assert!(diary.steps(AGGREGATOR, 8, 9) > diary.steps(AGGREGATOR, 4, 5), "what waited comes");
    assert_eq!((diary.steps(NodeId(1), 5, 8), diary.asks_of(1, 5, 8)), (0, 0));
    assert!(diary.asks_of(1, 8, 11) > 0);
}

#[test]
fn requests_go_on_while_only_the_agent_is_paused() {
    let scenario = world("faults: [{fault: pause-agent, node: 1, at_s: 5, for_s: 3}]");
    let (_, diary) = watch(&scenario, Diary::default());
    assert_eq!(diary.steps(NodeId(1), 5, 8), 0);
    assert!(diary.asks_of(1, 5, 8) > 500);
    assert!(diary.steps(NodeId(1), 8, 9) > 50);
}

#[test]
fn a_link_cut_one_way_brings_nothing_that_way_and_breaks_in_the_end() {
    let scenario =
        world("faults: [{fault: cut, tier: client, node: 3, way: down, at_s: 5, for_s: 9}]");
    let (_, diary) = watch(&scenario, Diary::default());
    let cut = 5 * SECOND + 5_000_000..14 * SECOND;
    let during = |all: &[(u64, NodeId)]| {
        all.iter().filter(|(at, node)| *node == NodeId(3) && cut.contains(at)).count()
    };
    assert_eq!(during(&diary.downs_arrived), 0);
    assert!(during(&diary.ups) > 20, "it reports until it knows");
    assert_eq!(diary.when(NodeId(3), NodeChange::Closed), [11 * SECOND]);
    let opened = diary.when(NodeId(3), NodeChange::Opened);
    assert_eq!(opened.len(), 2);
    assert!((14 * SECOND..18 * SECOND).contains(&opened[1]), "{}", opened[1]);
}

#[test]
fn a_restarted_process_is_a_new_session() {
    let calm = watch(&world("look_ms: 10"), Diary::default()).1.sessions.len();
    assert_eq!(calm, 12, "ten clients and two aggregators");
    for (fault, more) in [
        ("{fault: crash, tier: client, node: 4, at_s: 5, for_s: 1}", 1),
        ("{fault: crash, tier: aggregator, node: 0, silent: true, at_s: 5, for_s: 1}", 1),
        ("{fault: crash, tier: controller, at_s: 5, for_s: 1}", 0),
        ("{fault: churn, at_s: 5, for_s: 4}", 10),
    ] {
        let (_, diary) = watch(&world(&format!("faults: [{fault}]")), Diary::default());
        assert_eq!(diary.sessions.len(), calm + more, "{fault}");
    }
}

#[test]
fn children_of_a_dead_node_find_back_to_it() {
    let scenario =
        world("faults: [{fault: crash, tier: controller, at_s: 5, for_s: 2}], ttl_s: 1, ramp_s: 1");
    let (_, diary) = watch(&scenario, Diary::default());
    assert_eq!(diary.steps(CONTROLLER, 5, 7), 0);
    let opened = diary.when(AGGREGATOR, NodeChange::Opened);
    assert!((7 * SECOND..9 * SECOND).contains(&opened[1]), "{opened:?}");
    let dropped = |from: u64, to: u64| {
        let span = from * SECOND..to * SECOND;
        diary.asks.iter().filter(|(at, _, admitted)| span.contains(at) && !admitted).count()
    };
    assert!(dropped(4, 5) > 1500);
    assert!(dropped(10, 11) > 1500, "and is obeyed again");
}

#[test]
fn a_fast_clock_makes_a_node_do_more() {
    let steps = |more: &str| watch(&world(more), Diary::default()).1.steps(NodeId(2), 10, 20);
    let (right, fast) = (
        steps("look_ms: 10"),
        steps("faults: [{fault: clock, node: 2, drift_ppm: 100000, at_s: 5}]"),
    );
    assert!(fast * 20 > right * 21 && fast * 8 < right * 9, "{fast} against {right}");
}

#[test]
fn callers_try_again_as_often_as_they_may() {
    let scenario = scenario::parse(
        "retries.yaml",
        "{clients: 5, zones: 1, duration_s: 10, warmup_s: 2, limit_rps: 0, workload: \
         {load_rps: 500, retries: {max: 2, probability: 0.5, delay_ms: 20..40}}}",
        &[],
    )
    .expect("good");
    let (_, diary) = watch(&scenario, Diary::default());
    let tries = |n: u16| {
        let late = diary.asks.iter().filter(|(at, ..)| *at > 3 * SECOND);
        late.filter(|(_, ask, _)| ask.tries == n).count()
    };
    let counts = [tries(0), tries(1), tries(2), tries(3)];
    assert!(counts[0].abs_diff(3500) < 250, "{counts:?}");
    assert!(counts[1].abs_diff(1750) < 200, "{counts:?}");
    assert!(counts[2].abs_diff(875) < 150, "{counts:?}");
    assert_eq!(counts[3], 0);
}

#[test]
fn load_moves_to_one_client_or_grows_in_a_zone() {
    let one = world("faults: [{fault: one-client, node: 6, at_s: 5, for_s: 5}]");
    let (_, diary) = watch(&one, Diary::default());
    assert!(diary.asks_of(6, 5, 10) > 14_000);
    assert_eq!(diary.asks_of(5, 5, 10), 0);
    assert!(diary.asks_of(5, 10, 15) > 1000);

    let grown = world("faults: [{fault: load, zone: 1, load_x: 3, at_s: 5, for_s: 5}]");
    let (_, diary) = watch(&grown, Diary::default());
    // Client 5 is in zone 1, client 6 is not. 3,000 a second over ten clients.
    assert!(diary.asks_of(5, 5, 10).abs_diff(4500) < 300, "{}", diary.asks_of(5, 5, 10));
    assert!(diary.asks_of(6, 5, 10).abs_diff(1500) < 200, "{}", diary.asks_of(6, 5, 10));
}

#[test]
fn what_an_observer_changes_is_what_happens() {
    let scenario = world("look_ms: 10");
    let (lost, _) = watch(&scenario, Diary { lose_reports: true, ..Diary::default() });
    let mean = |run: &Run| run.outcome.buckets[0].mean_x.expect("a mean");
    assert!(mean(&lost) > 2.8, "nobody knows of the load: {}", mean(&lost));
    let (all, diary) = watch(&scenario, Diary { drop_all: true, ..Diary::default() });
    assert!(mean(&all).abs() < 1e-9);
    assert!(diary.asks.iter().any(|(_, _, admitted)| *admitted), "the client itself admitted");
}
