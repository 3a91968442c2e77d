//! The keys of a node: what a report touches apart from the rest, so that taking one entry in reads
//! one line of memory a key. It must not know sessions beyond the numbers that name them.

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::time::Duration;

use foldhash::quality::FixedState;
use hashbrown::HashTable;
use sluicegate_model::{Counts, Directive, KeyValues, Limit, Time};

use super::KeyState;
use super::catalog::{place_in, reserve_an_eighth};
use super::granting::Granting;
use crate::ratio::Credit;

/// The oldest that a request in no count may be; its client is silent by then.
const FLIGHT_MOST_S: f64 = 2.0;

/// Stands for no key, no place.
pub(super) const NONE: u32 = u32::MAX;

/// What an entry of a report touches.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Hot {
    pub(super) counts: Counts,
    /// Sum of the children's rates in millionths of a request a second: whole numbers, so that
    /// what was added comes off again exactly.
    pub(super) offered_micros: u64,
    /// The sum of usual rates, likewise.
    pub(super) usual_micros: u64,
    /// The sum of each child's rate times the millisecond of its last entry; wraps around.
    pub(super) stamps: u64,
    pub(super) sessions: u32,
    /// Place in the list of active keys.
    active: u32,
}

impl Hot {
    /// Whether a tick looks at it.
    pub(super) fn is_active(&self) -> bool {
        self.active != NONE
    }

    /// Offered and in no count yet, in requests, and the mean age of that.
    pub(super) fn in_flight(&self, now: Time) -> (f64, Duration) {
        let due = self.offered_micros.wrapping_mul(now.as_millis()).wrapping_sub(self.stamps);
        // Millionths of a request a second, times milliseconds.
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let requests = due.cast_signed().max(0) as f64 / 1e9;
        let rate = rps(self.offered_micros);
        if rate <= 0.0 {
            return (0.0, Duration::ZERO);
        }
        let age = Duration::from_secs_f64((requests / rate).clamp(0.0, FLIGHT_MOST_S));
        (rate * age.as_secs_f64(), age)
    }
}

/// Who works out the directives of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Control {
    /// Nobody: its bucket is not configured here.
    Nobody,
    /// This node.
    Root,
    /// A node above, or (for zone scope at a controller) one below.
    Elsewhere,
}

/// A child that named a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct User {
    pub(super) slot: u32,
    /// The child's own number of the key.
    pub(super) id: u32,
}

/// The latest directive of a key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cached {
    pub(super) directive: Directive,
    pub(super) expires: Time,
    /// When the root here made it, or when it arrived from above.
    pub(super) made: Time,
    /// Where it stood in the parent's stream: which stream, and its number there.
    pub(super) above: (u64, u64),
}

/// The rest of a key.
#[derive(Debug)]
pub(super) struct Cold {
    pub(super) bucket: u32,
    pub(super) control: Control,
    pub(super) values: KeyValues,
    pub(super) limit: Limit,
    pub(super) credit: Credit,
    pub(super) credit_at: Time,
    /// Counts at the last tick: offered, admitted, would-drop.
    pub(super) at_tick: [u64; 3],
    /// Offered, admitted and would-drop a second over the last tick.
    pub(super) rates: [f32; 3],
    /// Children that use it now stand in front of those that only named it.
    pub(super) users: Vec<User>,
    pub(super) in_use: u32,
    pub(super) cached: Option<Box<Cached>>,
    /// What the law `grant` keeps of it; `None` under another law, and where nothing is limited.
    pub(super) granting: Option<Box<Granting>>,
    /// Stands in the list of orphans.
    orphaned: bool,
}

#[derive(Debug)]
pub(super) struct Keys {
    hot: Vec<Hot>,
    cold: Vec<Option<Cold>>,
    free: Vec<u32>,
    table: HashTable<u32>,
    hasher: FixedState,
    active: Vec<u32>,
    /// Keys that lost their last user, and when. One that is named again stays here until its turn.
    orphans: VecDeque<(Time, u32)>,
    live: u32,
}

impl Keys {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            hot: Vec::new(),
            cold: Vec::new(),
            free: Vec::new(),
            table: HashTable::new(),
            hasher: FixedState::with_seed(seed),
            active: Vec::new(),
            orphans: VecDeque::new(),
            live: 0,
        }
    }

    pub(super) fn live(&self) -> u32 {
        self.live
    }

    pub(super) fn active(&self) -> &[u32] {
        &self.active
    }

    pub(super) fn get(&self, key: u32) -> Option<&Cold> {
        self.cold.get(key as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, key: u32) -> Option<&mut Cold> {
        self.cold.get_mut(key as usize)?.as_mut()
    }

    /// Both halves of a key that exists.
    pub(super) fn both_mut(&mut self, key: u32) -> Option<(&Hot, &mut Cold)> {
        let cold = self.cold.get_mut(key as usize)?.as_mut()?;
        Some((&self.hot[key as usize], cold))
    }

    /// What the law `grant` keeps of a key, if anything.
    pub(super) fn granting(&self, key: u32) -> Option<&Granting> {
        self.get(key)?.granting.as_deref()
    }

    pub(super) fn granting_mut(&mut self, key: u32) -> Option<&mut Granting> {
        self.get_mut(key)?.granting.as_deref_mut()
    }

    /// That, with what a report touches, to be read.
    pub(super) fn hot_and_granting(&self, key: u32) -> Option<(&Hot, &Granting)> {
        Some((self.hot.get(key as usize)?, self.granting(key)?))
    }

    /// That, with what a report touches.
    pub(super) fn granting_of(&mut self, key: u32) -> Option<(&Hot, &mut Granting)> {
        let (hot, cold) = self.both_mut(key)?;
        Some((hot, cold.granting.as_deref_mut()?))
    }

    /// What a report touches of a key that exists.
    pub(super) fn hot_mut(&mut self, key: u32) -> &mut Hot {
        &mut self.hot[key as usize]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Cold)> {
        (0_u32..).zip(&self.cold).filter_map(|(key, cold)| Some((key, cold.as_ref()?)))
    }

    pub(super) fn state(&self, key: u32) -> Option<KeyState> {
        self.get(key)?;
        let hot = self.hot.get(key as usize)?;
        Some(KeyState {
            counts: hot.counts,
            offered_rps: rps(hot.offered_micros),
            usual_rps: rps(hot.usual_micros),
            sessions: hot.sessions,
        })
    }

    pub(super) fn find(&self, bucket: u32, values: &KeyValues) -> Option<u32> {
        let hash = self.hasher.hash_one((bucket, values));
        let same = |key: &u32| is_key(&self.cold, *key, bucket, values);
        self.table.find(hash, same).copied()
    }

    /// Adds a key that is not there yet.
    pub(super) fn insert(&mut self, bucket: u32, values: KeyValues, now: Time) -> u32 {
        let hash = self.hasher.hash_one((bucket, &values));
        let cold = Cold {
            bucket,
            control: Control::Nobody,
            values,
            limit: Limit::Unlimited,
            credit: Credit::full(&Limit::Unlimited),
            credit_at: now,
            at_tick: [0; 3],
            rates: [0.0; 3],
            users: Vec::new(),
            in_use: 0,
            cached: None,
            granting: None,
            orphaned: false,
        };
        let key = place_in(&mut self.cold, &mut self.free, cold);
        let hot = Hot { active: NONE, ..Hot::default() };
        match self.hot.get_mut(key as usize) {
            Some(place) => *place = hot,
            None => {
                reserve_an_eighth(&mut self.hot);
                self.hot.push(hot);
            }
        }
        let (hasher, colds) = (&self.hasher, &self.cold);
        self.table.insert_unique(hash, key, |key| {
            colds[*key as usize].as_ref().map_or(0, |c| hasher.hash_one((c.bucket, &c.values)))
        });
        self.live += 1;
        key
    }

    /// Forgets a key, with its counts.
    pub(super) fn remove(&mut self, key: u32) -> Option<Cold> {
        self.deactivate(key);
        let cold = self.get(key)?;
        let hash = self.hasher.hash_one((cold.bucket, &cold.values));
        if let Ok(entry) = self.table.find_entry(hash, |k| *k == key) {
            entry.remove();
        }
        self.free.push(key);
        self.live -= 1;
        self.cold[key as usize].take()
    }

    /// Notes that nobody names a key any more.
    pub(super) fn orphan(&mut self, key: u32, now: Time) {
        let Some(cold) = self.get_mut(key) else { return };
        if !std::mem::replace(&mut cold.orphaned, true) {
            self.orphans.push_back((now, key));
        }
    }

    /// The next key that was orphaned at least `after` ago, taken off the list.
    pub(super) fn next_orphan(&mut self, now: Time, after: Duration) -> Option<u32> {
        let (since, key) = *self.orphans.front()?;
        if since + after > now {
            return None;
        }
        self.orphans.pop_front();
        if let Some(cold) = self.get_mut(key) {
            cold.orphaned = false;
        }
        Some(key)
    }

    /// Puts a key that exists on the list of those that a tick looks at.
    pub(super) fn activate(&mut self, key: u32) {
        let hot = &mut self.hot[key as usize];
        if hot.active == NONE {
            hot.active = u32::try_from(self.active.len()).expect("at most max_keys");
            self.active.push(key);
        }
    }

    pub(super) fn deactivate(&mut self, key: u32) {
        let Some(hot) = self.hot.get_mut(key as usize) else { return };
        let place = std::mem::replace(&mut hot.active, NONE);
        if place == NONE {
            return;
        }
        self.active.swap_remove(place as usize);
        if let Some(moved) = self.active.get(place as usize) {
            self.hot[*moved as usize].active = place;
        }
    }
}

/// Millionths of a request a second, from what a child said.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates as wanted")]
pub(super) fn micros(rps: f32) -> u64 {
    (f64::from(rps) * 1e6) as u64
}

#[expect(clippy::cast_precision_loss, reason = "a rate needs no more than 52 bits")]
pub(super) fn rps(micros: u64) -> f64 {
    micros as f64 / 1e6
}

fn is_key(cold: &[Option<Cold>], key: u32, bucket: u32, values: &KeyValues) -> bool {
    cold[key as usize].as_ref().is_some_and(|c| c.bucket == bucket && c.values == *values)
}
