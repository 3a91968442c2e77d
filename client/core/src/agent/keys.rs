//! The agent's view of every key: a small record for each, a larger one while it is in use, and
//! what a look does with those.
//!
//! It drives the table's owner and the ledger; it knows no messages and no stream.

use std::time::Duration;

use sluicegate_model::{Counts, Directive, Law, Time};

use super::cap::BUDGET_HORIZON;
use super::control::Moment;
use super::in_use::{Due, InUse, Pace};
use super::ledger::{Ledger, LineId, Stated};
use super::meters::AgentCounters;
use super::rates::Timing;
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

/// The most keys that are in use under the law `grant` whether there are requests or not.
const MAX_STANDING_KEYS: usize = 64;

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

/// All keys.
pub(super) struct Keys {
    law: Law,
    timing: Timing,
    value_idle: Duration,
    all: Vec<Option<Key>>,
    in_use: Vec<InUse>,
    touched: Vec<KeyHandle>,
    fresh: Vec<KeyHandle>,
    /// Keys without values, in use or not.
    whole: usize,
    longest_round: usize,
    /// Keys in use whether there are requests or not.
    standing: usize,
    /// Whose turn it is among them.
    turn: usize,
    looked: Time,
    ticked: Time,
    examined: usize,
}

/// What a look found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Looked {
    /// Some key saw a request.
    pub(super) moved: bool,
    /// Something is to be reported without waiting for the tick.
    pub(super) is_due: bool,
}

impl Keys {
    pub(super) fn new(settings: &Settings, now: Time) -> Self {
        Self {
            law: Law::default(),
            timing: Timing {
                tick: settings.tick,
                look: settings.look,
                switches: settings.switches,
            },
            value_idle: settings.value_idle,
            all: Vec::new(),
            in_use: Vec::new(),
            touched: Vec::new(),
            fresh: Vec::new(),
            whole: 0,
            longest_round: 1,
            standing: 0,
            turn: 0,
            looked: now,
            ticked: now,
            examined: 0,
        }
    }

    /// The law is this one from now on.
    pub(super) fn obey(&mut self, law: Law, keeper: &Keeper, now: Time) {
        if self.law == law {
            return;
        }
        (self.law, self.standing) = (law, 0);
        for place in 0..self.in_use.len() {
            self.in_use[place].obey(keeper, law, &self.timing, now);
            self.let_stand(place, keeper);
        }
        // Some of those that rest are to stand.
        let mut fresh = std::mem::take(&mut self.fresh);
        fresh.extend(self.whole_resting(keeper));
        self.fresh = fresh;
    }

    fn whole_resting(&self, keeper: &Keeper) -> impl Iterator<Item = KeyHandle> {
        let all = (0..self.all.len()).map(handle_at);
        all.filter(|k| self.is_resting(*k) && !keeper.is_value(*k))
    }

    /// A key with a low limit is in use from the start, if there are few of them: clients that use
    /// it seldom would else find no directive at the first request, and together be too many.
    fn let_stand(&mut self, place: usize, keeper: &Keeper) {
        let used = &mut self.in_use[place];
        let may = self.law == Law::Grant && used.is_low() && !keeper.is_value(used.key);
        if may && self.standing < MAX_STANDING_KEYS {
            used.stand();
            self.standing += 1;
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
                        if rested {
                            self.in_use[place].forgive();
                        }
                        self.visit(place, keeper, ledger, moment);
                    }
                    self.change(keeper, key, moment);
                    if rested {
                        self.fresh.push(key);
                    }
                }
                KeyEvent::Retired(key) => {
                    self.retire(keeper, ledger, meters, key, moment);
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
            fresh.extend(self.whole_resting(keeper));
        }
        for key in fresh.drain(..) {
            if let Some(place) = self.wake(keeper, key, moment)
                && !self.in_use[place].stands()
            {
                self.rest(place, keeper);
            }
        }
        self.fresh = fresh;
    }

    fn is_resting(&self, key: KeyHandle) -> bool {
        let known = self.all.get(key.index()).and_then(Option::as_ref);
        known.is_some_and(|k| k.place == RESTING)
    }

    /// Looks at every key that may have seen a request, and every key in use.
    pub(super) fn look(
        &mut self,
        keeper: &mut Keeper,
        ledger: &mut Ledger,
        moment: &Moment,
    ) -> Looked {
        let (round, turn) = (self.round_looks(), self.turn);
        // As many turns as time has gone by, so that a nap does not lengthen the round.
        let span = moment.now.since(self.looked);
        let looks = span.as_nanos() / self.timing.look.as_nanos().max(1);
        let turns = usize::try_from(looks).unwrap_or(round).clamp(1, round);
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
        let mut looked = Looked::default();
        for place in 0..self.in_use.len() {
            let Some(more) = self.visit(place, keeper, ledger, moment) else { continue };
            looked.moved |= more.matched > 0;
            if self.law == Law::Grant {
                looked.is_due |= self.end_look(place, &more, ledger, moment.now, span);
            }
        }
        looked
    }

    /// Whether the key is to be reported without waiting for the tick.
    fn end_look(
        &mut self,
        place: usize,
        more: &Counts,
        ledger: &mut Ledger,
        now: Time,
        span: Duration,
    ) -> bool {
        let used = &mut self.in_use[place];
        let Some(Some(key)) = self.all.get(used.key.index()) else { return false };
        let acked = ledger.acked_rates(key.line);
        let due = used.end_look(acked, more.charged(), now, span, &self.timing);
        match due {
            Some(Due::Stated(said)) => ledger.gauge(key.line, said.rates, said.in_use),
            Some(Due::Counts) => ledger.due(key.line),
            None => {}
        }
        due.is_some()
    }

    /// States the rates of keys whose turn it is, and lets keys rest that are not used. `is_slow`
    /// says whether it is the turn of those far below their limit as well, `must_speak` whether
    /// something of a key in use must be said, if only that it is. How soon the next report is to
    /// come.
    pub(super) fn tick(
        &mut self,
        keeper: &mut Keeper,
        ledger: &mut Ledger,
        meters: &AgentCounters,
        moment: &Moment,
        is_slow: bool,
        must_speak: bool,
    ) -> Pace {
        let seconds = moment.now.since(self.ticked).as_secs_f64();
        self.ticked = moment.now;
        let mut pace = Pace::Quiet;
        for used in &mut self.in_use {
            let Some(Some(key)) = self.all.get_mut(used.key.index()) else { continue };
            let (matched, offered) = used.take_tick();
            #[expect(clippy::cast_precision_loss, reason = "counts of a tick, below 2^52")]
            let (matched_rps, offered_rps) = (matched as f64 / seconds, offered as f64 / seconds);
            match self.law {
                Law::Ratio => {
                    ledger.gauge(key.line, Stated::new(offered_rps, 0.0), matched > 0);
                }
                Law::Grant => {
                    if let Some(said) = used.tick(moment.now, is_slow, &self.timing) {
                        ledger.gauge(key.line, said.rates, said.in_use);
                    }
                    pace = pace.max(used.pace());
                }
            }
            if matched_rps >= PROMOTE_RPS && !key.promoted {
                key.promoted = keeper.promote(used.key);
                used.lose_budget();
                let counter =
                    if key.promoted { &meters.keys_promoted } else { &meters.promotions_refused };
                counter.hit();
            }
        }
        if must_speak
            && let Some(used) = self.in_use.iter().find(|used| used.is_told())
            && let Some(Some(key)) = self.all.get(used.key.index())
        {
            ledger.repeat(key.line);
        }
        self.let_rest(keeper, moment);
        pace
    }

    fn let_rest(&mut self, keeper: &mut Keeper, moment: &Moment) {
        let rest_after = (self.timing.tick * 2).max(Duration::from_secs(1));
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
        ledger: &mut Ledger,
        key: KeyHandle,
        directive: &Directive,
        moment: &Moment,
    ) -> bool {
        let Some(place) = self.wake(keeper, key, moment) else { return false };
        if self.in_use[place].is_booked_by_ratio() {
            self.visit(place, keeper, ledger, moment);
        }
        let Some(Some(known)) = self.all.get(key.index()) else { return false };
        let (used, used_at) = (&mut self.in_use[place], known.used);
        if !used.direct(directive, moment.now) {
            return false;
        }
        used.guard(ledger.acked_rates(known.line), moment, self.timing.tick);
        used.apply(keeper, moment, used_at);
        true
    }

    /// A new stream numbers its directives anew.
    pub(super) fn start_stream(&mut self) {
        self.in_use.iter_mut().for_each(InUse::start_stream);
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
        let full_at = Time::from_nanos(full_at);
        let mut used = InUse::new(keeper, key, full_at, self.law, &self.timing);
        // Rates are of whole ticks: a time that begins just before a request is no fair sample.
        used.offer_from(self.ticked);
        used.apply(keeper, moment, used_at);
        self.in_use.push(used);
        self.let_stand(place, keeper);
        Some(place)
    }

    /// Follows a change of a key's limit, mode or `on_control_loss`.
    fn change(&mut self, keeper: &mut Keeper, key: KeyHandle, moment: &Moment) {
        let Some(Some(known)) = self.all.get(key.index()) else { return };
        let used_at = known.used;
        let Some(used) = self.in_use.get_mut(known.place as usize) else { return };
        let fresh = InUse::new(keeper, key, moment.now, self.law, &self.timing);
        let before = std::mem::replace(used, fresh);
        self.standing -= usize::from(before.stands());
        used.follow(before);
        used.apply(keeper, moment, used_at);
        let place = known.place as usize;
        self.let_stand(place, keeper);
    }

    fn retire(
        &mut self,
        keeper: &mut Keeper,
        ledger: &mut Ledger,
        meters: &AgentCounters,
        key: KeyHandle,
        moment: &Moment,
    ) {
        let Some(Some(known)) = self.all.get(key.index()) else { return };
        if (known.place != RESTING || keeper.totals(key) != known.read)
            && let Some(place) = self.wake(keeper, key, moment)
        {
            self.visit(place, keeper, ledger, moment);
            self.remove(place);
        }
        let Some(known) = self.all.get_mut(key.index()).and_then(Option::take) else { return };
        self.whole -= usize::from(!keeper.is_value(key));
        if !ledger.close(known.line, keeper.name(key)) {
            meters.keys_forgotten.hit();
        }
    }

    /// One key in use: counts, level, verdict. What was counted since the last visit.
    fn visit(
        &mut self,
        place: usize,
        keeper: &mut Keeper,
        ledger: &mut Ledger,
        moment: &Moment,
    ) -> Option<Counts> {
        let used = &mut self.in_use[place];
        let Some(Some(key)) = self.all.get_mut(used.key.index()) else { return None };
        let totals = keeper.totals(used.key);
        let mut more = totals.since(&key.read);
        if totals != key.read {
            key.read = totals;
            key.used = moment.now;
        }
        used.take(&mut more, ledger.acked_rates(key.line), moment, self.timing.tick);
        ledger.count(key.line, &more);
        if self.law == Law::Ratio {
            ledger.due(key.line);
        }
        used.apply(keeper, moment, key.used);
        Some(more)
    }

    fn may_rest(&self, place: usize, moment: &Moment, rest_after: Duration) -> bool {
        let used = &self.in_use[place];
        let Some(Some(key)) = self.all.get(used.key.index()) else { return false };
        moment.now.since(key.used) >= rest_after && used.may_rest(moment)
    }

    fn rest(&mut self, place: usize, keeper: &mut Keeper) {
        // Good until its turn comes to be looked at.
        let reach = BUDGET_HORIZON + self.turn_after();
        let used = self.remove(place);
        let Some(Some(key)) = self.all.get_mut(used.key.index()) else { return };
        key.place = RESTING;
        key.odd = used.is_odd();
        used.set_last_budget(keeper, reach);
    }

    fn remove(&mut self, place: usize) -> InUse {
        let gone = self.in_use.swap_remove(place);
        self.standing -= usize::from(gone.stands());
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
            Ok(round) => self.timing.look * round,
        }
    }

    /// In how many looks every resting key without values has had its turn: a power of two.
    fn round_looks(&self) -> usize {
        self.whole.div_ceil(RESTING_PER_LOOK).next_power_of_two().min(MAX_ROUND_LOOKS)
    }
}

fn handle_at(at: usize) -> KeyHandle {
    KeyHandle(u32::try_from(at).unwrap_or(u32::MAX))
}

fn whole_nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
