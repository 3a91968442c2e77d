//! The tick: rates, the law for keys whose root is here, and what follows for the children. It
//! costs the keys in use.

use std::time::Duration;

use sluicegate_model::{AdmitRatio, Counts, Directive, Invariant, Law, Limit, Term, Time};

use super::Node;
use super::catalog::Kind;
use super::keys::{Cached, Cold, Control, Hot, rps};
use crate::grant::STEP;
use crate::ratio::Observed;
use crate::{Plan, Planned, Violation};

/// Under `grant`, rates that are shown are over this, or a little more.
const RATED_OVER: Duration = Duration::from_secs(1);

/// What all keys share in one tick.
struct Moment {
    now: Time,
    elapsed: Duration,
    tick: Duration,
    ttl: Duration,
    term: Term,
}

impl Node {
    /// Acknowledgements, heartbeats and silent children, as far as they are due.
    pub fn handle_timeout(&mut self, now: Time) {
        self.advance(now);
        self.release_due(self.now);
    }

    /// One step of the law for every key in use whose root is here. What comes out is published
    /// with [`Node::publish`]. Call it when [`Node::is_tick_due`].
    #[must_use]
    pub fn plan(&mut self, now: Time) -> Plan {
        self.advance(now);
        let moment = Moment {
            now: self.now,
            elapsed: self.now.since(self.last_tick),
            tick: self.tick,
            ttl: self.ttl,
            term: self.seen_term.max(self.term),
        };
        self.last_tick = self.now;
        let step = self.step();
        self.next_tick = self.next_tick + step;
        if self.next_tick <= self.now {
            self.next_tick = self.now + step;
        }
        self.check_bounds();
        let mut plan = self.empty_plan();
        self.plan_grants(&mut plan);
        let is_rated = self.rate_if_due();
        // From the end, so that taking a key off the list leaves those to come in their places.
        for place in (0..self.keys.active().len()).rev() {
            let key = self.keys.active()[place];
            let Some((hot, cold)) = self.keys.both_mut(key) else { continue };
            let is_granted = cold.granting.is_some();
            if is_granted && is_rated.is_none() {
                continue;
            }
            let span = if is_granted { is_rated.unwrap_or_default() } else { moment.elapsed };
            let Counts { offered, admitted, would_drop, .. } = hot.counts;
            let counted = [offered, admitted, would_drop];
            let mut moved = counted;
            moved.iter_mut().zip(cold.at_tick).for_each(|(n, before)| *n -= before);
            cold.at_tick = counted;
            cold.rates = moved.map(|count| per_second(count, span));
            let charged = moved[1].saturating_sub(moved[2]);
            if let Some(kind) = self.catalog.kind(cold.bucket)
                && cold.control == Control::Root
                && !is_granted
                && let Some(directive) = direct(hot, cold, charged, &moment)
            {
                let Kind { mode, .. } = kind;
                plan.push(Planned { key, child: None, limit: cold.limit, mode, directive });
            }
            let is_waiting = cold.granting.as_ref().is_some_and(|g| !g.silent.is_empty());
            let is_idle = hot.offered_micros == 0 && hot.sessions == 0 && !is_waiting;
            if moved == [0; 3] && is_idle {
                self.keys.deactivate(key);
            }
        }
        plan
    }

    /// Sends what a plan says to the children that use the keys, except for directives that would
    /// break a promise: those are left out and counted by the promise.
    pub fn publish(&mut self, plan: Plan) -> Vec<Violation> {
        let violations = plan.check();
        for violation in &violations {
            self.counters.broke(violation.invariant);
        }
        let mut broken = violations.iter().map(|v| v.place).peekable();
        for (place, planned) in plan.set.into_iter().enumerate() {
            if broken.next_if_eq(&place).is_none() {
                self.set_directive(planned);
            }
        }
        violations
    }

    fn set_directive(&mut self, planned: Planned) {
        let Planned { key, child, directive, .. } = planned;
        let (made, expires) = (self.now, self.now + directive.ttl);
        let cached = Cached { directive, expires, made, above: (0, 0) };
        self.seq = self.seq.max(directive.seq);
        if let Some((slot, id)) = child {
            self.send_to(slot, id, cached);
            return;
        }
        let Some(cold) = self.keys.get_mut(key) else { return };
        let to_all = cold.in_use == 0;
        cold.cached = Some(Box::new(cached));
        self.fan_out(key, to_all);
    }

    pub(super) fn empty_plan(&self) -> Plan {
        Plan {
            term: self.seen_term.max(self.term),
            seq_before: self.seq,
            max_ttl: self.ttl,
            max_grant_ttl: self.grant_ttl,
            set: Vec::new(),
        }
    }

    /// From one tick to the next: under `grant` ticks are more frequent than reports need be.
    fn step(&self) -> Duration {
        match self.law {
            Law::Ratio => self.tick,
            Law::Grant => self.tick.min(STEP),
        }
    }

    /// Works out the rates that are shown, over at least a tick of the law `ratio`. Says over how
    /// long, if they are due.
    fn rate_if_due(&mut self) -> Option<Duration> {
        let span = self.now.since(self.rated);
        let over = match self.law {
            Law::Ratio => Duration::ZERO,
            Law::Grant => RATED_OVER,
        };
        if span < over {
            return None;
        }
        self.rated = self.now;
        self.rate_services(span);
        Some(span)
    }

    fn check_bounds(&mut self) {
        let buckets = self.catalog.bucket_count();
        let too_many_keys = self.keys.live() > self.limits.max_keys.saturating_add(2 * buckets);
        if too_many_keys || self.children.len() > self.limits.max_sessions {
            debug_assert!(false, "{}: more keys or sessions than allowed", Invariant::I9);
            self.counters.broke(Invariant::I9);
        }
    }

    fn rate_services(&mut self, elapsed: Duration) {
        for service in self.catalog.services_mut() {
            let delta = service.totals.since(&service.totals_at_tick);
            service.totals_at_tick = service.totals;
            service.attempts_rps = per_second(delta.attempts, elapsed);
            service.admitted_rps = per_second(delta.admitted, elapsed);
        }
    }
}

/// One step of the law, and the directive that follows if it must be sent. Its number is not set.
fn direct(hot: &Hot, cold: &mut Cold, charged: u64, moment: &Moment) -> Option<Directive> {
    let observed = Observed {
        elapsed: moment.now.since(cold.credit_at),
        tick: moment.tick,
        offered_rps: rps(hot.offered_micros),
        charged,
    };
    cold.credit_at = moment.now;
    let admit = cold.credit.step(&cold.limit, &observed);
    let limit_rps = cold.limit.rate_rps().unwrap_or(f64::INFINITY);
    let last = cold.cached.as_ref().filter(|c| c.expires > moment.now);
    let news = match last {
        // An unlimited key needs no directive, except to take an older one back.
        None => cold.limit != Limit::Unlimited,
        Some(c) => {
            let d = &c.directive;
            let same = d.admit == admit && d.limit_rps.to_bits() == limit_rps.to_bits();
            let due = cold.limit != Limit::Unlimited
                && c.made + moment.ttl / 4 < moment.now + moment.tick;
            !same || d.term != moment.term || due
        }
    };
    debug_assert!(cold.limit != Limit::Unlimited || admit == AdmitRatio::ALL);
    news.then_some(Directive {
        admit,
        headroom: 0.0,
        sigma: 0.0,
        grant: None,
        limit_rps,
        sessions: hot.sessions,
        term: moment.term,
        seq: 0,
        ttl: moment.ttl,
    })
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "a rate to be shown; seven digits are enough"
)]
fn per_second(count: u64, elapsed: Duration) -> f32 {
    if elapsed.is_zero() { 0.0 } else { (count as f64 / elapsed.as_secs_f64()) as f32 }
}
