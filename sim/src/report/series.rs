//! From the bins of a run to the points of a curve: means, times, fewer points than bins.

use super::chart::{Curve, Point};
use crate::outcome::Series;

/// The most points of a curve.
const MAX_POINTS: usize = 900;

/// From a little before the measures begin to the end, in seconds since they begin.
pub(super) fn window(series: &Series) -> (f64, f64) {
    let end = middle(series, series.messages.report_per_s.len()) - step_s(series) / 2.0;
    let before = (end * 0.1).clamp(0.0, series.warmup_s);
    (-before, end.max(step_s(series) - before))
}

fn step_s(series: &Series) -> f64 {
    f64::from(series.step_ms) / 1000.0
}

/// The middle of a bin, in seconds since the measures begin.
pub(super) fn middle(series: &Series, bin: usize) -> f64 {
    (count(bin) + 0.5) * step_s(series) - series.warmup_s
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within the series")]
pub(super) fn bins_before(series: &Series, at: f64) -> usize {
    ((at + series.warmup_s) / step_s(series)).max(0.0) as usize
}

pub(super) fn bins_of(series: &Series, ms: u32) -> usize {
    (ms / series.step_ms.max(1)).max(1) as usize
}

/// The mean over the last `bins` values, at every place; fewer where there are not as many.
pub(super) fn trailing(values: &[f64], bins: usize) -> Vec<f64> {
    if bins <= 1 {
        return values.to_vec();
    }
    let mut sum = 0.0;
    let mut means = Vec::with_capacity(values.len());
    for (i, value) in values.iter().enumerate() {
        sum += value;
        if i >= bins {
            sum -= values[i - bins];
        }
        means.push((sum / count((i + 1).min(bins))).max(0.0));
    }
    means
}

pub(super) fn points(series: &Series, values: &[f64], from: f64, to: f64) -> Vec<Point> {
    let all = values.iter().enumerate().map(|(i, value)| (middle(series, i), Some(*value)));
    all.filter(|(at, _)| (from..=to).contains(at)).collect()
}

/// Means of neighbours, where there are more points than can be seen.
pub(super) fn thin_out(curves: &mut [Curve]) {
    for curve in curves.iter_mut().filter(|c| c.points.len() > MAX_POINTS) {
        let group = curve.points.len().div_ceil(MAX_POINTS);
        let mean = |points: &[Point]| {
            let known: Vec<f64> = points.iter().filter_map(|(_, v)| *v).collect();
            let at = points.iter().map(|(at, _)| at).sum::<f64>() / count(points.len());
            let value = known.iter().sum::<f64>() / count(known.len().max(1));
            (at, (!known.is_empty()).then_some(value))
        };
        curve.points = curve.points.chunks(group).map(mean).collect();
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of bins and clients")]
pub(super) fn count(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::super::chart::Look;
    use super::*;

    #[test]
    fn a_trailing_mean_looks_back() {
        assert_eq!(trailing(&[2.0, 4.0, 6.0, 8.0], 2), [2.0, 3.0, 5.0, 7.0]);
        assert_eq!(trailing(&[2.0, 4.0], 1), [2.0, 4.0]);
    }

    #[test]
    fn many_points_become_few() {
        let points = (0..2000).map(|i| (f64::from(i), Some(1.0))).collect();
        let mut curves = [Curve { name: String::new(), look: Look::Limit, points }];
        thin_out(&mut curves);
        assert_eq!(curves[0].points.len(), 667);
        assert_eq!(curves[0].points[0], (1.0, Some(1.0)));
    }
}
