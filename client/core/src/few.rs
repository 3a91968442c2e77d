//! The short ways: one, two or three slots on the thread's own cells.
//!
//! Instructions are counted here (`scripts/bench-decide`). What is hot is inlined and calls nothing;
//! what is not is a call in the last place, so that the hot part needs no stack frame.

use std::sync::Arc;

use crate::CoarseClock;
use crate::cell::{ALL, CountCell, Tally};
use crate::decide::{Decider, Joined, KeyVerdict};
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
        let Some((cell, service)) = own else { return self.shared_one(slot, resolved, hits) };
        let ratio = slot.ratio();
        if ratio != ALL && !draw_own(ratio, cell, hits) {
            return self.refused(slot, cell, service, hits);
        }
        if !cell.has_budget(hits) {
            return self.capped(slot, cell, service, hits);
        }
        cell.count_owned(Tally::Admitted, hits);
        service.count_owned(Tally::Admitted, hits);
        Outcome::ADMITTED
    }

    /// The ratio of the one slot says no.
    #[inline(never)]
    fn refused(self, slot: &Slot, cell: &CountCell, service: &CountCell, hits: u32) -> Outcome {
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
        Outcome::dropped(slot.bucket(), slot.flags().retry_ms())
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
    #[inline(never)]
    pub(crate) fn shared_one(self, slot: &Slot, resolved: &Resolved, hits: u32) -> Outcome {
        if slot.own_place().is_some() || slot.ratio() != ALL || !slot.shared.has_budget(hits) {
            return self.any_one(slot, resolved, hits);
        }
        slot.shared.count_shared(Tally::Admitted, hits);
        self.count_service(resolved.service.as_deref(), Tally::Admitted, hits);
        Outcome::ADMITTED
    }

    /// One slot, whatever it says and whichever cells this thread may use.
    #[inline(never)]
    fn any_one(self, slot: &Slot, resolved: &Resolved, hits: u32) -> Outcome {
        let (at, service) = (self.at(slot), resolved.service.as_deref());
        if self.passes(at, hits) {
            at.count(Tally::Admitted, hits);
            self.count_service(service, Tally::Admitted, hits);
            return Outcome::ADMITTED;
        }
        at.count(Tally::Alone, hits);
        let flags = slot.flags();
        if flags.denies() {
            self.count_service(service, Tally::Alone, hits);
            Outcome::dropped(slot.bucket(), flags.retry_ms())
        } else {
            self.count_service(service, Tally::Admitted, hits);
            Outcome::shadow_dropped(slot.bucket())
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
            None => self.drawing_few(rules, resolved, hits),
        }
    }

    #[inline(never)]
    fn drawing_few<const N: usize>(
        self,
        rules: &[Arc<RuleSlot>; N],
        resolved: &Resolved,
        hits: u32,
    ) -> Outcome {
        let Some((own, counts)) = own_few(self.limiter.id(), rules) else {
            let slots = rules.iter().map(|r| &r.slot);
            return self.joined(slots, resolved.service.as_deref(), hits);
        };
        let mut verdicts = [KeyVerdict::Pass; N];
        let mut refused = false;
        for i in 0..N {
            verdicts[i] = own_verdict(&rules[i].slot, own[i], hits);
            refused |= verdicts[i] != KeyVerdict::Pass;
        }
        if refused {
            return self.refused_few(rules, &own, counts, verdicts, hits);
        }
        own.into_iter().for_each(|cell| cell.count_owned(Tally::Admitted, hits));
        counts.count_owned(Tally::Admitted, hits);
        Outcome::ADMITTED
    }

    /// At least one of several slots says no.
    #[inline(always)]
    fn refused_few<const N: usize>(
        self,
        rules: &[Arc<RuleSlot>; N],
        own: &[&CountCell; N],
        service: &CountCell,
        verdicts: [KeyVerdict; N],
        hits: u32,
    ) -> Outcome {
        let mut joined = Joined::default();
        let mut passes = [true; N];
        for i in 0..N {
            if verdicts[i] != KeyVerdict::Pass {
                passes[i] = self.holds_not(&rules[i].slot, verdicts[i]);
                joined.add(&rules[i].slot, passes[i]);
            }
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
    let (own, service) = own_few(id, rules)?;
    for i in 0..N {
        if rules[i].slot.ratio() != ALL || !own[i].has_budget(hits) {
            return None;
        }
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
    ratio != 0 && cell.draw_owned(ratio, hits)
}

#[inline(always)]
fn own_verdict(slot: &Slot, cell: &CountCell, hits: u32) -> KeyVerdict {
    let ratio = slot.ratio();
    if ratio != ALL && !draw_own(ratio, cell, hits) {
        KeyVerdict::Drawn
    } else if cell.has_budget(hits) {
        KeyVerdict::Pass
    } else {
        KeyVerdict::Capped
    }
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
        Outcome::dropped(slot.bucket(), flags.retry_ms())
    } else {
        service.count_owned(Tally::Admitted, hits);
        Outcome::shadow_dropped(slot.bucket())
    }
}
