//! The decision itself: draw for each key, join the verdicts, count once on each.
//!
//! Requests of one slot, and of two or three, have short ways of their own (`few`): they are what
//! nearly every request is, and what the instruction budget is about. Everything else goes through
//! `joint`, which handles any number of slots in blocks, on the stack.

use std::sync::Arc;

use sluicegate_model::{Per, Request};

use crate::cell::{ALL, CountCell, Tally};
use crate::matcher::{Candidate, Counted, Dimensions, Resolved, ServicePlan};
use crate::outcome::Outcome;
use crate::plan::Plan;
use crate::slot::{RuleSlot, ServiceSlot, Slot};
use crate::stripe;
use crate::sync::Ordering;
use crate::values::{PerBucket, Query, find_single};
use crate::{CoarseClock, Limiter};

/// Slots that one frame of `joint` holds.
const BLOCK: usize = 8;

/// A limiter that decides. One pointer, so that handing it on costs one register.
#[derive(Debug)]
pub(crate) struct Decider<'a, C> {
    pub(crate) limiter: &'a Limiter<C>,
}

impl<C> Clone for Decider<'_, C> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<C> Copy for Decider<'_, C> {}

/// What a key says of a request before it is asked whether that holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyVerdict {
    Pass,
    /// The ratio says no.
    Drawn,
    /// The cap says no.
    Capped,
}

/// A slot with the cell that this thread counts it on.
#[derive(Clone, Copy)]
pub(crate) struct At<'p> {
    pub(crate) slot: &'p Slot,
    cell: &'p CountCell,
    owned: bool,
}

impl At<'_> {
    #[inline]
    pub(crate) fn count(&self, tally: Tally, hits: u32) {
        if self.owned {
            self.cell.count_owned(tally, hits);
        } else {
            self.cell.count_shared(tally, hits);
        }
    }
}

/// The verdicts of all slots of a request.
#[derive(Default)]
pub(crate) struct Joined {
    /// How many deny buckets drop it.
    droppers: u32,
    /// What the first of them tells the caller.
    first: Option<Outcome>,
    /// A shadow bucket that would.
    shadow: Option<u32>,
}

impl Joined {
    #[inline]
    pub(crate) fn add(&mut self, slot: &Slot, pass: bool) {
        if pass {
            return;
        }
        let flags = slot.flags();
        if flags.denies() {
            self.droppers += 1;
            self.first.get_or_insert_with(|| Outcome::dropped(slot.bucket(), flags.retry_ms()));
        } else {
            self.shadow.get_or_insert_with(|| slot.bucket());
        }
    }

    /// Where one slot counts the request.
    #[inline]
    pub(crate) fn tally(&self, slot: &Slot, pass: bool) -> Tally {
        match (self.droppers, pass) {
            (0, true) => Tally::Admitted,
            (0, false) => Tally::Alone,
            (1, false) if slot.flags().denies() => Tally::Alone,
            _ => Tally::Blocked,
        }
    }

    pub(crate) fn service_tally(&self) -> Tally {
        match self.droppers {
            0 => Tally::Admitted,
            1 => Tally::Alone,
            _ => Tally::Blocked,
        }
    }

    pub(crate) fn outcome(&self) -> Outcome {
        match (self.first, self.shadow) {
            (Some(dropped), _) => dropped,
            (None, Some(bucket)) => Outcome::shadow_dropped(bucket),
            (None, None) => Outcome::ADMITTED,
        }
    }
}

impl<C: CoarseClock> Decider<'_, C> {
    /// Decides a request by its strings.
    #[inline(always)]
    pub(crate) fn by_request(self, plan: &Plan, request: &Request<'_>, hits: u32) -> Outcome {
        let hash = plan.hash_of(request);
        match plan.identity(hash, request) {
            Some(identity) => self.by_resolved(plan, &identity.resolved, request, hits),
            None => self.by_rules(plan, hash, request, hits),
        }
    }

    /// Decides a request whose identity is resolved; `request` is asked for its dimensions.
    #[inline(always)]
    pub(crate) fn by_resolved<D: Dimensions>(
        self,
        plan: &Plan,
        resolved: &Resolved,
        request: &D,
        hits: u32,
    ) -> Outcome {
        match &resolved.one {
            Some(one) => self.one(&one.slot, resolved, hits),
            None => self.by_several(plan, resolved, request, hits),
        }
    }

    #[inline(never)]
    fn by_several<D: Dimensions>(
        self,
        plan: &Plan,
        resolved: &Resolved,
        request: &D,
        hits: u32,
    ) -> Outcome {
        if let Some(per) = &resolved.each {
            return match self.value_slot(plan, per, request) {
                Some(slot) => self.shared_one(slot, resolved, hits),
                None => self.none(resolved, hits),
            };
        }
        if resolved.groups.is_empty() {
            return self.by_fixed(resolved, hits);
        }
        if let ([], [group]) = (&*resolved.fixed, &*resolved.groups) {
            return match self.pick(plan, group, request) {
                Some(slot) => self.one(slot, resolved, hits),
                None => self.none(resolved, hits),
            };
        }
        let fixed = resolved.fixed.iter().map(|r| &r.slot);
        let open = self.open_slots(plan, resolved, request);
        self.joined(fixed.chain(open), resolved.service.as_deref(), hits)
    }

    /// Decides by slots that count whatever the dimensions are.
    #[inline]
    pub(crate) fn by_fixed(self, resolved: &Resolved, hits: u32) -> Outcome {
        match &*resolved.fixed {
            [] => self.none(resolved, hits),
            [one] => self.one(&one.slot, resolved, hits),
            [_, _] | [_, _, _] => self.by_few(resolved, hits),
            many => self.joined(many.iter().map(|r| &r.slot), resolved.service.as_deref(), hits),
        }
    }

    #[inline(never)]
    fn by_few(self, resolved: &Resolved, hits: u32) -> Outcome {
        let rules = &*resolved.fixed;
        if let Ok(three) = <&[Arc<RuleSlot>; 3]>::try_from(rules) {
            self.few(three, resolved, hits)
        } else if let Ok(two) = <&[Arc<RuleSlot>; 2]>::try_from(rules) {
            self.few(two, resolved, hits)
        } else {
            self.joined(rules.iter().map(|r| &r.slot), resolved.service.as_deref(), hits)
        }
    }

    /// No bucket counts it.
    #[inline]
    fn none(self, resolved: &Resolved, hits: u32) -> Outcome {
        self.count_service(resolved.service.as_deref(), Tally::Admitted, hits);
        Outcome::ADMITTED
    }

    /// Decides by any number of slots.
    #[inline(never)]
    pub(crate) fn joined<'p>(
        self,
        mut slots: impl Iterator<Item = &'p Slot>,
        service: Option<&ServiceSlot>,
        hits: u32,
    ) -> Outcome {
        let mut joined = Joined::default();
        self.joint(&mut slots, hits, &mut joined);
        self.count_service(service, joined.service_tally(), hits);
        joined.outcome()
    }

    /// Draws for a block of slots, then for those behind it, and counts the block once all verdicts
    /// are in. The frames hold what would otherwise be an allocation; there are at most as many as
    /// a service can have blocks of buckets.
    fn joint<'p>(self, slots: &mut impl Iterator<Item = &'p Slot>, hits: u32, joined: &mut Joined) {
        let mut block: [Option<(At<'p>, bool)>; BLOCK] = [None; BLOCK];
        for (entry, slot) in block.iter_mut().zip(&mut *slots) {
            let at = self.at(slot);
            let pass = self.passes(at, hits);
            joined.add(slot, pass);
            *entry = Some((at, pass));
        }
        if block[BLOCK - 1].is_some() {
            self.joint(slots, hits, joined);
        }
        for (at, pass) in block.into_iter().flatten() {
            at.count(joined.tally(at.slot, pass), hits);
        }
    }

    /// What one hit would meet, with nothing drawn and nothing counted.
    #[cold]
    #[inline(never)]
    pub(crate) fn ask(self, plan: &Plan, request: &Request<'_>) -> Outcome {
        let mut joined = Joined::default();
        for slot in self.slots(plan, request) {
            joined.add(slot, self.would_pass(self.at(slot)));
        }
        joined.outcome()
    }

    /// As `passes`, with nothing drawn.
    pub(crate) fn would_pass(self, at: At<'_>) -> bool {
        let ratio = at.slot.ratio();
        let drawn = ratio == ALL || ratio != 0 && at.cell.would_pass(ratio, at.owned);
        self.holds_not(at.slot, verdict(at.cell, drawn, 1))
    }

    /// An identity that the table does not have: matched here and now, and made known to the agent.
    #[cold]
    #[inline(never)]
    fn by_rules(self, plan: &Plan, hash: u64, request: &Request<'_>, hits: u32) -> Outcome {
        self.make_known(hash, request);
        let Some(service) = plan.services.get(request.service) else { return Outcome::ADMITTED };
        self.joined(self.matching(plan, service, request), Some(&service.slot), hits)
    }

    pub(crate) fn make_known(self, hash: u64, request: &Request<'_>) {
        if self.limiter.shared().identities_full.load(Ordering::Relaxed) {
            self.limiter.shared().refused_identities.fetch_add(1, Ordering::Relaxed);
        } else {
            let texts = [request.service, request.caller, request.procedure];
            self.limiter.shared().waiting.post(None, hash, texts.into_iter());
        }
    }

    pub(crate) fn matching<'p>(
        self,
        plan: &'p Plan,
        service: &'p ServicePlan,
        request: &'p Request<'p>,
    ) -> impl Iterator<Item = &'p Slot> {
        service.matching(request).filter_map(move |place| match service.counted.get(place)? {
            Counted::Whole(rule) => Some(&rule.slot),
            Counted::Each(per) => self.value_slot(plan, per, request),
        })
    }

    /// Of each group of open candidates the slot that counts.
    pub(crate) fn open_slots<'p, D: Dimensions>(
        self,
        plan: &'p Plan,
        resolved: &'p Resolved,
        request: &'p D,
    ) -> impl Iterator<Item = &'p Slot> {
        resolved.groups.iter().filter_map(move |group| self.pick(plan, group, request))
    }

    /// The slot of the first candidate that fits.
    #[inline]
    pub(crate) fn pick<'p, D: Dimensions>(
        self,
        plan: &'p Plan,
        group: &'p [Candidate],
        request: &D,
    ) -> Option<&'p Slot> {
        group.iter().find_map(|candidate| {
            if !candidate.fits(request) {
                return None;
            }
            match &candidate.counted {
                Counted::Whole(rule) => Some(&rule.slot),
                Counted::Each(per) => self.value_slot(plan, per, request),
            }
        })
    }

    /// The slot of the request's values: their own, or the overflow slot until they have one.
    /// `None` if the request lacks a dimension.
    #[inline]
    fn value_slot<'p, D: Dimensions>(
        self,
        plan: &'p Plan,
        per: &'p PerBucket,
        request: &D,
    ) -> Option<&'p Slot> {
        if let [only] = &*per.dimensions {
            let value = request.dimension(only)?;
            if let Some(number) = find_single(&plan.values, &plan.hasher, per.number, value)
                && let Some(slot) = plan.arena.touch(number)
            {
                return Some(slot);
            }
        }
        self.slot_of_values(plan, per, request)
    }

    /// For several dimensions, or a value without a key.
    #[inline(never)]
    fn slot_of_values<'p, D: Dimensions>(
        self,
        plan: &'p Plan,
        per: &'p PerBucket,
        request: &D,
    ) -> Option<&'p Slot> {
        let mut parts = [""; Per::MAX_DIMENSIONS];
        for (part, dimension) in parts.iter_mut().zip(&per.dimensions) {
            *part = request.dimension(dimension)?;
        }
        let query = Query::new(&plan.hasher, per.number, parts, per.dimensions.len());
        if let Some(query) = &query
            && let Some((number, _)) = plan.values.find(query.hash, |e| e.is(query))
            && let Some(slot) = plan.arena.touch(number)
        {
            return Some(slot);
        }
        self.overflow(per, query);
        Some(&per.overflow.slot)
    }

    #[cold]
    #[inline(never)]
    fn overflow(self, per: &PerBucket, query: Option<Query<'_>>) {
        match query {
            Some(query) if !per.full.load(Ordering::Relaxed) => {
                self.limiter.shared().waiting.post(Some(per.number), query.hash, query.parts());
            }
            _ => {
                self.limiter.shared().refused_values.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// The cell that this thread counts a slot on.
    #[inline]
    pub(crate) fn at<'p>(self, slot: &'p Slot) -> At<'p> {
        match stripe::own_cell(&self.limiter.shared().stripes, slot.place()) {
            Some(cell) => At { slot, cell, owned: true },
            None => At { slot, cell: &slot.shared, owned: false },
        }
    }

    #[inline]
    pub(crate) fn count_service(self, service: Option<&ServiceSlot>, tally: Tally, hits: u32) {
        let Some(service) = service else { return };
        match stripe::own_cell(&self.limiter.shared().stripes, service.place()) {
            Some(cell) => cell.count_owned(tally, hits),
            None => service.shared.count_shared(tally, hits),
        }
    }

    /// Whether the key lets `hits` through: drawn, under the cap, or nobody there to say so.
    #[inline]
    pub(crate) fn passes(self, at: At<'_>, hits: u32) -> bool {
        let ratio = at.slot.ratio();
        let drawn = match ratio {
            ALL => true,
            0 => false,
            _ if at.owned => at.cell.draw_owned(ratio, hits),
            _ => at.cell.draw_shared(ratio, hits),
        };
        self.holds_not(at.slot, verdict(at.cell, drawn, hits))
    }

    /// Whether a request goes through after all: because the verdict says so, or because whoever
    /// set the ratio or the cap has not been heard of for too long.
    #[inline]
    pub(crate) fn holds_not(self, slot: &Slot, verdict: KeyVerdict) -> bool {
        match verdict {
            KeyVerdict::Pass => true,
            KeyVerdict::Drawn => self.is_forgiven(slot),
            KeyVerdict::Capped => self.limiter.shared().is_refill_late(self.limiter.now()),
        }
    }

    /// Whether a drop by the ratio is an admit, because the agent is dead.
    #[inline(always)]
    pub(crate) fn is_forgiven(self, slot: &Slot) -> bool {
        slot.flags().asks_clock() && self.limiter.now() > self.limiter.shared().stale_at()
    }
}

#[inline]
pub(crate) fn verdict(cell: &CountCell, drawn: bool, hits: u32) -> KeyVerdict {
    if !drawn {
        KeyVerdict::Drawn
    } else if cell.has_budget(hits) {
        KeyVerdict::Pass
    } else {
        KeyVerdict::Capped
    }
}
