//! Keys of single values: how a request's values find their slot among very many.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use sluicegate_model::{Bucket, KeyValues, MAX_VALUE_BYTES, Per};

use crate::hash::{Hasher, same};
use crate::open::Dimension;
use crate::sharing::SharedDimension;
use crate::slot::{Fold, RuleSlot, Slot};
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering, lock};
use crate::table::{Probe, Table};

const CHUNK: usize = 64;
const INLINE_BYTES: usize = 32;
const LENGTH_BITS: u32 = 11;
/// The most buckets with `per` at a time: what a shape has bits for.
pub(crate) const MAX_PERS: usize = 1 << 20;

/// A bucket with `per`, on the hot path.
#[derive(Debug)]
pub(crate) struct PerBucket {
    /// Its number, unique while any of its keys is there.
    pub(crate) number: u32,
    /// The dimension, if its value, where there is one, is all that a key is known by.
    pub(crate) single: Option<Box<Dimension>>,
    /// The dimensions that a request must have.
    pub(crate) asked: Box<[Dimension]>,
    /// The one behind them that no request lacks.
    pub(crate) shared: Option<SharedDimension>,
    /// Counts the values that have no slot.
    pub(crate) overflow: Arc<RuleSlot>,
    /// No new value gets a key: none need be posted.
    pub(crate) full: AtomicBool,
}

impl PerBucket {
    pub(crate) fn new(bucket: &Bucket, number: u32, overflow: Arc<RuleSlot>, full: bool) -> Self {
        let asked: Box<[_]> = bucket.asked_dimensions().iter().map(Dimension::new).collect();
        let shared = SharedDimension::new(bucket);
        let single = match (&*asked, &shared) {
            ([only], None) | ([], Some(SharedDimension::Fair(only))) => {
                Some(Box::new(only.clone()))
            }
            _ => None,
        };
        Self { number, single, asked, shared, overflow, full: AtomicBool::new(full) }
    }

    /// How many values a key has.
    pub(crate) fn parts(&self) -> usize {
        self.asked.len() + usize::from(self.shared.is_some())
    }
}

/// The values that a request shows to a bucket, ready to be looked up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Query<'a> {
    pub(crate) hash: u64,
    shape: u64,
    parts: [&'a str; Per::MAX_DIMENSIONS],
    count: usize,
}

impl<'a> Query<'a> {
    /// Of `parts`, as many as the bucket has dimensions. `None` if one is too long for a key.
    #[inline]
    pub(crate) fn new(
        hasher: &Hasher,
        per: u32,
        parts: [&'a str; Per::MAX_DIMENSIONS],
        count: usize,
    ) -> Option<Self> {
        let mut shape = u64::from(per);
        for part in &parts[..count] {
            if part.len() > MAX_VALUE_BYTES {
                return None;
            }
            shape = shape << LENGTH_BITS | part.len() as u64;
        }
        // One dimension is the usual case and worth its own copy of the hashing.
        let hash = match count {
            1 => hasher.hash(shape, [parts[0]]),
            _ => hasher.hash(shape, parts[..count].iter().copied()),
        };
        Some(Self { hash, shape, parts, count })
    }

    pub(crate) fn parts(&self) -> impl Iterator<Item = &'a str> + Clone {
        self.parts.into_iter().take(self.count)
    }
}

/// The number of the key that has the one value `value`: as with a [`Query`], without making one.
#[inline(always)]
pub(crate) fn find_single(
    table: &Table<ValueEntry>,
    hasher: &Hasher,
    per: u32,
    value: &str,
) -> Option<usize> {
    if value.len() > MAX_VALUE_BYTES {
        return None;
    }
    let shape = u64::from(per) << LENGTH_BITS | value.len() as u64;
    let hash = hasher.hash(shape, [value]);
    table.find(hash, Single { shape, value }).map(|(number, _)| number)
}

impl Probe<ValueEntry> for &Query<'_> {
    fn fits(&self, entry: &ValueEntry) -> bool {
        if entry.shape != self.shape {
            return false;
        }
        let mut rest: &[u8] = entry.long.as_deref().unwrap_or(&entry.short);
        for part in &self.parts[..self.count] {
            let Some((own, after)) = rest.split_at_checked(part.len()) else { return false };
            if !same(own, part.as_bytes()) {
                return false;
            }
            rest = after;
        }
        true
    }
}

/// One value, to be found.
struct Single<'a> {
    shape: u64,
    value: &'a str,
}

impl Probe<ValueEntry> for Single<'_> {
    #[inline(always)]
    fn fits(&self, entry: &ValueEntry) -> bool {
        if entry.shape != self.shape {
            return false;
        }
        let bytes: &[u8] = match &entry.long {
            None => &entry.short,
            Some(long) => long,
        };
        let own = bytes.get(..self.value.len());
        own.is_some_and(|own| same(own, self.value.as_bytes()))
    }
}

/// The values of one key: 64 bytes with its place in the table, up to 32 bytes of text in it.
#[derive(Debug, Clone)]
pub(crate) struct ValueEntry {
    /// The bucket's number and the lengths of the parts: the same shape is the same bucket and the
    /// same number of parts of the same lengths.
    shape: u64,
    short: [u8; INLINE_BYTES],
    long: Option<Box<[u8]>>,
}

impl ValueEntry {
    pub(crate) fn new(query: &Query<'_>) -> Self {
        let text: Vec<u8> = query.parts().flat_map(str::bytes).collect();
        let mut short = [0; INLINE_BYTES];
        let long = match short.get_mut(..text.len()) {
            Some(head) => {
                head.copy_from_slice(&text);
                None
            }
            None => Some(text.into_boxed_slice()),
        };
        Self { shape: query.shape, short, long }
    }

    /// The values again.
    pub(crate) fn parts(&self, dimensions: usize) -> Option<[&str; Per::MAX_DIMENSIONS]> {
        let mut rest: &[u8] = self.long.as_deref().unwrap_or(&self.short);
        let mut parts = [""; Per::MAX_DIMENSIONS];
        for (i, part) in parts.iter_mut().take(dimensions).enumerate() {
            let shift = LENGTH_BITS as usize * (dimensions - 1 - i);
            let len = self.shape >> shift & ((1 << LENGTH_BITS) - 1);
            let (own, after) = rest.split_at_checked(usize::try_from(len).ok()?)?;
            *part = std::str::from_utf8(own).ok()?;
            rest = after;
        }
        Some(parts)
    }

    /// The values as a key has them.
    pub(crate) fn values(&self, dimensions: usize) -> KeyValues {
        let parts = self.parts(dimensions).unwrap_or_default();
        KeyValues::Each(parts.into_iter().take(dimensions).map(Box::from).collect())
    }
}

/// The slots of all values, by number.
#[derive(Debug)]
pub(crate) struct Arena {
    chunks: Box<[OnceLock<Box<Chunk>>]>,
    seed: u64,
}

#[derive(Debug)]
struct Chunk {
    /// A bit for each slot that a request found since the agent last asked.
    touched: AtomicU64,
    slots: [Slot; CHUNK],
    /// Only of slots that had another key before, or a stripe.
    folds: Mutex<BTreeMap<usize, Fold>>,
}

impl Arena {
    pub(crate) fn new(most: usize, seed: u64) -> Self {
        Self { chunks: (0..most.div_ceil(CHUNK)).map(|_| OnceLock::new()).collect(), seed }
    }

    /// The slot of a value that a request shows, marked as touched.
    #[inline(always)]
    pub(crate) fn touch(&self, number: usize) -> Option<&Slot> {
        let chunk = self.chunks.get(number / CHUNK)?.get()?;
        let bit = 1 << (number % CHUNK);
        if chunk.touched.load(Ordering::Relaxed) & bit == 0 {
            chunk.touched.fetch_or(bit, Ordering::Relaxed);
        }
        Some(&chunk.slots[number % CHUNK])
    }

    pub(crate) fn get(&self, number: usize) -> Option<&Slot> {
        Some(&self.chunks.get(number / CHUNK)?.get()?.slots[number % CHUNK])
    }

    /// The slot, made if it was not there.
    pub(crate) fn make(&self, number: usize) -> Option<&Slot> {
        let chunk = self.chunks.get(number / CHUNK)?.get_or_init(|| {
            let random = |i| crate::hash::mix(self.seed ^ (number - number % CHUNK + i) as u64);
            Box::new(Chunk {
                touched: AtomicU64::new(0),
                slots: std::array::from_fn(|i| Slot::new(random(i))),
                folds: Mutex::new(BTreeMap::new()),
            })
        });
        Some(&chunk.slots[number % CHUNK])
    }

    /// Calls `each` with every number touched since the last call, and clears the marks.
    pub(crate) fn take_touched(&self, mut each: impl FnMut(usize)) {
        for (i, chunk) in self.chunks.iter().enumerate() {
            let Some(chunk) = chunk.get() else { continue };
            if chunk.touched.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut bits = chunk.touched.swap(0, Ordering::Relaxed);
            while bits != 0 {
                each(i * CHUNK + bits.trailing_zeros() as usize);
                bits &= bits - 1;
            }
        }
    }

    /// Works on what the key of that number counted before.
    pub(crate) fn with_fold<R>(&self, number: usize, f: impl FnOnce(&mut Fold) -> R) -> R {
        let Some(chunk) = self.chunks.get(number / CHUNK).and_then(OnceLock::get) else {
            return f(&mut Fold::default());
        };
        let mut folds = lock(&chunk.folds);
        match folds.get_mut(&(number % CHUNK)) {
            Some(fold) => f(fold),
            None => {
                let mut fold = Fold::default();
                let result = f(&mut fold);
                if !fold.is_empty() {
                    folds.insert(number % CHUNK, fold);
                }
                result
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn query<'a>(hasher: &Hasher, per: u32, parts: &[&'a str]) -> Query<'a> {
        let mut four = [""; Per::MAX_DIMENSIONS];
        four[..parts.len()].copy_from_slice(parts);
        Query::new(hasher, per, four, parts.len()).expect("short enough")
    }

    #[test]
    fn entries_are_small_and_read_back() {
        assert!(size_of::<OnceLock<ValueEntry>>() <= 64);
        let hasher = Hasher::new(1);
        let long = "v".repeat(MAX_VALUE_BYTES);
        for parts in [&["a"][..], &["", "b"], &[&long, "c", &long, ""], &["x".repeat(33).as_str()]]
        {
            let query = query(&hasher, 77, parts);
            let entry = ValueEntry::new(&query);
            assert!((&query).fits(&entry));
            let values: Box<[Box<str>]> = parts.iter().map(|p| Box::from(*p)).collect();
            assert_eq!(entry.values(parts.len()), KeyValues::Each(values));
        }
    }

    #[test]
    fn no_choice_of_values_collides() {
        let hasher = Hasher::new(1);
        let entry = ValueEntry::new(&query(&hasher, 1, &["ab", "c"]));
        assert!(!(&query(&hasher, 1, &["a", "bc"])).fits(&entry));
        assert!(!(&query(&hasher, 2, &["ab", "c"])).fits(&entry));
        assert!(!(&query(&hasher, 1, &["ab", "d"])).fits(&entry));
        let long = "v".repeat(MAX_VALUE_BYTES + 1);
        assert!(Query::new(&hasher, 1, [&long, "", "", ""], 1).is_none());
    }

    #[test]
    fn touched_slots_are_told_once() {
        let arena = Arena::new(200, 1);
        assert!(arena.touch(5).is_none(), "not made");
        assert!(arena.make(5).is_some() && arena.make(130).is_some());
        assert!(arena.make(256).is_none(), "beyond the bound");
        arena.touch(130);
        arena.touch(5);
        arena.touch(5);
        let mut seen = Vec::new();
        arena.take_touched(|n| seen.push(n));
        assert_eq!(seen, [5, 130]);
        arena.take_touched(|n| panic!("{n} again"));
    }
}
