//! Random numbers that are the same on every machine: integers, and floats made with arithmetic and
//! the portable `libm` only. Knows nothing of what they are for.

use std::time::Duration;

/// SplitMix64: a counter, mixed. One for each node and workload, so that what one of them draws
/// never depends on what another one does.
#[derive(Debug, Clone)]
pub struct Rng {
    counter: u64,
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Rng {
    /// The sequence number `stream` of those that belong to `seed`.
    #[must_use]
    pub fn new(seed: u64, stream: u64) -> Self {
        let counter = mix(mix(seed.wrapping_add(GOLDEN)) ^ mix(stream.wrapping_mul(GOLDEN) ^ 1));
        Self { counter }
    }

    /// 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.counter = self.counter.wrapping_add(GOLDEN);
        mix(self.counter)
    }

    /// From 0 up to, not including, 1.
    #[inline]
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    pub fn share(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Whether something of this probability happens.
    #[inline]
    pub fn happens(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.share() < probability
    }

    /// From 0 up to, not including, `end`; 0 for an `end` of 0.
    #[inline]
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(end)) >> 64) as u64
    }

    /// A time from zero up to, not including, `end`.
    pub fn time_below(&mut self, end: Duration) -> Duration {
        let nanos = u64::try_from(end.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(self.below(nanos))
    }

    /// A wait until the next of events that come at random, one on average.
    #[inline]
    pub fn exponential(&mut self) -> f64 {
        -libm::log(1.0 - self.share())
    }

    /// A whole number from 1, `mean` on average, each as likely as the one before times a constant.
    pub fn geometric(&mut self, mean: f64) -> u32 {
        if mean <= 1.0 {
            return 1;
        }
        let more = libm::log(1.0 - self.share()) / libm::log(1.0 - 1.0 / mean);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
        let more = more.clamp(0.0, 1e6) as u32;
        1 + more
    }

    /// Puts `items` into a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            #[expect(clippy::cast_possible_truncation, reason = "below i + 1")]
            let j = self.below(i as u64 + 1) as usize;
            items.swap(i, j);
        }
    }
}

/// Draws from a weighted set in constant time (Walker's alias method).
#[derive(Debug, Clone)]
pub struct Weighted {
    /// Of each place, the share that stays with it, and who has the rest.
    places: Vec<(f64, u32)>,
}

impl Weighted {
    /// By weights that are finite, not negative, and not all 0; otherwise all are alike.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "as many as there are clients")]
    #[expect(clippy::cast_possible_truncation, reason = "as many as there are clients")]
    pub fn new(weights: &[f64]) -> Self {
        let sum: f64 = weights.iter().sum();
        let scale = if sum > 0.0 && sum.is_finite() { weights.len() as f64 / sum } else { 0.0 };
        let mut left: Vec<f64> =
            weights.iter().map(|w| if scale > 0.0 { w * scale } else { 1.0 }).collect();
        let mut places: Vec<(f64, u32)> = (0..weights.len()).map(|i| (1.0, i as u32)).collect();
        let (mut small, mut large): (Vec<usize>, Vec<usize>) =
            (0..weights.len()).partition(|i| left[*i] < 1.0);
        while let (Some(&s), Some(&l)) = (small.last(), large.last()) {
            small.pop();
            places[s] = (left[s], l as u32);
            left[l] -= 1.0 - left[s];
            if left[l] < 1.0 {
                large.pop();
                small.push(l);
            }
        }
        Self { places }
    }

    /// One of them.
    #[inline]
    pub fn draw(&self, rng: &mut Rng) -> usize {
        #[expect(clippy::cast_precision_loss, reason = "as many as there are clients")]
        let at = rng.share() * self.places.len() as f64;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in range")]
        let place = (at as usize).min(self.places.len() - 1);
        #[expect(clippy::cast_precision_loss, reason = "as many as there are clients")]
        let within = at - place as f64;
        let (share, other) = self.places[place];
        if within < share { place } else { other as usize }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_repeat_and_differ_by_seed_and_stream() {
        let first = |seed, stream| Rng::new(seed, stream).bits();
        assert_eq!(first(1, 2), first(1, 2));
        let all: std::collections::BTreeSet<u64> =
            (0..50).flat_map(|seed| (0..50).map(move |stream| first(seed, stream))).collect();
        assert_eq!(all.len(), 2500);
    }

    #[test]
    fn numbers_are_pinned_so_that_another_machine_shows_a_difference() {
        let mut rng = Rng::new(7, 3);
        let drawn = (rng.bits(), rng.below(1000), rng.exponential().to_bits(), rng.geometric(5.0));
        assert_eq!(drawn, PINNED);
    }

    const PINNED: (u64, u64, u64, u32) =
        (171_571_878_645_065_808, 329, 4_607_748_888_486_769_138, 3);

    #[test]
    #[expect(clippy::cast_precision_loss, reason = "small")]
    fn means_are_what_they_should_be() {
        let mut rng = Rng::new(1, 1);
        let n = 200_000;
        let mean = |mut f: Box<dyn FnMut(&mut Rng) -> f64>, rng: &mut Rng| {
            (0..n).map(|_| f(rng)).sum::<f64>() / f64::from(n)
        };
        assert!((mean(Box::new(Rng::share), &mut rng) - 0.5).abs() < 0.005);
        assert!((mean(Box::new(Rng::exponential), &mut rng) - 1.0).abs() < 0.01);
        assert!((mean(Box::new(|r| f64::from(r.geometric(5.0))), &mut rng) - 5.0).abs() < 0.05);
        assert!((mean(Box::new(|r| r.below(10) as f64), &mut rng) - 4.5).abs() < 0.03);
    }

    #[test]
    fn a_weighted_set_is_drawn_by_its_weights() {
        let set = Weighted::new(&[1.0, 0.0, 3.0, 6.0]);
        let mut rng = Rng::new(2, 2);
        let mut drawn = [0_u32; 4];
        for _ in 0..100_000 {
            drawn[set.draw(&mut rng)] += 1;
        }
        assert_eq!(drawn[1], 0);
        for (got, want) in drawn.iter().zip([10_000_u32, 0, 30_000, 60_000]) {
            assert!(got.abs_diff(want) < 800, "{drawn:?}");
        }
        assert_eq!(Weighted::new(&[0.0]).draw(&mut rng), 0);
    }
}
