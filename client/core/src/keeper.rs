//! The agent's side of the table that requests are decided by: its single owner and writer.
//!
//! It publishes configuration, gives slots to new keys, reads counts and sets what the hot path
//! obeys. It knows no wire, no report and no law: those are the agent's.

mod adopt;
mod configure;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_model::{
    AdmitRatio, Bucket, Counts, KeyName, KeyValues, Limit, Mode, Name, OnControlLoss,
    ServiceBuckets, ServiceCounts, Time,
};

use crate::cell::{ALL, Raw};
use crate::grow::make_room;
use crate::matcher::{Resolved, ServicePlan};
use crate::plan::{Named, Plan, Shared};
use crate::slot::{Flags, Fold, RuleSlot, ServiceSlot, Slot};
use crate::stripe::Stripes;
use crate::values::PerBucket;

/// How long a key that was taken away is still counted on by threads that were just deciding. Only
/// a thread that stood still for longer in the middle of a decision can count too late.
const LEAVING: Duration = Duration::from_secs(1);

/// A key of the table. Good from its [`KeyEvent::New`] until [`Keeper::release`] after its
/// [`KeyEvent::Retired`]; then the number may come back for another key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyHandle(pub(crate) u32);

impl KeyHandle {
    /// A small number, dense enough to index a vector with.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What happened to a key since [`Keeper::poll_event`] was last asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyEvent {
    /// It is there: every whole and overflow key, and those of classes where keys differ by
    /// nothing else, from configuration on; a value's key from [`Keeper::adopt`] on. Its counts start at 0; its ratio is "all" ("none" for a limit of 0).
    New(KeyHandle),
    /// Its limit, mode or `on_control_loss` is another now; its counts go on.
    Changed(KeyHandle),
    /// Its bucket is gone or it was evicted, and no request counts on it any more. The totals can
    /// be read for the last time; then give it back with [`Keeper::release`].
    Retired(KeyHandle),
}

/// What the hot path does with a drop when the agent has not beaten for ttl + ramp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StalePolicy {
    /// Admits instead (`on_control_loss: open`).
    Admit,
    /// Drops all the same (`last`, `share`, `closed`; a limit of 0 always).
    Keep,
}

/// The owner of the table. There is one for a limiter, and it is not cloned.
pub struct Keeper {
    shared: Arc<Shared>,
    plan: Arc<Plan>,
    services: BTreeMap<Name, Arc<ServicePlan>>,
    /// Buckets by the number in their slots; numbers are not used again.
    buckets: HashMap<u32, Named>,
    next_bucket: u32,
    records: Vec<Record>,
    free_records: Vec<u32>,
    pers: Vec<Option<PerState>>,
    numbers: Numbers,
    known_identities: usize,
    /// What identities resolve to, by service and class: most of very many identities share it.
    resolved: HashMap<(Name, Vec<usize>), Arc<Resolved>>,
    places: Places,
    /// Keys with a place in the stripes.
    promoted: Vec<u32>,
    leaving: VecDeque<(Time, u32)>,
    /// Services that were taken away lately, still told with their last counts.
    gone: Vec<(Time, Name, Arc<ServiceSlot>)>,
    identities_renewed: Time,
    events: VecDeque<KeyEvent>,
    /// Value keys touched at the last look: read once more, for what was counted just behind it.
    touched: Vec<u32>,
    randoms: u64,
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper").field("keys", &self.records.len()).finish_non_exhaustive()
    }
}

/// What the keeper knows of one key. Small: there is one for each value.
enum Record {
    Free,
    Rule(Box<RuleRecord>),
    Value { per: u32, number: u32, leaving: bool },
}

struct RuleRecord {
    rule: Arc<RuleSlot>,
    of: Arc<ServiceBuckets>,
    place: usize,
    /// Which key of the bucket.
    key: KeyValues,
    leaving: bool,
}

struct PerState {
    per: Arc<PerBucket>,
    of: Arc<ServiceBuckets>,
    place: usize,
    /// The number in its values' slots.
    bucket: u32,
    /// Value keys, the leaving ones included.
    keys: u32,
    /// Its bucket is gone: it goes with the last of its keys.
    leaving: bool,
    overflow_released: bool,
}

/// Which numbers of value keys are in use.
#[derive(Default)]
struct Numbers {
    /// The record of each number ever used.
    records: Vec<u32>,
    /// Free, and never written in the present table.
    fresh: Vec<u32>,
    /// Free, but written in the present table, so of use only after the next one is built.
    spent: Vec<u32>,
    /// Shown or hidden in the present index.
    indexed: usize,
    /// A value was refused for want of a number.
    exhausted: bool,
}

/// Places in the stripes.
#[derive(Default)]
struct Places {
    free: Vec<u16>,
    /// How many were ever given out.
    given: u16,
}

impl Keeper {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let plan = shared.plan();
        let randoms = crate::hash::mix(shared.seed ^ 1);
        Self {
            shared,
            plan,
            services: BTreeMap::new(),
            buckets: HashMap::new(),
            next_bucket: 1,
            records: Vec::new(),
            free_records: Vec::new(),
            pers: Vec::new(),
            numbers: Numbers::default(),
            known_identities: 0,
            resolved: HashMap::new(),
            places: Places::default(),
            promoted: Vec::new(),
            leaving: VecDeque::new(),
            gone: Vec::new(),
            identities_renewed: Time::ZERO,
            events: VecDeque::new(),
            touched: Vec::new(),
            randoms,
        }
    }

    /// The next change to the set of keys.
    pub fn poll_event(&mut self) -> Option<KeyEvent> {
        self.events.pop_front()
    }

    /// Every key, those that are leaving included.
    pub fn keys(&self) -> impl Iterator<Item = KeyHandle> + '_ {
        let used = self.records.iter().enumerate().filter(|(_, r)| !matches!(r, Record::Free));
        used.filter_map(|(i, _)| u32::try_from(i).ok().map(KeyHandle))
    }

    /// Every key that may have been counted on since the last call: all whole and overflow keys,
    /// and of the value keys (which can be very many) those that were, each told at two calls in a
    /// row so that nothing counted meanwhile is missed. What a look should scan.
    pub fn take_touched(&mut self, mut each: impl FnMut(KeyHandle)) {
        for (i, record) in self.rules() {
            if matches!(record, Record::Rule(_)) {
                each(KeyHandle(i));
            }
        }
        let mut now = Vec::new();
        let records = &self.numbers.records;
        self.plan.arena.take_touched(|number| now.extend(records.get(number).copied()));
        let promoted = self.promoted.iter().copied();
        let promoted = promoted.filter(|i| matches!(self.record(*i), Record::Value { .. }));
        now.extend(promoted);
        now.sort_unstable();
        now.dedup();
        let again = self.touched.iter().filter(|i| now.binary_search(i).is_err());
        for i in now.iter().chain(again) {
            if matches!(self.record(*i), Record::Value { .. }) {
                each(KeyHandle(*i));
            }
        }
        self.touched = now;
    }

    /// The key's name, made on demand: value keys do not store it a second time.
    #[must_use]
    pub fn name(&self, key: KeyHandle) -> Option<KeyName> {
        let (of, place, _) = self.origin(key)?;
        let (service, bucket) = (of.service.clone(), of.buckets.get(place)?.name.clone());
        Some(KeyName { service, bucket, values: self.values(key)? })
    }

    /// The key's bucket, as it is configured now (or was last, if it is leaving).
    #[must_use]
    pub fn bucket(&self, key: KeyHandle) -> Option<&Bucket> {
        let (of, place, _) = self.origin(key)?;
        of.buckets.get(place)
    }

    /// The key's own limit ([`Bucket::limit_of`] its values).
    #[must_use]
    pub fn limit(&self, key: KeyHandle) -> Limit {
        let limit = self.bucket(key).zip(self.values(key)).map(|(b, v)| b.limit_of(&v));
        limit.unwrap_or(Limit::Unlimited)
    }

    /// Whether the key is one value's (only such keys can be evicted).
    #[must_use]
    pub fn is_value(&self, key: KeyHandle) -> bool {
        matches!(self.record(key.0), Record::Value { .. })
    }

    /// Counts since the key was made, over the shared cell and all stripes. Never goes back.
    #[must_use]
    pub fn totals(&self, key: KeyHandle) -> Counts {
        let stripes = &self.shared.stripes;
        match self.record(key.0) {
            Record::Free => Counts::default(),
            Record::Rule(r) => rule_totals(&r.rule, stripes),
            Record::Value { number, .. } => value_totals(&self.plan, *number as usize, stripes),
        }
    }

    /// Counts of every configured service since it was first configured, and for a little while of
    /// those taken away. Never goes back.
    pub fn service_totals(&self) -> impl Iterator<Item = ServiceCounts> + '_ {
        let stripes = &self.shared.stripes;
        let there = self.services.values().map(|s| (&s.of.service, &s.slot));
        let gone = self.gone.iter().map(|(_, name, slot)| (name, slot));
        there.chain(gone).map(|(name, slot)| service_totals(name, slot, stripes))
    }

    /// The ratio that the hot path draws with from now on, and what a drop tells its caller.
    /// Ignored for a key without a limit (it stays "all") and for a limit of 0 ("none").
    pub fn set_admit(&mut self, key: KeyHandle, admit: AdmitRatio, retry_after: Duration) {
        let Some(slot) = self.slot(key) else { return };
        let flags = slot.flags();
        if flags.is_closed() || flags.mode() == Mode::Observe {
            return;
        }
        let retry_ms = u32::try_from(retry_after.as_millis()).unwrap_or(u32::MAX);
        slot.set_flags(flags.with_retry_ms(retry_ms));
        slot.set_ratio(admit.bits());
    }

    /// The cap: from now on no more than `allowance` further requests are admitted on this key
    /// (on each stripe), until it is set again; `None` switches it off, which it is at first. Not
    /// obeyed once [`Keeper::beat`] is more than 50 ms ago. Ignored for a key without a limit.
    pub fn set_budget(&mut self, key: KeyHandle, allowance: Option<u64>) {
        let Some(slot) = self.slot(key) else { return };
        let allowance = allowance.filter(|_| slot.flags().mode() != Mode::Observe);
        slot.shared.set_budget(allowance);
        self.shared.stripes.set_budget(slot.place(), allowance);
    }

    /// What the hot path does with this key's drops when the agent is dead; at first as
    /// `on_control_loss` says.
    pub fn set_stale_policy(&mut self, key: KeyHandle, policy: StalePolicy) {
        if let Some(slot) = self.slot(key) {
            slot.set_flags(slot.flags().with_keep(policy == StalePolicy::Keep));
        }
    }

    /// Lets each thread count this key (and its service) apart from now on: for keys of about
    /// 1,000 requests a second and more. Whether it does: false if the bound is reached.
    pub fn promote(&mut self, key: KeyHandle) -> bool {
        let Some(slot) = self.slot(key) else { return false };
        if slot.own_place().is_some() {
            return true;
        }
        let Some((of, _, false)) = self.origin(key) else { return false };
        let Some(service) = self.services.get(&of.service).map(|s| s.slot.clone()) else {
            return false;
        };
        if !self.promote_service(&service) {
            return false;
        }
        let Some(place) = self.places.take(&self.shared) else { return false };
        self.promoted.push(key.0);
        let (Some(slot), Some(service)) = (self.slot(key), service.own_place()) else {
            return false;
        };
        self.with_fold(key, |fold| {
            fold.include(self.shared.stripes.sum(usize::from(place)));
            self.shared.stripes.set_budget(usize::from(place), None);
            slot.set_places(place, service);
        });
        true
    }

    /// The agent lives, and the budgets are as of `now`.
    pub fn beat(&mut self, now: Time) {
        self.shared.beat(now);
    }

    fn promote_service(&mut self, service: &ServiceSlot) -> bool {
        if service.own_place().is_none() {
            let Some(place) = self.places.take(&self.shared) else { return false };
            let stripes = &self.shared.stripes;
            service.set_place(place, || stripes.sum(usize::from(place)));
        }
        true
    }

    fn record(&self, i: u32) -> &Record {
        self.records.get(i as usize).unwrap_or(&Record::Free)
    }

    fn slot(&self, key: KeyHandle) -> Option<&Slot> {
        match self.record(key.0) {
            Record::Free => None,
            Record::Rule(r) => Some(&r.rule.slot),
            Record::Value { number, .. } => self.plan.arena.get(*number as usize),
        }
    }

    fn with_fold(&self, key: KeyHandle, f: impl FnOnce(&mut Fold)) {
        match self.record(key.0) {
            Record::Free => {}
            Record::Rule(r) => r.rule.with_fold(f),
            Record::Value { number, .. } => self.plan.arena.with_fold(*number as usize, f),
        }
    }

    /// Where the key's bucket stands, and whether the key is leaving.
    fn origin(&self, key: KeyHandle) -> Option<(&Arc<ServiceBuckets>, usize, bool)> {
        match self.record(key.0) {
            Record::Free => None,
            Record::Rule(r) => Some((&r.of, r.place, r.leaving)),
            Record::Value { per, leaving, .. } => {
                let state = self.pers.get(*per as usize)?.as_ref()?;
                Some((&state.of, state.place, *leaving))
            }
        }
    }

    fn values(&self, key: KeyHandle) -> Option<KeyValues> {
        match self.record(key.0) {
            Record::Free => None,
            Record::Rule(r) => Some(r.key.clone()),
            Record::Value { per, number, .. } => {
                let state = self.pers.get(*per as usize)?.as_ref()?;
                let entry = self.plan.values.get(*number as usize)?;
                Some(entry.values(state.per.parts()))
            }
        }
    }

    fn rules(&self) -> impl Iterator<Item = (u32, &Record)> {
        (0..).zip(&self.records)
    }

    fn add_record(&mut self, record: Record) -> u32 {
        let i = match self.free_records.pop() {
            Some(i) => {
                self.records[i as usize] = record;
                i
            }
            None => {
                make_room(&mut self.records, 1);
                self.records.push(record);
                u32::try_from(self.records.len() - 1).unwrap_or(u32::MAX)
            }
        };
        self.events.push_back(KeyEvent::New(KeyHandle(i)));
        i
    }

    fn random(&mut self) -> u64 {
        self.randoms = crate::hash::mix(self.randoms);
        self.randoms
    }

    fn publish(&mut self, change: impl FnOnce(&mut Plan)) {
        let old = &self.plan;
        let mut plan = Plan {
            generation: old.generation + 1,
            rules: old.rules,
            hasher: old.hasher,
            services: old.services.clone(),
            identities: old.identities.clone(),
            values: old.values.clone(),
            arena: old.arena.clone(),
            buckets: old.buckets.clone(),
        };
        change(&mut plan);
        self.plan = Arc::new(plan);
        self.shared.publish(self.plan.clone());
    }
}

impl Places {
    fn take(&mut self, shared: &Shared) -> Option<u16> {
        if let Some(place) = self.free.pop() {
            return Some(place);
        }
        if shared.stripes.most() == 0 || usize::from(self.given) >= shared.most_places {
            return None;
        }
        let place = self.given;
        self.given += 1;
        shared.stripes.reach(place);
        Some(place)
    }
}

/// The flags of a key of `bucket` with the limit `limit`.
fn flags_of(bucket: &Bucket, limit: Limit) -> Flags {
    let mode = if limit == Limit::Unlimited { Mode::Observe } else { bucket.mode };
    let none = limit.denies_all() && mode != Mode::Observe;
    // Of a bucket that enforces only a part of its drops the agent says how many.
    let closed = none && !bucket.is_softened();
    Flags::new(mode, none || bucket.on_control_loss != OnControlLoss::Open, closed, 0)
}

/// Gives a key another limit, mode or loss policy, keeping its counts and, where it had one that
/// still means something, its ratio.
fn reassign(slot: &Slot, fold: &mut Fold, stripes: &Stripes, flags: Flags) {
    let before = slot.flags();
    if before.mode() != flags.mode() {
        fold.fold(raw_of(slot, stripes), before.mode());
    }
    let flags = flags.with_retry_ms(before.retry_ms());
    if flags.is_closed() {
        slot.set_flags(flags);
        slot.set_ratio(0);
    } else {
        let starts_anew = before.is_closed() || before.mode() == Mode::Observe;
        if starts_anew || flags.mode() == Mode::Observe {
            slot.set_ratio(ALL);
            slot.shared.set_budget(None);
            stripes.set_budget(slot.place(), None);
        }
        slot.set_flags(flags);
    }
}

fn raw_of(slot: &Slot, stripes: &Stripes) -> Raw {
    let mut raw = slot.shared.read();
    raw.add(stripes.sum(slot.place()));
    raw
}

pub(crate) fn rule_totals(rule: &RuleSlot, stripes: &Stripes) -> Counts {
    let slot = &rule.slot;
    rule.with_fold(|fold| fold.totals(raw_of(slot, stripes), slot.flags().mode()))
}

pub(crate) fn value_totals(plan: &Plan, number: usize, stripes: &Stripes) -> Counts {
    let Some(slot) = plan.arena.get(number) else { return Counts::default() };
    plan.arena.with_fold(number, |fold| fold.totals(raw_of(slot, stripes), slot.flags().mode()))
}

pub(crate) fn service_totals(name: &Name, slot: &ServiceSlot, stripes: &Stripes) -> ServiceCounts {
    let raw = slot.totals(|place| stripes.sum(place));
    ServiceCounts {
        service: name.clone(),
        attempts: raw.admitted.saturating_add(raw.alone).saturating_add(raw.blocked),
        admitted: raw.admitted,
        dropped_by_one: raw.alone,
        dropped_by_several: raw.blocked,
    }
}
