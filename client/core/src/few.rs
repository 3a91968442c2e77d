//! The short ways: one, two or three slots on the thread's own cells.
//!
//! Instructions are counted here (`scripts/bench-decide`). What is hot is inlined and calls nothing;
//! what is not is a call in the last place, so that the hot part needs no stack frame.

use crate::CoarseClock;
use crate::cell::{CountCell, Tally};
use crate::decide::{Decider, Joined, KeyVerdict};
use crate::matcher::Resolved;
use crate::outcome::Outcome;
use crate::slot::{Route, ServiceSlot, Slot};
use crate::stripe;

impl<C: CoarseClock> Decider<'_, C> {
    /// Decides by one slot.
    #[inline(always)]
    pub(crate) fn one(self, slot: &Slot, resolved: &Resolved, hits: u32) -> Outcome {
        let route = slot.route();
        // A slot without places in the stripes has ones that no stripe reaches.
        let own = stripe::with_own(self.limiter.id(), |cells| {
            Some((&cells.get(route.key())?.0, &cells.get(route.service())?.0))
        });
        let Some((cell, service)) = own else { return self.shared_one(slot, resolved, hits) };
        if route.is_drawing() && !draw_own(slot, cell, hits) {
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
        if self.is_forgiven(slot) {
            return forgiven(cell, service, hits);
        }
        counted_refusal(slot, cell, service, hits)
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

    /// One slot, whichever cells this thread may use.
    #[inline(never)]
    fn shared_one(self, slot: &Slot, resolved: &Resolved, hits: u32) -> Outcome {
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

    /// Decides by `N` slots: if none draws, at once.
    #[inline(always)]
    pub(crate) fn few<const N: usize>(
        self,
        slots: [&Slot; N],
        service: Option<&ServiceSlot>,
        hits: u32,
    ) -> Outcome {
        let routes = slots.map(Slot::route);
        let admitted = stripe::with_own(self.limiter.id(), |cells| {
            let mut own = [&cells.first()?.0; N];
            for (route, own) in routes.iter().zip(&mut own) {
                *own = &cells.get(route.key())?.0;
                if route.is_drawing() || !own.has_budget(hits) {
                    return None;
                }
            }
            let service = &cells.get(routes.last()?.service())?.0;
            own.into_iter().for_each(|cell| cell.count_owned(Tally::Admitted, hits));
            service.count_owned(Tally::Admitted, hits);
            Some(Outcome::ADMITTED)
        });
        match admitted {
            Some(admitted) => admitted,
            None => self.drawing_few(slots, service, hits),
        }
    }

    #[inline(never)]
    fn drawing_few<const N: usize>(
        self,
        slots: [&Slot; N],
        service: Option<&ServiceSlot>,
        hits: u32,
    ) -> Outcome {
        let routes = slots.map(Slot::route);
        let own = stripe::with_own(self.limiter.id(), |cells| {
            let mut own = [&cells.first()?.0; N];
            for (route, own) in routes.iter().zip(&mut own) {
                *own = &cells.get(route.key())?.0;
            }
            Some((own, &cells.get(routes.last()?.service())?.0))
        });
        let Some((own, counts)) = own else {
            return self.joined(slots.into_iter(), service, hits);
        };
        let mut verdicts = [KeyVerdict::Pass; N];
        let mut refused = false;
        for i in 0..N {
            verdicts[i] = own_verdict(routes[i], slots[i], own[i], hits);
            refused |= verdicts[i] != KeyVerdict::Pass;
        }
        if refused {
            return self.refused_few(&slots, &own, counts, verdicts, hits);
        }
        own.into_iter().for_each(|cell| cell.count_owned(Tally::Admitted, hits));
        counts.count_owned(Tally::Admitted, hits);
        Outcome::ADMITTED
    }

    /// At least one of several slots says no.
    #[inline(always)]
    fn refused_few<const N: usize>(
        self,
        slots: &[&Slot; N],
        own: &[&CountCell; N],
        service: &CountCell,
        verdicts: [KeyVerdict; N],
        hits: u32,
    ) -> Outcome {
        let mut joined = Joined::default();
        let mut passes = [true; N];
        for i in 0..N {
            if verdicts[i] != KeyVerdict::Pass {
                passes[i] = self.holds_not(slots[i], verdicts[i]);
                joined.add(slots[i], passes[i]);
            }
        }
        for i in 0..N {
            own[i].count_owned(joined.tally(slots[i], passes[i]), hits);
        }
        service.count_owned(joined.service_tally(), hits);
        joined.outcome()
    }
}

#[inline(always)]
fn draw_own(slot: &Slot, cell: &CountCell, hits: u32) -> bool {
    let ratio = slot.ratio();
    // Of 0 and "all" there is nothing to draw; one comparison tells both from the rest.
    if ratio.wrapping_add(1) > 1 { cell.draw_owned(ratio, hits) } else { ratio != 0 }
}

#[inline(always)]
fn own_verdict(route: Route, slot: &Slot, cell: &CountCell, hits: u32) -> KeyVerdict {
    if route.is_drawing() && !draw_own(slot, cell, hits) {
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
