//! A hash table that one thread fills in place while all others read it, without locks.
//!
//! An entry is written once and never changes or moves while its table lives; it can be hidden. A
//! table that is full is followed by a larger copy, published as a whole.

use std::sync::OnceLock;

use crate::sync::{AtomicU64, Ordering};

const MIN_ENTRIES: usize = 128;

/// An entry that was taken out: no number, so nothing is found here, but probing goes on.
const HIDDEN: u64 = 1 << 32;

/// What is looked for: a type of its own where the comparison must be inlined, which a closure is
/// not always.
pub(crate) trait Probe<E> {
    /// Whether `entry` is it.
    fn fits(&self, entry: &E) -> bool;
}

impl<E, F: Fn(&E) -> bool> Probe<E> for F {
    fn fits(&self, entry: &E) -> bool {
        self(entry)
    }
}

/// The table. Only one thread may call the methods that change it (`put`, `store`, `hide`); their
/// callers own it through `&mut` of something larger.
#[derive(Debug)]
pub(crate) struct Table<E> {
    /// `tag << 32 | number + 1`; 0 where nothing stands. Never more than half full.
    index: Box<[AtomicU64]>,
    /// By number.
    entries: Box<[OnceLock<E>]>,
}

impl<E: Clone> Table<E> {
    /// With room for `room` entries, and for their numbers.
    pub(crate) fn new(room: usize) -> Self {
        let room = room.max(MIN_ENTRIES);
        Self {
            index: (0..(room * 2).next_power_of_two()).map(|_| AtomicU64::new(0)).collect(),
            entries: (0..room).map(|_| OnceLock::new()).collect(),
        }
    }

    /// The entry for which `is` says yes, and its number.
    ///
    /// The first entry with the right tag nearly always is the one. So it is compared in a straight
    /// line, outside of any loop, and only if it is not does the search go on elsewhere.
    #[inline(always)]
    pub(crate) fn find(&self, hash: u64, is: impl Probe<E>) -> Option<(usize, &E)> {
        let mut at = position(hash, self.index.len() - 1);
        loop {
            let word = self.index.get(at)?.load(Ordering::Acquire);
            if (word ^ hash) >> 32 == 0 {
                // Of an empty place this is a number that no entry has.
                let number = number_of(word);
                return match self.get(number) {
                    Some(entry) if is.fits(entry) => Some((number, entry)),
                    _ => self.find_from(hash, at, is),
                };
            }
            if word == 0 {
                return None;
            }
            at = (at + 1) & (self.index.len() - 1);
        }
    }

    #[cold]
    #[inline(never)]
    fn find_from(&self, hash: u64, mut at: usize, is: impl Probe<E>) -> Option<(usize, &E)> {
        loop {
            let word = self.index.get(at)?.load(Ordering::Acquire);
            if word == 0 {
                return None;
            }
            if (word ^ hash) >> 32 == 0
                && let Some(entry) = self.get(number_of(word))
                && is.fits(entry)
            {
                return Some((number_of(word), entry));
            }
            at = (at + 1) & (self.index.len() - 1);
        }
    }

    /// The entry of that number, hidden or not.
    pub(crate) fn get(&self, number: usize) -> Option<&E> {
        self.entries.get(number)?.get()
    }

    /// Whether there is room for one more entry beside `indexed` (those hidden included), under
    /// that number.
    pub(crate) fn has_room(&self, indexed: usize, number: usize) -> bool {
        indexed < self.entries.len() && number < self.entries.len()
    }

    /// Writes the entry `number`, which must never have been written, and shows it. False if the
    /// number is too high or taken.
    pub(crate) fn put(&self, hash: u64, number: usize, entry: E) -> bool {
        let written = self.store(number, entry);
        if written {
            show(&self.index, hash, number);
        }
        written
    }

    /// Writes an entry without showing it.
    pub(crate) fn store(&self, number: usize, entry: E) -> bool {
        self.entries.get(number).is_some_and(|place| place.set(entry).is_ok())
    }

    /// A table with `room` and the same entries, except those that `keep` refuses by number; it
    /// shows those that `live` lists by hash and number.
    pub(crate) fn followed_by(
        &self,
        room: usize,
        keep: impl Fn(usize) -> bool,
        live: impl Iterator<Item = (u64, usize)>,
    ) -> Self {
        let next = Self::new(room);
        for (number, entry) in self.entries.iter().enumerate() {
            if let Some(entry) = entry.get().filter(|_| keep(number)) {
                next.store(number, entry.clone());
            }
        }
        live.for_each(|(hash, number)| show(&next.index, hash, number));
        next
    }

    /// Every entry that can be found.
    pub(crate) fn shown(&self) -> impl Iterator<Item = (usize, &E)> {
        self.index.iter().filter_map(|word| {
            let number = word.load(Ordering::Acquire) & 0xffff_ffff;
            let number = usize::try_from(number).ok()?.checked_sub(1)?;
            Some((number, self.get(number)?))
        })
    }

    /// Takes the entry out of sight. True if it was there.
    pub(crate) fn hide(&self, hash: u64, number: usize) -> bool {
        let (wanted, mask) = (word_of(hash, number), self.index.len() - 1);
        let mut at = position(hash, mask);
        loop {
            let word = self.index[at].load(Ordering::Relaxed);
            if word == wanted {
                self.index[at].store(HIDDEN, Ordering::Release);
                return true;
            }
            if word == 0 {
                return false;
            }
            at = (at + 1) & mask;
        }
    }
}

fn show(index: &[AtomicU64], hash: u64, number: usize) {
    let mask = index.len() - 1;
    let mut at = position(hash, mask);
    // A hidden place is not used again here: a reader may be just behind it.
    while index[at].load(Ordering::Relaxed) != 0 {
        at = (at + 1) & mask;
    }
    index[at].store(word_of(hash, number), Ordering::Release);
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "only the low bits are wanted")]
fn position(hash: u64, mask: usize) -> usize {
    hash as usize & mask
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
fn number_of(word: u64) -> usize {
    (word as u32).wrapping_sub(1) as usize
}

fn word_of(hash: u64, number: usize) -> u64 {
    (hash >> 32) << 32 | (number as u64 + 1)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::hash::mix;

    #[test]
    fn what_is_put_is_found_hidden_and_kept_over_growth() {
        let mut table: Table<u64> = Table::new(10);
        for i in 0..5_000_usize {
            if !table.has_room(i, i) {
                let live = (0..i).map(|n| (mix(n as u64), n));
                table = table.followed_by(i + 1, |_| true, live);
            }
            assert!(table.put(mix(i as u64), i, i as u64));
            assert!(!table.put(mix(i as u64), i, 0), "a number is written once");
        }
        assert!(!table.put(1, 1 << 30, 1), "beyond the bound");
        for i in 0..5_000_u64 {
            assert_eq!(table.find(mix(i), |e: &u64| *e == i).map(|(_, e)| *e), Some(i));
            assert_eq!(table.find(mix(i), |_: &u64| false), None);
        }
        for i in (0..5_000).step_by(3) {
            assert!(table.hide(mix(i as u64), i));
            assert!(!table.hide(mix(i as u64), i));
        }
        for i in 0..5_000_u64 {
            assert_eq!(table.find(mix(i), |e: &u64| *e == i).is_some(), i % 3 != 0);
        }
        let live = (0..5_000).filter(|n| n % 3 != 0).map(|n| (mix(n as u64), n));
        let next = table.followed_by(5_000, |n| n % 3 != 0, live);
        for i in 0..5_000_u64 {
            assert_eq!(next.find(mix(i), |e: &u64| *e == i).is_some(), i % 3 != 0);
        }
        assert!(next.put(mix(0), 0, 0), "a number that was not kept is free again");
    }

    #[test]
    fn equal_hashes_are_told_apart() {
        let table: Table<u64> = Table::new(100);
        for i in 0..100 {
            assert!(table.put(42, i, i as u64));
        }
        for i in 0..100_u64 {
            assert_eq!(table.find(42, |e: &u64| *e == i).map(|(_, e)| *e), Some(i));
        }
    }

    #[test]
    fn readers_see_whole_entries_while_one_writes() {
        let table: Table<(u64, u64)> = Table::new(10_000);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for round in 0..20_u64 {
                        for i in 0..10_000_u64 {
                            if let Some((_, e)) = table.find(mix(i), |e: &(u64, u64)| e.0 == i) {
                                assert_eq!(e.1, !i, "round {round}");
                            }
                        }
                    }
                });
            }
            for i in 0..10_000_usize {
                table.put(mix(i as u64), i, (i as u64, !(i as u64)));
            }
        });
    }
}
