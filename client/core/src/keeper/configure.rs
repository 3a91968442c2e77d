//! From one set of buckets to the next without losing a count.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use sluicegate_model::{Bucket, KeyValues, Name, Per, ServiceBuckets, Sharing, Time};

use super::{Keeper, KeyEvent, KeyHandle, PerState, Record, RuleRecord, flags_of, reassign};
use crate::matcher::{Counted, ServicePlan, per_dimensions};
use crate::plan::{Identity, Named};
use crate::sharing::{ClassBucket, only_classes};
use crate::slot::{RuleSlot, ServiceSlot};
use crate::sync::Ordering;
use crate::table::Table;
use crate::values::{MAX_PERS, PerBucket, Query};

impl Keeper {
    /// Publishes the whole set of services: what is not in it is removed. A bucket that is as
    /// before keeps its keys, counts, ratios and budgets; one whose limit, mode or
    /// `on_control_loss` changed keeps its keys and counts and is told as [`KeyEvent::Changed`]
    /// (a limit that became 0 denies at once; one that was 0 or unlimited starts with ratio
    /// "all"); one whose scope, `per` dimensions or way to share changed starts anew.
    pub fn configure(&mut self, now: Time, services: &[Arc<ServiceBuckets>]) {
        let old = std::mem::take(&mut self.services);
        let mut changed: BTreeSet<Name> = BTreeSet::new();
        let mut next: BTreeMap<Name, Arc<ServicePlan>> = BTreeMap::new();
        for of in services {
            let before = old.get(&of.service);
            let plan = match before {
                Some(same) if Arc::ptr_eq(&same.of, of) || *same.of == **of => same.clone(),
                _ => {
                    changed.insert(of.service.clone());
                    Arc::new(self.follow(now, before.map(|b| &**b), of))
                }
            };
            next.insert(of.service.clone(), plan);
        }
        for (name, gone) in old.iter().filter(|(name, _)| !next.contains_key(*name)) {
            changed.insert(name.clone());
            gone.counted.iter().for_each(|counted| self.leave(now, counted));
            self.gone.push((now, name.clone(), gone.slot.clone()));
        }
        self.services = next;
        if !changed.is_empty() {
            self.publish_services(&changed);
        }
    }

    fn publish_services(&mut self, changed: &BTreeSet<Name>) {
        let services: HashMap<Name, Arc<ServicePlan>> =
            self.services.iter().map(|(n, s)| (n.clone(), s.clone())).collect();
        let (services, buckets) = (Arc::new(services), Arc::new(self.buckets.clone()));
        let identities = Arc::new(self.known_again(changed));
        self.publish(|plan| {
            plan.rules += 1;
            plan.services = services;
            plan.buckets = buckets;
            plan.identities = identities;
        });
    }

    /// The known identities, those of changed services looked up anew: so that nobody has to meet a
    /// table that knows nothing.
    fn known_again(&mut self, changed: &BTreeSet<Name>) -> Table<Identity> {
        self.resolved.retain(|(service, _), _| !changed.contains(service));
        let (plan, table) = (self.plan.clone(), Table::new(self.known_identities));
        for (number, (_, identity)) in plan.identities.shown().enumerate() {
            let request = identity.request();
            let identity = if changed.contains(request.service) {
                Identity::new(&request, self.resolve(&request))
            } else {
                identity.clone()
            };
            table.put(plan.hash_of(&request), number, identity);
        }
        table
    }

    /// The plan of a service that is new or changed.
    fn follow(
        &mut self,
        now: Time,
        before: Option<&ServicePlan>,
        of: &Arc<ServiceBuckets>,
    ) -> ServicePlan {
        let mut old: HashMap<&str, (&Bucket, &Counted)> = before.map_or_else(HashMap::new, |b| {
            b.of.buckets
                .iter()
                .map(|b| b.name.as_str())
                .zip(b.of.buckets.iter().zip(&b.counted))
                .collect()
        });
        let mut counted = Vec::with_capacity(of.buckets.len());
        for (place, bucket) in of.buckets.iter().enumerate() {
            let same_shape = |(b, _): &(&Bucket, &Counted)| {
                b.scope == bucket.scope
                    && b.sharing == bucket.sharing
                    && b.per.is_some() == bucket.per.is_some()
                    && per_dimensions(b) == per_dimensions(bucket)
            };
            match old.get(bucket.name.as_str()).copied().filter(same_shape) {
                Some((was, kept)) => {
                    old.remove(bucket.name.as_str());
                    self.keep(kept, (of, place), was != bucket);
                    counted.push(kept.clone());
                }
                None => counted.push(self.begin(of, place)),
            }
        }
        let mut gone: Vec<&Counted> = old.into_values().map(|(_, counted)| counted).collect();
        gone.sort_by_key(|c| c.rules().first().map(|rule| rule.slot.bucket()));
        gone.into_iter().for_each(|counted| self.leave(now, counted));
        let slot = before.map_or_else(|| self.service_slot(&of.service), |b| b.slot.clone());
        ServicePlan::new(of.clone(), slot, counted)
    }

    /// The counters of a service that comes, or comes back.
    fn service_slot(&mut self, name: &Name) -> Arc<ServiceSlot> {
        match self.gone.iter().position(|(_, gone, _)| gone == name) {
            Some(at) => self.gone.swap_remove(at).2,
            None => Arc::new(ServiceSlot::new()),
        }
    }

    fn begin(&mut self, of: &Arc<ServiceBuckets>, place: usize) -> Counted {
        let bucket = &of.buckets[place];
        if bucket.per.is_none() {
            return Counted::Whole(self.begin_rule(of, place, KeyValues::Whole));
        }
        if let Some((dimension, classes)) = only_classes(bucket) {
            let keys = classes.order.iter().map(|class| KeyValues::Each([class.clone()].into()));
            let rules = keys.map(|key| self.begin_rule(of, place, key)).collect();
            return Counted::Class(Arc::new(ClassBucket::new(dimension, classes, rules)));
        }
        let overflow = self.begin_rule(of, place, KeyValues::Overflow);
        let Some(at) = self.free_per() else {
            // More buckets with `per` than there are numbers for: all values on overflow.
            return Counted::Each(Arc::new(PerBucket::new(bucket, u32::MAX, overflow, true)));
        };
        let number = u32::try_from(at).unwrap_or(u32::MAX);
        let per = Arc::new(PerBucket::new(bucket, number, overflow, false));
        let bucket = self.next_number(of, place, None, u32::MAX);
        self.pers[at] = Some(PerState {
            per: per.clone(),
            of: of.clone(),
            place,
            bucket,
            keys: 0,
            leaving: false,
            overflow_released: false,
        });
        self.close_values(number);
        Counted::Each(per)
    }

    fn begin_rule(
        &mut self,
        of: &Arc<ServiceBuckets>,
        place: usize,
        key: KeyValues,
    ) -> Arc<RuleSlot> {
        let rule = Arc::new(RuleSlot::new(self.random()));
        let (of_, rule_, key_) = (of.clone(), rule.clone(), key.clone());
        let record = RuleRecord { rule: rule_, of: of_, place, key: key_, leaving: false };
        let record = self.add_record(Record::Rule(Box::new(record)));
        let bucket = &of.buckets[place];
        let flags = flags_of(bucket, bucket.limit_of(&key));
        rule.slot.assign(self.next_number(of, place, Some(key), record), flags);
        rule
    }

    fn next_number(
        &mut self,
        of: &Arc<ServiceBuckets>,
        place: usize,
        key: Option<KeyValues>,
        record: u32,
    ) -> u32 {
        let number = self.next_bucket;
        self.next_bucket = self.next_bucket.wrapping_add(1);
        self.buckets.insert(number, Named { of: of.clone(), place, key, record });
        number
    }

    fn free_per(&mut self) -> Option<usize> {
        if let Some(free) = self.pers.iter().position(Option::is_none) {
            return Some(free);
        }
        (self.pers.len() < MAX_PERS).then(|| {
            self.pers.push(None);
            self.pers.len() - 1
        })
    }

    /// Goes on with the keys of a bucket that stands at another place now, or changed.
    fn keep(&mut self, counted: &Counted, to: (&Arc<ServiceBuckets>, usize), changed: bool) {
        counted.rules().iter().for_each(|rule| self.keep_rule(rule, to, changed));
        let Counted::Each(per) = counted else { return };
        let at = per.number as usize;
        let Some(Some(state)) = self.pers.get_mut(at) else { return };
        (state.of, state.place) = (to.0.clone(), to.1);
        if let Some(named) = self.buckets.get_mut(&state.bucket) {
            (named.of, named.place) = (to.0.clone(), to.1);
        }
        if !changed {
            return;
        }
        per.full.store(false, Ordering::Relaxed);
        let bucket = &to.0.buckets[to.1];
        for i in self.values_of(per.number) {
            let key = KeyHandle(i);
            let Record::Value { number, .. } = self.record(i) else { continue };
            let (number, limit) = (*number as usize, self.limit(key));
            if let Some(slot) = self.plan.arena.get(number) {
                let (arena, stripes) = (&self.plan.arena, &self.shared.stripes);
                let flags = flags_of(bucket, limit);
                arena.with_fold(number, |fold| reassign(slot, fold, stripes, flags));
            }
            self.events.push_back(KeyEvent::Changed(key));
        }
        self.close_values(per.number);
    }

    fn keep_rule(&mut self, rule: &RuleSlot, to: (&Arc<ServiceBuckets>, usize), changed: bool) {
        let Some(named) = self.buckets.get_mut(&rule.slot.bucket()) else { return };
        (named.of, named.place) = (to.0.clone(), to.1);
        let i = named.record;
        let Some(Record::Rule(record)) = self.records.get_mut(i as usize) else { return };
        (record.of, record.place) = (to.0.clone(), to.1);
        if changed {
            let bucket = &to.0.buckets[to.1];
            let limit = bucket.limit_of(&record.key);
            let (flags, stripes) = (flags_of(bucket, limit), &self.shared.stripes);
            rule.with_fold(|fold| reassign(&rule.slot, fold, stripes, flags));
            self.events.push_back(KeyEvent::Changed(KeyHandle(i)));
        }
    }

    /// Values with a limit of 0 have keys from the start, so that they are denied from the start.
    fn close_values(&mut self, per: u32) {
        let Some(Some(state)) = self.pers.get(per as usize) else { return };
        let (of, place) = (state.of.clone(), state.place);
        let bucket = &of.buckets[place];
        let Some(rules) = bucket.per.as_ref() else { return };
        let (lasts, count) = (closed_lasts(bucket), rules.dimensions.len());
        let closed = rules.values.iter().filter(|(_, limit)| limit.denies_all());
        for (values, last) in closed.flat_map(|(v, _)| lasts.iter().map(move |last| (v, *last))) {
            let mut parts = [last; Per::MAX_DIMENSIONS];
            parts.iter_mut().zip(values).for_each(|(part, value)| *part = value);
            if let Some(query) = Query::new(&self.plan.hasher, per, parts, count) {
                self.add_value(per, &query);
            }
        }
    }

    /// Begins to remove what a bucket counts on.
    fn leave(&mut self, now: Time, counted: &Counted) {
        for rule in counted.rules() {
            let record = self.buckets.get(&rule.slot.bucket()).map(|named| named.record);
            if let Some(i) = record
                && let Some(Record::Rule(record)) = self.records.get_mut(i as usize)
            {
                record.leaving = true;
                self.leaving.push_back((now, i));
            }
        }
        let Counted::Each(per) = counted else { return };
        per.full.store(true, Ordering::Relaxed);
        for i in self.values_of(per.number) {
            self.leave_value(now, i);
        }
        if let Some(Some(state)) = self.pers.get_mut(per.number as usize) {
            state.leaving = true;
        }
    }

    /// The records of all value keys of a bucket.
    fn values_of(&self, wanted: u32) -> Vec<u32> {
        let of = |r: &Record| matches!(r, Record::Value { per, .. } if *per == wanted);
        self.rules().filter(|(_, r)| of(r)).map(|(i, _)| i).collect()
    }
}

/// The values of the shared dimension for which a group with a limit of 0 has keys from the start:
/// every class; of a fair bucket the empty value, which stands for all. One without a meaning if the
/// bucket shares nothing.
fn closed_lasts(bucket: &Bucket) -> Vec<&str> {
    match &bucket.sharing {
        Some(Sharing::Priority(classes)) => classes.order.iter().map(|class| &**class).collect(),
        Some(Sharing::Fair) | None => vec![""],
    }
}
