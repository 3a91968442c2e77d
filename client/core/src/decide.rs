//! The decision itself: draw for each key, join the verdicts, count once on each.
//!
//! Requests of one slot, and of two or three, have short ways of their own (`few`): they are what
//! nearly every request is, and what the instruction budget is about. Everything else goes through
//! `joint`, which handles any number of slots in blocks, on the stack.

use std::sync::Arc;

use sluicegate_model::{Per, Request};

use crate::cell::{ALL, CountCell, Tally};
use crate::matcher::{Counted, Only, Resolved, ServicePlan};
use crate::open::Dimensions;
use crate::outcome::Outcome;
use crate::plan::Plan;
use crate::sharing::{ClassBucket, SharedDimension};
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

impl<'p> At<'p> {
    /// On the cell that all threads share.
    #[inline]
    pub(crate) fn shared(slot: &'p Slot) -> Self {
        Self { slot, cell: &slot.shared, owned: false }
    }

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
            self.first.get_or_insert_with(|| slot.drop_outcome());
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
            None if resolved.nothing => self.none(resolved, hits),
            None => match &resolved.only {
                Only::Each(per) => self.by_value(plan, per, resolved, request, hits),
                Only::Class(class) => self.by_class(class, resolved, request, hits),
                Only::Neither => self.by_several(plan, resolved, request, hits),
            },
        }
    }

    /// Decides by the key of the request's one value.
    #[inline(never)]
    fn by_value<D: Dimensions>(
        self,
        plan: &Plan,
        per: &PerBucket,
        resolved: &Resolved,
        request: &D,
        hits: u32,
    ) -> Outcome {
        match self.value_slot(plan, per, request) {
            Some(slot) => self.shared_one(slot, resolved, hits),
            None => self.none(resolved, hits),
        }
    }

    /// Decides by the key of the request's one class.
    #[inline(never)]
    fn by_class<D: Dimensions>(
        self,
        class: &ClassBucket,
        resolved: &Resolved,
        request: &D,
        hits: u32,
    ) -> Outcome {
        match class.rule(request) {
            Some(rule) => self.one(&rule.slot, resolved, hits),
            None => self.none(resolved, hits),
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
        if resolved.groups.is_empty() {
            return self.by_fixed(resolved, hits);
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
    #[inline(always)]
    pub(crate) fn none(self, resolved: &Resolved, hits: u32) -> Outcome {
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
        let places = service.matching(request);
        places.filter_map(move |place| self.slot_of(plan, service.counted.get(place)?, request))
    }

    /// Of each group of open candidates the slot that counts.
    pub(crate) fn open_slots<'p, D: Dimensions>(
        self,
        plan: &'p Plan,
        resolved: &'p Resolved,
        request: &'p D,
    ) -> impl Iterator<Item = &'p Slot> {
        let counting = resolved.groups.iter().flat_map(move |group| group.counting(request));
        counting.filter_map(move |candidate| self.slot_of(plan, &candidate.counted, request))
    }

    #[inline(always)]
    fn slot_of<'p, D: Dimensions>(
        self,
        plan: &'p Plan,
        counted: &'p Counted,
        request: &D,
    ) -> Option<&'p Slot> {
        match counted {
            Counted::Whole(rule) => Some(&rule.slot),
            Counted::Class(class) => class.rule(request).map(|rule| &rule.slot),
            Counted::Each(per) => self.value_slot(plan, per, request),
        }
    }

    /// The slot of the request's values: their own, or the overflow slot until they have one.
    /// `None` if the request lacks a dimension.
    #[inline(always)]
    fn value_slot<'p, D: Dimensions>(
        self,
        plan: &'p Plan,
        per: &'p PerBucket,
        request: &D,
    ) -> Option<&'p Slot> {
        if let Some(only) = &per.single
            && let Some(value) = request.dimension(only)
            && let Some(number) = find_single(&plan.values, &plan.hasher, per.number, value)
            && let Some(slot) = plan.arena.touch(number)
        {
            return Some(slot);
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
        for (part, dimension) in parts.iter_mut().zip(&per.asked) {
            *part = request.dimension(dimension)?;
        }
        let mut count = per.asked.len();
        if let Some(shared) = &per.shared {
            parts[count] = shared.value(request);
            count += 1;
        }
        let query = Query::new(&plan.hasher, per.number, parts, count);
        if let Some(query) = &query
            && let Some((number, _)) = plan.values.find(query.hash, query)
            && let Some(slot) = plan.arena.touch(number)
        {
            return Some(slot);
        }
        Some(self.without_key(plan, per, parts, query))
    }

    /// What counts values that have no key of their own.
    #[cold]
    #[inline(never)]
    fn without_key<'p>(
        self,
        plan: &'p Plan,
        per: &'p PerBucket,
        parts: [&str; Per::MAX_DIMENSIONS],
        query: Option<Query<'_>>,
    ) -> &'p Slot {
        if let Some(slot) = closed_group(plan, per, parts) {
            return slot;
        }
        match query {
            Some(query) if !per.full.load(Ordering::Relaxed) => {
                self.limiter.shared().waiting.post(Some(per.number), query.hash, query.parts());
            }
            _ => {
                self.limiter.shared().refused_values.fetch_add(1, Ordering::Relaxed);
            }
        }
        &per.overflow.slot
    }

    /// The cell that this thread counts a slot on.
    #[inline]
    pub(crate) fn at<'p>(self, slot: &'p Slot) -> At<'p> {
        match stripe::own_cell(&self.limiter.shared().stripes, slot.place()) {
            Some(cell) => At { slot, cell, owned: true },
            None => At { slot, cell: &slot.shared, owned: false },
        }
    }

    #[inline(always)]
    pub(crate) fn count_service(self, service: Option<&ServiceSlot>, tally: Tally, hits: u32) {
        let Some(service) = service else { return };
        let counted = stripe::with_own(self.limiter.id(), |cells| {
            let cell = &cells.get(service.place())?.0;
            cell.count_owned(tally, hits);
            Some(())
        });
        if counted.is_none() {
            self.count_service_shared(service, tally, hits);
        }
    }

    #[inline(never)]
    fn count_service_shared(self, service: &ServiceSlot, tally: Tally, hits: u32) {
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

/// The slot of a fair bucket's group of values that has a limit of 0: whatever value of the shared
/// dimension comes, one key drops them all, and none of them needs another.
fn closed_group<'p>(
    plan: &'p Plan,
    per: &PerBucket,
    mut parts: [&str; Per::MAX_DIMENSIONS],
) -> Option<&'p Slot> {
    if per.asked.is_empty() || !matches!(per.shared, Some(SharedDimension::Fair(_))) {
        return None;
    }
    parts[per.asked.len()] = "";
    let query = Query::new(&plan.hasher, per.number, parts, per.parts())?;
    let (number, _) = plan.values.find(query.hash, &query)?;
    plan.arena.touch(number).filter(|slot| slot.flags().is_closed())
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
