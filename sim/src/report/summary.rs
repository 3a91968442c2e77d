//! Many seeds in two numbers: the median, and the worst.

use crate::law::Law;
use crate::outcome::{BucketMeasures, Measure, Messages, Outcome};

/// A value of a table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Cell {
    /// It is so much.
    Is(f64),
    /// What it waits for never came.
    Never,
    /// It does not apply.
    None,
}

/// What the runs of one law did to one bucket.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// The law.
    pub law: Law,
    /// `service/bucket`.
    pub bucket: String,
    /// Each measure's median and worst.
    pub cells: Vec<(Measure, Cell, Cell)>,
    /// The messages of the whole world.
    pub messages: MessageSummary,
}

/// Medians over the seeds.
pub type MessageSummary = Messages;

impl Cell {
    /// The value of a measure of a bucket.
    #[must_use]
    pub fn of(measure: Measure, bucket: &BucketMeasures) -> Self {
        // What applies to a bucket is told from the peak, which every bucket with a limit has.
        let waits = matches!(measure, Measure::CutMs | Measure::BandMs);
        match measure.of(bucket) {
            Some(value) => Self::Is(value),
            None if waits && bucket.peak_x.is_some() => Self::Never,
            None => Self::None,
        }
    }

    /// The value, if there is one.
    #[must_use]
    pub fn value(self) -> Option<f64> {
        match self {
            Self::Is(value) => Some(value),
            Self::Never | Self::None => None,
        }
    }

    /// For sorting: what never comes is later than everything.
    fn rank(self) -> Option<f64> {
        match self {
            Self::Is(value) => Some(value),
            Self::Never => Some(f64::INFINITY),
            Self::None => None,
        }
    }

    fn from_rank(rank: Option<f64>) -> Self {
        match rank {
            Some(value) if value.is_finite() => Self::Is(value),
            Some(_) => Self::Never,
            None => Self::None,
        }
    }
}

impl Summary {
    pub(super) fn new(law: Law, outcomes: &[Outcome], bucket: usize) -> Self {
        let buckets = || outcomes.iter().filter_map(|o| o.buckets.get(bucket));
        let cells = Measure::ALL.map(|measure| {
            let ranks: Vec<f64> = buckets().filter_map(|b| Cell::of(measure, b).rank()).collect();
            let worst = ranks.iter().copied().reduce(|a, b| worse(measure, a, b));
            (measure, Cell::from_rank(median(&ranks)), Cell::from_rank(worst))
        });
        let message = |of: fn(&Messages) -> f64| {
            median(&outcomes.iter().map(|o| of(&o.messages)).collect::<Vec<_>>()).unwrap_or(0.0)
        };
        Self {
            law,
            bucket: buckets().next().map(|b| b.bucket.clone()).unwrap_or_default(),
            cells: cells.to_vec(),
            messages: Messages {
                report_per_client_s: message(|m| m.report_per_client_s),
                directive_per_client_s: message(|m| m.directive_per_client_s),
                rollup_per_s: message(|m| m.rollup_per_s),
                grant_per_s: message(|m| m.grant_per_s),
            },
        }
    }

    /// A measure's median and worst.
    #[must_use]
    pub fn cell(&self, measure: Measure) -> (Cell, Cell) {
        let found = self.cells.iter().find(|(m, ..)| *m == measure);
        found.map_or((Cell::None, Cell::None), |(_, median, worst)| (*median, *worst))
    }
}

/// The worse of two values.
pub(super) fn worse(measure: Measure, a: f64, b: f64) -> f64 {
    let b_is_worse = match measure {
        Measure::Min1sX | Measure::Jain => b < a,
        Measure::MeanX => (b - 1.0).abs() > (a - 1.0).abs(),
        Measure::CutMs
        | Measure::BandMs
        | Measure::PeakX
        | Measure::Max1sX
        | Measure::VolLimitS
        | Measure::WasteLimitS
        | Measure::Sd100Pct
        | Measure::Sd1sPct => b > a,
    };
    if b_is_worse { b } else { a }
}

fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    Some(if sorted.len().is_multiple_of(2) {
        f64::midpoint(sorted[middle - 1], upper)
    } else {
        upper
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_count_lies_between() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[1.0, f64::INFINITY]), Some(f64::INFINITY));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn worse_depends_on_the_measure() {
        let same = |a: f64, b: f64| (a - b).abs() < 1e-12;
        assert!(same(worse(Measure::CutMs, 1.0, 2.0), 2.0));
        assert!(same(worse(Measure::Min1sX, 1.0, 0.5), 0.5));
        assert!(same(worse(Measure::MeanX, 0.9, 1.05), 0.9));
    }

    #[test]
    fn never_is_told_from_what_does_not_apply() {
        let limited = BucketMeasures { peak_x: Some(2.0), ..BucketMeasures::default() };
        assert_eq!(Cell::of(Measure::CutMs, &limited), Cell::Never);
        assert_eq!(Cell::of(Measure::Jain, &limited), Cell::None);
        assert_eq!(Cell::of(Measure::CutMs, &BucketMeasures::default()), Cell::None);
    }
}
