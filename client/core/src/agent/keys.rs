//! The agent's view of every key: a small record for each, a larger one while it is in use, and
//! what a look does with those.
//!
//! It drives the table's owner and the ledger; it knows no messages and no stream.

use std::time::Duration;

use sluicegate_model::{AdmitRatio, Counts, Directive, Limit, OnControlLoss, Term, Time};

use super::cap::{BUDGET_HORIZON, Cap, Flow};
use super::control::{Control, Loss, Moment, Share, Verdict};
use super::ledger::{Ledger, LineId};
use super::meters::AgentCounters;
use crate::grow::make_room;
use crate::{Keeper, KeyEvent, KeyHandle, Settings};

/// From this rate on (in this client) threads count a key apart.
pub(super) const PROMOTE_RPS: f64 = 1000.0;
/// The most identities and values taken from the queue at one look.
pub(super) const MAX_ADOPTED_PER_LOOK: usize = 256;
/// How many resting keys a look examines for eviction.
pub(super) const EXAMINED_PER_LOOK: usize = 16;
/// How many resting keys without values a look examines for traffic, at least.
const RESTING_PER_LOOK: usize = 64;
/// The longest nap. Nothing can wake a sleeping agent, so it must end before a budget does.
pub(super) const MAX_NAP: Duration = Duration::from_millis(40);
/// In at most so many looks every resting key without values is examined.
const MAX_ROUND_LOOKS: usize = 32;
/// The longest time that a drop tells its caller to wait.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);

const RESTING: u32 = u32::MAX;

/// What is kept of every key.
#[derive(Debug)]
struct Key {
    line: LineId,
    /// Its place in `in_use`, or [`RESTING`].
    place: u32,
    /// The totals at the last look.
    read: Counts,
    /// When it last saw a request.
    used: Time,
    promoted: bool,
    /// It rests with something else than "admit everything" in its slot.
    odd: bool,
}

/// What is kept of a key in use.
#[derive(Debug)]
struct InUse {
    key: KeyHandle,
    /// `None` without a limit, and for a limit of 0: the table knows what to do then.
    flow: Option<Flow>,
    /// That, raised by a directive: what the level belongs to.
    level_of: Flow,
    cap: Cap,
    on_loss: OnControlLoss,
    control: Control,
    /// Term and number of its last directive on this stream.
    newest: (Term, u64),
    share: Option<Box<Share>>,
    /// What the slot was told last.
    told: Option<Verdict>,
    budget: Option<u64>,
    /// The cap was off at some time since the last look.
    was_off: bool,
    retry_after: Duration,
    /// Since the last tick.
    matched: u64,
    offered: u64,
    /// The last tick saw no request.
    quiet: bool,
}

/// All keys.
pub(super) struct Keys {
    tick: Duration,
    look: Duration,
    value_idle: Duration,
    all: Vec<Option<Key>>,
    in_use: Vec<InUse>,
    touched: Vec<KeyHandle>,
    fresh: Vec<KeyHandle>,
    /// Keys without values, in use or not.
    whole: usize,
    longest_round: usize,
    /// Whose turn it is among them.
    turn: usize,
    looked: Time,
    examined: usize,
}

impl Keys {
    pub(super) fn new(settings: &Settings, now: Time) -> Self {
        Self {
            tick: settings.tick,
            look: settings.look,
            value_idle: settings.value_idle,
            all: Vec::new(),
            in_use: Vec::new(),
            touched: Vec::new(),
            fresh: Vec::new(),
            whole: 0,
            longest_round: 1,
            turn: 0,
            looked: now,
            examined: 0,
        }
    }

    /// Follows the table: keys that came, changed and went.
    pub(super) fn follow(
        &mut self,
        keeper: &mut Keeper,
        ledger: &mut Ledger,
        meters: &AgentCounters,
        moment: &Moment,
    ) {
        while let Some(event) = keeper.poll_event() {
            match event {
                KeyEvent::New(key) => {
                    self.fresh.push(key);
                    let at = key.index();
                    if self.all.len() <= at {
                        let more = at + 1 - self.all.len();
                        make_room(&mut self.all, more);
                        self.all.resize_with(at + 1, || None);
                    }
                    self.all[at] = Some(Key {
                        line: ledger.open(key),
                        place: RESTING,
                        read: Counts::default(),
                        used: moment.now,
                        promoted: false,
                        odd: false,
                    });
                    self.whole += usize::from(!keeper.is_value(key));
                }
                KeyEvent::Changed(key) => {
                    let rested = self.is_resting(key);
                    let place = self.wake(keeper, key, moment);
                    if let Some(place) = place {
                        // What passed since the last look passed under the old limit; while it
                        // rested, nobody followed the level of that.
                        self.in_use[place].was_off |= rested;
                        self.visit(place, keeper, ledger, moment);
                    }
                    self.change(keeper, key, moment);
                    if rested {
                        self.fresh.push(key);
                    }
                }
                KeyEvent::Retired(key) => {
                    self.retire(keeper, ledger, meters, key);
                    keeper.release(key);
                }
            }
        }
        self.begin(keeper, moment);
    }

    /// Tells the slots of keys that are new, or were changed while they rested, what applies, and
    /// lets them rest: many are never used. When a round takes longer than before, so must the
    /// budgets of all who wait for their turn.
    fn begin(&mut self, keeper: &mut Keeper, moment: &Moment) {
        let round = self.round_looks();
        let mut fresh = std::mem::take(&mut self.fresh);
        if round > self.longest_round {
            self.longest_round = round;
            let all = (0..self.all.len()).map(handle_at);
            fresh.extend(all.filter(|k| self.is_resting(*k) && !keeper.is_value(*k)));
        }
        for key in fresh.drain(..) {
            if let Some(place) = self.wake(keeper, key, moment) {
                self.rest(place, keeper);
            }
        }
        self.fresh = fresh;
    }

    fn is_resting(&self, key: KeyHandle) -> bool {
        let known = self.all.get(key.index()).and_then(Option::as_ref);
        known.is_some_and(|k| k.place == RESTING)
    }

    /// Looks at every key that may have seen a request, and every key in use. Whether any did.
    pub(super) fn look(
        &mut self,
        keeper: &mut Keeper,
        ledger: &mut Ledger,
        moment: &Moment,
    ) -> bool {
        let (round, turn) = (self.round_looks(), self.turn);
        // As many turns as time has gone by, so that a nap does not lengthen the round.
        let span = moment.now.since(self.looked).as_nanos() / self.look.as_nanos().max(1);
        let turns = usize::try_from(span).unwrap_or(round).clamp(1, round);
        self.turn = turn.wrapping_add(turns);
        let mut touched = std::mem::take(&mut self.touched);
        keeper.take_touched(|key| touched.push(key));
        for key in touched.drain(..) {
            // Keys without values are always named, so they are asked in turn.
            let in_turn = key.index().wrapping_sub(turn) & (round - 1) < turns;
            if !in_turn && !keeper.is_value(key) {
                continue;
            }
            let Some(Some(known)) = self.all.get(key.index()) else { continue };
            if known.place == RESTING && keeper.totals(key) != known.read {
                self.wake(keeper, key, moment);
            }
        }
        self.touched = touched;
        self.looked = moment.now;
        let mut moved = false;
        for place in 0..self.in_use.len() {
            moved |= self.visit(place, keeper, ledger, moment);
        }
        moved
    }

    /// States the rates of the interval that ends now, and lets keys rest that are not used.
    pub(super) fn tick(
        &mut self,
        keeper: &mut Keeper,
        ledger: &mut Ledger,
        meters: &AgentCounters,
        moment: &Moment,
        interval: Duration,
    ) {
        let seconds = interval.as_secs_f64();
        for used in &mut self.in_use {
            let Some(Some(key)) = self.all.get_mut(used.key.index()) else { continue };
            let (matched, offered) = (used.matched, used.offered);
            used.quiet = matched == 0;
            (used.matched, used.offered) = (0, 0);
            #[expect(clippy::cast_precision_loss, reason = "counts of a tick, below 2^52")]
            let (matched_rps, offered_rps) = (matched as f64 / seconds, offered as f64 / seconds);
            #[expect(clippy::cast_possible_truncation, reason = "seven digits do for a rate")]
            ledger.gauge(key.line, offered_rps as f32, matched > 0);
            if matched_rps >= PROMOTE_RPS && !key.promoted {
                key.promoted = keeper.promote(used.key);
                used.budget = None;
                let counter =
                    if key.promoted { &meters.keys_promoted } else { &meters.promotions_refused };
                counter.hit();
            }
        }
        let rest_after = (self.tick * 2).max(Duration::from_secs(1));
        let mut place = 0;
        while place < self.in_use.len() {
            if self.may_rest(place, moment, rest_after) {
                self.rest(place, keeper);
            } else {
                place += 1;
            }
        }
        // A crowd that was here once is no reason to keep room for it.
        if self.in_use.capacity() / 4 > self.in_use.len().max(1024) {
            self.in_use.shrink_to(self.in_use.len() * 2);
        }
    }

    /// Applies a directive at once. Whether it was newer than the last one of its key.
    pub(super) fn direct(
        &mut self,
        keeper: &mut Keeper,
        key: KeyHandle,
        directive: &Directive,
        moment: &Moment,
    ) -> bool {
        let Some(place) = self.wake(keeper, key, moment) else { return false };
        let Some(Some(known)) = self.all.get(key.index()) else { return false };
        let (used, used_at) = (&mut self.in_use[place], known.used);
        if (directive.term, directive.seq) < used.newest {
            return false;
        }
        used.newest = (directive.term, directive.seq);
        used.control = Control::hold(directive, moment.now);
        used.apply(keeper, moment, used_at);
        true
    }

    /// A new stream numbers its directives anew.
    pub(super) fn start_stream(&mut self) {
        self.in_use.iter_mut().for_each(|used| used.newest = (0, 0));
    }

    /// The control plane, thought lost, is there: keys that rest must not go on as if it were not.
    pub(super) fn wake_odd(&mut self, keeper: &mut Keeper, moment: &Moment) {
        for at in 0..self.all.len() {
            let odd = self.all[at].as_ref().is_some_and(|k| k.odd && k.place == RESTING);
            if odd {
                let handle = handle_at(at);
                self.wake(keeper, handle, moment);
            }
        }
    }

    /// Gives up value keys that have been idle for long, a few at each look. Only those that rest:
    /// their directive has run out, so a value that comes back gets no better than it had.
    pub(super) fn evict(
        &mut self,
        keeper: &mut Keeper,
        ledger: &Ledger,
        meters: &AgentCounters,
        now: Time,
    ) {
        for _ in 0..EXAMINED_PER_LOOK.min(self.all.len()) {
            self.examined = (self.examined + 1) % self.all.len();
            let Some(key) = &self.all[self.examined] else { continue };
            let handle = handle_at(self.examined);
            let idle = key.place == RESTING && now.since(key.used) >= self.value_idle;
            if idle
                && keeper.is_value(handle)
                && ledger.is_settled(key.line)
                && ledger.can_close()
                && keeper.totals(handle) == key.read
                && keeper.evict(now, handle)
            {
                meters.keys_evicted.hit();
            }
        }
    }

    /// Puts a key in use, if it is not; where it stands.
    fn wake(&mut self, keeper: &mut Keeper, key: KeyHandle, moment: &Moment) -> Option<usize> {
        let unseen = whole_nanos(self.turn_after());
        let known = self.all.get_mut(key.index())?.as_mut()?;
        if known.place != RESTING {
            return Some(known.place as usize);
        }
        let place = self.in_use.len();
        known.place = u32::try_from(place).ok()?;
        known.odd = false;
        let used_at = known.used;
        // Full as of the time when it may have been used first.
        let full_at = self.looked.as_nanos().saturating_sub(unseen);
        let mut used = InUse::new(keeper, key, Time::from_nanos(full_at), self.tick);
        used.apply(keeper, moment, used_at);
        self.in_use.push(used);
        Some(place)
    }

    /// Follows a change of a key's limit, mode or `on_control_loss`.
    fn change(&mut self, keeper: &mut Keeper, key: KeyHandle, moment: &Moment) {
        let Some(Some(known)) = self.all.get(key.index()) else { return };
        let used_at = known.used;
        let Some(used) = self.in_use.get_mut(known.place as usize) else { return };
        let mut fresh = InUse::new(keeper, key, moment.now, self.tick);
        if used.flow.is_some() && fresh.flow.is_some() {
            (fresh.control, fresh.cap, fresh.level_of) = (used.control, used.cap, used.level_of);
            fresh.share = fresh.share.map(|new| used.share.take().unwrap_or(new));
        }
        (fresh.matched, fresh.offered) = (used.matched, used.offered);
        fresh.newest = used.newest;
        *used = fresh;
        used.apply(keeper, moment, used_at);
    }

    fn retire(
        &mut self,
        keeper: &Keeper,
        ledger: &mut Ledger,
        meters: &AgentCounters,
        key: KeyHandle,
    ) {
        let Some(known) = self.all.get_mut(key.index()).and_then(Option::take) else { return };
        if known.place != RESTING {
            self.remove(known.place as usize);
        }
        self.whole -= usize::from(!keeper.is_value(key));
        ledger.count(known.line, &keeper.totals(key).since(&known.read));
        if !ledger.close(known.line, keeper.name(key)) {
            meters.keys_forgotten.hit();
        }
    }

    /// One key in use: counts, level, verdict. Whether it saw a request.
    fn visit(
        &mut self,
        place: usize,
        keeper: &mut Keeper,
        ledger: &mut Ledger,
        moment: &Moment,
    ) -> bool {
        let used = &mut self.in_use[place];
        let Some(Some(key)) = self.all.get_mut(used.key.index()) else { return false };
        let totals = keeper.totals(used.key);
        let more = totals.since(&key.read);
        let moved = totals != key.read;
        if moved {
            key.read = totals;
            key.used = moment.now;
            ledger.count(key.line, &more);
            used.matched += more.matched;
            used.offered += more.offered;
        }
        if used.flow.is_some() {
            if let Some(share) = &mut used.share {
                share.observe(moment, used.control.is_moving(), more.offered, more.charged());
            }
            if std::mem::take(&mut used.was_off) {
                // What passed while the cap was off is nobody's debt.
                used.cap = Cap::full(&used.level_of, moment.now);
            } else {
                used.cap.take(&used.level_of, more.charged(), moment.now);
            }
            if more.charged() > 0 {
                used.budget = None;
            }
            used.apply(keeper, moment, key.used);
        }
        moved
    }

    fn may_rest(&self, place: usize, moment: &Moment, rest_after: Duration) -> bool {
        let used = &self.in_use[place];
        let Some(Some(key)) = self.all.get(used.key.index()) else { return false };
        if moment.now.since(key.used) < rest_after || !used.quiet {
            return false;
        }
        let settled = match used.control {
            Control::Free { .. } => true,
            // Follows from the time alone when the key is used again, once the ramp is over.
            Control::Lost { since, why: Loss::Silent, .. } => {
                moment.now.since(since) >= moment.ramp
            }
            Control::Lost { .. } | Control::Held { .. } => false,
        };
        used.flow.is_none() || (settled && used.cap.is_full(&used.level_of))
    }

    fn rest(&mut self, place: usize, keeper: &mut Keeper) {
        // Good until its turn comes to be looked at.
        let reach = BUDGET_HORIZON + self.turn_after();
        let used = self.remove(place);
        let Some(Some(key)) = self.all.get_mut(used.key.index()) else { return };
        key.place = RESTING;
        key.odd = used.told.is_some_and(|told| told != Verdict::FREE);
        if used.flow.is_some() && used.told.is_some_and(|told| told.capped) {
            keeper.set_budget(used.key, Some(used.cap.budget(&used.level_of, reach)));
        }
    }

    fn remove(&mut self, place: usize) -> InUse {
        let gone = self.in_use.swap_remove(place);
        if let Some(moved) = self.in_use.get(place)
            && let Some(Some(key)) = self.all.get_mut(moved.key.index())
        {
            key.place = u32::try_from(place).unwrap_or(RESTING);
        }
        gone
    }

    /// How long a resting key without values may have to wait for its turn, beyond the next look.
    fn turn_after(&self) -> Duration {
        match u32::try_from(self.round_looks()) {
            Ok(0 | 1) | Err(_) => Duration::ZERO,
            Ok(round) => self.look * round,
        }
    }

    /// In how many looks every resting key without values has had its turn: a power of two.
    fn round_looks(&self) -> usize {
        self.whole.div_ceil(RESTING_PER_LOOK).next_power_of_two().min(MAX_ROUND_LOOKS)
    }
}

impl InUse {
    fn new(keeper: &Keeper, key: KeyHandle, now: Time, tick: Duration) -> Self {
        let flow = match keeper.limit(key) {
            limit if limit.denies_all() => None,
            Limit::Unlimited => None,
            Limit::Tokens(rate) => Some(Flow::from(rate)),
        };
        let on_loss = keeper.bucket(key).map_or(OnControlLoss::Open, |b| b.on_control_loss);
        let level_of = flow.unwrap_or(Flow { rate_rps: 0.0, depth: 0.0 });
        let one_token_s = if level_of.rate_rps > 0.0 { 1.0 / level_of.rate_rps } else { 0.0 };
        let one_token = Duration::from_secs_f64(one_token_s.min(MAX_RETRY_AFTER.as_secs_f64()));
        Self {
            key,
            flow,
            level_of,
            cap: Cap::full(&level_of, now),
            on_loss,
            control: Control::Free { since: now },
            newest: (0, 0),
            share: (on_loss == OnControlLoss::Share).then(|| Box::new(Share::new(now))),
            told: None,
            budget: None,
            was_off: false,
            retry_after: one_token.max(tick).min(MAX_RETRY_AFTER),
            matched: 0,
            offered: 0,
            quiet: false,
        }
    }

    /// Works out what the slot should do, and tells it what is new.
    fn apply(&mut self, keeper: &mut Keeper, moment: &Moment, used: Time) {
        let Some(flow) = self.flow else { return };
        self.control.advance(moment, used);
        let share = self.share.as_ref().map_or(AdmitRatio::ALL, |s| s.admit(moment.ttl));
        let verdict = self.control.verdict(moment, self.on_loss, share);
        if self.told.is_none_or(|told| told.admit != verdict.admit) {
            keeper.set_admit(self.key, verdict.admit, self.retry_after);
        }
        let level_of = flow.raised_to(self.control.limit_rps().unwrap_or(flow.rate_rps));
        let capped = verdict.capped && level_of.rate_rps.is_finite();
        if level_of != self.level_of && capped {
            self.cap.change(&self.level_of, &level_of);
            self.level_of = level_of;
        }
        if capped {
            let budget = self.cap.budget(&self.level_of, BUDGET_HORIZON);
            if self.budget != Some(budget) {
                keeper.set_budget(self.key, Some(budget));
                self.budget = Some(budget);
            }
        } else if self.told.is_none_or(|told| told.capped) {
            keeper.set_budget(self.key, None);
            self.budget = None;
        }
        self.was_off |= !capped;
        self.told = Some(Verdict { admit: verdict.admit, capped });
    }
}

fn handle_at(at: usize) -> KeyHandle {
    KeyHandle(u32::try_from(at).unwrap_or(u32::MAX))
}

fn whole_nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
