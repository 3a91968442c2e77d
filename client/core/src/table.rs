//! A hash table that one thread fills in place while all others read it, without locks.
//!
//! Entries are written once and never move, so an index that grew shares them with the smaller one
//! before it. An entry can be hidden, not changed.

use std::sync::{Arc, OnceLock};

use crate::sync::{AtomicU64, Ordering};

const CHUNK: usize = 64;
const MIN_INDEX: usize = 256;

/// An entry that was taken out: no number, so nothing is found here, but probing goes on.
const HIDDEN: u64 = 1 << 32;

/// The table. Only one thread may call the methods that change it (`put`, `hide`, `grown`); their
/// callers own it through `&mut` of something larger.
#[derive(Debug)]
pub(crate) struct Table<E> {
    /// `tag << 32 | number + 1`; 0 where nothing stands. Never more than half full.
    index: Box<[AtomicU64]>,
    entries: Arc<Entries<E>>,
}

#[derive(Debug)]
struct Entries<E> {
    chunks: Box<[OnceLock<Box<[OnceLock<E>; CHUNK]>>]>,
}

impl<E> Entries<E> {
    #[inline]
    fn get(&self, number: usize) -> Option<&E> {
        self.chunks.get(number / CHUNK)?.get()?[number % CHUNK].get()
    }
}

impl<E> Table<E> {
    /// For entries of the numbers below `most`, with an index for `expected` of them at first.
    pub(crate) fn new(most: usize, expected: usize) -> Self {
        let chunks = (0..most.div_ceil(CHUNK)).map(|_| OnceLock::new()).collect();
        Self { index: empty_index(expected), entries: Arc::new(Entries { chunks }) }
    }

    /// The entry for which `is` says yes, and its number.
    ///
    /// The first entry with the right tag nearly always is the one. So it is compared in a straight
    /// line, outside of any loop, and only if it is not does the search go on elsewhere.
    #[inline(always)]
    pub(crate) fn find(&self, hash: u64, is: impl Fn(&E) -> bool) -> Option<(usize, &E)> {
        let mut at = position(hash, self.index.len() - 1);
        loop {
            let word = self.index.get(at)?.load(Ordering::Acquire);
            if (word ^ hash) >> 32 == 0 {
                // Of an empty place this is a number that no entry has.
                let number = number_of(word);
                return match self.entries.get(number) {
                    Some(entry) if is(entry) => Some((number, entry)),
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
    fn find_from(&self, hash: u64, mut at: usize, is: impl Fn(&E) -> bool) -> Option<(usize, &E)> {
        loop {
            let word = self.index.get(at)?.load(Ordering::Acquire);
            if word == 0 {
                return None;
            }
            if (word ^ hash) >> 32 == 0
                && let Some(entry) = self.entries.get(number_of(word))
                && is(entry)
            {
                return Some((number_of(word), entry));
            }
            at = (at + 1) & (self.index.len() - 1);
        }
    }

    /// The entry of that number, hidden or not.
    pub(crate) fn get(&self, number: usize) -> Option<&E> {
        self.entries.get(number)
    }

    /// Whether one more entry fits the index.
    pub(crate) fn has_room(&self, used: usize) -> bool {
        (used + 1) * 2 <= self.index.len()
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
        let Some(chunk) = self.entries.chunks.get(number / CHUNK) else { return false };
        let chunk = chunk.get_or_init(|| Box::new(std::array::from_fn(|_| OnceLock::new())));
        chunk[number % CHUNK].set(entry).is_ok()
    }

    /// Every entry that can be found.
    pub(crate) fn shown(&self) -> impl Iterator<Item = (usize, &E)> {
        self.index.iter().filter_map(|word| {
            let number = word.load(Ordering::Acquire) & 0xffff_ffff;
            let number = usize::try_from(number).ok()?.checked_sub(1)?;
            Some((number, self.entries.get(number)?))
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

    /// A table with the same entries and an index for `expected` of them, which shows those that
    /// `live` lists by hash and number.
    pub(crate) fn reindexed(
        &self,
        expected: usize,
        live: impl Iterator<Item = (u64, usize)>,
    ) -> Self {
        let index = empty_index(expected);
        live.for_each(|(hash, number)| show(&index, hash, number));
        Self { index, entries: self.entries.clone() }
    }
}

fn empty_index(expected: usize) -> Box<[AtomicU64]> {
    let len = (expected * 2).next_power_of_two().max(MIN_INDEX);
    (0..len).map(|_| AtomicU64::new(0)).collect()
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
        let mut table: Table<u64> = Table::new(5_000, 10);
        for i in 0..5_000_usize {
            if !table.has_room(i) {
                table = table.reindexed(i * 2, (0..i).map(|n| (mix(n as u64), n)));
            }
            assert!(table.put(mix(i as u64), i, i as u64));
            assert!(!table.put(mix(i as u64), i, 0), "a number is written once");
        }
        assert!(!table.put(1, 1 << 30, 1), "beyond the bound");
        for i in 0..5_000_u64 {
            assert_eq!(table.find(mix(i), |e| *e == i), Some((i as usize, &i)));
            assert_eq!(table.find(mix(i), |_| false), None);
        }
        for i in (0..5_000).step_by(3) {
            assert!(table.hide(mix(i as u64), i));
            assert!(!table.hide(mix(i as u64), i));
        }
        for i in 0..5_000_u64 {
            assert_eq!(table.find(mix(i), |e| *e == i).is_some(), i % 3 != 0);
        }
    }

    #[test]
    fn equal_hashes_are_told_apart() {
        let table: Table<u64> = Table::new(100, 100);
        for i in 0..100 {
            assert!(table.put(42, i, i as u64));
        }
        for i in 0..100_u64 {
            assert_eq!(table.find(42, |e| *e == i), Some((i as usize, &i)));
        }
    }

    #[test]
    fn readers_see_whole_entries_while_one_writes() {
        let table: Table<(u64, u64)> = Table::new(10_000, 10_000);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for round in 0..20_u64 {
                        for i in 0..10_000_u64 {
                            if let Some((_, e)) = table.find(mix(i), |e| e.0 == i) {
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
