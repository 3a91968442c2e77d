//! The state machine: a node with aggregators below it, and the configuration.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_law::grant::Switches;
use sluicegate_law::node::{Node, Settings, Tier};
use sluicegate_law::{Limits, Plan, Refusal, SessionId, View};
use sluicegate_model::{
    ConfigVersion, Configuration, Down, Hello, Law, Name, ServiceBuckets, Term, Time, Up,
};

/// What a controller is told when it is made.
#[derive(Debug, Clone)]
pub struct Config {
    /// Its name, for people.
    pub node: Name,
    /// Chosen at random at the start of the process. Also seeds the hash of key values and the
    /// first term.
    pub session: u64,
    /// Its region.
    pub region: Name,
    /// From one step of the law to the next.
    pub tick: Duration,
    /// How long directives live.
    pub ttl: Duration,
    /// How long aggregators go on with what they were granted last.
    pub grant_ttl: Duration,
    /// Which parts of the law `grant` work.
    pub switches: Switches,
    /// The law of the control plane.
    pub law: Law,
    /// The bounds.
    pub limits: Limits,
}

/// A region's controller.
#[derive(Debug)]
pub struct Controller {
    config: Config,
    node: Node,
    /// Whether any child ever came, so that one may have been told of this controller's term.
    had_child: bool,
}

/// First terms are spread over this many numbers, so that a controller that starts anew with
/// nothing can tell a child of its own from one that still holds its predecessor's configuration.
const FIRST_TERMS: u64 = 1024;

impl Controller {
    /// A controller without children and configuration.
    #[must_use]
    pub fn new(config: Config, now: Time) -> Self {
        let settings = Settings {
            tier: Tier::Controller,
            tick: config.tick,
            ttl: config.ttl,
            grant_ttl: config.grant_ttl,
            switches: config.switches,
            limits: config.limits.clone(),
            seed: config.session,
        };
        let mut node = Node::new(settings, now);
        node.raise(1 + config.session % FIRST_TERMS, 0);
        Self { config, node, had_child: false }
    }

    /// Its name, for people.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.config.node
    }

    /// Its region.
    #[must_use]
    pub fn region(&self) -> &Name {
        &self.config.region
    }

    /// Puts services in force and takes others out; one that is named in both stays. What is the
    /// same by value is no change. The first call ends the time without configuration, even if it names nothing.
    pub fn handle_configuration(
        &mut self,
        now: Time,
        changed: Vec<Arc<ServiceBuckets>>,
        removed: Vec<Name>,
    ) {
        self.node.handle_timeout(now);
        let removed: Vec<_> = removed
            .into_iter()
            .filter(|name| self.node.configuration_of(name).is_some())
            .filter(|name| changed.iter().all(|s| s.service != *name))
            .collect();
        let services: Vec<_> = changed
            .into_iter()
            .filter(|s| self.node.configuration_of(&s.service) != Some(s))
            .collect();
        if self.node.is_configured() && services.is_empty() && removed.is_empty() {
            return;
        }
        let (term, seen_version) = (self.node.term(), self.node.seen().1);
        let version = seen_version.max(self.node.version()) + 1;
        self.node.configure(&Configuration {
            version,
            term,
            law: self.config.law,
            full: false,
            services,
            removed,
        });
    }

    /// An aggregator opened a stream. If it has seen more than this controller counts to, term and
    /// version go beyond, and every child is sent everything again.
    ///
    /// # Errors
    /// The stream must be closed with the refusal.
    pub fn handle_child_open(
        &mut self,
        now: Time,
        id: SessionId,
        hello: Hello,
    ) -> Result<(), Refusal> {
        let seen = (hello.seen_term, hello.seen_version);
        self.node.open(now, id, hello)?;
        self.go_beyond(seen);
        Ok(())
    }

    /// An aggregator sent a message.
    ///
    /// # Errors
    /// The stream must be closed with the refusal.
    pub fn handle_child(&mut self, now: Time, id: SessionId, up: Up) -> Result<(), Refusal> {
        let seen = match &up {
            Up::Seen { term, version } => Some((*term, *version)),
            Up::Hello(_) | Up::Report(_) | Up::ConfigurationApplied(_) => None,
        };
        self.node.handle(now, id, up)?;
        if let Some(seen) = seen {
            self.go_beyond(seen);
        }
        self.act(now);
        Ok(())
    }

    /// An aggregator's stream is gone.
    pub fn handle_child_close(&mut self, now: Time, id: SessionId) {
        self.node.close(now, id);
    }

    /// Does what is due at `now`. On a tick: plans, checks the plan, publishes it.
    pub fn handle_timeout(&mut self, now: Time) {
        self.node.handle_timeout(now);
        if self.node.is_tick_due(now) {
            let plan = self.node.plan(now);
            self.publish(plan);
            self.node.forget(|_| false);
        }
        self.act(now);
    }

    /// What follows from what was just taken in.
    fn act(&mut self, now: Time) {
        let plan = self.node.plan_due(now);
        if !plan.set.is_empty() {
            self.publish(plan);
        }
    }

    fn publish(&mut self, plan: Plan) {
        let violations = self.node.publish(plan);
        debug_assert!(violations.is_empty(), "the law made what it must not: {violations:?}");
    }

    /// When [`Controller::handle_timeout`] wants to be called next.
    #[must_use]
    pub fn poll_timeout(&self) -> Time {
        self.node.poll_timeout()
    }

    /// The next message for an aggregator, until there is none.
    pub fn poll_child(&mut self) -> Option<(SessionId, Down)> {
        self.node.poll_child()
    }

    /// The state of this moment, for status and metrics.
    #[must_use]
    pub fn view(&self) -> View {
        self.node.view(None)
    }

    /// Goes beyond what a child has seen, unless it saw it here. A version that is the same under
    /// another term was a predecessor's and may hold something else; so was this term, if the first
    /// child that comes has seen it.
    fn go_beyond(&mut self, (child_term, child_version): (Term, ConfigVersion)) {
        let (term, version) = (self.node.term(), self.node.version());
        let (seen_term, seen_version) = self.node.seen();
        let is_first = !std::mem::replace(&mut self.had_child, true);
        let is_predecessors = (is_first && child_term == term)
            || (version > 0 && child_version == version && child_term != term);
        if seen_term > term || seen_version > version || is_predecessors {
            self.node.raise(seen_term + 1, seen_version + 1);
            self.node.counters_mut().term_jumps += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use sluicegate_model::{Owner, PROTOCOL_VERSION, Role, Select};

    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).expect("a sound name")
    }

    fn controller(session: u64) -> Controller {
        let config = Config {
            node: name("controller"),
            session,
            region: name("r"),
            tick: Duration::from_secs(1),
            ttl: Duration::from_secs(10),
            grant_ttl: Duration::from_secs(60),
            switches: Switches::default(),
            law: Law::Grant,
            limits: Limits::for_controller(),
        };
        Controller::new(config, Time::ZERO)
    }

    fn service(text: &str) -> Arc<ServiceBuckets> {
        let (service, owner, select) = (name(text), Owner::default(), Select::All);
        Arc::new(ServiceBuckets { service, owner, select, buckets: Vec::new() })
    }

    fn hello(seen_term: Term, seen_version: ConfigVersion) -> Hello {
        Hello {
            role: Role::Aggregator,
            node: name("aggregator"),
            session: 1,
            zone: name("a"),
            region: name("r"),
            protocol: PROTOCOL_VERSION,
            services: Vec::new(),
            seen_term,
            seen_version,
        }
    }

    fn sent(c: &mut Controller) -> Vec<(SessionId, Configuration)> {
        std::iter::from_fn(|| c.poll_child())
            .filter_map(|(id, down)| match down {
                Down::Configuration(configuration) => Some((id, configuration)),
                Down::Update(_) => None,
            })
            .collect()
    }

    #[test]
    fn only_what_changes_by_value_makes_a_version() {
        let mut c = controller(0);
        c.handle_child_open(Time::ZERO, 1, hello(0, 0)).expect("taken");
        assert_eq!(sent(&mut c), []);
        // The first call counts even if it is empty: children wait for it.
        c.handle_configuration(Time::ZERO, Vec::new(), Vec::new());
        let first = sent(&mut c);
        assert_eq!((first.len(), first[0].1.full, first[0].1.version), (1, true, 1));

        c.handle_configuration(Time::ZERO, vec![service("a"), service("b")], Vec::new());
        c.handle_configuration(Time::ZERO, vec![service("a")], vec![name("z")]);
        let next = sent(&mut c);
        assert_eq!((next[0].1.version, next[0].1.services.len()), (2, 2));
        c.handle_configuration(Time::ZERO, vec![service("a")], vec![name("a"), name("b")]);
        let next = sent(&mut c);
        assert_eq!((next[0].1.version, &next[0].1.removed), (3, &vec![name("b")]));
        assert!(next[0].1.services.is_empty());
    }

    #[test]
    fn a_first_child_with_the_same_version_of_another_term_is_told_anew() {
        let mut c = controller(5);
        c.handle_configuration(Time::ZERO, Vec::new(), Vec::new());
        c.handle_configuration(Time::ZERO, vec![service("a")], Vec::new());
        assert_eq!((c.view().term, c.view().version), (6, 2));
        // It holds what a predecessor, of a lower term, called version 2: perhaps another thing.
        c.handle_child_open(Time::ZERO, 1, hello(3, 2)).expect("taken");
        let told = sent(&mut c);
        assert_eq!((told.len(), told[0].1.full, told[0].1.version), (1, true, 3));
    }

    #[test]
    fn it_goes_beyond_a_predecessor_and_not_beyond_itself() {
        let mut c = controller(5);
        c.handle_configuration(Time::ZERO, vec![service("a")], Vec::new());
        let (term, version) = (c.view().term, c.view().version);
        assert_eq!((term, version), (6, 1));
        let cases = [
            // The first child that comes with this very term had it from a predecessor.
            (hello(6, 1), true),
            // One that was told here comes again.
            (hello(7, 2), false),
            (hello(3, 1), false),
            // The same version of another term.
            (hello(3, 2), true),
            (hello(2, 900), true),
            (hello(900, 2), true),
            (hello(901, 901), false),
            (hello(u64::MAX, 1), false),
        ];
        for (id, (h, beyond)) in (1..).zip(cases) {
            let before = c.view();
            c.handle_child_open(Time::ZERO, id, h.clone()).expect("taken");
            let after = c.view();
            assert_eq!(after.counters.term_jumps > before.counters.term_jumps, beyond, "{h:?}");
            if beyond {
                assert!(after.term > h.seen_term.max(before.term), "{h:?}");
                assert!(after.version > h.seen_version.max(before.version), "{h:?}");
                let told = sent(&mut c);
                assert_eq!(told.len(), usize::try_from(id).expect("small"));
                assert!(told.iter().all(|(_, t)| t.full && t.term == after.term));
            }
            sent(&mut c);
        }
    }
}
