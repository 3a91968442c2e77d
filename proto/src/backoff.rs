//! How long to wait before the next attempt. Pure: a seed goes in, durations come out.

use std::time::Duration;

/// Waits that double from `first` up to `most`, each drawn at random from the upper half of its
/// range, so that many that failed together do not come back together.
#[derive(Debug, Clone)]
pub struct Backoff {
    first: Duration,
    most: Duration,
    failures: u32,
    random: u64,
}

impl Backoff {
    /// The wait after the first failure, at most.
    pub const FIRST: Duration = Duration::from_millis(100);
    /// The longest wait. Short, because enforcement stands still for so long after a restart.
    pub const MOST: Duration = Duration::from_secs(1);

    /// From [`Self::FIRST`] to [`Self::MOST`].
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self::between(Self::FIRST, Self::MOST, seed)
    }

    /// From `first` to `most`.
    #[must_use]
    pub fn between(first: Duration, most: Duration, seed: u64) -> Self {
        Self { first, most, failures: 0, random: seed }
    }

    /// The wait after one more failure.
    pub fn next_wait(&mut self) -> Duration {
        let doubled = self.first.saturating_mul(1_u32 << self.failures.min(20));
        self.failures = self.failures.saturating_add(1);
        let range = doubled.min(self.most);
        // A half, and a random part of the other half.
        range.mul_f64(0.5 + 0.5 * self.next_share())
    }

    /// Failures since the last success.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// After a success: the next wait is short again.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// SplitMix64, as a share of 1.
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    fn next_share(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        (z >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_to_a_bound_and_begin_again() {
        let mut backoff = Backoff::new(7);
        for range_ms in [100, 200, 400, 800, 1000, 1000, 1000] {
            let range = Duration::from_millis(range_ms);
            let wait = backoff.next_wait();
            assert!(wait >= range / 2 && wait <= range, "{wait:?} of {range:?}");
        }
        for _ in 0..100 {
            assert!(backoff.next_wait() <= Backoff::MOST);
        }
        backoff.reset();
        assert!(backoff.next_wait() <= Backoff::FIRST);
    }

    #[test]
    fn seeds_come_back_at_different_times_and_repeat() {
        let first = |seed| Backoff::new(seed).next_wait();
        let waits: std::collections::BTreeSet<_> = (0..100).map(first).collect();
        assert!(waits.len() > 95, "{} different waits of 100", waits.len());
        assert_eq!(first(3), first(3));
    }
}
