//! The measures: what happened to one bucket, in a few numbers that do not depend on its limit.
//! Works on counts by the millisecond; knows no world.

use crate::outcome::BucketMeasures;
use crate::record::Counted;

/// Above the limit by so much counts as over it, for the cut.
const CUT_X: f64 = 1.10;
/// Limits below this get three standard deviations on top of that: their windows are noisy.
const SMALL_LIMIT_RPS: f64 = 2000.0;
/// Around the limit, for the band.
const BAND: f64 = 0.05;
/// How long it must hold.
const BAND_MS: usize = 3000;
/// Clients with fewer requests do not count for fairness.
const FAIR_REQUESTS: u32 = 30;

/// The measures of one bucket from `from_ms` to the end.
pub(crate) fn measure(name: &str, counted: &Counted, from_ms: usize) -> BucketMeasures {
    let limit = counted.limits.first().and_then(|(_, limit)| *limit).filter(|limit| *limit > 0.0);
    let jain = jain(&counted.by_client);
    let Some(limit) = limit else {
        return BucketMeasures { bucket: name.to_owned(), jain, ..BucketMeasures::default() };
    };
    let run = Run {
        offered: Sums::new(&counted.offered),
        admitted: Sums::new(&counted.admitted),
        limit,
        from: from_ms,
        end: counted.offered.len(),
    };
    let (mean_x, sd100_pct) = run.windows(100);
    let (_, sd1s_pct) = run.windows(1000);
    BucketMeasures {
        bucket: name.to_owned(),
        cut_ms: run.cut(),
        band_ms: run.band(),
        peak_x: run.most(100, 10),
        max1s_x: run.most(1000, 20),
        min1s_x: run.least(),
        vol_limit_s: Some(run.volume(&counted.admitted)),
        waste_limit_s: Some(run.waste()),
        mean_x,
        sd100_pct,
        sd1s_pct,
        jain,
    }
}

/// Sums of all counts before each millisecond.
struct Sums(Vec<u64>);

impl Sums {
    fn new(counts: &[u32]) -> Self {
        let mut sum = 0;
        let mut sums = vec![0];
        sums.extend(counts.iter().map(|count| {
            sum += u64::from(*count);
            sum
        }));
        Self(sums)
    }

    /// Requests a second in the `ms` milliseconds from `at` on.
    #[expect(clippy::cast_precision_loss, reason = "counts of one run")]
    fn rate(&self, at: usize, ms: usize) -> f64 {
        (self.0[at + ms] - self.0[at]) as f64 * 1000.0 / ms as f64
    }
}

/// One bucket's run, as far as it is measured. Windows slide in whole steps.
struct Run {
    offered: Sums,
    admitted: Sums,
    limit: f64,
    from: usize,
    end: usize,
}

impl Run {
    #[expect(clippy::cast_precision_loss, reason = "milliseconds of one run")]
    fn since_start(&self, at: usize) -> f64 {
        (at - self.from) as f64
    }

    /// Until a window of 50 ms is at most 1.10 times the limit.
    fn cut(&self) -> Option<f64> {
        let noise =
            if self.limit < SMALL_LIMIT_RPS { 3.0 * (self.limit * 20.0).sqrt() } else { 0.0 };
        let bound = CUT_X * self.limit + noise;
        let mut starts = (self.from..).step_by(5).take_while(|at| at + 50 < self.end);
        starts.find(|at| self.admitted.rate(*at, 50) <= bound).map(|at| self.since_start(at))
    }

    /// Until every mean over 300 ms stays within 5 % of what it should be for 3 s.
    fn band(&self) -> Option<f64> {
        let is_off = |at: &usize| {
            let rate = self.admitted.rate(*at, 300);
            let target = self.offered.rate(*at, 300).min(self.limit);
            rate > (1.0 + BAND) * self.limit || rate < (1.0 - BAND) * target
        };
        let mut start = self.from;
        while start + BAND_MS + 300 < self.end {
            match (start..start + BAND_MS).step_by(10).find(is_off) {
                Some(off) => start = off + 10,
                None => return Some(self.since_start(start)),
            }
        }
        None
    }

    /// The highest rate of a window, in limits.
    fn most(&self, ms: usize, step: usize) -> Option<f64> {
        let starts = (self.from..).step_by(step).take_while(|at| at + ms <= self.end);
        starts.map(|at| self.admitted.rate(at, ms) / self.limit).reduce(f64::max)
    }

    /// The lowest rate of a second, the first one excepted, against what it should be.
    fn least(&self) -> Option<f64> {
        let starts = (self.from + 1000..).step_by(50).take_while(|at| at + 1000 <= self.end);
        let share = |at: usize| {
            let target = self.offered.rate(at, 1000).min(self.limit);
            (target > 0.0).then(|| self.admitted.rate(at, 1000) / target)
        };
        starts.filter_map(share).reduce(f64::min)
    }

    /// The deepest that a token bucket of this limit would be overdrawn, in seconds of the limit.
    fn volume(&self, admitted: &[u32]) -> f64 {
        let flow = self.limit / 1000.0;
        let (mut level, mut most) = (0.0_f64, 0.0_f64);
        for count in &admitted[self.from..] {
            level = (level + f64::from(*count) - flow).max(0.0);
            most = most.max(level);
        }
        most / self.limit
    }

    /// What could have been admitted in the first ten seconds and was not, in seconds of the limit.
    fn waste(&self) -> f64 {
        let end = (self.from + 10_000).min(self.end);
        let starts = (self.from..).step_by(100).take_while(|at| at + 100 <= end);
        let short = |at| self.offered.rate(at, 100).min(self.limit) - self.admitted.rate(at, 100);
        starts.map(|at| short(at).max(0.0) * 0.1 / self.limit).sum()
    }

    /// Mean in limits, and standard deviation in percent of the limit, of windows one after another:
    /// those of the last seconds, from ten seconds on if the run is long enough for it.
    #[expect(clippy::cast_precision_loss, reason = "windows of one run")]
    fn windows(&self, ms: usize) -> (Option<f64>, Option<f64>) {
        let from = (self.from + 10_000).min(self.end.saturating_sub(5000)).max(self.from);
        let starts = (from..).step_by(ms).take_while(|at| at + ms <= self.end);
        let rates: Vec<f64> = starts.map(|at| self.admitted.rate(at, ms) / self.limit).collect();
        if rates.is_empty() {
            return (None, None);
        }
        let count = rates.len() as f64;
        let mean = rates.iter().sum::<f64>() / count;
        let variance = rates.iter().map(|r| (r - mean) * (r - mean)).sum::<f64>() / count;
        (Some(mean), Some(variance.sqrt() * 100.0))
    }
}

/// Jain's index of the clients' admitted shares.
fn jain(by_client: &[(u32, u32)]) -> Option<f64> {
    let busy = by_client.iter().filter(|(offered, _)| *offered >= FAIR_REQUESTS);
    let (mut sum, mut squares, mut count) = (0.0, 0.0, 0.0);
    for (offered, admitted) in busy {
        let share = f64::from(*admitted) / f64::from(*offered);
        sum += share;
        squares += share * share;
        count += 1.0;
    }
    (squares > 0.0).then(|| sum * sum / (count * squares))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A second has 1,000 of everything here: a limit of 1,000 is one a millisecond.
    const LIMIT: f64 = 100_000.0;
    const FLOW: u32 = 100;

    fn counted(offered: Vec<u32>, admitted: Vec<u32>) -> Counted {
        Counted { offered, admitted, by_client: vec![], limits: vec![(0, Some(LIMIT))] }
    }

    /// Pieces of so many milliseconds with so many requests each.
    fn pieces(pieces: &[(usize, u32)]) -> Vec<u32> {
        pieces.iter().flat_map(|(ms, count)| std::iter::repeat_n(*count, *ms)).collect()
    }

    fn close(value: Option<f64>, to: f64) {
        let value = value.expect("a measure");
        assert!((value - to).abs() < 1e-9, "{value} is not {to}");
    }

    #[test]
    fn a_surge_that_is_cut_off() {
        // From 1,000 ms on: 200 ms at 5 limits, 100 ms at 0, then the limit.
        let admitted = pieces(&[(1000, FLOW / 2), (200, 5 * FLOW), (100, 0), (10_700, FLOW)]);
        let m = measure("s/b", &counted(vec![5 * FLOW; 12_000], admitted), 1000);
        // The first window of 50 ms at most 1.1 limits: 11 ms of the surge and 39 of the pause.
        close(m.cut_ms, 190.0);
        close(m.peak_x, 5.0);
        // The worst second: 200 ms at 5, 100 at 0, 700 at 1.
        close(m.max1s_x, 1.7);
        // 200 ms at four limits too much.
        close(m.vol_limit_s, 0.8);
        close(m.waste_limit_s, 0.1);
        close(m.mean_x, 1.0);
        close(m.sd100_pct, 0.0);
        close(m.sd1s_pct, 0.0);
        // Of 300 ms, at most 15 ms of the pause are within 5 %: the pause ends at 300 ms.
        close(m.band_ms, 290.0);
        close(m.min1s_x, 1.0);
        assert_eq!(m.jain, None);
        assert_eq!(m.bucket, "s/b");
    }

    #[test]
    fn what_is_never_reached_is_none() {
        let m = measure("s/b", &counted(vec![500; 6000], vec![500; 6000]), 0);
        assert_eq!((m.cut_ms, m.band_ms), (None, None));
        close(m.vol_limit_s, 24.0);
        close(m.mean_x, 5.0);
    }

    #[test]
    fn service_that_comes_and_goes_varies() {
        // Half a second at twice the limit, half a second at nothing.
        let admitted = pieces(&[(500, 200), (500, 0)].repeat(20));
        let m = measure("s/b", &counted(vec![400; 20_000], admitted), 0);
        close(m.mean_x, 1.0);
        close(m.sd100_pct, 100.0);
        close(m.sd1s_pct, 0.0);
        close(m.vol_limit_s, 0.5);
        close(m.waste_limit_s, 5.0);
        close(m.min1s_x, 1.0);
        assert_eq!(m.band_ms, None);
    }

    #[test]
    fn below_the_limit_the_target_is_what_was_offered() {
        let m = measure("s/b", &counted(vec![50; 6000], vec![40; 6000]), 0);
        close(m.min1s_x, 0.8);
        close(m.waste_limit_s, 0.6);
        assert_eq!(m.band_ms, None, "10 % of the limit short of what was offered");
        close(m.cut_ms, 0.0);
        close(m.vol_limit_s, 0.0);
    }

    #[test]
    fn a_small_limit_is_cut_with_room_for_noise() {
        let noisy = |count: u32| {
            let mut c = counted(vec![count; 1000], vec![count; 1000]);
            c.limits = vec![(0, Some(1000.0))];
            measure("s/b", &c, 0).cut_ms
        };
        // 1,100 and three times the root of 20,000.
        assert_eq!(noisy(1), Some(0.0));
        assert_eq!(noisy(2), None);
    }

    #[test]
    fn fairness_counts_busy_clients_only() {
        close(jain(&[(100, 50), (40, 20), (29, 0)]), 1.0);
        // Shares of 1 and 0: (1 + 0)^2 / (2 * 1).
        close(jain(&[(100, 100), (100, 0)]), 0.5);
        assert_eq!(jain(&[(100, 0)]), None);
    }

    #[test]
    fn without_a_limit_nothing_is_measured_against_it() {
        let mut c = counted(vec![1; 100], vec![1; 100]);
        c.limits = vec![(0, None)];
        let m = measure("s/b", &c, 0);
        assert_eq!(m, BucketMeasures { bucket: "s/b".into(), ..BucketMeasures::default() });
    }

    #[test]
    fn a_run_shorter_than_a_window_has_no_measure() {
        let m = measure("s/b", &counted(vec![1; 30], vec![1; 30]), 0);
        assert_eq!((m.cut_ms, m.peak_x, m.max1s_x, m.mean_x), (None, None, None, None));
    }
}
