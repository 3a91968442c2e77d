//! The oracle: watches a run from outside and says which promises it breaks.
//!
//! It has a model of its own of what is counted, what is in force and what messages mean, made from
//! nothing but what passes between cores and world. It looks into the cores only to hold what they
//! show against that.

mod books;
mod client;
mod directory;
mod drops;
mod finish;
mod settle;
mod tamper;
mod violation;
mod watch;

use std::collections::BTreeMap;
use std::sync::Arc;

use sluicegate_model::{ConfigVersion, Invariant, ServiceBuckets, Term};

use self::books::{Memory, Receiver, Sender, Taken};
use self::client::{ClientModel, Rules};
use self::directory::{Directory, Thing};
use self::settle::Settle;
pub use self::tamper::Tampered;
use self::violation::Findings;
pub use self::violation::Violation;
use crate::node::{NodeId, Topology};
use crate::scenario::{FaultKind, Scenario, Tier, Which};
use crate::setup::{Setup, nanos};

/// Reports that an aggregator tells apart.
const REPORTS_REMEMBERED: usize = 16;

/// An aggregator or a controller as the oracle sees it, and what its parent has of it.
#[derive(Debug)]
struct NodeModel {
    runs: bool,
    receiver: Receiver,
    sender: Sender,
    /// The highest that it was delivered.
    term: Term,
    version: ConfigVersion,
    /// What it showed last.
    shown: (Term, ConfigVersion),
    /// What a controller was given last.
    given: Vec<Arc<ServiceBuckets>>,
}

impl NodeModel {
    fn new() -> Self {
        Self {
            runs: false,
            receiver: Receiver::default(),
            sender: Sender::new(Memory::NewestFirst(REPORTS_REMEMBERED)),
            term: 0,
            version: 0,
            shown: (0, 0),
            given: Vec::new(),
        }
    }
}

/// What the running process of a parent has sent to one child.
#[derive(Debug, Default)]
struct SentDown {
    term: Term,
    version: ConfigVersion,
    directives: BTreeMap<Thing, Term>,
}

/// How many messages a node sent in the second under way.
#[derive(Debug, Clone, Copy, Default)]
struct Pace {
    second: u64,
    messages: u64,
}

/// What an oracle found.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// The violations in the order in which they were found, the first of them.
    pub violations: Vec<Violation>,
    /// How many there were.
    pub violations_total: u64,
    /// How many single checks were made.
    pub checks: u64,
    /// Decisions seen.
    pub decisions: u64,
    /// Keys that were held against their limits after the last fault.
    pub keys_settled: u64,
    /// Keys that could not be: too few requests, a load that moves, or several buckets that drop
    /// the same requests.
    pub keys_not_settled: u64,
    /// Clients whose counts were followed to the end.
    pub clients_reconciled: u64,
    /// Requests that were counted twice because a stream ended before its last acknowledgement.
    pub counted_twice: u64,
}

/// Watches one run.
#[derive(Debug)]
pub struct Oracle {
    topology: Topology,
    directory: Directory,
    rules: Rules,
    clients: Vec<ClientModel>,
    /// Processes of clients that died.
    dead_clients: Vec<(NodeId, ClientModel)>,
    /// Aggregators, then controllers.
    nodes: Vec<NodeModel>,
    dead_nodes: Vec<(NodeId, NodeModel)>,
    taken: Taken,
    sent_down: BTreeMap<NodeId, SentDown>,
    pace_up: Vec<Pace>,
    pace_down: Vec<Pace>,
    /// Every state of a service that was ever configured.
    ever: Vec<Arc<ServiceBuckets>>,
    next_sample: Vec<u64>,
    settle: Settle,
    /// When something last went wrong, or was put right.
    disturbed: u64,
    /// When the traffic stops; `None` if it does not.
    stops: Option<u64>,
    /// When the last fault is over.
    healed: u64,
    end: u64,
    decisions: u64,
    findings: Findings,
}

impl Oracle {
    /// An oracle for a run of this setup, which must be the same as that of the run.
    #[must_use]
    pub fn new(setup: &Setup<'_>) -> Self {
        let topology = setup.topology();
        let scenario = setup.scenario();
        let client = |_| ClientModel::new(0);
        let above = topology.zones() + topology.regions();
        Self {
            topology,
            directory: Directory::new(setup),
            rules: rules(scenario),
            clients: (0..topology.clients()).map(client).collect(),
            dead_clients: Vec::new(),
            nodes: (0..above).map(|_| NodeModel::new()).collect(),
            dead_nodes: Vec::new(),
            taken: Taken::new(),
            sent_down: BTreeMap::new(),
            pace_up: vec![Pace::default(); topology.nodes()],
            pace_down: vec![Pace::default(); topology.nodes()],
            ever: Vec::new(),
            next_sample: vec![0; topology.nodes()],
            settle: Settle::new(scenario),
            disturbed: 0,
            stops: stops(scenario),
            healed: healed(scenario),
            end: nanos(scenario.duration_s),
            decisions: 0,
            findings: Findings::default(),
        }
    }

    fn check(
        &mut self,
        holds: bool,
        at: (Invariant, u64, NodeId),
        words: impl FnOnce() -> (String, String),
    ) {
        self.findings.check(holds, at, words);
    }

    /// Among the aggregators and controllers.
    fn above(&self, node: NodeId) -> Option<usize> {
        (node.0 as usize).checked_sub(self.topology.clients())
    }
}

fn rules(scenario: &Scenario) -> Rules {
    let clocks = scenario.faults.iter().filter(|f| f.fault == FaultKind::Clock);
    let drift = clocks.map(|f| f.drift_ppm.abs() / 1e6).fold(0.0, f64::max);
    let clocks = scenario.faults.iter().filter(|f| f.fault == FaultKind::Clock);
    let jump = nanos(clocks.map(|f| f.skew_ms / 1000.0).sum());
    let hops = [scenario.hops.client_aggregator_ms, scenario.hops.aggregator_controller_ms];
    let trip_s = hops.iter().map(|hop| 2.0 * hop.to_ms() / 1000.0).sum::<f64>();
    #[expect(clippy::cast_precision_loss, reason = "a tick")]
    let ticks_s = 3.0 * scenario.tick_ms as f64 / 1000.0;
    let (ttl, ramp) = (nanos(scenario.ttl_s), nanos(scenario.ramp_s));
    Rules { ttl, ramp, drift, jump, news: nanos(trip_s + ticks_s + 0.2) }
}

/// The end of traffic stands in a scenario as a load of nothing for all clients and for good.
fn stops(scenario: &Scenario) -> Option<u64> {
    let stop = scenario.faults.iter().find(|f| {
        f.fault == FaultKind::Load
            && f.load_x == 0.0
            && f.for_s.is_none()
            && f.tier == Tier::Client
            && f.node == Which::All
            && f.zone.is_none()
    });
    stop.map(|f| nanos(f.at_s))
}

/// When the last fault is over: that which lasts to the end does not count.
fn healed(scenario: &Scenario) -> u64 {
    let ends = scenario.faults.iter().filter_map(|f| match (f.fault, f.for_s) {
        (FaultKind::Break, _) => Some(f.at_s),
        (_, for_s) => Some(f.at_s + for_s?),
    });
    ends.map(nanos).max().unwrap_or(0)
}
