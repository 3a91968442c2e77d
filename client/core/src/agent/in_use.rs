//! One key in use: its level, its directive, its rates, and what its slot is told.
//!
//! It drives one slot of the table; it knows no other key, no ledger and no messages.

use std::time::Duration;

use sluicegate_model::{
    AdmitRatio, Counts, Directive, Law, Limit, Mode, OnControlLoss, Term, Time,
};

use super::cap::{BUDGET_HORIZON, Cap, Flow};
use super::control::{Control, Loss, Moment, Share, Verdict};
use super::guard::{LOW_LIMIT_RPS, Terms};
use super::ledger::Stated;
use super::rates::{GONE_AFTER, Kind, MIN_BETWEEN_EARLY, Rates, Statement, Timing};
use super::softened::Softened;
use crate::{Keeper, KeyHandle};

/// What stands for [`GONE_AFTER`] for a busy key with a low limit, which many clients use seldom:
/// each of their requests must meet the ratio that all of them together have come to.
const GONE_AFTER_IF_LOW: Duration = Duration::from_secs(60);

/// The longest time that a drop tells its caller to wait.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);

/// What is kept of a key in use.
#[derive(Debug)]
pub(super) struct InUse {
    pub(super) key: KeyHandle,
    /// `None` without a limit, and for a limit of 0.
    flow: Option<Flow>,
    /// A limit of 0.
    denies_all: bool,
    /// That, raised by a directive: what the level belongs to.
    level_of: Flow,
    cap: Cap,
    on_loss: OnControlLoss,
    control: Control,
    /// Term and number of its last directive on this stream.
    newest: (Term, u64),
    share: Option<Box<Share>>,
    /// What the slot was told last, but for [`Self::enforced`].
    told: Option<Verdict>,
    /// The ratio in the slot.
    enforced: AdmitRatio,
    /// Of a bucket that enforces only a part of its drops.
    softened: Option<Softened>,
    budget: Option<u64>,
    /// The cap was off at some time since the last look.
    was_off: bool,
    retry_after: Duration,
    /// Since the last tick.
    matched: u64,
    offered: u64,
    /// The last tick saw no request.
    quiet: bool,
    /// Under the law `grant`.
    granting: Option<Box<Granting>>,
}

/// What the law `grant` adds.
#[derive(Debug)]
struct Granting {
    rates: Rates,
    terms: Option<Terms>,
    /// In use, whether there are requests or not.
    stands: bool,
    guarded: bool,
    guard: Option<Cap>,
    guard_of: Flow,
}

impl Granting {
    fn new(keeper: &Keeper, key: KeyHandle, timing: &Timing, since: Time) -> Box<Self> {
        let asked = keeper.bucket(key).is_some_and(|b| b.guard && !b.is_softened());
        Box::new(Self {
            rates: Rates::new(since),
            terms: None,
            stands: false,
            guarded: asked && timing.switches.guard,
            guard: None,
            guard_of: Flow { rate_rps: 0.0, depth: 0.0 },
        })
    }

    /// Takes `admitted` since the last call out of the guard. `active` is whether the directive, or
    /// the ramp after it, goes on.
    fn guard(&mut self, now: Time, acked: Stated, admitted: u64, active: bool, tick: Duration) {
        let terms = self.terms.filter(|_| self.guarded && active);
        let dispersion = self.rates.dispersion();
        let Some(flow) = terms.and_then(|t| t.guard(now, acked, dispersion, tick)) else {
            self.guard = None;
            return;
        };
        // What has flowed so far has flowed at the old rate.
        match &mut self.guard {
            Some(guard) => guard.take(&self.guard_of, admitted, now),
            None => self.guard = Some(Cap::full(&flow, now)),
        }
        self.guard_of = flow;
    }

    fn guard_budget(&self) -> Option<u64> {
        self.guard.map(|guard| guard.budget(&self.guard_of, Duration::ZERO))
    }
}

impl InUse {
    /// A key whose level was full, and which was offered nothing, until `since`.
    pub(super) fn new(
        keeper: &Keeper,
        key: KeyHandle,
        since: Time,
        law: Law,
        timing: &Timing,
    ) -> Self {
        let limit = keeper.limit(key);
        let flow = match limit {
            limit if limit.denies_all() => None,
            Limit::Unlimited => None,
            Limit::Tokens(rate) => Some(Flow::from(rate)),
        };
        let bucket = keeper.bucket(key);
        let on_loss = bucket.map_or(OnControlLoss::Open, |b| b.on_control_loss);
        let softened = bucket.is_some_and(|b| b.is_softened() && b.mode == Mode::Deny);
        let level_of = flow.unwrap_or(Flow { rate_rps: 0.0, depth: 0.0 });
        let one_token_s = if level_of.rate_rps > 0.0 { 1.0 / level_of.rate_rps } else { 0.0 };
        let one_token = Duration::from_secs_f64(one_token_s.min(MAX_RETRY_AFTER.as_secs_f64()));
        Self {
            key,
            flow,
            denies_all: limit.denies_all(),
            level_of,
            cap: Cap::full(&level_of, since),
            on_loss,
            control: Control::Free { since },
            newest: (0, 0),
            share: (on_loss == OnControlLoss::Share).then(|| Box::new(Share::new(since))),
            told: None,
            enforced: AdmitRatio::ALL,
            softened: softened.then(Softened::default),
            budget: None,
            was_off: false,
            retry_after: one_token.max(timing.tick).min(MAX_RETRY_AFTER),
            matched: 0,
            offered: 0,
            quiet: false,
            granting: (law == Law::Grant).then(|| Granting::new(keeper, key, timing, since)),
        }
    }

    /// It was offered nothing until `since`.
    pub(super) fn offer_from(&mut self, since: Time) {
        if let Some(granting) = &mut self.granting {
            granting.rates = Rates::new(since);
        }
    }

    /// Whether a directive for it should be there before its first request.
    pub(super) fn is_low(&self) -> bool {
        self.flow.is_some_and(|flow| flow.rate_rps <= LOW_LIMIT_RPS)
    }

    /// It is in use from now on, whether there are requests or not.
    pub(super) fn stand(&mut self) {
        if let Some(granting) = &mut self.granting {
            granting.stands = true;
            granting.rates.stand();
        }
    }

    pub(super) fn stands(&self) -> bool {
        self.granting.as_ref().is_some_and(|g| g.stands)
    }

    /// Goes on from what it was before its bucket changed.
    pub(super) fn follow(&mut self, before: Self) {
        if before.flow.is_some() && self.flow.is_some() {
            (self.control, self.cap, self.level_of) = (before.control, before.cap, before.level_of);
            self.share = self.share.take().map(|new| before.share.unwrap_or(new));
        }
        self.softened = self.softened.map(|new| before.softened.unwrap_or(new));
        (self.matched, self.offered) = (before.matched, before.offered);
        self.newest = before.newest;
        if let (Some(new), Some(old)) = (&mut self.granting, before.granting) {
            // What a directive of the old limit says, says nothing of a guard of the new one.
            new.rates = old.rates;
        }
    }

    /// The law is another from now on.
    pub(super) fn obey(&mut self, keeper: &Keeper, law: Law, timing: &Timing, now: Time) {
        self.granting = match (law, self.granting.take()) {
            (Law::Ratio, _) => None,
            (Law::Grant, Some(kept)) => Some(kept),
            (Law::Grant, None) => Some(Granting::new(keeper, self.key, timing, now)),
        };
    }

    /// Another stream numbers its directives anew.
    pub(super) fn start_stream(&mut self) {
        self.newest = (0, 0);
    }

    /// Whether what was counted must be booked before another ratio applies.
    pub(super) fn is_booked_by_ratio(&self) -> bool {
        self.softened.is_some() || self.granting.is_some()
    }

    /// While it rested, nobody followed its level.
    pub(super) fn forgive(&mut self) {
        self.was_off = true;
    }

    /// Takes in what was counted since the last call, and tells the slot what follows. What went
    /// through too much is marked in `more`.
    pub(super) fn take(
        &mut self,
        more: &mut Counts,
        acked: Stated,
        moment: &Moment,
        tick: Duration,
    ) {
        self.matched += more.matched;
        self.offered += more.offered;
        if let (Some(softened), Some(told)) = (&mut self.softened, self.told) {
            softened.book(more, told.admit, self.enforced);
        }
        if let Some(granting) = &mut self.granting {
            granting.rates.see(moment.now, more.offered);
        }
        if self.flow.is_none() {
            return;
        }
        if let Some(share) = &mut self.share {
            share.observe(moment, self.control.is_moving(), more.offered, more.charged());
        }
        if std::mem::take(&mut self.was_off) {
            // What passed while the cap was off is nobody's debt.
            self.cap = Cap::full(&self.level_of, moment.now);
        } else {
            self.cap.take(&self.level_of, more.charged(), moment.now);
        }
        if let Some(granting) = &mut self.granting {
            let active = self.control.is_guarded(moment);
            granting.guard(moment.now, acked, more.charged(), active, tick);
        }
        if more.charged() > 0 {
            self.budget = None;
        }
    }

    /// A directive came. Whether it is newer than the last one.
    pub(super) fn direct(&mut self, directive: &Directive, now: Time) -> bool {
        if (directive.term, directive.seq) < self.newest {
            return false;
        }
        self.newest = (directive.term, directive.seq);
        self.control = Control::hold(directive, now);
        if let Some(granting) = &mut self.granting {
            granting.terms = Some(Terms::new(directive, now));
        }
        true
    }

    /// The guard follows a directive that just came.
    pub(super) fn guard(&mut self, acked: Stated, moment: &Moment, tick: Duration) {
        let active = self.flow.is_some() && self.control.is_guarded(moment);
        if let Some(granting) = &mut self.granting {
            granting.guard(moment.now, acked, 0, active, tick);
        }
    }

    /// Works out what the slot should do, and tells it what is new. `used` is when the key last saw
    /// a request.
    pub(super) fn apply(&mut self, keeper: &mut Keeper, moment: &Moment, used: Time) {
        let Some(flow) = self.flow else {
            if self.denies_all && self.told.is_none() {
                self.enforce(keeper, Verdict { admit: AdmitRatio::NONE, capped: false });
            }
            return;
        };
        self.control.advance(moment, used);
        let share = self.share.as_ref().map_or(AdmitRatio::ALL, |s| s.admit(moment.ttl));
        let verdict = self.control.verdict(moment, self.on_loss, share);
        let level_of = flow.raised_to(self.control.limit_rps().unwrap_or(flow.rate_rps));
        let capped = verdict.capped && level_of.rate_rps.is_finite() && self.softened.is_none();
        if level_of != self.level_of && capped {
            self.cap.change(&self.level_of, &level_of);
            self.level_of = level_of;
        }
        self.was_off |= !capped;
        let cap = capped.then(|| self.cap.budget(&self.level_of, BUDGET_HORIZON));
        let guard = self.granting.as_ref().and_then(|g| g.guard_budget());
        let budget = cap.map_or(guard, |cap| Some(guard.map_or(cap, |guard| guard.min(cap))));
        let was_free = self.told.is_some_and(|told| !told.capped) && self.budget.is_none();
        if self.budget != budget || budget.is_none() && !was_free {
            keeper.set_budget(self.key, budget);
            self.budget = budget;
        }
        self.enforce(keeper, Verdict { admit: verdict.admit, capped: budget.is_some() });
    }

    fn enforce(&mut self, keeper: &mut Keeper, verdict: Verdict) {
        if self.told.is_none_or(|told| told.admit != verdict.admit) {
            self.enforced = match self.softened.and(keeper.bucket(self.key)) {
                Some(bucket) => bucket.softened(verdict.admit),
                None => verdict.admit,
            };
            keeper.set_admit(self.key, self.enforced, self.retry_after);
        }
        self.told = Some(verdict);
    }

    /// Threads count it apart from now on: their cells have no budget yet.
    pub(super) fn lose_budget(&mut self) {
        self.budget = None;
    }

    /// What was matched and offered since the last call, which each tick makes.
    pub(super) fn take_tick(&mut self) -> (u64, u64) {
        self.quiet = self.matched == 0;
        (std::mem::take(&mut self.matched), std::mem::take(&mut self.offered))
    }

    /// Whether nothing would be lost if it were forgotten, apart from what its slot is told.
    pub(super) fn may_rest(&self, moment: &Moment) -> bool {
        let told = self.granting.as_ref().is_none_or(|g| g.rates.is_gone());
        if !self.quiet || !told {
            return false;
        }
        let settled = match self.control {
            Control::Free { .. } => true,
            // Follows from the time alone when the key is used again, once the ramp is over.
            Control::Lost { since, why: Loss::Silent, .. } => {
                moment.now.since(since) >= moment.ramp
            }
            Control::Lost { .. } | Control::Held { .. } => false,
        };
        self.flow.is_none() || (settled && self.cap.is_full(&self.level_of))
    }

    /// The slot is told something else than to admit what the limit allows.
    pub(super) fn is_odd(&self) -> bool {
        self.told.is_some_and(|told| told != Verdict::FREE)
    }

    /// A budget that is good for `reach`, for a key that will not be looked at for so long.
    pub(super) fn set_last_budget(&self, keeper: &mut Keeper, reach: Duration) {
        if self.flow.is_some() && self.told.is_some_and(|told| told.capped) {
            keeper.set_budget(self.key, Some(self.cap.budget(&self.level_of, reach)));
        }
    }

    /// A look of `span` is over: what is due besides ticks.
    pub(super) fn end_look(
        &mut self,
        acked: Stated,
        admitted: u64,
        now: Time,
        span: Duration,
        timing: &Timing,
    ) -> Option<Due> {
        let is_low = self.is_low();
        let granting = self.granting.as_mut()?;
        granting.rates.end_slot(span);
        if self.flow.is_none() {
            return None;
        }
        let (directed, terms) = (self.control.is_held(), granting.terms);
        let is_worth = |n: f64, span: Duration| match terms.filter(|_| directed) {
            Some(terms) => {
                terms.is_busy()
                    || timing.switches.own_share && terms.is_much(n, span, acked, MIN_BETWEEN_EARLY)
            }
            None => true,
        };
        if let Some(kind) = granting.rates.due(now, timing.switches, is_worth) {
            return granting.rates.state(now, kind, timing).map(Due::Stated);
        }
        (timing.switches.on_admit && is_low && admitted > 0).then_some(Due::Counts)
    }

    /// Whether it is reported at each tick, not only at slow ones: it is busy, or without a directive
    /// that says so.
    fn is_hot(&self) -> bool {
        let terms = self.granting.as_ref().and_then(|g| g.terms).filter(|_| self.control.is_held());
        self.flow.is_some() && terms.is_none_or(|t| t.is_busy())
    }

    /// What a tick states of it under the law `grant`, if it is due.
    pub(super) fn tick(&mut self, now: Time, is_slow: bool, timing: &Timing) -> Option<Statement> {
        let (is_hot, is_low) = (self.is_hot(), self.is_low());
        let granting = self.granting.as_mut()?;
        if !(is_slow || is_hot) || granting.rates.awaits_follow_up() {
            return None;
        }
        if !granting.stands {
            granting.rates.stay(if is_hot && is_low { GONE_AFTER_IF_LOW } else { GONE_AFTER });
        }
        granting.rates.state(now, Kind::Tick, timing)
    }

    /// Whether reports say that this client uses it.
    pub(super) fn is_told(&self) -> bool {
        self.granting.as_ref().is_some_and(|g| !g.rates.is_gone())
    }

    /// How soon it will be reported again.
    pub(super) fn pace(&self) -> Pace {
        match &self.granting {
            Some(granting) if granting.rates.is_quiet() => Pace::Quiet,
            _ if self.is_hot() => Pace::EachTick,
            _ => Pace::SlowTicks,
        }
    }
}

/// What is to be reported of a key besides what ticks say.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Due {
    Stated(Statement),
    /// Its counts, with the rates that were said last.
    Counts,
}

/// How often a key is reported, the least often first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Pace {
    Quiet,
    SlowTicks,
    EachTick,
}
