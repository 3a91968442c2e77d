//! Directives and acknowledgements on their way down, only to children that use the key.

use sluicegate_model::{Directive, Down, KeyId, Law, Time, Update};

use super::Node;
use super::children::{ConfigurationDue, Session};
use super::granting::{Told, What};
use super::keys::{Cached, Control};
use crate::SessionId;

impl Node {
    /// The next message for a child, until there is none.
    pub fn poll_child(&mut self) -> Option<(SessionId, Down)> {
        while let Some(slot) = self.children.next_ready() {
            if let Some(sent) = self.message_for(slot) {
                return Some(sent);
            }
        }
        None
    }

    /// Takes a directive of a root above, as it arrives on the stream number `stream`, and passes
    /// it on. Says whether it was news.
    pub fn pass_on(&mut self, stream: u64, key: u32, directive: Directive) -> bool {
        let (now, seq) = (self.now, self.seq + 1);
        let Some(cold) = self.keys.get_mut(key) else {
            self.counters.directives_unknown_key += 1;
            return false;
        };
        let sound = directive.limit_rps >= 0.0
            && directive.headroom.is_finite()
            && directive.sigma.is_finite();
        if !sound {
            self.counters.directives_bad += 1;
            return false;
        }
        let above = (stream, directive.seq);
        if self.law == Law::Grant && cold.granting.is_some() {
            return self.take_told(stream, key, directive);
        }
        // A client is told no grant; the ratio that goes with it is the one to obey.
        let directive = Directive { grant: None, ..directive };
        let older = cold.cached.as_ref().is_some_and(|c| {
            directive.term < c.directive.term
                || (directive.term == c.directive.term && c.above.0 == stream && c.above >= above)
        });
        if cold.control == Control::Root || older || directive.ttl.is_zero() {
            self.counters.stale_directives += 1;
            return false;
        }
        let ttl = directive.ttl.min(super::Settings::TTL_MAX);
        let directive = Directive { seq, ttl, ..directive };
        cold.cached = Some(Box::new(Cached { directive, expires: now + ttl, made: now, above }));
        self.seq = seq;
        self.fan_out(key, false);
        true
    }

    /// Takes what a root above says of a key whose clients this node tells by itself.
    fn take_told(&mut self, stream: u64, key: u32, directive: Directive) -> bool {
        let now = self.now;
        let Some((_, granting)) = self.keys.granting_of(key) else { return false };
        let above = (stream, directive.seq);
        let older = granting.told.is_some_and(|t| {
            directive.term < t.term
                || (directive.term == t.term && t.above.0 == stream && t.above >= above)
        });
        if older || directive.ttl.is_zero() || granting.pool.is_some() {
            self.counters.stale_directives += 1;
            return false;
        }
        let what = match directive.grant {
            Some(grant) => What::Grant(grant),
            None => What::Share(f64::from(directive.sigma).max(directive.admit.share())),
        };
        granting.told = Some(Told {
            what,
            at: now,
            until: now + directive.ttl.min(super::Settings::TTL_MAX),
            limit_rps: directive.limit_rps,
            sessions: directive.sessions,
            term: directive.term,
            above,
        });
        granting.looked_micros = u64::MAX;
        self.touch(key);
        true
    }

    /// Sends a directive to one child.
    pub(super) fn send_to(&mut self, slot: u32, id: KeyId, cached: Cached) {
        let Some(session) = self.children.get_mut(slot) else { return };
        let Some(passing) = session.passing_mut(id) else { return };
        passing.cached = Some(cached);
        push_pending(session, id);
        self.children.make_ready(slot);
    }

    /// Marks a key's directive to be sent to the children that use it, or to all that named it.
    pub(super) fn fan_out(&mut self, key: u32, to_all: bool) {
        let Some(cold) = self.keys.get(key) else { return };
        let upto = if to_all { cold.users.len() } else { cold.in_use as usize };
        for user in cold.users.iter().take(upto) {
            if let Some(session) = self.children.get_mut(user.slot) {
                push_pending(session, user.id);
                self.children.make_ready(user.slot);
            }
        }
    }

    fn message_for(&mut self, slot: u32) -> Option<(SessionId, Down)> {
        let session = self.children.get(slot)?;
        let id = session.id;
        if let Some(configuration) = self.configuration_for(session) {
            let session = self.children.get_mut(slot)?;
            session.sent_version = configuration.version;
            let (term, version) = session.came_with;
            session.ignores = configuration.term < term || configuration.version < version;
            session.configuration = ConfigurationDue::Nothing;
            session.sent = self.now;
            if session.update_due || !session.pending.is_empty() {
                self.children.make_ready(slot);
            }
            return Some((id, Down::Configuration(configuration)));
        }
        let session = self.children.get_mut(slot)?;
        let mut pending = std::mem::take(&mut session.pending);
        pending.sort_unstable();
        pending.dedup();
        if pending.len() > self.limits.max_update_directives {
            session.pending = pending.split_off(self.limits.max_update_directives);
            self.children.make_ready(slot);
        }
        let directives = self.directives_for(slot, &pending);
        let session = self.children.get_mut(slot)?;
        if directives.is_empty() && !session.update_due {
            return None;
        }
        session.update_due = false;
        session.ack_due = false;
        session.sent = self.now;
        Some((id, Down::Update(Update { ack_seq: session.seq, directives })))
    }

    /// The directives in force behind some ids of a session, each with what is left of its life.
    fn directives_for(&self, slot: u32, ids: &[KeyId]) -> Vec<(KeyId, Directive)> {
        let Some(session) = self.children.get(slot) else { return Vec::new() };
        let (term, _) = self.seen();
        let in_force = |id: KeyId| {
            let cold = self.keys.get(session.held(id)?.key)?;
            let own = session.passing(id).and_then(|p| p.cached.as_ref());
            let directive = remaining(own.or(cold.cached.as_deref())?, self.now)?;
            let is_own = cold.control == Control::Root || cold.granting.is_some();
            match cold.control {
                // What was worked out here stands under the term that holds now.
                _ if is_own => Some((id, Directive { term, ..directive })),
                Control::Root => None,
                Control::Elsewhere | Control::Nobody => {
                    (directive.term >= term).then_some((id, directive))
                }
            }
        };
        ids.iter().filter_map(|id| in_force(*id)).collect()
    }
}

/// A directive with what is left of its life; `None` if that is over.
fn remaining(cached: &Cached, now: Time) -> Option<Directive> {
    let ttl = cached.expires.since(now);
    (!ttl.is_zero()).then_some(Directive { ttl, ..cached.directive })
}

/// Adds an id, and drops repetitions before the list outgrows what the child has named.
fn push_pending(session: &mut Session, id: KeyId) {
    if session.pending.len() > session.keys() * 2 {
        session.pending.sort_unstable();
        session.pending.dedup();
    }
    session.pending.push(id);
}
