//! The streams of a node's children and what is waiting to be sent on them. It must not know what
//! keys mean.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use sluicegate_model::{ConfigVersion, Counts, Flight, Hello, KeyId, Name, Role, Term, Time};

use super::catalog::{Totals, place_in, reserve_an_eighth};
use super::keys::{Cached, Hot, NONE, micros};
use crate::SessionId;
use crate::grant::GrantRule;

/// What is remembered of one key on one stream. There are as many as sessions times keys, so its
/// size counts: 52 bytes, and beside it 4 in `index` and 8 in the key's list of users.
#[derive(Debug, Clone, Copy)]
#[repr(Rust, packed(4))]
pub(super) struct Held {
    pub(super) key: u32,
    pub(super) rate_rps: f32,
    /// The high half of a float: three digits are enough for what is usual.
    usual: u16,
    /// When its last entry came, in units of [`UNIT_MS`], as far as that fits.
    since: u16,
    pub(super) sessions: u32,
    /// Place in the key's list of users.
    pub(super) place: u32,
    /// Counts of the stream so far.
    pub(super) seen: Counts,
}

const _: () = assert!(size_of::<Held>() == 52);

/// What is remembered besides of one key on the stream of a child that passes directives on.
#[derive(Debug, Clone)]
pub(super) struct Passing {
    /// Admitted and in no count when it last reported.
    pub(super) flight: Flight,
    /// Its part of the limit without burst that is being spent, as it was told last.
    pub(super) base_rps: f64,
    pub(super) rule: GrantRule,
    /// What it was told last.
    pub(super) cached: Option<Cached>,
}

impl Passing {
    fn new(now: Time) -> Self {
        let rule = GrantRule::new(now);
        Self { flight: Flight::default(), base_rps: 0.0, rule, cached: None }
    }
}

/// A rate that is not renewed for so long is taken out before.
const _: () = assert!(UNIT_MS << 16 > 6 * 60_000);
/// The unit in which the time of an entry is kept.
const UNIT_MS: u64 = 8;

/// The time in units, rounded.
fn units(now: Time) -> u64 {
    (now.as_millis() + UNIT_MS / 2) / UNIT_MS
}

#[expect(clippy::cast_possible_truncation, reason = "the low part is meant")]
fn low(units: u64) -> u16 {
    units as u16
}

/// The half of a float that holds its sign, exponent and first digits, rounded.
fn high_half(number: f32) -> u16 {
    (number.to_bits().saturating_add(0x8000) >> 16) as u16
}

/// What a child says of a key that is no count.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Gauge {
    pub(super) rate_rps: f32,
    pub(super) usual_rps: f32,
    pub(super) sessions: u32,
}

impl Held {
    pub(super) fn gauge(&self) -> Gauge {
        let (rate_rps, usual_rps, sessions) = (self.rate_rps, self.usual_rps(), self.sessions);
        Gauge { rate_rps, usual_rps, sessions }
    }

    pub(super) fn usual_rps(&self) -> f32 {
        f32::from_bits(u32::from(self.usual) << 16)
    }

    /// How long ago its last entry came. Good for minutes, longer than a rate
    /// stands unrenewed.
    pub(super) fn age(&self, now: Time) -> Duration {
        Duration::from_millis(UNIT_MS * u64::from(low(units(now)).wrapping_sub(self.since)))
    }

    /// Lets `gauge` stand from `now` on, in the sums of its key as well.
    pub(super) fn set_gauge(&mut self, hot: &mut Hot, gauge: Gauge, now: Time) {
        let now_units = units(now);
        let now_ms = now_units * UNIT_MS;
        let since =
            now_ms.wrapping_sub(UNIT_MS * u64::from(low(now_units).wrapping_sub(self.since)));
        let (before, after) = (micros(self.rate_rps), micros(gauge.rate_rps));
        hot.offered_micros += after;
        hot.offered_micros -= before;
        let stamps = hot.stamps.wrapping_add(after.wrapping_mul(now_ms));
        hot.stamps = stamps.wrapping_sub(before.wrapping_mul(since));
        let usual_before = micros(self.usual_rps());
        self.usual = high_half(gauge.usual_rps);
        hot.usual_micros += micros(self.usual_rps());
        hot.usual_micros -= usual_before;
        hot.sessions += gauge.sessions;
        hot.sessions -= self.sessions;
        (self.rate_rps, self.sessions) = (gauge.rate_rps, gauge.sessions);
        self.since = low(now_units);
    }

    /// Whether the child has traffic of the key.
    pub(super) fn is_in_use(&self) -> bool {
        self.rate_rps > 0.0 || self.sessions > 0
    }
}

/// Whether a child reports when it should.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Silence {
    /// It does, or has nothing to report.
    No,
    /// It should have, and its rates are carried on.
    Carried,
    /// It should have long ago; its rates were taken out.
    Zeroed,
}

/// What a child must be sent of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConfigurationDue {
    Nothing,
    Full,
    Changes,
}

#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: SessionId,
    pub(super) role: Role,
    pub(super) node: Name,
    pub(super) zone: Name,
    /// Sorted; empty means all.
    wanted: BTreeSet<Name>,
    index: Vec<u32>,
    held: Vec<Held>,
    /// Of a child that passes directives on: beside `held`.
    passing: Vec<Passing>,
    free: Vec<u32>,
    pub(super) services: BTreeMap<Name, Totals>,
    pub(super) seq: u64,
    pub(super) interval: Duration,
    pub(super) heard: Time,
    /// Heard of without a pause since then.
    pub(super) lively: Time,
    pub(super) sent: Time,
    pub(super) silence: Silence,
    /// Keys with traffic on this stream.
    pub(super) in_use: u32,
    pub(super) applied_version: ConfigVersion,
    pub(super) sent_version: ConfigVersion,
    /// Term and version that it had seen when it came.
    pub(super) came_with: (Term, ConfigVersion),
    /// What it was sent last was older than that, so that it took no note of it.
    pub(super) ignores: bool,
    pub(super) configuration: ConfigurationDue,
    /// Ids whose directive must be sent; may hold one twice.
    pub(super) pending: Vec<KeyId>,
    /// An update must be sent even if it is empty.
    pub(super) update_due: bool,
    /// A report waits for its acknowledgement.
    pub(super) ack_due: bool,
    ack_queued: bool,
    queued: bool,
}

impl Session {
    pub(super) fn new(id: SessionId, hello: Hello, interval: Duration, now: Time) -> Self {
        Self {
            id,
            role: hello.role,
            node: hello.node,
            zone: hello.zone,
            wanted: hello.services.into_iter().collect(),
            index: Vec::new(),
            held: Vec::new(),
            passing: Vec::new(),
            free: Vec::new(),
            services: BTreeMap::new(),
            seq: 0,
            interval,
            heard: now,
            lively: now,
            sent: now,
            silence: Silence::No,
            in_use: 0,
            applied_version: 0,
            sent_version: 0,
            came_with: (hello.seen_term, hello.seen_version),
            ignores: false,
            configuration: ConfigurationDue::Nothing,
            pending: Vec::new(),
            update_due: false,
            ack_due: false,
            ack_queued: false,
            queued: false,
        }
    }

    pub(super) fn wants(&self, service: &Name) -> bool {
        self.wanted.is_empty() || self.wanted.contains(service)
    }

    /// Services asked for by name; `None` for all.
    pub(super) fn wanted(&self) -> Option<&BTreeSet<Name>> {
        (!self.wanted.is_empty()).then_some(&self.wanted)
    }

    pub(super) fn keys(&self) -> usize {
        self.held.len() - self.free.len()
    }

    pub(super) fn held(&self, id: KeyId) -> Option<&Held> {
        let at = *self.index.get(id as usize)?;
        self.held.get(at as usize)
    }

    pub(super) fn held_mut(&mut self, id: KeyId) -> Option<&mut Held> {
        let at = *self.index.get(id as usize)?;
        self.held.get_mut(at as usize)
    }

    pub(super) fn passing(&self, id: KeyId) -> Option<&Passing> {
        let at = *self.index.get(id as usize)?;
        self.passing.get(at as usize)
    }

    pub(super) fn passing_mut(&mut self, id: KeyId) -> Option<&mut Passing> {
        let at = *self.index.get(id as usize)?;
        self.passing.get_mut(at as usize)
    }

    /// Every id that is named, with what is held of it.
    pub(super) fn iter(&self) -> impl Iterator<Item = (KeyId, &Held)> {
        (0_u32..).zip(&self.index).filter_map(|(id, at)| Some((id, self.held.get(*at as usize)?)))
    }

    /// Lets `id`, which names nothing now, stand for a key.
    pub(super) fn name(&mut self, id: KeyId, key: u32, now: Time) {
        let held = Held {
            key,
            rate_rps: 0.0,
            usual: 0,
            since: 0,
            sessions: 0,
            place: NONE,
            seen: Counts::default(),
        };
        let at = match self.free.pop() {
            Some(at) => {
                self.held[at as usize] = held;
                at
            }
            None => {
                reserve_an_eighth(&mut self.held);
                self.held.push(held);
                u32::try_from(self.held.len() - 1).expect("at most max_keys_per_session")
            }
        };
        if self.role == Role::Aggregator {
            self.passing.resize(self.held.len(), Passing::new(now));
            self.passing[at as usize] = Passing::new(now);
        }
        if self.index.len() <= id as usize {
            let more = id as usize + 1 - self.index.len();
            if self.index.capacity() <= id as usize {
                self.index.reserve_exact(more + self.index.len() / 8);
            }
            self.index.resize(id as usize + 1, NONE);
        }
        self.index[id as usize] = at;
    }

    pub(super) fn unname(&mut self, id: KeyId) -> Option<Held> {
        let place = self.index.get_mut(id as usize)?;
        let at = std::mem::replace(place, NONE);
        let held = *self.held.get(at as usize)?;
        self.free.push(at);
        Some(held)
    }
}

/// Open streams by slot, and which of them have something to be sent.
#[derive(Debug, Default)]
pub(super) struct Children {
    slots: Vec<Option<Session>>,
    free: Vec<u32>,
    by_id: BTreeMap<SessionId, u32>,
    ready: VecDeque<(u32, SessionId)>,
    acks: VecDeque<(Time, u32, SessionId)>,
}

impl Children {
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    pub(super) fn slot_of(&self, id: SessionId) -> Option<u32> {
        self.by_id.get(&id).copied()
    }

    pub(super) fn get(&self, slot: u32) -> Option<&Session> {
        self.slots.get(slot as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut Session> {
        self.slots.get_mut(slot as usize)?.as_mut()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Session> {
        self.by_id.values().filter_map(|slot| self.get(*slot))
    }

    /// Slots in use, in the order of session ids.
    pub(super) fn slots(&self) -> Vec<u32> {
        self.by_id.values().copied().collect()
    }

    pub(super) fn insert(&mut self, session: Session) -> u32 {
        let id = session.id;
        let slot = place_in(&mut self.slots, &mut self.free, session);
        self.by_id.insert(id, slot);
        slot
    }

    pub(super) fn remove(&mut self, slot: u32) -> Option<Session> {
        let session = self.slots.get_mut(slot as usize)?.take()?;
        self.by_id.remove(&session.id);
        self.free.push(slot);
        Some(session)
    }

    /// Notes that the session in `slot` has something to be sent now.
    pub(super) fn make_ready(&mut self, slot: u32) {
        let Some(session) = self.slots.get_mut(slot as usize).and_then(Option::as_mut) else {
            return;
        };
        if !std::mem::replace(&mut session.queued, true) {
            self.ready.push_back((slot, session.id));
        }
    }

    /// The next session with something to be sent.
    pub(super) fn next_ready(&mut self) -> Option<u32> {
        while let Some((slot, id)) = self.ready.pop_front() {
            if let Some(session) = self.get_mut(slot).filter(|s| s.id == id) {
                session.queued = false;
                return Some(slot);
            }
        }
        None
    }

    /// Notes that a report must be acknowledged, at `at` if nothing goes out before.
    pub(super) fn owe_ack(&mut self, slot: u32, at: Time) {
        let Some(session) = self.get_mut(slot) else { return };
        session.ack_due = true;
        if !std::mem::replace(&mut session.ack_queued, true) {
            let id = session.id;
            self.acks.push_back((at, slot, id));
        }
    }

    pub(super) fn next_ack(&self) -> Option<Time> {
        self.acks.front().map(|(at, _, _)| *at)
    }

    /// Makes the sessions ready whose acknowledgements cannot wait longer.
    pub(super) fn release_acks(&mut self, now: Time) {
        while self.next_ack().is_some_and(|at| at <= now) {
            let Some((_, slot, id)) = self.acks.pop_front() else { return };
            let Some(session) = self.get_mut(slot).filter(|s| s.id == id) else { continue };
            session.ack_queued = false;
            if session.ack_due {
                session.update_due = true;
                self.make_ready(slot);
            }
        }
    }
}
