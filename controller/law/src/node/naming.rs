//! Ids that children give to keys, and who uses which key.

use sluicegate_model::{KeyId, KeyName, KeyValues, Limit, MAX_VALUE_BYTES, Per};

use super::Node;
use super::catalog::reserve_an_eighth;
use super::children::{Gauge, Held};
use super::keys::{Control, User};
use crate::ratio::Credit;

impl Node {
    /// Lets `id` of a session stand for the key `name`.
    pub(super) fn name_key(&mut self, slot: u32, id: KeyId, name: &KeyName) {
        if id >= self.limits.max_keys_per_session {
            self.counters.key_ids_out_of_range += 1;
            return;
        }
        if let Some(held) = self.children.get(slot).and_then(|s| s.held(id)) {
            if self.stands_for(held.key, name) {
                return;
            }
            self.counters.key_ids_redefined += 1;
            self.unname_key(slot, id);
        }
        let key = if has_plausible_values(name) { self.intern(name) } else { None };
        let Some(key) = key else {
            self.counters.keys_refused += 1;
            return;
        };
        let Some(session) = self.children.get_mut(slot) else { return };
        session.name(id, key, self.now);
        let Some(cold) = self.keys.get_mut(key) else { return };
        let place = u32::try_from(cold.users.len()).expect("bounded by sessions and their ids");
        if let Some(held) = session.held_mut(id) {
            held.place = place;
        }
        reserve_an_eighth(&mut cold.users);
        cold.users.push(User { slot, id });
        if cold.cached.is_some() {
            session.pending.push(id);
            self.children.make_ready(slot);
        }
    }

    /// Frees `id`; says whether it stood for a key.
    pub(super) fn unname_key(&mut self, slot: u32, id: KeyId) -> bool {
        let Some(session) = self.children.get_mut(slot) else { return false };
        let Some(mut held) = session.unname(id) else { return false };
        let was_in_use = held.is_in_use();
        session.in_use -= u32::from(was_in_use);
        held.set_gauge(self.keys.hot_mut(held.key), Gauge::default(), self.now);
        if was_in_use {
            self.keys.activate(held.key);
        }
        self.remove_user(held.key, held.place);
        true
    }

    /// Moves a user to the front part of its key's list, or out of it, as it has traffic or not.
    pub(super) fn set_in_use(&mut self, slot: u32, id: KeyId, in_use: bool) {
        let Some(session) = self.children.get_mut(slot) else { return };
        let Some(&Held { key, place, .. }) = session.held(id) else { return };
        let Some(cold) = self.keys.get_mut(key) else { return };
        if (place < cold.in_use) == in_use {
            return;
        }
        session.in_use = if in_use { session.in_use + 1 } else { session.in_use - 1 };
        let to = if in_use { cold.in_use } else { cold.in_use - 1 };
        cold.in_use = if in_use { cold.in_use + 1 } else { to };
        let fresh = in_use && cold.cached.is_some();
        self.swap_users(key, place, to);
        if fresh && let Some(session) = self.children.get_mut(slot) {
            session.pending.push(id);
            self.children.make_ready(slot);
        }
    }

    /// Takes the user at `place` off its key's list. Its own record is gone already.
    pub(super) fn remove_user(&mut self, key: u32, place: u32) {
        let Some(cold) = self.keys.get_mut(key) else { return };
        let mut hole = place;
        if place < cold.in_use {
            cold.in_use -= 1;
            let last_in_use = cold.in_use;
            self.swap_users(key, place, last_in_use);
            hole = last_in_use;
        }
        let Some(cold) = self.keys.get_mut(key) else { return };
        cold.users.swap_remove(hole as usize);
        self.place_user(key, hole);
        let Some(cold) = self.keys.get_mut(key) else { return };
        if cold.users.is_empty() {
            cold.users = Vec::new();
            self.keys.orphan(key, self.now);
        }
    }

    fn swap_users(&mut self, key: u32, a: u32, b: u32) {
        let Some(cold) = self.keys.get_mut(key) else { return };
        cold.users.swap(a as usize, b as usize);
        self.place_user(key, a);
        self.place_user(key, b);
    }

    /// Tells the user at `place` where it stands now.
    fn place_user(&mut self, key: u32, place: u32) {
        let Some(user) = self.keys.get(key).and_then(|c| c.users.get(place as usize)) else {
            return;
        };
        let session = self.children.get_mut(user.slot);
        if let Some(held) = session.and_then(|s| s.held_mut(user.id)) {
            held.place = place;
        }
    }

    /// Whether a key is what `name` was counted on when it came first.
    fn stands_for(&self, key: u32, name: &KeyName) -> bool {
        let Some(bucket) = self.catalog.bucket_of(&name.service, &name.bucket) else {
            return false;
        };
        self.keys.get(key).is_some_and(|cold| {
            let overflowed =
                cold.values == KeyValues::Overflow && matches!(name.values, KeyValues::Each(_));
            cold.bucket == bucket && (cold.values == name.values || overflowed)
        })
    }

    /// The key to count `name` on, made if there is none: beyond `max_keys` that of the bucket's
    /// overflow, beyond the bounds of the node none.
    fn intern(&mut self, name: &KeyName) -> Option<u32> {
        let bucket = self.catalog.intern_bucket(&name.service, &name.bucket)?;
        let configured = self.catalog.configured(bucket);
        self.counters.keys_of_unknown_bucket += u64::from(configured.is_none());
        if let Some(key) = self.keys.find(bucket, &name.values) {
            return Some(key);
        }
        let per = configured.and_then(|b| b.per.as_ref());
        let max_values = per.map_or(self.limits.max_keys, |p| p.max_keys);
        let values_now = self.catalog.bucket(bucket).map_or(0, |b| b.values);
        let full = self.keys.live() >= self.limits.max_keys;
        let is_value = matches!(name.values, KeyValues::Each(_));
        if is_value && (full || values_now >= max_values) {
            self.counters.keys_overflowed += 1;
            if let Some(key) = self.keys.find(bucket, &KeyValues::Overflow) {
                return Some(key);
            }
            return self.add_key(bucket, KeyValues::Overflow);
        }
        self.add_key(bucket, name.values.clone())
    }

    fn add_key(&mut self, bucket: u32, values: KeyValues) -> Option<u32> {
        // Whole buckets and overflow keys go beyond the bound: there are at most two a bucket, and
        // buckets are bounded themselves.
        let is_value = matches!(values, KeyValues::Each(_));
        if is_value && self.keys.live() >= self.limits.max_keys {
            return None;
        }
        let slot = self.catalog.bucket_mut(bucket)?;
        slot.keys += 1;
        slot.values += u32::from(is_value);
        let key = self.keys.insert(bucket, values, self.now);
        self.settle_rule(key);
        if let Some(cold) = self.keys.get_mut(key) {
            cold.credit = Credit::full(&cold.limit);
        }
        Some(key)
    }

    /// Brings a key's limit and root up to date with its bucket. A changed limit keeps what is left
    /// of the burst, and a directive of another root is dropped.
    pub(super) fn settle_rule(&mut self, key: u32) {
        let Some(cold) = self.keys.get_mut(key) else { return };
        let bucket = self.catalog.configured(cold.bucket).filter(|b| b.has_key(&cold.values));
        let (control, limit) = match bucket {
            None => (Control::Nobody, Limit::Unlimited),
            Some(b) if self.tier.is_root_of(b.scope) => (Control::Root, b.limit_of(&cold.values)),
            Some(b) => (Control::Elsewhere, b.limit_of(&cold.values)),
        };
        if control != cold.control {
            cold.cached = None;
            cold.control = control;
        }
        if limit != cold.limit {
            let was_unlimited = cold.limit == Limit::Unlimited;
            cold.credit =
                if was_unlimited { Credit::full(&limit) } else { cold.credit.under(&limit) };
            cold.credit_at = self.now;
            cold.limit = limit;
        }
        self.settle_granting(key);
    }

    /// Forgets keys that nobody has named for long, if `keep` lets go of them. Says which.
    pub fn forget(&mut self, mut keep: impl FnMut(u32) -> bool) -> Vec<u32> {
        let mut forgotten = Vec::new();
        while let Some(key) = self.keys.next_orphan(self.now, self.limits.forget_after) {
            let Some(cold) = self.keys.get(key).filter(|c| c.users.is_empty()) else { continue };
            let idle = self.now.since(cold.credit_at);
            let owes = !cold.credit.is_full_after(&cold.limit, idle) || self.is_owing(cold);
            if keep(key) || owes {
                self.keys.orphan(key, self.now);
                continue;
            }
            self.drop_granting(key);
            let Some(cold) = self.keys.remove(key) else { continue };
            if let Some(slot) = self.catalog.bucket_mut(cold.bucket) {
                slot.keys -= 1;
                slot.values -= u32::from(matches!(cold.values, KeyValues::Each(_)));
            }
            self.catalog.release_bucket(cold.bucket);
            self.counters.keys_forgotten += 1;
            forgotten.push(key);
        }
        forgotten
    }
}

/// Whether the values are of a length and number that a bucket could have.
fn has_plausible_values(name: &KeyName) -> bool {
    match &name.values {
        KeyValues::Whole | KeyValues::Overflow => true,
        KeyValues::Each(values) => {
            values.len() <= Per::MAX_DIMENSIONS && values.iter().all(|v| v.len() <= MAX_VALUE_BYTES)
        }
    }
}
