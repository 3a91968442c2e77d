//! Repeatable choices: the same seed gives every process of a load the same answers.

/// A well mixed 64-bit hash of a seed and a number (the finaliser of splitmix64).
pub(crate) fn mix(seed: u64, number: u64) -> u64 {
    let mut z = seed
        .wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
        .wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A number in `0.0..1.0` from a hash.
#[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
pub(crate) fn unit(hash: u64) -> f64 {
    (hash >> 11) as f64 / 9_007_199_254_740_992.0
}

/// The part of the golden ratio behind the point: its multiples fill `0..1` evenly.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// A number in `0.0..1.0` that, over consecutive `number`s, covers the range evenly.
pub(crate) fn even(seed: u64, number: u64) -> f64 {
    unit(mix(seed, 0).wrapping_add(number.wrapping_mul(GOLDEN)))
}

/// A choice among things with weights.
#[derive(Debug, Clone)]
pub(crate) struct Weighted {
    /// Running sums, the last one 1.
    upto: Vec<f64>,
}

impl Weighted {
    /// By these weights, of which at least one must be above zero and all finite.
    pub(crate) fn new(weights: &[f64]) -> Option<Self> {
        let total: f64 = weights.iter().sum();
        let usable = weights.iter().all(|w| w.is_finite() && *w >= 0.0) && total > 0.0;
        if !usable || !total.is_finite() {
            return None;
        }
        let mut sum = 0.0;
        let upto = weights.iter().map(|w| {
            sum += w / total;
            sum
        });
        Some(Self { upto: upto.collect() })
    }

    /// No choice: always the first.
    pub(crate) fn single() -> Self {
        Self { upto: vec![1.0] }
    }

    /// Weights that fall with the rank as `1 / rank^skew`: 0 is even, 1 is Zipf's law.
    pub(crate) fn zipf(count: usize, skew: f64) -> Option<Self> {
        #[expect(clippy::cast_precision_loss, reason = "counts of clients are small")]
        let weights: Vec<f64> = (1..=count).map(|rank| (rank as f64).powf(-skew)).collect();
        Self::new(&weights)
    }

    /// The place that `unit` (`0.0..1.0`) falls on.
    pub(crate) fn pick(&self, unit: f64) -> usize {
        self.upto.partition_point(|upto| *upto <= unit).min(self.upto.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(weighted: &Weighted, n: usize, of: impl Fn(u64) -> f64) -> Vec<f64> {
        let mut counts = vec![0.0; n];
        for k in 0..20_000 {
            counts[weighted.pick(of(k))] += 1.0 / 20_000.0;
        }
        counts
    }

    #[test]
    fn picks_follow_the_weights() {
        let w = Weighted::new(&[1.0, 0.0, 3.0]).expect("usable");
        let by_hash = shares(&w, 3, |k| unit(mix(7, k)));
        assert!((by_hash[0] - 0.25).abs() < 0.02 && by_hash[1] == 0.0, "{by_hash:?}");
        let evenly = shares(&w, 3, |k| even(7, k));
        assert!((evenly[0] - 0.25).abs() < 0.001, "{evenly:?}");
    }

    #[test]
    fn zipf_of_skew_zero_is_even_and_of_one_falls() {
        let even = shares(&Weighted::zipf(4, 0.0).expect("usable"), 4, |k| unit(mix(1, k)));
        assert!(even.iter().all(|s| (s - 0.25).abs() < 0.02), "{even:?}");
        let zipf = shares(&Weighted::zipf(2, 1.0).expect("usable"), 2, |k| unit(mix(1, k)));
        assert!((zipf[0] / zipf[1] - 2.0).abs() < 0.15, "{zipf:?}");
    }

    #[test]
    fn weights_that_choose_nothing_are_refused() {
        for bad in [&[][..], &[0.0], &[-1.0, 2.0], &[f64::NAN], &[f64::INFINITY]] {
            assert!(Weighted::new(bad).is_none(), "{bad:?}");
        }
    }
}
