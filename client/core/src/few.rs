//! The short ways: one, two or three slots on the thread's own cells.
//!
//! Instructions are counted here (`scripts/bench-decide`). What is hot is inlined and calls nothing;
//! what is not is a call in the last place, so that the hot part needs no stack frame.

use std::sync::Arc;

use crate::CoarseClock;
use crate::cell::{ALL, CountCell, Tally};
use crate::decide::{At, Decider, Joined, KeyVerdict, verdict};
use crate::matcher::Resolved;
use crate::outcome::Outcome;
use crate::slot::{RuleSlot, Slot};
use crate::stripe;

impl<C: CoarseClock> Decider<'_, C> {
    /// Decides by one slot.
    #[inline(always)]
    pub(crate) fn one(self, slot: &Slot, resolved: &Resolved, hits: u32) -> Outcome {
        // A slot without places in the stripes has ones that no stripe reaches.
        let own = stripe::with_own(self.limiter.id(), |cells| {
            Some((&cells.get(slot.place())?.0, &cells.get(slot.service_place())?.0))
        });
        let Some((cell, service)) = own else { return self.any_one(slot, resolved, hits) };
        let ratio = slot.ratio();
        if ratio != ALL && (ratio == 0 || !cell.draw_owned(ratio, hits)) {
            return if hits == 1 {
                self.refused::<true>(slot, cell, service, 1)
            } else {
                self.refused::<false>(slot, cell, service, hits)
            };
        }
        if !cell.has_budget(hits) {
            return self.capped(slot, cell, service, hits);
        }
        cell.count_owned(Tally::Admitted, hits);
        service.count_owned(Tally::Admitted, hits);
        Outcome::ADMITTED
    }

    /// The ratio of the one slot says no. `ONE` says that `hits` is 1, so that the compiler need not
    /// carry it over the call of the clock.
    #[inline(never)]
    fn refused<const ONE: bool>(
        self,
        slot: &Slot,
        cell: &CountCell,
        service: &CountCell,
        hits: u32,
    ) -> Outcome {
        let hits = if ONE { 1 } else { hits };
        if !slot.flags().asks_clock() {
            return counted_refusal(slot, cell, service, hits);
        }
        let stale_at = self.limiter.shared().stale_at();
        if self.limiter.now() > stale_at {
            return forgiven(cell, service, hits);
        }
        // Only a deny bucket asks the clock.
        cell.count_owned(Tally::Alone, hits);
        service.count_owned(Tally::Alone, hits);
        slot.drop_outcome()
    }

    /// The cap of the one slot says no.
    #[cold]
    #[inline(never)]
    fn capped(self, slot: &Slot, cell: &CountCell, service: &CountCell, hits: u32) -> Outcome {
        if self.holds_not(slot, KeyVerdict::Capped) {
            return forgiven(cell, service, hits);
        }
        counted_refusal(slot, cell, service, hits)
    }

    /// One slot that all threads count on: what most value keys are.
    #[inline(always)]
    pub(crate) fn shared_one(self, slot: &Slot, resolved: &Resolved, hits: u32) -> Outcome {
        let ratio = slot.ratio();
        if slot.own_place().is_some() {
            return self.any_one(slot, resolved, hits);
        }
        if ratio != ALL && (ratio == 0 || !slot.shared.draw_shared(ratio, hits)) {
            return self.refused_shared(slot, resolved, KeyVerdict::Drawn, hits);
        }
        if !slot.shared.has_budget(hits) {
            return self.refused_shared(slot, resolved, KeyVerdict::Capped, hits);
        }
        slot.shared.count_shared(Tally::Admitted, hits);
        self.count_service(resolved.service.as_deref(), Tally::Admitted, hits);
        Outcome::ADMITTED
    }

    #[inline(never)]
    fn refused_shared(
        self,
        slot: &Slot,
        resolved: &Resolved,
        verdict: KeyVerdict,
        hits: u32,
    ) -> Outcome {
        let at = At::shared(slot);
        self.counted_one(at, resolved, self.holds_not(slot, verdict), hits)
    }

    /// One slot, whatever it says and whichever cells this thread may use.
    #[inline(never)]
    fn any_one(self, slot: &Slot, resolved: &Resolved, hits: u32) -> Outcome {
        let at = self.at(slot);
        self.counted_one(at, resolved, self.passes(at, hits), hits)
    }

    #[inline(always)]
    fn counted_one(self, at: At<'_>, resolved: &Resolved, pass: bool, hits: u32) -> Outcome {
        let (service, flags) = (resolved.service.as_deref(), at.slot.flags());
        if pass {
            at.count(Tally::Admitted, hits);
            self.count_service(service, Tally::Admitted, hits);
            return Outcome::ADMITTED;
        }
        at.count(Tally::Alone, hits);
        if flags.denies() {
            self.count_service(service, Tally::Alone, hits);
            at.slot.drop_outcome()
        } else {
            self.count_service(service, Tally::Admitted, hits);
            Outcome::shadow_dropped(at.slot.bucket())
        }
    }

    /// Decides by two or three slots: if none draws, at once.
    #[inline(always)]
    pub(crate) fn few<const N: usize>(
        self,
        rules: &[Arc<RuleSlot>; N],
        resolved: &Resolved,
        hits: u32,
    ) -> Outcome {
        match fast_few(self.limiter.id(), rules, hits) {
            Some(admitted) => admitted,
            None if hits == 1 => self.drawing_few::<N, true>(rules, resolved, 1),
            None => self.drawing_few::<N, false>(rules, resolved, hits),
        }
    }

    /// `ONE` says that `hits` is 1, so that the compiler need not carry it.
    #[inline(never)]
    fn drawing_few<const N: usize, const ONE: bool>(
        self,
        rules: &[Arc<RuleSlot>; N],
        resolved: &Resolved,
        hits: u32,
    ) -> Outcome {
        let hits = if ONE { 1 } else { hits };
        let Some((own, service)) = own_few(self.limiter.id(), rules) else {
            let slots = rules.iter().map(|r| &r.slot);
            return self.joined(slots, resolved.service.as_deref(), hits);
        };
        let mut drawn = [true; N];
        let mut all_drawn = true;
        for i in 0..N {
            drawn[i] = draw_own(rules[i].slot.ratio(), own[i], hits);
            all_drawn &= drawn[i];
        }
        if own.iter().any(|cell| !cell.has_budget(hits)) {
            return self.reconsidered_few(rules, (own, service), drawn, hits);
        }
        if all_drawn {
            own.into_iter().for_each(|cell| cell.count_owned(Tally::Admitted, hits));
            service.count_owned(Tally::Admitted, hits);
            return Outcome::ADMITTED;
        }
        self.refused_few(rules, (own, service), drawn, hits)
    }

    /// Some ratios of several say no; no cap does.
    #[inline(always)]
    fn refused_few<const N: usize>(
        self,
        rules: &[Arc<RuleSlot>; N],
        cells: ([&CountCell; N], &CountCell),
        drawn: [bool; N],
        hits: u32,
    ) -> Outcome {
        let (own, service) = cells;
        let (mut droppers, mut asks_clock, mut first) = (0, false, N);
        for i in 0..N {
            let flags = rules[i].slot.flags();
            if !drawn[i] && flags.denies() {
                first = if droppers == 0 { i } else { first };
                droppers += 1;
                asks_clock |= flags.asks_clock();
            }
        }
        if asks_clock && self.limiter.now() > self.limiter.shared().stale_at() {
            return self.reconsidered_few(rules, cells, drawn, hits);
        }
        let Some(dropper) = rules.get(first) else {
            // Only shadows would drop it.
            return self.reconsidered_few(rules, cells, drawn, hits);
        };
        for (i, cell) in own.into_iter().enumerate() {
            let alone = droppers == 1 && i == first;
            cell.count_owned(if alone { Tally::Alone } else { Tally::Blocked }, hits);
        }
        service.count_owned(if droppers == 1 { Tally::Alone } else { Tally::Blocked }, hits);
        dropper.slot.drop_outcome()
    }

    /// Several slots of which some say no, with all that may change that.
    #[inline(never)]
    fn reconsidered_few<const N: usize>(
        self,
        rules: &[Arc<RuleSlot>; N],
        (own, service): ([&CountCell; N], &CountCell),
        drawn: [bool; N],
        hits: u32,
    ) -> Outcome {
        let mut joined = Joined::default();
        let mut passes = [true; N];
        for i in 0..N {
            let slot = &rules[i].slot;
            passes[i] = self.holds_not(slot, verdict(own[i], drawn[i], hits));
            joined.add(slot, passes[i]);
        }
        for i in 0..N {
            own[i].count_owned(joined.tally(&rules[i].slot, passes[i]), hits);
        }
        service.count_owned(joined.service_tally(), hits);
        joined.outcome()
    }
}

/// Nothing to draw, a stripe at hand, room under every cap: admitted and counted, or nothing done.
#[inline(always)]
fn fast_few<const N: usize>(id: u64, rules: &[Arc<RuleSlot>; N], hits: u32) -> Option<Outcome> {
    // All ratios together are "all" only if each is.
    if rules.iter().fold(ALL, |all, rule| all & rule.slot.ratio()) != ALL {
        return None;
    }
    let (own, service) = own_few(id, rules)?;
    if own.iter().any(|cell| !cell.has_budget(hits)) {
        return None;
    }
    own.into_iter().for_each(|cell| cell.count_owned(Tally::Admitted, hits));
    service.count_owned(Tally::Admitted, hits);
    Some(Outcome::ADMITTED)
}

/// The thread's own cells of several slots, and of their service.
#[inline(always)]
fn own_few<const N: usize>(
    id: u64,
    rules: &[Arc<RuleSlot>; N],
) -> Option<([&'static CountCell; N], &'static CountCell)> {
    let cells = stripe::own(id)?;
    let service = &cells.get(rules.last()?.slot.service_place())?.0;
    let mut own = [service; N];
    for i in 0..N {
        own[i] = &cells.get(rules[i].slot.place())?.0;
    }
    Some((own, service))
}

#[inline(always)]
fn draw_own(ratio: u32, cell: &CountCell, hits: u32) -> bool {
    // Of 0 and "all" there is nothing to draw; one comparison tells both from the rest.
    if ratio.wrapping_add(1) > 1 { cell.draw_owned(ratio, hits) } else { is_all(ratio) }
}

/// Cold only in the sense that the compiler shall put it out of the way.
#[cold]
fn is_all(ratio: u32) -> bool {
    ratio != 0
}

#[cold]
fn forgiven(cell: &CountCell, service: &CountCell, hits: u32) -> Outcome {
    cell.count_owned(Tally::Admitted, hits);
    service.count_owned(Tally::Admitted, hits);
    Outcome::ADMITTED
}

#[inline(always)]
fn counted_refusal(slot: &Slot, cell: &CountCell, service: &CountCell, hits: u32) -> Outcome {
    cell.count_owned(Tally::Alone, hits);
    let flags = slot.flags();
    if flags.denies() {
        service.count_owned(Tally::Alone, hits);
        slot.drop_outcome()
    } else {
        service.count_owned(Tally::Admitted, hits);
        Outcome::shadow_dropped(slot.bucket())
    }
}
