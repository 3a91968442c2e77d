//! What a scenario holds, as it is written. Plain data with defaults; what makes sense together is
//! checked in [`super::check`].

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::values::{DelayMs, Switch, Which};
use crate::outcome::Measure;
use crate::rivals::Rivals;

/// A world, what is asked of it, and what goes wrong in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// One line: what it shows.
    pub about: String,
    /// What is worth knowing of its conditions and results.
    pub notes: String,
    /// The measures that tell most here, such as `cut_ms`; reports show them first.
    pub measures: Vec<Measure>,
    /// How many clients. Client `i` is in zone `i mod zones`.
    pub clients: usize,
    /// How many zones, each with one aggregator.
    pub zones: usize,
    /// How many regions, each with one controller and an equal part of the zones in a row.
    pub regions: usize,
    /// How long the run is, warm-up included.
    pub duration_s: f64,
    /// What comes before the measures begin.
    pub warmup_s: f64,
    /// The limit of the bucket `all` of the service `api`, where `services` gives no others.
    pub limit_rps: u64,
    /// Its burst in requests; a tenth of a second of the limit by default.
    pub burst: Option<u64>,
    /// The client's guard; law `grant` only.
    pub guard: Switch,
    /// Between two reports of a client, and two steps of the law.
    pub tick_ms: u64,
    /// How long a directive lives.
    pub ttl_s: f64,
    /// How long after that a client takes to follow `on_control_loss`.
    pub ramp_s: f64,
    /// Between two looks of a client's agent at its counters.
    pub look_ms: u64,
    /// The links between tiers.
    pub hops: Hops,
    /// What services there are, and their buckets.
    pub services: Vec<Service>,
    /// The requests.
    pub workload: Workload,
    /// More requests at the same time, each of its own kind.
    pub more_workloads: Vec<Workload>,
    /// What goes wrong or changes, and when.
    pub faults: Vec<Fault>,
    /// The parameters of the other laws.
    pub rivals: Rivals,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            name: "unnamed".into(),
            about: String::new(),
            notes: String::new(),
            measures: Vec::new(),
            clients: 1000,
            zones: 6,
            regions: 1,
            duration_s: 25.0,
            warmup_s: 8.0,
            limit_rps: 22_000,
            burst: None,
            guard: Switch::Off,
            tick_ms: 100,
            ttl_s: 10.0,
            ramp_s: 10.0,
            look_ms: 10,
            hops: Hops::default(),
            services: Vec::new(),
            workload: Workload::default(),
            more_workloads: Vec::new(),
            faults: Vec::new(),
            rivals: Rivals::default(),
        }
    }
}

/// The links between tiers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Hops {
    /// One way between a client and its aggregator.
    pub client_aggregator_ms: DelayMs,
    /// One way between an aggregator and its controller.
    pub aggregator_controller_ms: DelayMs,
    /// Whether messages of one direction stay in order.
    pub order: Order,
    /// The share of messages that is lost.
    pub loss: f64,
    /// The share of messages that arrives twice.
    pub duplicate: f64,
}

impl Default for Hops {
    fn default() -> Self {
        Self {
            client_aggregator_ms: DelayMs::new(1.0, 5.0).expect("a range"),
            aggregator_controller_ms: DelayMs::new(5.0, 30.0).expect("a range"),
            order: Order::Fifo,
            loss: 0.0,
            duplicate: 0.0,
        }
    }
}

/// Whether messages of one direction of a link may overtake each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// No, as on a stream.
    #[default]
    Fifo,
    /// Yes.
    Any,
}

/// A service and its buckets.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// Its name.
    pub service: String,
    /// Which of several buckets that match count a request.
    #[serde(default)]
    pub select: Select,
    /// Its buckets.
    pub buckets: Vec<Bucket>,
}

/// As the model's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "as the model's")]
pub enum Select {
    #[default]
    All,
    MostSpecific,
}

/// A bucket: the fields of the product's that matter here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Bucket {
    /// Its name.
    pub bucket: String,
    /// Over what the limit is summed.
    pub scope: Scope,
    /// What happens to what is over it.
    pub mode: Mode,
    /// Its limit; none for mode observe.
    pub limit_rps: Option<u64>,
    /// Its burst in requests; a tenth of a second of the limit by default.
    pub burst: Option<u64>,
    /// Which callers: `name`, `prefix*` or `*`; empty for all.
    pub caller: Vec<String>,
    /// Which procedures, likewise.
    pub procedure: Vec<String>,
    /// One count for each value of these dimensions.
    pub per: Vec<String>,
    /// What a client does when control is lost.
    pub on_control_loss: OnControlLoss,
}

impl Default for Bucket {
    fn default() -> Self {
        Self {
            bucket: "all".into(),
            scope: Scope::Region,
            mode: Mode::Deny,
            limit_rps: None,
            burst: None,
            caller: Vec::new(),
            procedure: Vec::new(),
            per: Vec::new(),
            on_control_loss: OnControlLoss::Open,
        }
    }
}

/// As the model's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "as the model's")]
pub enum Scope {
    Zone,
    Region,
    Global,
}

/// As the model's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "as the model's")]
pub enum Mode {
    Deny,
    Shadow,
    Observe,
}

/// As the model's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "as the model's")]
pub enum OnControlLoss {
    Open,
    Last,
    Share,
    Closed,
}

/// Requests: how many, from whom, of which kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Workload {
    /// The service that is called.
    pub service: String,
    /// How the load runs over time.
    pub shape: Shape,
    /// The load: from the step on, at the top of a wave, in the on phase, in a burst, at the peak
    /// of a trace. A multiple of the limit; wins over `load_rps` where both stand.
    pub load_x: Option<f64>,
    /// The same in requests a second.
    pub load_rps: Option<f64>,
    /// The load before the step, at the bottom of a wave, in the off phase, between bursts. A
    /// multiple of the limit; wins over `from_rps` where both stand.
    pub from_x: Option<f64>,
    /// The same in requests a second.
    pub from_rps: Option<f64>,
    /// When the step comes or the bursts begin; the end of the warm-up by default.
    pub at_s: Option<f64>,
    /// From one wave, on phase or burst to the next.
    pub period_ms: Option<f64>,
    /// How long the on phase or the burst is; half the period by default.
    pub on_ms: Option<f64>,
    /// The trace file. A relative path is looked up in the folder that `SLUICEGATE_DATA` names.
    pub file: Option<PathBuf>,
    /// The trace's time is divided by this.
    pub time_divisor: f64,
    /// The width of the trace's bins; what its name ends in by default.
    pub bin_ms: Option<f64>,
    /// How unevenly the load is spread over the clients: the exponent of Zipf's law, 0 for evenly.
    pub zipf: f64,
    /// Requests that come together, on average (geometric); 1 for Poisson arrivals.
    pub batch: f64,
    /// What callers do with a drop.
    pub retries: Option<Retries>,
    /// Kinds of requests, by share; one kind without a caller if empty.
    pub mix: Vec<Kind>,
}

impl Default for Workload {
    fn default() -> Self {
        Self {
            service: "api".into(),
            shape: Shape::Constant,
            load_x: None,
            load_rps: None,
            from_x: None,
            from_rps: None,
            at_s: None,
            period_ms: None,
            on_ms: None,
            file: None,
            time_divisor: 1.0,
            bin_ms: None,
            zipf: 1.0,
            batch: 1.0,
            retries: None,
            mix: Vec::new(),
        }
    }
}

/// How a load runs over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// `load`, all the time.
    #[default]
    Constant,
    /// `from`, then `load`.
    Step,
    /// A wave between `from` and `load`.
    Sine,
    /// `load` and `from` in turn, from the start.
    OnOff,
    /// `from`, and from `at_s` on bursts of `load`.
    Bursts,
    /// As a file says, scaled so that its peak is `load`.
    Trace,
}

/// What callers do with a drop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retries {
    /// The most tries after the first.
    pub max: u32,
    /// Whether a dropped try is followed by another.
    pub probability: f64,
    /// How long after.
    pub delay_ms: DelayMs,
}

/// One kind of requests.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Kind {
    /// Its weight among the kinds.
    pub share: f64,
    /// Who calls.
    pub caller: String,
    /// What is called.
    pub procedure: String,
    /// Further dimensions.
    pub dimensions: std::collections::BTreeMap<String, String>,
}

/// Something that goes wrong, or changes. Which fields mean something depends on [`Fault::fault`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Fault {
    /// When it begins, from the start of the run.
    pub at_s: f64,
    /// How long it lasts; to the end of the run by default.
    pub for_s: Option<f64>,
    /// What it is.
    pub fault: FaultKind,
    /// Which nodes; for faults of links, those whose links to the tier above are meant.
    pub tier: Tier,
    /// Which of that tier, by number: clients, aggregators (by zone), controllers (by region).
    pub node: Which,
    /// Only those of this zone.
    pub zone: Option<usize>,
    /// Which direction of a link.
    pub way: Way,
    /// `degrade`: the share of messages that is lost.
    pub loss: f64,
    /// `degrade`: the share of messages that arrives twice.
    pub duplicate: f64,
    /// `degrade`: what comes on top of each message's delay; messages may overtake each other.
    pub delay_ms: Option<DelayMs>,
    /// `crash`: the machine dies, so nobody is told; otherwise the connections are closed.
    pub silent: bool,
    /// `clock`: how far it jumps forward.
    pub skew_ms: f64,
    /// `clock`: how much faster than true it runs from then on, in millionths.
    pub drift_ppm: f64,
    /// `limit` and `remove`: the service.
    pub service: String,
    /// `limit`: the bucket.
    pub bucket: String,
    /// `limit`: its limit from then on; the old one again at the end of the fault.
    pub limit_rps: Option<u64>,
    /// `load`: what the load of the clients meant is multiplied by.
    pub load_x: f64,
}

impl Default for Fault {
    fn default() -> Self {
        Self {
            at_s: 0.0,
            for_s: None,
            fault: FaultKind::Cut,
            tier: Tier::Client,
            node: Which::All,
            zone: None,
            way: Way::Both,
            loss: 0.0,
            duplicate: 0.0,
            delay_ms: None,
            silent: false,
            skew_ms: 0.0,
            drift_ppm: 0.0,
            service: "api".into(),
            bucket: "all".into(),
            limit_rps: None,
            load_x: 1.0,
        }
    }
}

/// What can go wrong, or change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// Nothing passes the links to the tier above.
    Cut,
    /// Messages on those links are lost, repeated, late.
    Degrade,
    /// The processes die; at the end of the fault new ones start, with new sessions and nothing
    /// in memory.
    Crash,
    /// The processes stand still: timers and messages wait, clients ask nothing.
    Pause,
    /// The agents of clients stand still; their requests go on.
    PauseAgent,
    /// The nodes' clocks jump forward, or run fast or slow.
    Clock,
    /// A bucket gets another limit.
    Limit,
    /// A service is taken out of the configuration; it is back at the end of the fault.
    Remove,
    /// The connections to the tier above break, and both ends know at once.
    Break,
    /// Some clients get more or less load.
    Load,
    /// All load moves to one client (the one in the middle by load, or `node`).
    OneClient,
    /// Every client meant crashes and starts again once, at a random time during the fault.
    Churn,
}

/// Where a node stands, from below.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tier {
    /// The clients.
    Client,
    /// The zones' aggregators.
    Aggregator,
    /// The regions' controllers.
    Controller,
}

/// A direction of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// Both.
    Both,
    /// Towards the controller.
    Up,
    /// Towards the clients.
    Down,
}
