//! What a limiter can tell about itself, for hosts without our metrics.

use std::time::Duration;

use sluicegate_model::{AdmitRatio, Counts, KeyName, KeyValues, Limit, Mode, ServiceCounts};

use crate::keeper::{rule_totals, service_totals, value_totals};
use crate::matcher::{Counted, per_dimensions};
use crate::plan::{Named, Plan};
use crate::slot::Slot;
use crate::sync::Ordering;
use crate::{CoarseClock, Limiter};

/// A limiter at one moment. Counts are cumulative since the service or key was first configured.
#[derive(Debug, Clone, PartialEq)]
pub struct Stats {
    /// Every configured service, by name.
    pub services: Vec<ServiceCounts>,
    /// Every key: those that configuration makes in the order of the services' files, then the values'.
    pub keys: Vec<KeyStats>,
    /// Combinations of service, caller and procedure that are remembered.
    pub identities: u64,
    /// Value keys.
    pub values: u64,
    /// Identities and values that wait for the agent.
    pub waiting: usize,
    /// Threads' own sets of counters.
    pub stripes: usize,
    /// What the waiting room refused: it was full, or another thread was at its door.
    pub refused_waiting: u64,
    /// Requests whose identity could not be remembered.
    pub refused_identities: u64,
    /// Requests whose value could not get a key: too long a value, `max_keys` or the bound of all
    /// values. They were counted on overflow.
    pub refused_values: u64,
    /// How long ago the agent last lived.
    pub agent_silent: Duration,
}

/// One key of [`Stats`].
#[derive(Debug, Clone, PartialEq)]
pub struct KeyStats {
    /// Its name.
    pub name: KeyName,
    /// What its bucket does with what is over the limit.
    pub mode: Mode,
    /// Its own limit.
    pub limit: Limit,
    /// What was counted.
    pub counts: Counts,
    /// The share of offered requests that it admits now.
    pub admit: AdmitRatio,
}

impl<C: CoarseClock> Limiter<C> {
    /// Everything at this moment. Costs time and memory in proportion to the number of keys; it
    /// holds up no decision.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let shared = self.shared();
        let plan = shared.plan();
        let mut services: Vec<_> = plan.services.values().collect();
        services.sort_by(|a, b| a.of.service.cmp(&b.of.service));
        let mut keys = Vec::new();
        for service in &services {
            let rules = service.counted.iter().flat_map(Counted::rules);
            keys.extend(rules.filter_map(|rule| {
                let named = plan.buckets.get(&rule.slot.bucket())?;
                let counts = rule_totals(rule, &shared.stripes);
                key_stats(named, named.key.clone()?, counts, &rule.slot)
            }));
        }
        let shown = plan.values.shown();
        keys.extend(shown.filter_map(|(number, _)| self.value(&plan, number)));
        let counts = |s: &&std::sync::Arc<crate::matcher::ServicePlan>| {
            service_totals(&s.of.service, &s.slot, &shared.stripes)
        };
        Stats {
            services: services.iter().map(counts).collect(),
            keys,
            identities: shared.known_identities.load(Ordering::Relaxed),
            values: shared.known_values.load(Ordering::Relaxed),
            waiting: shared.waiting.len(),
            stripes: shared.stripes.len(),
            refused_waiting: shared.waiting.refused(),
            refused_identities: shared.refused_identities.load(Ordering::Relaxed),
            refused_values: shared.refused_values.load(Ordering::Relaxed),
            agent_silent: shared.silent(self.now()),
        }
    }

    fn value(&self, plan: &Plan, number: usize) -> Option<KeyStats> {
        let slot = plan.arena.get(number)?;
        let named = plan.buckets.get(&slot.bucket())?;
        let bucket = named.of.buckets.get(named.place)?;
        let values = plan.values.get(number)?.values(per_dimensions(bucket).len());
        key_stats(named, values, value_totals(plan, number, &self.shared().stripes), slot)
    }
}

fn key_stats(named: &Named, values: KeyValues, counts: Counts, slot: &Slot) -> Option<KeyStats> {
    let bucket = named.of.buckets.get(named.place)?;
    let (service, limit) = (named.of.service.clone(), bucket.limit_of(&values));
    Some(KeyStats {
        name: KeyName { service, bucket: bucket.name.clone(), values },
        mode: bucket.mode,
        limit,
        counts,
        admit: AdmitRatio::from_bits(slot.ratio()),
    })
}
