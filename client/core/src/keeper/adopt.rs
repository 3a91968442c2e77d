//! New identities and values in, idle and retired keys out.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_model::{KeyValues, Per, Request, Sharing, Time};

use super::{Keeper, KeyEvent, KeyHandle, LEAVING, Record, flags_of};
use crate::grow::make_room;
use crate::matcher::Resolved;
use crate::plan::Identity;
use crate::slot::{Fold, NO_PLACE};
use crate::sync::Ordering;
use crate::table::Table;
use crate::values::{Query, ValueEntry};
use crate::waiting::Post;

/// A table of identities that is full is begun anew, so that what is in use now gets in; not more
/// often than this.
const RENEW_IDENTITIES: Duration = Duration::from_secs(60);
/// The table of values is rebuilt for its spent numbers when this share of the bound is spent.
const SPENT_SHARE: usize = 16;

impl Keeper {
    /// Takes up to `max` identities and values that requests brought and the table lacked, and
    /// makes their entries. Also retires what has been leaving long enough. Call it every look.
    /// Returns how many were taken from the queue; `max` means there may be more.
    pub fn adopt(&mut self, now: Time, max: usize) -> usize {
        self.retire(now);
        let mut taken = 0;
        while taken < max
            && let Some(post) = self.shared.waiting.take()
        {
            taken += 1;
            match post.per {
                None => self.adopt_identity(now, &post),
                Some(per) => self.adopt_value(per, &post),
            }
            self.shared.waiting.done(post);
        }
        taken
    }

    fn retire(&mut self, now: Time) {
        while let Some((since, i)) = self.leaving.front().copied()
            && since + LEAVING <= now
        {
            self.leaving.pop_front();
            self.events.push_back(KeyEvent::Retired(KeyHandle(i)));
        }
        let places = &mut self.places;
        self.gone.retain(|(since, _, slot)| {
            // Twice as long as its keys, so that the last counts are read in between.
            let stays = *since + LEAVING + LEAVING > now;
            if !stays {
                places.free.extend(slot.own_place());
            }
            stays
        });
    }

    fn adopt_identity(&mut self, now: Time, post: &Post) {
        let mut parts = post.parts();
        let (Some(service), Some(caller), Some(procedure)) =
            (parts.next(), parts.next(), parts.next())
        else {
            return;
        };
        let request = Request { service, caller, procedure, dimensions: &[] };
        if self.plan.identity(post.hash, &request).is_some() {
            return;
        }
        if self.known_identities >= self.shared.most_identities {
            if self.identities_renewed + RENEW_IDENTITIES > now {
                self.shared.identities_full.store(true, Ordering::Relaxed);
                self.shared.refused_identities.fetch_add(1, Ordering::Relaxed);
                return;
            }
            self.forget_identities(now);
        }
        let known = self.known_identities;
        if !self.plan.identities.has_room(known, known) {
            self.publish(|plan| {
                let live = plan.identities.shown();
                let live = live.map(|(number, id)| (plan.hash_of(&id.request()), number));
                let next = plan.identities.followed_by(known * 2, |_| true, live);
                plan.identities = Arc::new(next);
            });
        }
        let resolved = self.resolve(&request);
        let identity = Identity::new(&request, resolved);
        if self.plan.identities.put(post.hash, known, identity) {
            self.known_identities += 1;
            self.shared.known_identities.store(self.known_identities as u64, Ordering::Relaxed);
        }
    }

    /// What an identity comes down to, shared with all that come down to the same.
    pub(super) fn resolve(&mut self, request: &Request<'_>) -> Arc<Resolved> {
        let Some(service) = self.services.get(request.service) else { return Arc::default() };
        let class = (service.of.service.clone(), service.class(request));
        let resolve = || Arc::new(service.resolve(request, false));
        self.resolved.entry(class).or_insert_with(resolve).clone()
    }

    fn forget_identities(&mut self, now: Time) {
        let room = self.shared.most_identities;
        self.publish(|plan| plan.identities = Arc::new(Table::new(room)));
        self.known_identities = 0;
        self.resolved.clear();
        self.identities_renewed = now;
        self.shared.identities_full.store(false, Ordering::Relaxed);
    }

    fn adopt_value(&mut self, per: u32, post: &Post) {
        let mut parts = [""; Per::MAX_DIMENSIONS];
        let count = parts.iter_mut().zip(post.parts()).map(|(to, part)| *to = part).count();
        if let Some(query) = Query::new(&self.plan.hasher, per, parts, count) {
            self.add_value(per, &query);
        }
    }

    /// Gives the value a key, unless it has one or a bound forbids it.
    pub(super) fn add_value(&mut self, per: u32, query: &Query<'_>) {
        let Some(Some(state)) = self.pers.get(per as usize) else { return };
        let (of, place, bucket_number) = (state.of.clone(), state.place, state.bucket);
        let bucket = &of.buckets[place];
        let there = self.plan.values.find(query.hash, query).is_some();
        let Some(rules) = bucket.per.as_ref().filter(|_| !there && !state.leaving) else { return };
        if state.keys >= rules.max_keys {
            return self.refuse_value(per);
        }
        let Some(number) = self.take_number() else {
            self.numbers.exhausted = true;
            return self.refuse_value(per);
        };
        self.make_room_for_value(number as usize);
        if self.plan.arena.make(number as usize).is_none() {
            return self.refuse_value(per);
        }
        if let Some(Some(state)) = self.pers.get_mut(per as usize) {
            state.keys += 1;
        }
        let i = self.add_record(Record::Value { per, number, leaving: false });
        self.numbers.records[number as usize] = i;
        self.numbers.indexed += 1;
        self.shared.known_values.fetch_add(1, Ordering::Relaxed);
        let plan = &self.plan;
        // The slot first, the entry that leads to it last.
        let entry = ValueEntry::new(query);
        if let Some(slot) = plan.arena.get(number as usize) {
            let values = entry.values(rules.dimensions.len());
            slot.assign(bucket_number, flags_of(bucket, bucket.limit_of(&values)));
            let standing = slot.shared.read();
            plan.arena.with_fold(number as usize, |fold| *fold = Fold::starting_at(standing));
        }
        plan.values.put(query.hash, number as usize, entry);
    }

    fn refuse_value(&self, per: u32) {
        self.shared.refused_values.fetch_add(1, Ordering::Relaxed);
        if let Some(Some(state)) = self.pers.get(per as usize) {
            state.per.full.store(true, Ordering::Relaxed);
        }
    }

    fn take_number(&mut self) -> Option<u32> {
        let most = self.shared.most_values;
        if self.numbers.fresh.is_empty()
            && self.numbers.records.len() >= most
            && self.numbers.spent.len() > most / SPENT_SHARE
        {
            self.rebuild_values();
        }
        if let Some(number) = self.numbers.fresh.pop() {
            return Some(number);
        }
        let next = self.numbers.records.len();
        let number = u32::try_from(next).ok().filter(|_| next < most)?;
        make_room(&mut self.numbers.records, 1);
        self.numbers.records.push(u32::MAX);
        Some(number)
    }

    fn make_room_for_value(&mut self, number: usize) {
        if self.plan.values.has_room(self.numbers.indexed, number) {
            return;
        }
        // A quarter more than needed: there are many values or few, and copying is rare either way.
        let live = self.live_values();
        self.numbers.indexed = live.len();
        let needed = (number + 1).max(live.len());
        let room = (needed + needed / 4 + 64).min(self.shared.most_values);
        self.publish(|plan| {
            let next = plan.values.followed_by(room, |_| true, live.into_iter());
            plan.values = Arc::new(next);
        });
    }

    /// A new table with the same entries but for those of spent numbers, which are fresh again.
    fn rebuild_values(&mut self) {
        let live = self.live_values();
        self.numbers.indexed = live.len();
        let used = &self.numbers.records;
        let keep = |number: usize| used.get(number).is_some_and(|record| *record != u32::MAX);
        let next = self.plan.values.followed_by(used.len(), keep, live.into_iter());
        let spent = std::mem::take(&mut self.numbers.spent);
        self.numbers.fresh.extend(spent);
        self.publish(|plan| plan.values = Arc::new(next));
    }

    /// Hash and number of every value that can be found.
    fn live_values(&self) -> Vec<(u64, usize)> {
        let live = self.records.iter().filter_map(|record| match record {
            Record::Value { per, number, leaving: false } => Some((*per, *number as usize)),
            Record::Value { .. } | Record::Rule(_) | Record::Free => None,
        });
        live.filter_map(|(per, number)| Some((self.value_hash(per, number)?, number))).collect()
    }

    fn value_hash(&self, per: u32, number: usize) -> Option<u64> {
        let state = self.pers.get(per as usize)?.as_ref()?;
        let entry = self.plan.values.get(number)?;
        let count = state.per.parts();
        let parts = entry.parts(count)?;
        Query::new(&self.plan.hasher, per, parts, count).map(|query| query.hash)
    }

    /// Begins to remove an idle value key; [`KeyEvent::Retired`] follows. Whether it does: false if
    /// it is no value key, or one whose limit is 0, or already leaving.
    pub fn evict(&mut self, now: Time, key: KeyHandle) -> bool {
        let closed = self.slot(key).is_some_and(|slot| slot.flags().is_closed());
        !(closed && self.holds_alone(key)) && self.leave_value(now, key.0)
    }

    /// Whether nothing would deny the key's values without it. Of a fair group, the key of the empty
    /// value denies all.
    fn holds_alone(&self, key: KeyHandle) -> bool {
        let fair = self.bucket(key).is_some_and(|b| b.sharing == Some(Sharing::Fair));
        match self.values(key) {
            Some(KeyValues::Each(values)) if fair => {
                values.len() == 1 || values.last().is_some_and(|v| v.is_empty())
            }
            Some(_) | None => true,
        }
    }

    pub(super) fn leave_value(&mut self, now: Time, i: u32) -> bool {
        let Record::Value { per, number, leaving: false } = *self.record(i) else { return false };
        let Some(hash) = self.value_hash(per, number as usize) else { return false };
        self.plan.values.hide(hash, number as usize);
        self.records[i as usize] = Record::Value { per, number, leaving: true };
        self.leaving.push_back((now, i));
        true
    }

    /// Gives a retired key's number and memory back. Ignored for a key that is not leaving.
    pub fn release(&mut self, key: KeyHandle) {
        let place = self.slot(key).and_then(|slot| slot.own_place());
        match self.record(key.0) {
            Record::Rule(r) if r.leaving => {
                let number = r.rule.slot.bucket();
                let overflow_of = (r.key == KeyValues::Overflow).then(|| r.rule.clone());
                self.buckets.remove(&number);
                if let Some(rule) = overflow_of {
                    let theirs = |s: &super::PerState| Arc::ptr_eq(&s.per.overflow, &rule);
                    let at = self.pers.iter().position(|s| s.as_ref().is_some_and(theirs));
                    if let Some(Some(state)) = at.and_then(|at| self.pers.get_mut(at)) {
                        state.overflow_released = true;
                    }
                    at.into_iter().for_each(|at| self.free_per_if_empty(at));
                }
            }
            Record::Value { per, number, leaving: true } => {
                let (per, number) = (*per as usize, *number);
                self.release_value(per, number);
            }
            Record::Rule(_) | Record::Value { .. } | Record::Free => return,
        }
        if let Some(place) = place {
            self.places.free.push(place);
            self.promoted.retain(|i| *i != key.0);
        }
        self.records[key.index()] = Record::Free;
        self.free_records.push(key.0);
    }

    fn release_value(&mut self, per: usize, number: u32) {
        if let Some(slot) = self.plan.arena.get(number as usize) {
            slot.set_places(NO_PLACE, NO_PLACE);
        }
        self.numbers.spent.push(number);
        self.numbers.records[number as usize] = u32::MAX;
        self.shared.known_values.fetch_sub(1, Ordering::Relaxed);
        let open = |state: &super::PerState| {
            if !state.leaving {
                state.per.full.store(false, Ordering::Relaxed);
            }
        };
        if let Some(Some(state)) = self.pers.get_mut(per) {
            state.keys -= 1;
            open(state);
        }
        if std::mem::take(&mut self.numbers.exhausted) {
            self.pers.iter().flatten().for_each(open);
        }
        self.free_per_if_empty(per);
    }

    fn free_per_if_empty(&mut self, at: usize) {
        if let Some(Some(state)) = self.pers.get(at)
            && state.leaving
            && state.overflow_released
            && state.keys == 0
        {
            self.buckets.remove(&state.bucket);
            self.pers[at] = None;
        }
    }
}
