//! The state machine: a node with clients below it and a controller above.

use std::time::Duration;

use sluicegate_law::grant::Switches;
use sluicegate_law::node::{Node, Settings, TERM_MAX, Tier};
use sluicegate_law::{Limits, Plan, Refusal, SessionId, View};
use sluicegate_model::{
    ConfigVersion, Configuration, Down, Hello, Name, PROTOCOL_VERSION, Report, Role, Term, Time,
    Up, Update,
};

use crate::uplink::Uplink;

/// What an aggregator is told when it is made.
#[derive(Debug, Clone)]
pub struct Config {
    /// Its name, for people.
    pub node: Name,
    /// Chosen at random at the start of the process. Also seeds the hash of key values.
    pub session: u64,
    /// Its zone.
    pub zone: Name,
    /// Its region.
    pub region: Name,
    /// From one step of the law, and one report to the controller, to the next.
    pub tick: Duration,
    /// How long directives of zone scope live.
    pub ttl: Duration,
    /// Which parts of the law `grant` work.
    pub switches: Switches,
    /// The bounds.
    pub limits: Limits,
}

/// A zone's aggregator.
#[derive(Debug)]
pub struct Aggregator {
    config: Config,
    node: Node,
    uplink: Uplink,
    /// What the parent's stream was told last of what clients have seen; `None` while it is closed.
    told: Option<(Term, ConfigVersion)>,
    outbox: Outbox,
}

/// What waits to be sent to the controller: at most one message of each kind, so that it is bounded
/// however slowly it is drained.
#[derive(Debug, Default)]
struct Outbox {
    hello: Option<Hello>,
    seen: Option<(Term, ConfigVersion)>,
    applied: Option<ConfigVersion>,
    report: Option<Report>,
}

impl Aggregator {
    /// An aggregator without clients, whose controller is not connected.
    #[must_use]
    pub fn new(config: Config, now: Time) -> Self {
        let settings = Settings {
            tier: Tier::Aggregator,
            tick: config.tick,
            ttl: config.ttl,
            grant_ttl: config.ttl,
            switches: config.switches,
            limits: config.limits.clone(),
            seed: config.session,
        };
        let uplink = Uplink::new(config.limits.max_report_entries);
        let node = Node::new(settings, now);
        Self { config, node, uplink, told: None, outbox: Outbox::default() }
    }

    /// A client opened a stream.
    ///
    /// # Errors
    /// The stream must be closed with the refusal.
    pub fn handle_child_open(
        &mut self,
        now: Time,
        id: SessionId,
        hello: Hello,
    ) -> Result<(), Refusal> {
        let taken = self.node.open(now, id, hello);
        self.tell_seen();
        taken
    }

    /// A client sent a message.
    ///
    /// # Errors
    /// The stream must be closed with the refusal.
    pub fn handle_child(&mut self, now: Time, id: SessionId, up: Up) -> Result<(), Refusal> {
        let taken = self.node.handle(now, id, up);
        self.tell_seen();
        self.act(now);
        taken
    }

    /// A client's stream is gone.
    pub fn handle_child_close(&mut self, now: Time, id: SessionId) {
        self.node.close(now, id);
    }

    /// A stream to the controller is open: the hello is the next thing to be polled.
    pub fn handle_parent_open(&mut self, now: Time) {
        self.node.handle_timeout(now);
        self.outbox = Outbox::default();
        self.uplink.open();
        let (seen_term, seen_version) = self.node.seen();
        self.told = Some((seen_term, seen_version));
        self.outbox.hello = Some(Hello {
            role: Role::Aggregator,
            node: self.config.node.clone(),
            session: self.config.session,
            zone: self.config.zone.clone(),
            region: self.config.region.clone(),
            protocol: PROTOCOL_VERSION,
            services: Vec::new(),
            seen_term,
            seen_version,
        });
    }

    /// The controller sent a message. What is older than what was seen is ignored and counted.
    pub fn handle_parent(&mut self, now: Time, down: Down) {
        self.node.handle_timeout(now);
        if self.told.is_none() {
            return;
        }
        match down {
            Down::Configuration(configuration) => self.take_configuration(&configuration),
            Down::Update(update) => self.take_update(update),
        }
        self.act(now);
    }

    /// The stream to the controller is gone. Directives run out by their ttl, counts wait.
    pub fn handle_parent_close(&mut self, now: Time) {
        self.node.handle_timeout(now);
        self.told = None;
        self.outbox = Outbox::default();
        self.uplink.close();
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Time) {
        self.node.handle_timeout(now);
        if self.node.is_tick_due(now) {
            self.tick(now);
        }
        self.act(now);
    }

    fn tick(&mut self, now: Time) {
        // Before the plan: its end takes keys that went quiet off the list of those in use.
        self.uplink.observe(&self.node);
        if self.outbox.report.is_none() && self.uplink.is_due(now, &self.node) {
            self.outbox.report = self.uplink.report(now, &mut self.node);
        }
        let plan = self.node.plan(now);
        self.publish(plan);
        let uplink = &mut self.uplink;
        for key in self.node.forget(|key| !uplink.is_settled(key)) {
            uplink.retire(key);
        }
    }

    /// What follows from what was just taken in: directives, and word to the controller.
    fn act(&mut self, now: Time) {
        let plan = self.node.plan_due(now);
        if !plan.set.is_empty() {
            self.publish(plan);
        }
        if self.outbox.report.is_none() {
            let keys = self.node.take_up(now);
            self.outbox.report = self.uplink.report_of(now, &mut self.node, &keys);
        }
    }

    fn publish(&mut self, plan: Plan) {
        let violations = self.node.publish(plan);
        debug_assert!(violations.is_empty(), "the law made what it must not: {violations:?}");
    }

    /// When [`Aggregator::handle_timeout`] wants to be called next.
    #[must_use]
    pub fn poll_timeout(&self) -> Time {
        self.node.poll_timeout()
    }

    /// The next message for a client, until there is none.
    pub fn poll_child(&mut self) -> Option<(SessionId, Down)> {
        self.node.poll_child()
    }

    /// The next message for the controller, until there is none.
    pub fn poll_parent(&mut self) -> Option<Up> {
        let Outbox { hello, seen, applied, report } = &mut self.outbox;
        let hello = hello.take().map(Up::Hello);
        hello
            .or_else(|| seen.take().map(|(term, version)| Up::Seen { term, version }))
            .or_else(|| applied.take().map(Up::ConfigurationApplied))
            .or_else(|| report.take().map(Up::Report))
    }

    /// The state of this moment, for status and metrics.
    #[must_use]
    pub fn view(&self) -> View {
        self.node.view(Some(self.told.is_some()))
    }

    fn take_configuration(&mut self, configuration: &Configuration) {
        if self.is_stale(configuration.term) {
            return;
        }
        if configuration.version > TERM_MAX {
            self.node.counters_mut().stale_versions += 1;
            return;
        }
        // A snapshot of the same version comes with each new stream, and may be of a controller
        // that started anew and happens to count as high.
        let (version, here) = (configuration.version, self.node.version());
        let same_again = configuration.full && version == here;
        if self.node.is_configured() && version <= here && !same_again {
            self.node.counters_mut().stale_versions += 1;
            return;
        }
        if !configuration.full && !self.node.is_configured() {
            self.node.counters_mut().stale_versions += 1;
            return;
        }
        self.node.configure(configuration);
        self.outbox.applied = Some(version);
    }

    fn take_update(&mut self, update: Update) {
        let settled = self.uplink.acknowledge(update.ack_seq);
        if settled && self.outbox.report.is_none() {
            self.outbox.report = self.uplink.report_rest(&mut self.node);
        }
        for (id, directive) in update.directives {
            if self.is_stale(directive.term) {
                continue;
            }
            self.node.learn_term(directive.term);
            match self.uplink.key_of(id) {
                Some(key) => {
                    self.node.pass_on(self.uplink.stream(), key, directive);
                }
                None => self.node.counters_mut().directives_unknown_key += 1,
            }
        }
    }

    /// Whether a term is older than one that was seen here or below, or absurd; counted if so.
    fn is_stale(&mut self, term: Term) -> bool {
        let stale = term < self.node.seen().0 || term > TERM_MAX;
        self.node.counters_mut().stale_terms += u64::from(stale);
        stale
    }

    /// Tells the controller if a client knows of more than the controller was told.
    fn tell_seen(&mut self) {
        let Some((told_term, told_version)) = self.told else { return };
        let (term, version) = self.node.seen();
        // What the controller itself sent is no news to it.
        if term > told_term.max(self.node.term()) || version > told_version.max(self.node.version())
        {
            self.told = Some((term, version));
            self.outbox.seen = Some((term, version));
        }
    }
}
