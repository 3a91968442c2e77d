//! Streams of children: taken, closed, silent, kept awake.

use std::time::Duration;

use sluicegate_model::{
    ConfigVersion, Hello, KeyId, Law, PROTOCOL_VERSION, PROTOCOL_VERSION_MIN, Term, Time,
};

use super::children::{ConfigurationDue, Gauge, Session, Silence};
use super::{CLAIM_MAX, Node, Tier};
use crate::grant::SILENT_AFTER as SILENT_CHILD_AFTER;
use crate::{Refusal, SessionId};

/// Intervals without a message after which a child that should report counts as silent.
const SILENT_AFTER: u32 = 3;
/// Intervals without a message after which a silent child's rates are taken out.
const ZEROED_AFTER: u32 = 6;
/// What a message may be late by, beyond the intervals of a silent child.
const LATE: Duration = Duration::from_millis(60);
/// The longest that a child is left without any message.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// How often silence and heartbeats are looked at; two of these are less than a heartbeat.
const LOOK: Duration = Duration::from_millis(500);
const LOOK_MIN: Duration = Duration::from_millis(50);

impl Node {
    pub(super) fn try_open(&mut self, id: SessionId, hello: Hello) -> Result<(), Refusal> {
        let (protocol, max) = (hello.protocol, self.limits.max_sessions);
        if !(PROTOCOL_VERSION_MIN..=PROTOCOL_VERSION).contains(&protocol) {
            return Err(Refusal::Protocol { offered: protocol });
        }
        if hello.role != self.tier.serves() {
            return Err(Refusal::Role { expected: self.tier.serves(), found: hello.role });
        }
        if hello.services.len() > self.limits.max_services_wanted {
            let found = hello.services.len();
            return Err(Refusal::Services { found, max: self.limits.max_services_wanted });
        }
        if self.children.slot_of(id).is_some() {
            return Err(Refusal::AlreadyOpen);
        }
        if self.children.len() >= max {
            return Err(Refusal::Full { max });
        }
        self.note_seen(hello.seen_term, hello.seen_version);
        if self.children.is_empty() {
            self.next_look = self.now + self.look_period();
        }
        let mut session = Session::new(id, hello, self.tick, self.now);
        if self.configured {
            session.configuration = ConfigurationDue::Full;
        }
        let slot = self.children.insert(session);
        if self.configured {
            self.children.make_ready(slot);
        }
        Ok(())
    }

    pub(super) fn remove_session(&mut self, slot: u32) {
        let Some(session) = self.children.get(slot) else { return };
        let ids: Vec<u32> = session.iter().map(|(id, _)| id).collect();
        // One by one while the session is still there: two of its ids may share a key.
        self.begin_silence(slot);
        for id in ids {
            self.unname_key(slot, id);
        }
        self.children.remove(slot);
    }

    pub(super) fn note_applied(&mut self, slot: u32, version: ConfigVersion) {
        self.note_heard(slot);
        if let Some(session) = self.children.get_mut(slot) {
            session.applied_version = version;
        }
    }

    pub(super) fn note_heard(&mut self, slot: u32) {
        let now = self.now;
        if let Some(session) = self.children.get_mut(slot) {
            if now.since(session.heard) > SILENT_CHILD_AFTER {
                session.lively = now;
            }
            session.heard = now;
            session.silence = Silence::No;
        }
    }

    pub(super) fn note_seen(&mut self, term: Term, version: ConfigVersion) {
        if term > CLAIM_MAX || version > CLAIM_MAX {
            self.counters.seen_out_of_range += 1;
            return;
        }
        self.seen_term = self.seen_term.max(term);
        self.seen_version = self.seen_version.max(version);
    }

    /// Looks for silent children, and for those that were sent nothing for long.
    pub(super) fn look_if_due(&mut self) {
        if self.children.is_empty() || self.now < self.next_look {
            return;
        }
        self.next_look = self.now + self.look_period();
        for slot in self.children.slots() {
            let now = self.now;
            let Some(session) = self.children.get_mut(slot) else { continue };
            if session.sent + (HEARTBEAT - LOOK) <= now {
                session.update_due = true;
                self.children.make_ready(slot);
            }
            self.look_for_silence(slot);
        }
    }

    fn look_for_silence(&mut self, slot: u32) {
        let law = self.law;
        let keeps_grant = law == Law::Grant && self.tier == Tier::Controller;
        let Some(session) = self.children.get_mut(slot) else { return };
        let quiet = self.now.since(session.heard);
        let silent_after = match keeps_grant {
            true => SILENT_CHILD_AFTER,
            false => session.interval * SILENT_AFTER,
        };
        if session.in_use == 0 || quiet <= silent_after {
            return;
        }
        if keeps_grant {
            session.silence = Silence::Zeroed;
            self.counters.sessions_silent += 1;
            return self.begin_silence(slot);
        }
        if session.silence == Silence::No {
            session.silence = Silence::Carried;
            self.counters.sessions_silent += 1;
        }
        let zeroed_after = match law {
            Law::Ratio => session.interval * ZEROED_AFTER,
            Law::Grant => session.interval * SILENT_AFTER + LATE,
        };
        if quiet > zeroed_after && session.silence == Silence::Carried {
            session.silence = Silence::Zeroed;
            self.counters.sessions_zeroed += 1;
            self.zero_rates(slot);
        }
    }

    /// Takes a session's rates out of the sums. Its next report brings them back.
    fn zero_rates(&mut self, slot: u32) {
        let Some(session) = self.children.get(slot) else { return };
        let ids: Vec<u32> =
            session.iter().filter(|(_, h)| h.is_in_use()).map(|(id, _)| id).collect();
        for id in ids {
            self.zero_rate(slot, id);
        }
    }

    /// Takes one key of a session out of the sums.
    pub(super) fn zero_rate(&mut self, slot: u32, id: KeyId) {
        {
            let Some(held) = self.children.get_mut(slot).and_then(|s| s.held_mut(id)) else {
                return;
            };
            let key = held.key;
            held.set_gauge(self.keys.hot_mut(key), Gauge::default(), self.now);
            self.keys.activate(key);
            self.set_in_use(slot, id, false);
        }
    }

    fn look_period(&self) -> Duration {
        self.tick.clamp(LOOK_MIN, LOOK)
    }

    /// When the next look is due.
    pub(super) fn release_due(&mut self, now: Time) {
        self.children.release_acks(now);
        self.look_if_due();
    }
}
