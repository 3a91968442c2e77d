//! A small world: virtual time, links with delay, and links that lose, repeat and reorder. Clients
//! are as simple as their side of the contract allows; aggregators and controller are the real ones.

use sluicegate_model::Flight;
use sluicegate_model::Law;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_aggregator_core::Aggregator;
use sluicegate_controller_core::{Controller, Limits, View};
use sluicegate_model::{
    AdmitRatio, Bucket, Counts, Directive, Down, Entry, Hello, KeyName, KeyValues, Limit, Match,
    Mode, Name, OnControlLoss, Owner, PROTOCOL_VERSION, Report, Role, Rule, Scope, Select,
    ServiceBuckets, ServiceCounts, Term, Time, TokenRate, Up,
};

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).expect("a sound name")
}

pub(crate) fn rate(requests: u64) -> Limit {
    Limit::Tokens(TokenRate::per_second(requests, None).expect("a sound limit"))
}

pub(crate) fn bucket(text: &str, scope: Scope, limit: Limit) -> Bucket {
    Bucket {
        name: name(text),
        scope,
        rule: Rule { on: Match::default(), not: Vec::new() },
        limit,
        mode: Mode::Deny,
        per: None,
        on_control_loss: OnControlLoss::Open,
        guard: false,
        enforce: 1.0,
        max_drop: 1.0,
        sharing: None,
    }
}

pub(crate) fn service(text: &str, buckets: Vec<Bucket>) -> Arc<ServiceBuckets> {
    let (service, owner, select) = (name(text), Owner::default(), Select::All);
    Arc::new(ServiceBuckets { service, owner, select, buckets })
}

pub(crate) fn key(service: &str, bucket: &str) -> KeyName {
    KeyName { service: name(service), bucket: name(bucket), values: KeyValues::Whole }
}

pub(crate) const TICK: Duration = Duration::from_secs(1);
pub(crate) const TTL: Duration = Duration::from_secs(10);

/// What a link does to reports and updates, each a share of 1000.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Faults {
    pub(crate) lost: u64,
    pub(crate) repeated: u64,
    pub(crate) late: u64,
}

/// One key in one client.
#[derive(Debug, Clone)]
pub(crate) struct Use {
    pub(crate) name: KeyName,
    pub(crate) offered_rps: f64,
    pub(crate) shadow: bool,
    pub(crate) counts: Counts,
    pub(crate) directive: Option<(Directive, Time)>,
    base: Counts,
    acked: (Counts, f64),
    named: bool,
    rate: f64,
    carry: (f64, f64),
    /// Offered and admitted in the last tick.
    pub(crate) last: (u64, u64),
}

impl Use {
    pub(crate) fn of(name: KeyName, offered_rps: f64) -> Self {
        Self {
            name,
            offered_rps,
            shadow: false,
            counts: Counts::default(),
            directive: None,
            base: Counts::default(),
            acked: (Counts::default(), 0.0),
            named: false,
            rate: 0.0,
            carry: (0.0, 0.0),
            last: (0, 0),
        }
    }

    fn admit(&self, now: Time) -> AdmitRatio {
        match &self.directive {
            Some((d, until)) if *until > now => d.admit,
            Some(_) | None => AdmitRatio::ALL,
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "small numbers"
    )]
    fn run(&mut self, now: Time) {
        let exact = self.offered_rps * TICK.as_secs_f64() + self.carry.0;
        let offered = exact.floor() as u64;
        let share = offered as f64 * self.admit(now).share() + self.carry.1;
        let passing = (share.floor() as u64).min(offered);
        self.carry = (exact.fract(), share - passing as f64);
        let (admitted, would_drop) =
            if self.shadow { (offered, offered - passing) } else { (passing, 0) };
        self.counts.add(&Counts { matched: offered, offered, admitted, would_drop });
        self.rate = offered as f64 / TICK.as_secs_f64();
        self.last = (offered, admitted);
    }
}

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) zone: usize,
    pub(crate) uses: Vec<Use>,
    pub(crate) seen_term: Term,
    pub(crate) version: u64,
    pub(crate) stale: u64,
    pub(crate) alive: bool,
    session: Option<u64>,
    seq: u64,
    in_flight: BTreeMap<u64, Vec<(usize, Counts, f64, u64)>>,
    attempts: u64,
    attempts_base: u64,
    attempts_acked: u64,
}

impl Client {
    fn report(&mut self) -> Option<Report> {
        let (mut new_keys, mut entries, mut held) = (Vec::new(), Vec::new(), Vec::new());
        for (at, used) in self.uses.iter().enumerate() {
            let id = u32::try_from(at).expect("few");
            if (used.counts, used.rate) == used.acked {
                continue;
            }
            if !used.named {
                new_keys.push((id, used.name.clone()));
            }
            let counts = used.counts.since(&used.base);
            let sessions = u32::from(used.rate > 0.0);
            entries.push(Entry {
                key: id,
                counts,
                offered_rps: used.rate,
                usual_rps: 0.0,
                flight: Flight::default(),
                sessions,
            });
            held.push((at, used.counts, used.rate, self.attempts));
        }
        if entries.is_empty() {
            return None;
        }
        self.seq += 1;
        self.in_flight.insert(self.seq, held);
        let attempts = self.attempts - self.attempts_base;
        let services = vec![ServiceCounts {
            service: name("s"),
            attempts,
            admitted: attempts,
            dropped_by_one: 0,
            dropped_by_several: 0,
        }];
        Some(Report {
            seq: self.seq,
            interval: TICK,
            new_keys,
            entries,
            services,
            ..Report::default()
        })
    }

    fn take(&mut self, now: Time, down: Down) {
        match down {
            Down::Configuration(c) => {
                self.stale += u64::from(c.term < self.seen_term || c.version < self.version);
                self.seen_term = self.seen_term.max(c.term);
                self.version = self.version.max(c.version);
            }
            Down::Update(update) => {
                self.in_flight.retain(|seq, _| *seq >= update.ack_seq);
                for (at, counts, rate, attempts) in
                    self.in_flight.remove(&update.ack_seq).unwrap_or_default()
                {
                    self.uses[at].acked = (counts, rate);
                    self.uses[at].named = true;
                    self.attempts_acked = attempts;
                }
                for (id, directive) in update.directives {
                    self.direct(now, id as usize, directive);
                }
            }
        }
    }

    fn direct(&mut self, now: Time, at: usize, directive: Directive) {
        assert!(directive.ttl > Duration::ZERO && directive.ttl <= TTL);
        let used = &mut self.uses[at];
        let older =
            used.directive.is_some_and(|(d, _)| d.term == directive.term && d.seq > directive.seq);
        if directive.term < self.seen_term || older {
            self.stale += 1;
            return;
        }
        self.seen_term = directive.term;
        used.directive = Some((directive, now + directive.ttl));
    }
}

#[derive(Debug, Clone)]
enum Event {
    ClientTick(usize),
    AggregatorConnects(usize),
    ToController(u64, Up),
    FromController(u64, Down),
    ToAggregator(u64, Up),
    FromAggregator(u64, Down),
}

pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) controller: Option<Controller>,
    pub(crate) aggregators: Vec<Aggregator>,
    pub(crate) clients: Vec<Client>,
    pub(crate) faults: Faults,
    pub(crate) services: Vec<Arc<ServiceBuckets>>,
    /// Session of each aggregator's stream to the controller.
    parents: Vec<Option<u64>>,
    events: BTreeMap<(Time, u64), Event>,
    count: u64,
    next_session: u64,
    random: u64,
}

impl World {
    pub(crate) fn new(zones: usize, services: Vec<Arc<ServiceBuckets>>, seed: u64) -> Self {
        let mut world = Self {
            now: Time::ZERO,
            controller: None,
            aggregators: Vec::new(),
            clients: Vec::new(),
            faults: Faults::default(),
            services,
            parents: vec![None; zones],
            events: BTreeMap::new(),
            count: 0,
            next_session: 1,
            random: seed | 1,
        };
        for zone in 0..zones {
            world.aggregators.push(world.aggregator(zone, 0));
            world.later(Duration::ZERO, Event::AggregatorConnects(zone));
        }
        world.start_controller(1);
        world
    }

    pub(crate) fn add_client(&mut self, zone: usize, uses: Vec<Use>) -> usize {
        self.clients.push(Client {
            zone,
            uses,
            seen_term: 0,
            version: 0,
            stale: 0,
            alive: true,
            session: None,
            seq: 0,
            in_flight: BTreeMap::new(),
            attempts: 0,
            attempts_base: 0,
            attempts_acked: 0,
        });
        let client = self.clients.len() - 1;
        let phase = Duration::from_millis(self.below(1000));
        self.later(phase, Event::ClientTick(client));
        client
    }

    pub(crate) fn start_controller(&mut self, session: u64) {
        let mut controller = Controller::new(
            sluicegate_controller_core::Config {
                node: name("controller"),
                session,
                region: name("r"),
                tick: TICK,
                ttl: TTL,
                grant_ttl: Duration::from_secs(60),
                switches: sluicegate_law::grant::Switches::default(),
                law: Law::Ratio,
                limits: Limits::for_controller(),
            },
            self.now,
        );
        controller.handle_configuration(self.now, self.services.clone(), Vec::new());
        self.controller = Some(controller);
    }

    /// The controller is gone, with all it knew.
    pub(crate) fn kill_controller(&mut self) {
        self.controller = None;
        for zone in 0..self.parents.len() {
            self.cut_parent(zone);
        }
    }

    /// A zone's stream to the controller breaks, and is opened again soon.
    pub(crate) fn cut_parent(&mut self, zone: usize) {
        if let Some(session) = self.parents[zone].take() {
            if let Some(c) = &mut self.controller {
                c.handle_child_close(self.now, session);
            }
            self.aggregators[zone].handle_parent_close(self.now);
            self.later(Duration::from_millis(200), Event::AggregatorConnects(zone));
        }
        self.pump();
    }

    /// A zone's aggregator starts anew, with nothing.
    pub(crate) fn restart_aggregator(&mut self, zone: usize, session: u64) {
        self.cut_parent(zone);
        self.aggregators[zone] = self.aggregator(zone, session);
        for client in self.clients.iter_mut().filter(|c| c.zone == zone) {
            client.session = None;
        }
    }

    /// A client's stream breaks, and is opened again at its next tick.
    pub(crate) fn cut_client(&mut self, client: usize) {
        let Client { session, zone, .. } = &mut self.clients[client];
        if let Some(session) = session.take() {
            self.aggregators[*zone].handle_child_close(self.now, session);
        }
        self.pump();
    }

    pub(crate) fn kill_client(&mut self, client: usize) {
        self.clients[client].alive = false;
        self.cut_client(client);
    }

    pub(crate) fn run(&mut self, time: Duration) {
        let until = self.now + time;
        loop {
            let timers = self.aggregators.iter().map(Aggregator::poll_timeout);
            let timers = timers.chain(self.controller.iter().map(Controller::poll_timeout));
            let timer = timers.min().expect("at least one aggregator").max(self.now);
            let event = self.events.first_key_value().map_or(Time::NEVER, |(at, _)| at.0);
            let next = timer.min(event);
            if next > until {
                self.now = until;
                return;
            }
            self.now = next;
            if event <= timer {
                let (_, event) = self.events.pop_first().expect("just seen");
                self.handle(event);
            } else {
                for a in self.aggregators.iter_mut().filter(|a| a.poll_timeout() <= next) {
                    a.handle_timeout(next);
                    assert!(a.poll_timeout() > next, "a timer that does not move on");
                }
                if let Some(c) = self.controller.as_mut().filter(|c| c.poll_timeout() <= next) {
                    c.handle_timeout(next);
                    assert!(c.poll_timeout() > next, "a timer that does not move on");
                }
            }
            self.pump();
        }
    }

    pub(crate) fn view(&self) -> View {
        self.controller.as_ref().expect("running").view()
    }

    /// What the clients counted of a key.
    pub(crate) fn total(&self, name: &KeyName) -> Counts {
        let mut total = Counts::default();
        for used in self.clients.iter().flat_map(|c| &c.uses).filter(|u| u.name == *name) {
            total.add(&used.counts);
        }
        total
    }

    pub(crate) fn attempts(&self) -> u64 {
        self.clients.iter().map(|c| c.attempts).sum()
    }

    /// The share admitted in the last tick of each client with traffic of a key.
    pub(crate) fn shares(&self, name: &KeyName) -> Vec<f64> {
        let uses = self.clients.iter().filter(|c| c.alive).flat_map(|c| &c.uses);
        uses.filter(|u| u.name == *name && u.offered_rps > 0.0)
            .map(|u| u.admit(self.now).share())
            .collect()
    }

    /// Offered and admitted of a key by living clients in their last ticks.
    pub(crate) fn last(&self, name: &KeyName) -> (u64, u64) {
        let uses = self.clients.iter().filter(|c| c.alive).flat_map(|c| &c.uses);
        uses.filter(|u| u.name == *name).fold((0, 0), |sum, u| (sum.0 + u.last.0, sum.1 + u.last.1))
    }

    fn aggregator(&self, zone: usize, session: u64) -> Aggregator {
        Aggregator::new(
            sluicegate_aggregator_core::Config {
                node: name(&format!("aggregator-{zone}")),
                session: session * 100 + zone as u64,
                zone: name(&format!("zone-{zone}")),
                region: name("r"),
                tick: TICK,
                ttl: TTL,
                switches: sluicegate_law::grant::Switches::default(),
                limits: Limits::for_aggregator(),
            },
            self.now,
        )
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::ClientTick(client) => self.tick_client(client),
            Event::AggregatorConnects(zone) => self.connect(zone),
            Event::ToController(session, up) => self.take_at_controller(session, up),
            Event::FromController(session, down) => {
                let zone = self.parents.iter().position(|p| *p == Some(session));
                if let Some(zone) = zone {
                    self.aggregators[zone].handle_parent(self.now, down);
                }
            }
            Event::ToAggregator(session, up) => self.take_at_aggregator(session, up),
            Event::FromAggregator(session, down) => {
                let now = self.now;
                if let Some(c) = self.clients.iter_mut().find(|c| c.session == Some(session)) {
                    c.take(now, down);
                }
            }
        }
    }

    fn connect(&mut self, zone: usize) {
        if self.controller.is_none() {
            self.later(Duration::from_millis(200), Event::AggregatorConnects(zone));
        } else if self.parents[zone].is_none() {
            self.parents[zone] = Some(self.session());
            self.aggregators[zone].handle_parent_open(self.now);
        }
    }

    fn take_at_controller(&mut self, session: u64, up: Up) {
        if !self.parents.contains(&Some(session)) {
            return;
        }
        let Some(controller) = &mut self.controller else { return };
        let taken = match up {
            Up::Hello(hello) => controller.handle_child_open(self.now, session, hello),
            up => controller.handle_child(self.now, session, up),
        };
        taken.expect("nothing here is refused");
    }

    fn take_at_aggregator(&mut self, session: u64, up: Up) {
        let Some(client) = self.clients.iter().find(|c| c.session == Some(session)) else { return };
        let aggregator = &mut self.aggregators[client.zone];
        let taken = match up {
            Up::Hello(hello) => aggregator.handle_child_open(self.now, session, hello),
            up => aggregator.handle_child(self.now, session, up),
        };
        taken.expect("nothing here is refused");
    }

    fn tick_client(&mut self, at: usize) {
        if !self.clients[at].alive {
            return;
        }
        let (now, fresh) = (self.now, self.next_session);
        let client = &mut self.clients[at];
        for used in &mut client.uses {
            used.run(now);
        }
        client.attempts += client.uses.iter().map(|u| u.last.0).sum::<u64>();
        if client.session.is_none() {
            self.next_session += 1;
            client.session = Some(fresh);
            client.seq = 0;
            client.in_flight.clear();
            client.attempts_base = client.attempts_acked;
            for used in &mut client.uses {
                used.base = used.acked.0;
                used.acked.1 = 0.0;
                used.named = false;
            }
            let hello = Hello {
                role: Role::Client,
                node: name("client"),
                session: at as u64,
                zone: name("z"),
                region: name("r"),
                protocol: PROTOCOL_VERSION,
                services: Vec::new(),
                seen_term: client.seen_term,
                seen_version: client.version,
            };
            self.later(Duration::from_millis(1), Event::ToAggregator(fresh, Up::Hello(hello)));
        }
        let client = &mut self.clients[at];
        let session = client.session.expect("just opened");
        if let Some(report) = client.report() {
            self.carry(Duration::from_millis(3), Event::ToAggregator(session, Up::Report(report)));
        }
        self.later(TICK, Event::ClientTick(at));
    }

    fn pump(&mut self) {
        for zone in 0..self.aggregators.len() {
            while let Some((session, down)) = self.aggregators[zone].poll_child() {
                self.carry(Duration::from_millis(3), Event::FromAggregator(session, down));
            }
            while let Some(up) = self.aggregators[zone].poll_parent() {
                let session = self.parents[zone].expect("says nothing without a stream");
                self.carry(Duration::from_millis(20), Event::ToController(session, up));
            }
        }
        while let Some((session, down)) = self.controller.as_mut().and_then(Controller::poll_child)
        {
            self.carry(Duration::from_millis(20), Event::FromController(session, down));
        }
    }

    /// Sends over a link: reports and updates may be lost, repeated or late.
    fn carry(&mut self, delay: Duration, event: Event) {
        let is_at_risk = matches!(
            event,
            Event::ToController(_, Up::Report(_))
                | Event::ToAggregator(_, Up::Report(_))
                | Event::FromController(_, Down::Update(_))
                | Event::FromAggregator(_, Down::Update(_))
        );
        if !is_at_risk {
            return self.later(delay, event);
        }
        if self.below(1000) < self.faults.repeated {
            let late = delay + Duration::from_millis(self.below(3000));
            self.later(late, event.clone());
        }
        if self.below(1000) < self.faults.lost {
            return;
        }
        let late = if self.below(1000) < self.faults.late { self.below(3000) } else { 0 };
        self.later(delay + Duration::from_millis(late), event);
    }

    fn later(&mut self, delay: Duration, event: Event) {
        self.count += 1;
        self.events.insert((self.now + delay, self.count), event);
    }

    fn session(&mut self) -> u64 {
        self.next_session += 1;
        self.next_session - 1
    }

    /// A random number below `n`: xorshift.
    fn below(&mut self, n: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % n
    }
}
