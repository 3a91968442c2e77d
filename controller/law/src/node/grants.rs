//! Steps of the law `grant`: of a root, which shares its limit out, and of whoever serves clients,
//! which tells them what share of their demand is covered.

use std::time::Duration;

use sluicegate_model::{
    AdmitRatio, Directive, Flight, Grant, KeyId, Law, Mode, Name, Sharing, Time,
};

use super::granting::{Told, What, counted};
use super::keys::{Control, rps};
use super::pools::rate_and_depth;
use super::{Node, Tier};
use crate::grant::sharing::{Member, share_out};
use crate::grant::split::{Child, FLOOR, Split};
use crate::grant::{Allowance, LOW_LIMIT_RPS, Observed, Push, SILENT_AFTER, Silent};
use crate::{Plan, Planned};

/// A silent child that is back has this long to report a key.
const BACK_WITHIN: Duration = Duration::from_secs(2);
/// A root without a past waits so long for its children before it tells any of them anything.
pub(super) const LEARN_FOR: Duration = Duration::from_secs(2);

/// A child of a root, for one key.
struct Part {
    child: Child,
    slot: u32,
    id: KeyId,
}

impl Node {
    /// When [`Node::plan_due`] has something to do.
    pub(super) fn next_due(&self) -> Option<Time> {
        self.due.next()
    }

    /// When [`Node::take_up`] has something to say.
    #[must_use]
    pub fn next_up(&self) -> Option<Time> {
        self.due.next_up()
    }

    /// Keys that the parent should hear of now, apart from ticks.
    pub fn take_up(&mut self, now: Time) -> Vec<u32> {
        self.advance(now);
        self.due.take_up(self.now)
    }

    /// What clients were admitted of a key and have not reported, as estimated now. Nothing where the
    /// law does not ask for it.
    #[must_use]
    pub fn flight(&self, key: u32) -> Flight {
        let Some((hot, granting)) = self.keys.hot_and_granting(key) else {
            return Flight::default();
        };
        let Some(leaf) = &granting.leaf else { return Flight::default() };
        let requests = granting.admitted_by_clients(hot, self.now) - counted(hot);
        let rps = rps(hot.offered_micros) * leaf.down.told().min(1.0);
        Flight { requests: requests.max(0.0), rps }
    }

    /// What is due apart from ticks: looks at keys that were reported, and steps of their limits.
    #[must_use]
    pub fn plan_due(&mut self, now: Time) -> Plan {
        self.advance(now);
        let mut plan = self.empty_plan();
        for key in self.due.take_keys(self.now) {
            self.look(key, &mut plan);
        }
        for pool in self.due.take_pools(self.now) {
            self.step_pool(pool, &mut plan);
        }
        plan
    }

    /// Looks at every key in use: their limits, and what their clients are told.
    pub(super) fn plan_grants(&mut self, plan: &mut Plan) {
        let keys: Vec<u32> = self.keys.active().to_vec();
        let mut pools: Vec<u32> =
            keys.iter().filter_map(|key| self.keys.granting(*key)?.pool).collect();
        pools.sort_unstable();
        pools.dedup();
        for pool in pools {
            self.step_pool(pool, plan);
        }
        for key in keys {
            self.look(key, plan);
        }
    }

    /// What a key's clients are told if that is due, and whether the parent should hear of it.
    fn look(&mut self, key: u32, plan: &mut Plan) {
        let (now, window) = (self.now, self.tick);
        let switches = self.switches;
        let Some((hot, cold)) = self.keys.both_mut(key) else { return };
        let Some(granting) = &mut cold.granting else { return };
        granting.touched = false;
        (granting.looked, granting.looked_micros) = (now, hot.offered_micros);
        let (offered, usual) = (rps(hot.offered_micros), rps(hot.usual_micros));
        let admitted = granting.admitted_by_clients(hot, now);
        let told = granting.told.filter(|told| told.until > now);
        let Some(leaf) = &mut granting.leaf else { return };
        granting.demand.see(now, offered, window, switches.damping);
        let demand = granting.demand.rps();
        let is_root = cold.control == Control::Root;
        if !is_root && leaf.up.ask(now, offered, leaf.down.told(), window) {
            self.due.tell_up(key, now);
        }
        let Some(told) = told else { return };
        let covered = match told.what {
            What::Grant(grant) => {
                let held = told.held(grant, now);
                leaf.credit.step(now, &held, admitted, demand, usual, window)
            }
            What::Share(share) => crate::grant::Covered { share, headroom: 0.0, sigma: share },
        };
        granting.share = covered.share;
        let push = match switches.events {
            true => leaf.down.ask(now, covered.share, demand, window),
            false => Push::Now,
        };
        match push {
            Push::No => return,
            Push::At(at) => return self.due.look_later(key, at),
            Push::Now => {}
        }
        leaf.in_force.set(now, covered.share.min(1.0));
        let directive = Directive {
            admit: admit(covered.share),
            headroom: narrow(covered.headroom),
            sigma: narrow(covered.sigma),
            limit_rps: told.limit_rps,
            sessions: told.sessions,
            term: plan.term,
            seq: 0,
            ttl: self.ttl.min(told.until.since(now)),
            grant: None,
        };
        let (limit, bucket) = (cold.limit, cold.bucket);
        let mode = self.catalog.kind(bucket).map_or(Mode::Observe, |kind| kind.mode);
        plan.push(Planned { key, child: None, limit, mode, directive });
    }

    /// One step of a limit whose root is here, and what follows for each key and each child.
    fn step_pool(&mut self, at: u32, plan: &mut Plan) {
        let Some(pool) = self.pools.get(at) else { return };
        let members = pool.members.clone();
        let Some(first) = members.first().and_then(|key| self.keys.get(*key)) else { return };
        let (limit_rps, depth) = rate_and_depth(&first.limit);
        let bucket = self.catalog.configured(first.bucket);
        let sharing = bucket.and_then(|b| b.sharing.clone());
        let mut parts: Vec<Member> = Vec::with_capacity(members.len());
        let mut admitted = 0.0;
        for key in &members {
            let (member, more) = self.member(*key);
            parts.push(member);
            admitted += more;
        }
        let demand_rps = parts.iter().map(|m| m.demand_rps).sum();
        let (now, window, switches) = (self.now, self.tick, self.switches);
        let seen = Observed { limit_rps, depth, demand_rps, admitted, window };
        let is_heard = |key: &u32| self.keys.granting(*key).is_none_or(|g| g.silent.is_empty());
        let corrects = switches.correction && members.iter().all(is_heard);
        let Some(pool) = self.pools.get_mut(at) else { return };
        let allowance = pool.level.step(now, &seen, switches.debt, corrects);
        match (&sharing, &mut *parts) {
            (Some(sharing), parts) => share_out(sharing, allowance.rps, parts),
            (None, [alone]) => alone.allowed_rps = allowance.rps,
            (None, parts) => share_out(&Sharing::Fair, allowance.rps, parts),
        }
        if self.is_learning() {
            return;
        }
        // What is spent of the burst is not to be gone on with by whoever loses this root.
        let spending = (allowance.rps / limit_rps).max(1.0);
        #[expect(clippy::cast_precision_loss, reason = "values of one bucket")]
        let floor_rps = FLOOR * limit_rps / members.len() as f64;
        for (key, member) in members.into_iter().zip(parts) {
            let allowance = Allowance { rps: member.allowed_rps, correction: allowance.correction };
            let root = Root { limit_rps, spending, floor_rps, demand_rps: member.demand_rps };
            match self.tier {
                Tier::Aggregator => self.grant_own(key, allowance, &root, plan),
                Tier::Controller => self.grant_children(key, allowance, &root, plan),
            }
        }
    }

    /// A key's demand, and what was admitted of it since the last step.
    fn member(&mut self, key: u32) -> (Member, f64) {
        let (now, window) = (self.now, self.tick);
        let most_silent = self.most_are_silent(key);
        let live_flight = self.flight_of_children(key);
        let back = self.zones_back(key);
        let none = Member { demand_rps: 0.0, usual_rps: 0.0, class: 0, allowed_rps: 0.0 };
        let Some((hot, cold)) = self.keys.both_mut(key) else { return (none, 0.0) };
        let Some(granting) = &mut cold.granting else { return (none, 0.0) };
        let serves_clients = granting.leaf.is_some();
        let mut admitted = match serves_clients {
            true => granting.admitted_by_clients(hot, now),
            false => counted(hot) + live_flight,
        };
        let (mut offered, mut usual) = (rps(hot.offered_micros), rps(hot.usual_micros));
        granting.silent.retain(|(zone, s)| !back.contains(zone) && !s.is_over(now, most_silent));
        for (_, silent) in &mut granting.silent {
            let weight = silent.weight(now, most_silent);
            admitted += silent.charge(now, weight);
            offered += silent.child.demand_rps * weight;
            usual += silent.child.usual_rps * weight;
        }
        if !serves_clients {
            granting.demand.see(now, offered, window, false);
        }
        let more = admitted - granting.charged - granting.forgiven;
        (granting.charged, granting.forgiven) = (admitted, 0.0);
        let demand_rps = granting.demand.rps();
        let member =
            Member { demand_rps, usual_rps: usual, class: granting.class, allowed_rps: 0.0 };
        (member, more)
    }

    /// Admitted by children that pass directives on, and in no count yet.
    fn flight_of_children(&self, key: u32) -> f64 {
        let Some(cold) = self.keys.get(key) else { return 0.0 };
        let now = self.now;
        let in_use = cold.users.iter().take(cold.in_use as usize);
        in_use
            .filter_map(|user| {
                let session = self.children.get(user.slot)?;
                let flight = session.passing(user.id)?.flight;
                let age = session.held(user.id)?.age(now).min(SILENT_AFTER);
                Some(flight.requests + flight.rps * age.as_secs_f64())
            })
            .sum()
    }

    /// The root serves the clients itself: all that is allowed is its own grant.
    fn grant_own(&mut self, key: u32, allowance: Allowance, root: &Root, plan: &mut Plan) {
        let (now, term) = (self.now, self.seen_term.max(self.term));
        let Some((hot, cold)) = self.keys.both_mut(key) else { return };
        let child = Child { demand_rps: rps(hot.offered_micros), usual_rps: rps(hot.usual_micros) };
        let sessions = hot.sessions;
        let Some(granting) = &mut cold.granting else { return };
        let split = root.split(allowance, std::iter::once(child));
        let what = if root.limit_rps <= LOW_LIMIT_RPS {
            What::Share(split.share())
        } else {
            let granted = split.of(&child);
            What::Grant(Grant { rps: granted, base_rps: granted / root.spending })
        };
        granting.told = Some(Told {
            what,
            at: now,
            until: Time::NEVER,
            limit_rps: root.limit_rps,
            sessions,
            term,
            above: (0, 0),
        });
        self.look(key, plan);
    }

    /// Shares what a key is allowed out among the children that use it.
    fn grant_children(&mut self, key: u32, allowance: Allowance, root: &Root, plan: &mut Plan) {
        let now = self.now;
        let parts = self.parts(key);
        let most_silent = self.most_are_silent(key);
        let Some((hot, cold)) = self.keys.both_mut(key) else { return };
        let (limit, bucket) = (cold.limit, cold.bucket);
        let Some(granting) = &mut cold.granting else { return };
        // What silent children go on admitting is not there for the others.
        let (mut reserved_rps, mut kept_rps, mut quiet) = (0.0, 0.0, 0.0);
        for (_, silent) in &granting.silent {
            let weight = silent.weight(now, most_silent);
            reserved_rps += silent.grant_rps * weight;
            kept_rps += silent.child.demand_rps * weight;
            quiet += f64::from(silent.sessions) * weight;
        }
        let allowance = Allowance { rps: (allowance.rps - reserved_rps).max(0.0), ..allowance };
        let root = Root { demand_rps: root.demand_rps - kept_rps, ..*root };
        let split = root.split(allowance, parts.iter().map(|p| p.child));
        granting.share = split.share();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a sum of u32")]
        let sessions = hot.sessions.saturating_add(quiet as u32);
        let mode = self.catalog.kind(bucket).map_or(Mode::Observe, |kind| kind.mode);
        let splits = self.switches.grants && root.limit_rps > LOW_LIMIT_RPS;
        for part in parts {
            let granted = split.of(&part.child);
            let value = if splits { granted } else { split.share() };
            let (window, demand_rps) = (self.tick, part.child.demand_rps);
            let Some(session) = self.children.get_mut(part.slot) else { continue };
            let Some(passing) = session.passing_mut(part.id) else { continue };
            let is_due = passing.rule.ask(now, value, split.share(), demand_rps, window);
            if !is_due && self.switches.events {
                continue;
            }
            passing.base_rps = granted / root.spending;
            let base_rps = passing.base_rps;
            let directive = Directive {
                admit: admit(split.share()),
                headroom: 0.0,
                sigma: narrow(split.share()),
                limit_rps: root.limit_rps,
                sessions,
                term: plan.term,
                seq: 0,
                ttl: self.grant_ttl,
                grant: splits.then_some(Grant { rps: granted, base_rps }),
            };
            let child = Some((part.slot, part.id));
            plan.push(Planned { key, child, limit, mode, directive });
        }
    }

    /// The children that use a key now.
    fn parts(&self, key: u32) -> Vec<Part> {
        let Some(cold) = self.keys.get(key) else { return Vec::new() };
        let in_use = cold.users.iter().take(cold.in_use as usize);
        in_use
            .filter_map(|user| {
                let held = self.children.get(user.slot)?.held(user.id)?;
                let (demand_rps, usual_rps) = (held.rate_rps.into(), held.usual_rps().into());
                let child = Child { demand_rps, usual_rps };
                Some(Part { child, slot: user.slot, id: user.id })
            })
            .collect()
    }

    /// Whether more than half of the children that use a key are silent: then it is this node that
    /// is cut off.
    fn most_are_silent(&self, key: u32) -> bool {
        let Some(cold) = self.keys.get(key) else { return false };
        let Some(granting) = &cold.granting else { return false };
        let silent = granting.silent.len();
        silent > cold.in_use as usize || !self.switches.decay
    }

    /// Whether this root is too young to know what its children were told before.
    fn is_learning(&self) -> bool {
        self.tier == Tier::Controller
            && self.now.since(self.began) < LEARN_FOR
            && self.children.iter().any(|s| s.seq == 0)
    }

    /// A child is gone, or not heard of for long: what it was granted stays charged.
    pub(super) fn begin_silence(&mut self, slot: u32) {
        if self.tier != Tier::Controller || self.law != Law::Grant {
            return;
        }
        let Some(session) = self.children.get(slot) else { return };
        let (zone, heard) = (session.zone.clone(), session.heard);
        let in_use: Vec<KeyId> =
            session.iter().filter(|(_, h)| h.is_in_use()).map(|(id, _)| id).collect();
        for id in in_use {
            self.fall_silent(slot, id, &zone, heard);
        }
    }

    fn fall_silent(&mut self, slot: u32, id: KeyId, zone: &Name, heard: Time) {
        let Some(session) = self.children.get(slot) else { return };
        let (Some(held), Some(passing)) = (session.held(id), session.passing(id)) else { return };
        let (held, flight, base_rps) = (*held, passing.flight, passing.base_rps);
        let others = self.keys.get(held.key).is_some_and(|cold| {
            let in_use = cold.users.iter().take(cold.in_use as usize);
            in_use
                .filter(|u| u.slot != slot)
                .any(|u| self.children.get(u.slot).is_some_and(|s| s.zone == *zone))
        });
        if let Some(granting) = self.keys.granting_mut(held.key)
            && granting.pool.is_some()
            && !others
        {
            let (demand_rps, usual_rps) = (held.rate_rps.into(), held.usual_rps().into());
            let child = Child { demand_rps, usual_rps };
            let silent = Silent::new(child, held.sessions, base_rps, heard, flight);
            granting.silent.retain(|(name, _)| name != zone);
            granting.silent.push((zone.clone(), silent));
        }
        self.keys.activate(held.key);
        self.zero_rate(slot, id);
        self.touch(held.key);
    }

    /// Silent zones of a key that are heard of again, and have not spoken of it for so long that it is
    /// not in use there.
    fn zones_back(&self, key: u32) -> Vec<Name> {
        let silent = self.keys.granting(key).map_or(&[][..], |g| &g.silent);
        let is_back = |zone: &Name| {
            self.children.iter().any(|s| {
                s.zone == *zone
                    && self.now.since(s.heard) <= SILENT_AFTER
                    && self.now.since(s.lively) > BACK_WITHIN
            })
        };
        silent.iter().map(|(zone, _)| zone).filter(|zone| is_back(zone)).cloned().collect()
    }
}

/// What is the same for all keys of a limit.
struct Root {
    limit_rps: f64,
    spending: f64,
    floor_rps: f64,
    demand_rps: f64,
}

impl Root {
    fn split(&self, allowance: Allowance, children: impl Iterator<Item = Child>) -> Split {
        Split::new(allowance, self.demand_rps, self.floor_rps, children)
    }
}

/// The ratio that admits `share` of what is offered: something, unless nothing may pass.
fn admit(share: f64) -> AdmitRatio {
    AdmitRatio::from_share(share).max(AdmitRatio::from_bits(1))
}

#[expect(clippy::cast_possible_truncation, reason = "seven digits are enough for a guard")]
fn narrow(number: f64) -> f32 {
    number.clamp(0.0, 1e9) as f32
}
