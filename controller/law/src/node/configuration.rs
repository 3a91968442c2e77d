//! Buckets on their way down: what is in force here, and what each child must still be sent.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use sluicegate_model::{ConfigVersion, Configuration, Invariant, Name, ServiceBuckets, Term};

use super::Node;
use super::children::{ConfigurationDue, Session};

/// The latest changes, so that a child can be sent the difference.
#[derive(Debug)]
pub(super) struct Changes {
    log: VecDeque<Change>,
    /// The log holds everything above this version.
    above: ConfigVersion,
    max: usize,
}

#[derive(Debug)]
struct Change {
    version: ConfigVersion,
    service: Name,
    buckets: Option<Arc<ServiceBuckets>>,
}

impl Changes {
    pub(super) fn new(max: usize) -> Self {
        Self { log: VecDeque::new(), above: 0, max }
    }

    fn record(&mut self, change: Change) {
        self.log.push_back(change);
        while self.log.len() > self.max {
            if let Some(dropped) = self.log.pop_front() {
                self.above = self.above.max(dropped.version);
            }
        }
    }

    fn reach_back_to(&self, version: ConfigVersion) -> bool {
        version >= self.above
    }

    fn since(&self, version: ConfigVersion) -> impl Iterator<Item = &Change> {
        self.log.iter().filter(move |c| c.version > version)
    }
}

impl Node {
    /// Puts a configuration in force: everything if it is full, else what it names. Services that
    /// are the same by value keep all their state; keys of the others keep their counts.
    pub fn configure(&mut self, configuration: &Configuration) {
        let Configuration { version, term, law, full, services, removed } = configuration;
        let law_changed = std::mem::replace(&mut self.law, *law) != *law;
        let before = (self.term, self.version);
        self.term = self.term.max(*term);
        self.version = self.version.max(*version);
        let mut gone: Vec<Name> = removed.clone();
        if *full {
            let named: BTreeSet<&Name> = services.iter().map(|s| &s.service).collect();
            let here = self.catalog.services().filter(|s| s.configured.is_some());
            gone.extend(here.map(|s| &s.name).filter(|n| !named.contains(n)).cloned());
        }
        let mut changed = BTreeSet::new();
        let gone = gone.into_iter().map(|name| (name, None));
        let set = services.iter().map(|s| (s.service.clone(), Some(Arc::clone(s))));
        for (service, buckets) in gone.chain(set) {
            if let Some(at) = self.catalog.configure(&service, buckets.clone()) {
                changed.insert(at);
                self.changes.record(Change { version: self.version, service, buckets });
            }
        }
        self.settle_rules(&changed);
        if law_changed {
            let keys: Vec<u32> = self.keys.iter().map(|(key, _)| key).collect();
            keys.into_iter().for_each(|key| self.settle_granting(key));
        }
        let same = changed.is_empty() && before == (self.term, self.version) && !law_changed;
        if self.configured && same {
            return;
        }
        let due = if std::mem::replace(&mut self.configured, true) {
            ConfigurationDue::Changes
        } else {
            ConfigurationDue::Full
        };
        self.owe_configuration(due);
    }

    /// Whether any configuration was put in force.
    #[must_use]
    pub fn is_configured(&self) -> bool {
        self.configured
    }

    /// Raises term and version above everything seen, and sends all children everything again.
    pub fn raise(&mut self, term: Term, version: ConfigVersion) {
        if term < self.term || version < self.version {
            debug_assert!(false, "{}: term or version would go back", Invariant::I5);
            self.counters.broke(Invariant::I5);
        }
        self.term = self.term.max(term);
        self.version = self.version.max(version);
        if self.configured {
            self.owe_configuration(ConfigurationDue::Full);
        }
    }

    /// Takes note of a term without configuration.
    pub fn learn_term(&mut self, term: Term) {
        self.term = self.term.max(term);
    }

    /// Every service configured here, in the order of names.
    pub fn configured_services(&self) -> impl Iterator<Item = &Arc<ServiceBuckets>> {
        self.catalog.services().filter_map(|s| s.configured.as_ref())
    }

    /// The buckets of a service as they are in force here.
    #[must_use]
    pub fn configuration_of(&self, service: &Name) -> Option<&Arc<ServiceBuckets>> {
        self.catalog.service(self.catalog.service_of(service.as_str())?)?.configured.as_ref()
    }

    fn settle_rules(&mut self, services: &BTreeSet<u32>) {
        if services.is_empty() {
            return;
        }
        let catalog = &self.catalog;
        let of_changed =
            |bucket| catalog.bucket(bucket).is_some_and(|slot| services.contains(&slot.service));
        let keys: Vec<u32> =
            self.keys.iter().filter(|(_, c)| of_changed(c.bucket)).map(|(key, _)| key).collect();
        for key in keys {
            self.settle_rule(key);
        }
    }

    fn owe_configuration(&mut self, due: ConfigurationDue) {
        for slot in self.children.slots() {
            if let Some(session) = self.children.get_mut(slot)
                && session.configuration != ConfigurationDue::Full
            {
                session.configuration = due;
                self.children.make_ready(slot);
            }
        }
    }

    /// What a session that is owed configuration is sent.
    pub(super) fn configuration_for(&self, session: &Session) -> Option<Configuration> {
        let changes = match session.configuration {
            ConfigurationDue::Nothing => return None,
            ConfigurationDue::Full => false,
            ConfigurationDue::Changes => {
                !session.ignores && self.changes.reach_back_to(session.sent_version)
            }
        };
        let (version, term, law) = (self.version, self.term, self.law);
        if !changes {
            let services = self.snapshot_for(session);
            return Some(Configuration {
                version,
                term,
                law,
                full: true,
                services,
                removed: Vec::new(),
            });
        }
        let last: BTreeMap<&Name, &Option<Arc<ServiceBuckets>>> = self
            .changes
            .since(session.sent_version)
            .filter(|c| session.wants(&c.service))
            .map(|c| (&c.service, &c.buckets))
            .collect();
        let services = last.values().filter_map(|b| (*b).clone()).collect();
        let removed = last.iter().filter(|(_, b)| b.is_none()).map(|(n, _)| (*n).clone()).collect();
        Some(Configuration { version, term, law, full: false, services, removed })
    }

    fn snapshot_for(&self, session: &Session) -> Vec<Arc<ServiceBuckets>> {
        match session.wanted() {
            None => self.configured_services().cloned().collect(),
            Some(wanted) => wanted
                .iter()
                .filter_map(|name| self.catalog.service_of(name.as_str()))
                .filter_map(|at| self.catalog.service(at)?.configured.clone())
                .collect(),
        }
    }
}
