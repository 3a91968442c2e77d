//! What the hot path obeys for one key: ratio, mode, where its threads count; and the cell that
//! every thread may count on. The agent's side writes, every thread reads.

use sluicegate_model::{Counts, Mode};

use crate::cell::{ALL, CountCell, Raw};
use crate::outcome::MAX_RETRY_MS;
use crate::sync::{AtomicU32, Mutex, Ordering, lock};

const SHADOW: u32 = 1;
const OBSERVE: u32 = 2;
const KEEP: u32 = 4;
const CLOSED: u32 = 8;
const RETRY_SHIFT: u32 = 8;

/// The place that no stripe has: counts go to the shared cells.
pub(crate) const NO_PLACE: u16 = u16::MAX;
/// The most places in a stripe.
pub(crate) const MAX_PLACES: usize = NO_PLACE as usize;

/// What the flags of a slot say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flags(u32);

impl Flags {
    pub(crate) fn new(mode: Mode, keep: bool, closed: bool, retry_ms: u32) -> Self {
        let mode = match mode {
            Mode::Deny => 0,
            Mode::Shadow => SHADOW,
            Mode::Observe => OBSERVE,
        };
        let keep = if keep { KEEP } else { 0 };
        let closed = if closed { CLOSED } else { 0 };
        Self(mode | keep | closed | retry_ms.min(MAX_RETRY_MS) << RETRY_SHIFT)
    }

    #[inline]
    pub(crate) fn denies(self) -> bool {
        self.0 & (SHADOW | OBSERVE) == 0
    }

    pub(crate) fn mode(self) -> Mode {
        match self.0 & (SHADOW | OBSERVE) {
            SHADOW => Mode::Shadow,
            OBSERVE => Mode::Observe,
            _ => Mode::Deny,
        }
    }

    /// Whether a drop holds only while the agent lives: of a deny bucket that does not keep.
    #[inline]
    pub(crate) fn asks_clock(self) -> bool {
        self.0 & (SHADOW | OBSERVE | KEEP | CLOSED) == 0
    }

    /// Whether the limit is 0.
    pub(crate) fn is_closed(self) -> bool {
        self.0 & CLOSED != 0
    }

    #[inline]
    pub(crate) fn retry_ms(self) -> u32 {
        self.0 >> RETRY_SHIFT
    }

    pub(crate) fn with_retry_ms(self, retry_ms: u32) -> Self {
        let low = self.0 & ((1 << RETRY_SHIFT) - 1);
        Self(low | retry_ms.min(MAX_RETRY_MS) << RETRY_SHIFT)
    }

    pub(crate) fn with_keep(self, keep: bool) -> Self {
        Self(if keep { self.0 | KEEP } else { self.0 & !KEEP })
    }
}

/// A key on the hot path: one cache line.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Slot {
    ratio: AtomicU32,
    /// Where in its stripe a thread counts the key.
    place: AtomicU32,
    flags: AtomicU32,
    bucket: AtomicU32,
    pub(crate) shared: CountCell,
}

impl Slot {
    pub(crate) fn new(random: u64) -> Self {
        Self {
            ratio: AtomicU32::new(ALL),
            place: AtomicU32::new(u32::from(NO_PLACE)),
            flags: AtomicU32::new(0),
            bucket: AtomicU32::new(0),
            shared: CountCell::shared(random),
        }
    }

    /// Its place in the stripes. One that no stripe reaches, if it has none.
    #[inline]
    pub(crate) fn place(&self) -> usize {
        self.place.load(Ordering::Relaxed) as usize
    }

    /// Its service's place. There is one if the key has one.
    #[inline]
    pub(crate) fn service_place(&self) -> usize {
        self.shared.beside.load(Ordering::Relaxed) as usize
    }

    /// Its place, if it has one.
    pub(crate) fn own_place(&self) -> Option<u16> {
        u16::try_from(self.place()).ok().filter(|place| *place != NO_PLACE)
    }

    #[inline]
    pub(crate) fn ratio(&self) -> u32 {
        self.ratio.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn flags(&self) -> Flags {
        Flags(self.flags.load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn bucket(&self) -> u32 {
        self.bucket.load(Ordering::Relaxed)
    }

    /// Begins a key: nothing drawn, no cap, shared cells.
    pub(crate) fn assign(&self, bucket: u32, flags: Flags) {
        self.bucket.store(bucket, Ordering::Relaxed);
        self.set_flags(flags);
        self.set_places(NO_PLACE, NO_PLACE);
        self.set_ratio(if flags.is_closed() { 0 } else { ALL });
        self.shared.set_budget(None);
    }

    pub(crate) fn set_flags(&self, flags: Flags) {
        self.flags.store(flags.0, Ordering::Relaxed);
    }

    pub(crate) fn set_ratio(&self, ratio: u32) {
        self.ratio.store(ratio, Ordering::Release);
    }

    /// Sets where threads count, two places in the stripes; [`NO_PLACE`] for the shared cells. A
    /// thread that reads only one of them uses the shared cells once more.
    pub(crate) fn set_places(&self, key: u16, service: u16) {
        self.shared.beside.store(u32::from(service), Ordering::Release);
        self.place.store(u32::from(key), Ordering::Release);
    }
}

/// The counts of a service, and where its threads count.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct ServiceSlot {
    place: AtomicU32,
    pub(crate) shared: CountCell,
    /// What stood at its place in the stripes when it was given that place.
    before: Mutex<Raw>,
}

impl ServiceSlot {
    pub(crate) fn new() -> Self {
        Self {
            place: AtomicU32::new(u32::from(NO_PLACE)),
            shared: CountCell::shared(0),
            before: Mutex::new(Raw::default()),
        }
    }

    #[inline]
    pub(crate) fn place(&self) -> usize {
        self.place.load(Ordering::Relaxed) as usize
    }

    /// Its place, if it has one.
    pub(crate) fn own_place(&self) -> Option<u16> {
        u16::try_from(self.place()).ok().filter(|place| *place != NO_PLACE)
    }

    /// Gives it a place in the stripes, where `standing` stands already.
    pub(crate) fn set_place(&self, place: u16, standing: impl FnOnce() -> Raw) {
        let mut before = lock(&self.before);
        *before = standing();
        self.place.store(u32::from(place), Ordering::Release);
    }

    /// What it counted; `sum` reads a place of the stripes.
    pub(crate) fn totals(&self, sum: impl FnOnce(usize) -> Raw) -> Raw {
        let before = lock(&self.before);
        let mut raw = self.shared.read();
        raw.add(sum(self.place()).since(*before));
        raw
    }
}

/// What a key had counted before its mode changed or its cells were given to it, so that its totals
/// neither jump nor go back.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Fold {
    counts: Counts,
    raw: Raw,
}

impl Fold {
    /// Begins at zero, with cells that say `raw`.
    pub(crate) fn starting_at(raw: Raw) -> Self {
        Self { counts: Counts::default(), raw }
    }

    /// Whether it changes nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.counts == Counts::default() && self.raw == Raw::default()
    }

    /// The totals of a key whose cells say `raw`.
    pub(crate) fn totals(&self, raw: Raw, mode: Mode) -> Counts {
        let raw = raw.since(self.raw);
        let offered = raw.admitted.saturating_add(raw.alone);
        let would_drop = if mode == Mode::Deny { 0 } else { raw.alone };
        let mut counts = self.counts;
        counts.add(&Counts {
            matched: offered.saturating_add(raw.blocked),
            offered,
            admitted: raw.admitted.saturating_add(would_drop),
            would_drop,
        });
        counts
    }

    /// Keeps what was counted under `mode`, and goes on from there.
    pub(crate) fn fold(&mut self, raw: Raw, mode: Mode) {
        self.counts = self.totals(raw, mode);
        self.raw = raw;
    }

    /// Cells that already say `raw` are read for this key from now on.
    pub(crate) fn include(&mut self, raw: Raw) {
        self.raw.add(raw);
    }
}

/// The slot of a bucket's whole or overflow key.
#[derive(Debug)]
pub(crate) struct RuleSlot {
    pub(crate) slot: Slot,
    fold: Mutex<Fold>,
}

impl RuleSlot {
    pub(crate) fn new(random: u64) -> Self {
        Self { slot: Slot::new(random), fold: Mutex::new(Fold::default()) }
    }

    pub(crate) fn with_fold<R>(&self, f: impl FnOnce(&mut Fold) -> R) -> R {
        f(&mut lock(&self.fold))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::cell::Tally;

    #[test]
    fn a_slot_is_one_cache_line() {
        assert_eq!(size_of::<Slot>(), 64);
    }

    #[test]
    fn places_and_flags_hold_what_was_put_in() {
        let slot = Slot::new(1);
        slot.assign(9, Flags::new(Mode::Shadow, true, false, 1500));
        assert!(slot.own_place().is_none() && slot.ratio() == ALL);
        slot.set_places(NO_PLACE - 1, 3);
        assert_eq!((slot.own_place(), slot.service_place()), (Some(NO_PLACE - 1), 3));
        let flags = slot.flags();
        assert_eq!(
            (flags.mode(), flags.asks_clock(), flags.retry_ms()),
            (Mode::Shadow, false, 1500)
        );
        let flags = flags.with_keep(false).with_retry_ms(u32::MAX);
        assert_eq!((flags.mode(), flags.asks_clock()), (Mode::Shadow, false));
        assert!(Flags::new(Mode::Deny, false, false, 0).asks_clock());
        assert!(!Flags::new(Mode::Deny, true, false, 0).asks_clock());
        assert_eq!(flags.retry_ms(), MAX_RETRY_MS);
        slot.assign(1, Flags::new(Mode::Deny, false, true, 0));
        assert_eq!(slot.ratio(), 0, "a limit of 0 needs no directive");
        assert!(!slot.flags().asks_clock());
    }

    #[test]
    fn totals_do_not_jump_when_the_mode_changes() {
        let cell = CountCell::shared(0);
        cell.count_shared(Tally::Admitted, 5);
        cell.count_shared(Tally::Alone, 3);
        cell.count_shared(Tally::Blocked, 2);
        let mut fold = Fold::default();
        let denied = fold.totals(cell.read(), Mode::Deny);
        assert_eq!((denied.matched, denied.offered, denied.admitted), (10, 8, 5));
        fold.fold(cell.read(), Mode::Deny);
        assert_eq!(fold.totals(cell.read(), Mode::Shadow), denied);
        cell.count_shared(Tally::Alone, 1);
        let now = fold.totals(cell.read(), Mode::Shadow);
        assert_eq!((now.offered, now.admitted, now.would_drop), (9, 6, 1));
    }
}
