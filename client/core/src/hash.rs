//! Hashing and comparing short texts, seeded: for tables that strangers choose the keys of.

/// Odd constants without structure: digits of the golden ratio, of pi and of e.
const K0: u64 = 0x9e37_79b9_7f4a_7c15;
const K1: u64 = 0x2437_54a3_2439_f31d;

/// A hasher for one table. Who does not know the seeds cannot choose texts that collide.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hasher {
    start: u64,
    key: u64,
}

impl Hasher {
    /// With seeds drawn from `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        Self { start: mix(seed ^ K1), key: mix(seed.wrapping_add(K0)) | 1 }
    }

    /// Of several texts. `shape` must tell their lengths, so that moving a byte from one text to
    /// the next changes the hash.
    #[inline(always)]
    pub(crate) fn hash<'a>(&self, shape: u64, texts: impl IntoIterator<Item = &'a str>) -> u64 {
        let mut h = self.start;
        for text in texts {
            h = self.absorb(h, text.as_bytes());
        }
        // Last, when `h` depends on the seeds in all its bits: earlier, a length and a byte could make
        // up for each other.
        fold(h ^ shape, self.key)
    }

    #[inline(always)]
    fn absorb(&self, mut h: u64, bytes: &[u8]) -> u64 {
        if let Some(last) = bytes.last_chunk::<16>() {
            // The last 16 bytes in any case: they overlap what was taken in, or repeat it.
            for chunk in bytes.as_chunks::<16>().0 {
                h = self.step(h, chunk);
            }
            self.step(h, last)
        } else {
            let (a, b) = short(bytes);
            fold(a ^ h, b ^ self.key)
        }
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the halves of the chunk")]
    fn step(&self, h: u64, chunk: &[u8; 16]) -> u64 {
        let x = u128::from_le_bytes(*chunk);
        fold(x as u64 ^ h, (x >> 64) as u64 ^ self.key)
    }
}

/// Whether two texts of **the same length** are equal, 16 bytes at a time: short texts are not worth
/// a call of the library's comparison.
#[inline(always)]
pub(crate) fn same(a: &[u8], b: &[u8]) -> bool {
    debug_assert_eq!(a.len(), b.len());
    let (Some(last_a), Some(last_b)) = (a.last_chunk::<16>(), b.last_chunk::<16>()) else {
        return short(a) == short(b);
    };
    for (x, y) in a.as_chunks::<16>().0.iter().zip(b.as_chunks::<16>().0) {
        if u128::from_le_bytes(*x) != u128::from_le_bytes(*y) {
            return false;
        }
    }
    u128::from_le_bytes(*last_a) == u128::from_le_bytes(*last_b)
}

/// All bytes of a text shorter than 16, as two numbers; with the length, they tell it exactly.
#[inline(always)]
fn short(bytes: &[u8]) -> (u64, u64) {
    if let (Some(first), Some(last)) = (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
        (u64::from_le_bytes(*first), u64::from_le_bytes(*last))
    } else if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        (u64::from(u32::from_le_bytes(*first)), u64::from(u32::from_le_bytes(*last)))
    } else if let (Some(first), Some(last)) = (bytes.first(), bytes.last()) {
        (u64::from(*first), u64::from(*last) << 8 | u64::from(bytes[bytes.len() / 2]))
    } else {
        (0, 0)
    }
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "folding keeps what it cuts off")]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product >> 64) as u64 ^ product as u64
}

/// One number made into another that looks random: seeds from seeds.
#[inline]
pub(crate) fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(K0);
    fold(fold(x, K1) ^ x.rotate_left(29), K0)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn same_is_equality(a in "[ab]{0,40}", b in "[ab]{0,40}") {
            prop_assert!(same(a.as_bytes(), a.clone().as_bytes()));
            if a.len() == b.len() {
                prop_assert_eq!(same(a.as_bytes(), b.as_bytes()), a == b);
            }
        }
    }

    #[test]
    fn similar_texts_hash_apart_in_both_halves() {
        let hasher = Hasher::new(7);
        let mut low = HashSet::new();
        let mut high = HashSet::new();
        for len in 0..40 {
            for i in 0..2_000 {
                let text = format!("{i:0len$}");
                let h = hasher.hash(text.len() as u64, [text.as_str()]);
                low.insert((len.max(text.len()), i, h & 0xffff_ffff).2);
                high.insert(h >> 32);
            }
        }
        // About 73,000 different texts: by chance, one pair or two collide in 32 bits.
        let distinct: HashSet<String> =
            (0..40).flat_map(|len| (0..2_000).map(move |i| format!("{i:0len$}"))).collect();
        assert!(low.len() + 6 > distinct.len(), "{} of {}", low.len(), distinct.len());
        assert!(high.len() + 6 > distinct.len(), "{} of {}", high.len(), distinct.len());
    }

    #[test]
    fn another_seed_is_another_order() {
        let (a, b) = (Hasher::new(1), Hasher::new(2));
        assert_ne!(a.hash(3, ["abc"]), b.hash(3, ["abc"]));
    }
}
