//! A trace at work: each of its requests once (or scaled), spread at random over its bin.

use super::file::TraceFile;
use crate::random::Rng;

/// Where a trace is.
#[derive(Debug, Default)]
pub(super) struct Replay {
    /// The next entry to take up.
    entry: usize,
    /// What is left of the bin at hand, by kind.
    left: Vec<(u16, u64)>,
    at: u64,
    bin_end: u64,
    kind: u16,
}

impl Replay {
    /// The kind of the request that [`Replay::after`] told of last.
    pub(super) fn kind(&self) -> u16 {
        self.kind
    }

    /// When the next request comes; `u64::MAX` after the last.
    pub(super) fn after(&mut self, file: &TraceFile, scale: f64, rng: &mut Rng) -> u64 {
        let mut left: u64 = self.left.iter().map(|(_, count)| count).sum();
        while left == 0 {
            if self.entry >= file.entries.len() {
                return u64::MAX;
            }
            left = self.take_up(file, scale, rng);
        }
        // The first of so many times that are spread evenly at random.
        #[expect(clippy::cast_precision_loss, reason = "counts of a bin, and a bin's length")]
        let (share, span) = (
            1.0 - libm::pow(1.0 - rng.share(), 1.0 / left as f64),
            self.bin_end.saturating_sub(self.at) as f64,
        );
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in the bin")]
        let passed = (share * span) as u64;
        self.at += passed;
        let mut place = rng.below(left);
        for (kind, count) in &mut self.left {
            if place < *count {
                *count -= 1;
                self.kind = *kind;
                break;
            }
            place -= *count;
        }
        self.at
    }

    /// The next bin that has requests. How many there are in it.
    fn take_up(&mut self, file: &TraceFile, scale: f64, rng: &mut Rng) -> u64 {
        self.left.clear();
        let bin = file.entries[self.entry].bin;
        while let Some(entry) = file.entries.get(self.entry).filter(|e| e.bin == bin) {
            #[expect(clippy::cast_precision_loss, reason = "counts of a trace")]
            let scaled = entry.count as f64 * scale;
            let part = u64::from(rng.happens(scaled.fract()));
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
            let count = scaled.floor() as u64 + part;
            self.left.push((entry.kind, count));
            self.entry += 1;
        }
        self.at = bin * file.bin_ns();
        self.bin_end = self.at + file.bin_ns();
        self.left.iter().map(|(_, count)| count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::file::TraceEntry;

    fn file() -> TraceFile {
        let entry = |bin, kind, count| TraceEntry { bin, kind, count };
        TraceFile::of(100, &[entry(0, 0, 50), entry(0, 1, 25), entry(7, 1, 10)])
    }

    fn all(scale: f64) -> Vec<(u64, u16)> {
        let (file, mut replay, mut rng) = (file(), Replay::default(), Rng::new(1, 1));
        std::iter::from_fn(|| {
            let at = replay.after(&file, scale, &mut rng);
            (at != u64::MAX).then(|| (at, replay.kind()))
        })
        .collect()
    }

    #[test]
    fn each_request_comes_once_in_its_bin() {
        let all = all(1.0);
        assert!(all.is_sorted_by_key(|(at, _)| *at));
        let of = |bin, kind| all.iter().filter(|(at, k)| (at / 100, *k) == (bin, kind)).count();
        assert_eq!([of(0, 0), of(0, 1), of(7, 1)], [50, 25, 10]);
        assert_eq!(all.len(), 85);
        let middle = all.iter().filter(|(at, _)| *at < 50).count();
        assert!((25..50).contains(&middle), "{middle} of 75 in the first half");
    }

    #[test]
    fn a_scale_multiplies_and_thins() {
        assert_eq!(all(3.0).len(), 255);
        let thinned = all(0.31).len();
        assert!((25..=28).contains(&thinned), "{thinned}");
    }
}
