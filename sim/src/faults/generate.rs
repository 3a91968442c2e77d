//! Makes up a world from a seed: who there is, what is limited, what is asked, what goes wrong. All
//! faults end, then the load goes on for long enough to settle, then it stops and counts drain.

use std::collections::BTreeMap;

use crate::random::Rng;
use crate::scenario::{
    Bucket, DelayMs, Fault, FaultKind, Hops, Kind, Mode, OnControlLoss, Order, Retries, Scenario,
    Scope, Select, Service, Shape, Tier, Way, Which, Workload,
};

/// Until a connection over a dead link is given up, and another stands: the transport's keepalive,
/// an attempt, and the longest wait between attempts.
const RECONNECT_S: f64 = 6.0 + 2.0 + 2.0;
/// Limits are looked at over at least this long.
const LOOK_S: f64 = 3.0;
/// What was reported last and got lost is said again after three ticks, and at least this.
const REPEAT_S: f64 = 3.0;
/// The most requests a second of one workload, so that a world stays small.
const MAX_RPS: f64 = 600.0;

const CALLERS: [&str; 4] = ["web", "batch-1", "batch-2", "mobile"];
const PROCEDURES: [&str; 3] = ["Pay/Charge", "Pay/Refund", "List/All"];
const TENANTS: [&str; 5] = ["a", "b", "c", "d", "e"];

/// The stream of random numbers that worlds are made up from.
const STREAM: u64 = 9 << 40;

/// The world of a seed.
#[must_use]
pub fn scenario(seed: u64) -> Scenario {
    let mut make = Make(Rng::new(seed, STREAM));
    let regions = make.number(1, 2);
    let zones = regions * make.number(1, 3);
    let clients = if make.chance(0.2) { make.number(1, 3) } else { make.number(2, 60) };
    let tick_ms = *make.pick(&[50, 100, 200, 250, 500, 1000]);
    let tick_s = f64::from(tick_ms) / 1000.0;
    let services = make.services();
    let mut workloads: Vec<Workload> = services.iter().map(|s| make.workload(s)).collect();
    let healed_s = make.between(3.0, 9.0);
    let within_s = (6.0 * tick_s).max(2.0);
    let stops_s = healed_s + RECONNECT_S + within_s + LOOK_S.max(within_s / 2.0 + 0.5);
    let duration_s = stops_s + 1.0 + REPEAT_S + 6.0 * tick_s;
    let world = World { regions, zones, clients, healed_s };
    let mut faults = make.faults(&world, &services);
    faults.push(Fault {
        at_s: stops_s,
        fault: FaultKind::Load,
        tier: Tier::Client,
        load_x: 0.0,
        ..Fault::default()
    });
    let workload = workloads.remove(0);
    Scenario {
        name: format!("faults-{seed}"),
        clients,
        zones,
        regions,
        duration_s,
        warmup_s: 0.0,
        tick_ms: u64::from(tick_ms as u32),
        ttl_s: make.between(2.0, 8.0),
        ramp_s: make.between(0.0, 4.0),
        hops: make.hops(),
        services,
        workload,
        more_workloads: workloads,
        faults,
        ..Scenario::default()
    }
}

/// Who there is, and until when things go wrong.
struct World {
    regions: usize,
    zones: usize,
    clients: usize,
    healed_s: f64,
}

/// Makes things up.
struct Make(Rng);

impl Make {
    fn chance(&mut self, probability: f64) -> bool {
        self.0.happens(probability)
    }

    fn between(&mut self, from: f64, to: f64) -> f64 {
        // Whole milliseconds, so that a world reads well when it is written down.
        ((from + (to - from) * self.0.share()) * 1000.0).round() / 1000.0
    }

    fn number(&mut self, from: usize, to: usize) -> usize {
        let span = u64::try_from(to - from + 1).unwrap_or(1);
        from + usize::try_from(self.0.below(span)).unwrap_or(0)
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.number(0, of.len() - 1)]
    }

    fn delay(&mut self, from: f64, to: f64) -> DelayMs {
        let (a, b) = (self.between(from, to), self.between(from, to));
        DelayMs::new(a.min(b), a.max(b)).expect("a range")
    }

    fn hops(&mut self) -> Hops {
        Hops {
            client_aggregator_ms: self.delay(0.1, 20.0),
            aggregator_controller_ms: self.delay(1.0, 60.0),
            order: if self.chance(0.3) { Order::Any } else { Order::Fifo },
            ..Hops::default()
        }
    }

    fn services(&mut self) -> Vec<Service> {
        let names = ["pay", "list"];
        let count = self.number(1, 2);
        let service = |name: &&str| Service {
            service: (*name).to_owned(),
            select: if self.chance(0.25) { Select::MostSpecific } else { Select::All },
            buckets: (0..self.number(1, 4)).map(|n| self.bucket(n)).collect(),
        };
        names[..count].iter().map(service).collect()
    }

    fn bucket(&mut self, number: usize) -> Bucket {
        let mode = match self.number(0, 9) {
            0 => Mode::Observe,
            1 | 2 => Mode::Shadow,
            _ => Mode::Deny,
        };
        let limit = match self.number(0, 11) {
            0 => 0,
            1 => self.number(1, 5),
            2 | 3 => 1_000_000,
            4..=6 => self.number(5, 60),
            _ => self.number(40, 400),
        };
        let burst = self.chance(0.3).then(|| self.number(1, 200)).and_then(|b| b.try_into().ok());
        let own = |patterns: &[&str]| patterns.iter().map(|p| (*p).to_owned()).collect();
        let limited = mode != Mode::Observe;
        Bucket {
            bucket: format!("b{number}"),
            scope: *self.pick(&[Scope::Zone, Scope::Region, Scope::Region, Scope::Global]),
            mode,
            limit_rps: if limited { limit.try_into().ok() } else { None },
            burst: if limited { burst } else { None },
            caller: match self.number(0, 5) {
                0 => own(&["web"]),
                1 => own(&["batch-*"]),
                2 => own(&["*"]),
                _ => Vec::new(),
            },
            procedure: match self.number(0, 5) {
                0 => own(&["Pay/*"]),
                1 => own(&["Pay/Charge", "List/*"]),
                _ => Vec::new(),
            },
            per: if self.chance(0.25) { own(&["tenant"]) } else { Vec::new() },
            on_control_loss: *self.pick(&[
                OnControlLoss::Open,
                OnControlLoss::Open,
                OnControlLoss::Last,
                OnControlLoss::Share,
                OnControlLoss::Closed,
            ]),
        }
    }

    fn workload(&mut self, service: &Service) -> Workload {
        let limits = service.buckets.iter().filter_map(|b| b.limit_rps);
        let largest = limits.filter(|l| *l < 1_000_000).max().unwrap_or(0);
        #[expect(clippy::cast_precision_loss, reason = "small")]
        let load = (largest as f64 * self.between(0.2, 5.0)).clamp(20.0, MAX_RPS).round();
        let shape = match self.number(0, 9) {
            0 => Shape::OnOff,
            1 => Shape::Sine,
            2 => Shape::Bursts,
            _ => Shape::Constant,
        };
        let retries = self.chance(0.2).then(|| Retries {
            max: u32::try_from(self.number(1, 3)).unwrap_or(1),
            probability: self.between(0.2, 1.0),
            delay_ms: self.delay(1.0, 400.0),
        });
        Workload {
            service: service.service.clone(),
            shape,
            load_rps: Some(load),
            from_rps: Some((load * self.between(0.0, 0.8)).round()),
            period_ms: Some(self.between(200.0, 4000.0)),
            zipf: *self.pick(&[0.0, 0.5, 1.0, 2.0]),
            batch: if self.chance(0.2) { self.between(1.0, 8.0) } else { 1.0 },
            retries,
            mix: (0..self.number(1, 6)).map(|_| self.kind()).collect(),
            ..Workload::default()
        }
    }

    fn kind(&mut self) -> Kind {
        let mut dimensions = BTreeMap::new();
        if self.chance(0.6) {
            dimensions.insert("tenant".to_owned(), (*self.pick(&TENANTS)).to_owned());
        }
        let text = |chance: bool, text: &str| if chance { text.to_owned() } else { String::new() };
        let (caller, procedure) = (*self.pick(&CALLERS), *self.pick(&PROCEDURES));
        Kind {
            share: self.between(0.1, 1.0),
            caller: text(self.chance(0.8), caller),
            procedure: text(self.chance(0.8), procedure),
            dimensions,
        }
    }

    fn faults(&mut self, world: &World, services: &[Service]) -> Vec<Fault> {
        let count = self.number(0, 9);
        (0..count).map(|_| self.fault(world, services)).collect()
    }

    fn fault(&mut self, world: &World, services: &[Service]) -> Fault {
        let at_s = self.between(0.0, world.healed_s * 0.95);
        let longest = world.healed_s - at_s;
        // Many short ones, some long ones.
        let for_s = if self.chance(0.5) { self.between(0.0, longest.min(0.5)) } else { longest };
        let for_s = if self.chance(0.5) { for_s } else { self.between(0.0, longest) };
        let mut fault = Fault { at_s, for_s: Some(for_s), ..Fault::default() };
        let kinds = [
            FaultKind::Cut,
            FaultKind::Cut,
            FaultKind::Degrade,
            FaultKind::Degrade,
            FaultKind::Degrade,
            FaultKind::Crash,
            FaultKind::Crash,
            FaultKind::Crash,
            FaultKind::Pause,
            FaultKind::PauseAgent,
            FaultKind::Clock,
            FaultKind::Limit,
            FaultKind::Remove,
            FaultKind::Break,
            FaultKind::Break,
            FaultKind::Load,
            FaultKind::OneClient,
            FaultKind::Churn,
        ];
        fault.fault = *self.pick(&kinds);
        self.place(&mut fault, world);
        self.detail(&mut fault, world, services);
        fault
    }

    /// Where it happens.
    fn place(&mut self, fault: &mut Fault, world: &World) {
        let tiers: &[Tier] = match fault.fault {
            FaultKind::Cut | FaultKind::Degrade | FaultKind::Break => {
                &[Tier::Client, Tier::Aggregator]
            }
            FaultKind::Crash | FaultKind::Pause | FaultKind::Clock => {
                &[Tier::Client, Tier::Aggregator, Tier::Controller]
            }
            FaultKind::PauseAgent
            | FaultKind::Limit
            | FaultKind::Remove
            | FaultKind::Load
            | FaultKind::OneClient
            | FaultKind::Churn => &[Tier::Client],
        };
        fault.tier = *self.pick(tiers);
        let count = match fault.tier {
            Tier::Client => world.clients,
            Tier::Aggregator => world.zones,
            Tier::Controller => world.regions,
        };
        match self.number(0, 3) {
            0 => {}
            1 => fault.zone = Some(self.number(0, world.zones - 1)),
            _ => fault.node = Which::One(self.number(0, count - 1)),
        }
        fault.way = *self.pick(&[Way::Both, Way::Both, Way::Up, Way::Down]);
    }

    /// How bad it is.
    fn detail(&mut self, fault: &mut Fault, world: &World, services: &[Service]) {
        match fault.fault {
            FaultKind::Degrade => {
                fault.loss = self.between(0.0, 0.6);
                fault.duplicate = self.between(0.0, 0.5);
                fault.delay_ms = self.chance(0.6).then(|| self.delay(0.0, 800.0));
            }
            FaultKind::Crash => fault.silent = self.chance(0.3),
            FaultKind::Clock => {
                fault.skew_ms = self.between(0.0, 4000.0);
                fault.drift_ppm = self.between(-20_000.0, 20_000.0);
            }
            FaultKind::Load => fault.load_x = self.between(0.1, 4.0),
            FaultKind::Remove => fault.service.clone_from(&self.pick(services).service),
            FaultKind::Limit => self.new_limit(fault, services),
            // It ends a little after the fault does: each client is down for a moment.
            FaultKind::Churn => {
                fault.for_s = fault.for_s.map(|s| (s - 0.2).max(0.001));
                fault.at_s = fault.at_s.min(world.healed_s - 0.3);
            }
            FaultKind::Cut
            | FaultKind::Pause
            | FaultKind::PauseAgent
            | FaultKind::Break
            | FaultKind::OneClient => {}
        }
    }

    fn new_limit(&mut self, fault: &mut Fault, services: &[Service]) {
        let all = services.iter().flat_map(|s| s.buckets.iter().map(move |b| (s, b)));
        let limited: Vec<_> = all.filter(|(_, b)| b.limit_rps.is_some()).collect();
        if limited.is_empty() {
            fault.fault = FaultKind::Break;
            return;
        }
        let (service, bucket) = *self.pick(&limited);
        fault.service.clone_from(&service.service);
        fault.bucket.clone_from(&bucket.bucket);
        let limits = [0, 1, self.number(2, 50), self.number(50, 500), 1_000_000];
        fault.limit_rps = (*self.pick(&limits)).try_into().ok();
    }
}
