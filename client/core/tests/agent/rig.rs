//! The bench: a limiter and its agent, a clock that only this moves, and an aggregator that keeps
//! books as the real one does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sluicegate_client_core::{Agent, CoarseClock, Limiter, Settings, client};
use sluicegate_model::{
    AdmitRatio, Bucket, Configuration, Counts, Directive, Down, Hello, KeyId, KeyName, KeyValues,
    Law, Limit, Match, Mode, Name, OnControlLoss, Overflow, Owner, Per, Report, Request, Rule,
    Scope, Select, ServiceBuckets, ServiceCounts, Time, TokenRate, Up, Update,
};

pub(crate) const TTL: Duration = Duration::from_secs(10);

#[derive(Clone, Default)]
pub(crate) struct Clock(Arc<AtomicU64>);

impl CoarseClock for Clock {
    fn now(&self) -> Time {
        Time::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

pub(crate) fn per_second(requests: u64, burst: Option<u64>) -> Limit {
    Limit::Tokens(TokenRate::per_second(requests, burst).expect("a limit"))
}

pub(crate) fn bucket(text: &str, limit: Limit) -> Bucket {
    Bucket {
        name: name(text),
        scope: Scope::Region,
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

pub(crate) fn per_value(text: &str, limit: Limit) -> Bucket {
    let per = Per {
        dimensions: vec![name("ws")],
        values: BTreeMap::new(),
        max_keys: 100,
        overflow: Overflow::Observe,
    };
    Bucket { per: Some(per), ..bucket(text, limit) }
}

pub(crate) fn service(text: &str, buckets: Vec<Bucket>) -> Arc<ServiceBuckets> {
    Arc::new(ServiceBuckets {
        service: name(text),
        owner: Owner::default(),
        select: Select::All,
        buckets,
    })
}

pub(crate) fn key(service: &str, bucket: &str) -> KeyName {
    KeyName { service: name(service), bucket: name(bucket), values: KeyValues::Whole }
}

pub(crate) fn value_key(service: &str, bucket: &str, value: &str) -> KeyName {
    let values = KeyValues::Each(Box::new([Box::from(value)]));
    KeyName { service: name(service), bucket: name(bucket), values }
}

/// What the aggregator knows.
#[derive(Default)]
pub(crate) struct Peer {
    pub(crate) hello: Option<Hello>,
    pub(crate) applied: Vec<u64>,
    pub(crate) reports: Vec<(Time, Report)>,
    pub(crate) last_seq: u64,
    pub(crate) ids: BTreeMap<KeyId, (KeyName, Counts)>,
    pub(crate) totals: BTreeMap<KeyName, Counts>,
    pub(crate) rates: BTreeMap<KeyName, f64>,
    services: BTreeMap<Name, u64>,
    pub(crate) attempts: BTreeMap<Name, u64>,
    pub(crate) retired: u64,
}

impl Peer {
    pub(crate) fn take(&mut self, now: Time, up: Up) {
        match up {
            Up::Hello(hello) => {
                assert!(self.hello.replace(hello).is_none(), "one hello a stream");
            }
            Up::ConfigurationApplied(version) => self.applied.push(version),
            Up::Report(report) => {
                self.take_report(&report);
                self.reports.push((now, report));
            }
            Up::Seen { .. } => panic!("a client says what it has seen in its hello"),
        }
    }

    pub(crate) fn take_report(&mut self, report: &Report) {
        assert!(self.hello.is_some(), "a report before the hello");
        assert!(!report.interval.is_zero());
        if report.seq <= self.last_seq {
            return;
        }
        self.last_seq = report.seq;
        for (id, name) in &report.new_keys {
            let known = self.ids.entry(*id).or_insert((name.clone(), Counts::default()));
            assert_eq!(known.0, *name, "an id is not reused before it is retired");
        }
        for entry in &report.entries {
            let (name, last) = self.ids.get_mut(&entry.key).expect("named before use");
            assert!(entry.counts.covers(last) && entry.counts.is_consistent());
            self.totals.entry(name.clone()).or_default().add(&entry.counts.since(last));
            *last = entry.counts;
            self.rates.insert(name.clone(), entry.offered_rps);
        }
        for id in &report.retired_keys {
            self.retired += u64::from(self.ids.remove(id).is_some());
        }
        for line in &report.services {
            self.take_service(line);
        }
    }

    fn take_service(&mut self, line: &ServiceCounts) {
        let last = self.services.entry(line.service.clone()).or_default();
        assert!(line.attempts >= *last, "attempts go back");
        assert_eq!(line.attempts, line.admitted + line.dropped_by_one + line.dropped_by_several);
        *self.attempts.entry(line.service.clone()).or_default() += line.attempts - *last;
        *last = line.attempts;
    }

    /// The stream is gone; what was counted stays counted.
    pub(crate) fn close(&mut self) {
        self.hello = None;
        self.last_seq = 0;
        self.ids.clear();
        self.services.clear();
    }

    pub(crate) fn id_of(&self, key: &KeyName) -> KeyId {
        let mut found = self.ids.iter().filter(|(_, (n, _))| n == key).map(|(id, _)| *id);
        found.next().unwrap_or_else(|| panic!("{key} was not reported"))
    }

    pub(crate) fn matched(&self, key: &KeyName) -> u64 {
        self.totals.get(key).map_or(0, |c| c.matched)
    }
}

pub(crate) struct World {
    pub(crate) limiter: Limiter<Clock>,
    pub(crate) agent: Agent,
    pub(crate) peer: Peer,
    pub(crate) now: Time,
    pub(crate) clock: Clock,
    pub(crate) version: u64,
    pub(crate) term: u64,
    pub(crate) law: Law,
    seq: u64,
    /// Whether the aggregator acknowledges, and is heard of every two seconds, by itself.
    pub(crate) acks: bool,
    /// Whether the shell sends what the agent has to say.
    pub(crate) drains: bool,
    heartbeat: Time,
    open: bool,
}

impl World {
    pub(crate) fn new(change: impl FnOnce(&mut Settings)) -> Self {
        Self::seeded(7, change)
    }

    pub(crate) fn seeded(seed: u64, change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = Settings::new(name("n1"), 42, name("z1"), name("r1"));
        settings.max_stripes = 0;
        change(&mut settings);
        let clock = Clock::default();
        let now = Time::from_millis(1_000_000);
        clock.0.store(now.as_nanos(), Ordering::Relaxed);
        let (limiter, agent) = client(settings, clock.clone(), seed, now);
        Self {
            limiter,
            agent,
            peer: Peer::default(),
            now,
            clock,
            version: 0,
            term: 1,
            law: Law::Ratio,
            seq: 0,
            acks: true,
            drains: true,
            heartbeat: now,
            open: false,
        }
    }

    /// Connected, with these services in force.
    pub(crate) fn with(services: Vec<Arc<ServiceBuckets>>) -> Self {
        let mut world = Self::new(|_| {});
        world.connect();
        world.snapshot(services);
        world
    }

    /// Connected, with these services in force under the law `grant`, and ten ticks a second.
    pub(crate) fn granting(
        services: Vec<Arc<ServiceBuckets>>,
        change: impl FnOnce(&mut Settings),
    ) -> Self {
        let mut world = Self::new(|settings| {
            settings.tick = Duration::from_millis(100);
            change(settings);
        });
        world.law = Law::Grant;
        world.connect();
        world.snapshot(services);
        world
    }

    pub(crate) fn connect(&mut self) {
        self.open = true;
        self.agent.handle_open(self.now);
        self.drain();
    }

    pub(crate) fn disconnect(&mut self) {
        self.open = false;
        self.agent.handle_close(self.now);
        self.peer.close();
    }

    pub(crate) fn down(&mut self, down: Down) {
        self.agent.handle_down(self.now, down);
        self.drain();
    }

    pub(crate) fn snapshot(&mut self, services: Vec<Arc<ServiceBuckets>>) {
        self.version += 1;
        self.configuration(self.version, self.term, true, services, &[]);
    }

    pub(crate) fn delta(&mut self, services: Vec<Arc<ServiceBuckets>>, removed: &[&str]) {
        self.version += 1;
        self.configuration(self.version, self.term, false, services, removed);
    }

    pub(crate) fn configuration(
        &mut self,
        version: u64,
        term: u64,
        full: bool,
        services: Vec<Arc<ServiceBuckets>>,
        removed: &[&str],
    ) {
        let removed = removed.iter().map(|r| name(r)).collect();
        self.down(Down::Configuration(Configuration {
            version,
            term,
            full,
            law: self.law,
            services,
            removed,
        }));
    }

    pub(crate) fn directive(&mut self, admit: f64) -> Directive {
        self.seq += 1;
        Directive {
            admit: AdmitRatio::from_share(admit),
            headroom: 0.0,
            sigma: 0.0,
            grant: None,
            limit_rps: 0.0,
            sessions: 1,
            term: self.term,
            seq: self.seq,
            ttl: TTL,
        }
    }

    pub(crate) fn send(&mut self, id: KeyId, directive: Directive) {
        let ack_seq = if self.acks { self.peer.last_seq } else { 0 };
        self.down(Down::Update(Update { ack_seq, directives: vec![(id, directive)] }));
    }

    /// A directive for a key that was reported.
    pub(crate) fn direct(&mut self, key: &KeyName, admit: f64) {
        let (id, directive) = (self.peer.id_of(key), self.directive(admit));
        self.send(id, directive);
    }

    pub(crate) fn ack(&mut self) {
        let ack_seq = self.peer.last_seq;
        self.down(Down::Update(Update { ack_seq, directives: Vec::new() }));
    }

    pub(crate) fn drain(&mut self) {
        if !self.drains || !self.open {
            return;
        }
        let mut reported = false;
        while let Some(up) = self.agent.poll_up() {
            reported |= matches!(up, Up::Report(_));
            self.peer.take(self.now, up);
        }
        if reported && self.acks {
            self.ack();
        }
    }

    /// Time goes on to `until`, the agent being called whenever it wants to.
    pub(crate) fn run_until(&mut self, until: Time) {
        while self.agent.poll_timeout() <= until {
            let next = self.agent.poll_timeout().max(self.now);
            self.set(next);
            self.agent.handle_timeout(next);
            assert!(self.agent.poll_timeout() > next, "it asks for a time to come");
            if self.open && self.acks && next.since(self.heartbeat) >= Duration::from_secs(2) {
                self.heartbeat = next;
                self.ack();
            }
            self.drain();
        }
        self.set(until);
    }

    pub(crate) fn run(&mut self, span: Duration) {
        self.run_until(self.now + span);
    }

    pub(crate) fn run_ms(&mut self, ms: u64) {
        self.run(Duration::from_millis(ms));
    }

    /// Time goes on, but the agent does not run.
    pub(crate) fn pause(&mut self, span: Duration) {
        self.set(self.now + span);
    }

    fn set(&mut self, now: Time) {
        self.now = now;
        self.clock.0.store(now.as_nanos(), Ordering::Relaxed);
    }

    /// One request; whether it was admitted.
    pub(crate) fn ask(&self, service: &str) -> bool {
        self.limiter.decide(&Request { service, caller: "web", ..Request::default() }).is_admitted()
    }

    pub(crate) fn ask_for(&self, service: &str, value: &str) -> bool {
        let dimensions = [("ws", value)];
        let request =
            Request { service, caller: "web", dimensions: &dimensions, ..Request::default() };
        self.limiter.decide(&request).is_admitted()
    }

    /// `rate` requests a second, evenly, for `seconds`; how many were admitted.
    pub(crate) fn offer(&mut self, service: &str, rate: u64, seconds: u64) -> u64 {
        self.offer_with(rate, seconds, |world| world.ask(service))
    }

    pub(crate) fn offer_with(
        &mut self,
        rate: u64,
        seconds: u64,
        mut ask: impl FnMut(&mut Self) -> bool,
    ) -> u64 {
        let start = self.now;
        let mut admitted = 0;
        for n in 0..rate * seconds {
            let at = start + Duration::from_nanos((n + 1) * 1_000_000_000 / rate);
            self.run_until(at);
            admitted += u64::from(ask(self));
        }
        admitted
    }
}

/// Whether `found` is within `part` of `expected`.
pub(crate) fn close_to(found: u64, expected: f64, part: f64) -> bool {
    #[expect(clippy::cast_precision_loss, reason = "small")]
    let found = found as f64;
    (found - expected).abs() <= expected * part
}
