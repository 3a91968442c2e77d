//! What a run is measured by: counts by the millisecond and bucket, by client, and of messages.
//! Knows no law.

use crate::observe::BucketId;
use crate::outcome::{BucketSeries, MessageSeries, Messages, Series};
use crate::scenario::Tier;

const NANOS_PER_MS: u64 = 1_000_000;
/// The bins of the message counts and of the series.
pub(crate) const SERIES_MS: usize = 50;
/// The kinds of messages that are counted.
const REPORT: usize = 0;
const DIRECTIVE: usize = 1;
const ROLLUP: usize = 2;
const GRANT: usize = 3;

/// What is counted of one bucket.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counted {
    /// By the millisecond.
    pub(crate) offered: Vec<u32>,
    pub(crate) admitted: Vec<u32>,
    /// Offered and admitted by client, from [`Record::fair_from`] on.
    pub(crate) by_client: Vec<(u32, u32)>,
    /// The limit, and from when (in milliseconds) it holds.
    pub(crate) limits: Vec<(usize, Option<f64>)>,
}

/// What a run is measured by.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) buckets: Vec<Counted>,
    messages: Vec<[u32; 4]>,
    /// From when on fairness is measured, in nanoseconds.
    fair_from: u64,
    bins: usize,
}

impl Record {
    pub(crate) fn new(limits: &[Option<f64>], clients: usize, end_ms: usize, fair_ms: u64) -> Self {
        let counted = |limit: &Option<f64>| Counted {
            offered: vec![0; end_ms],
            admitted: vec![0; end_ms],
            by_client: vec![(0, 0); clients],
            limits: vec![(0, *limit)],
        };
        Self {
            buckets: limits.iter().map(counted).collect(),
            messages: vec![[0; 4]; end_ms.div_ceil(SERIES_MS)],
            fair_from: fair_ms * NANOS_PER_MS,
            bins: end_ms,
        }
    }

    fn bin(&self, now: u64) -> usize {
        ((now / NANOS_PER_MS) as usize).min(self.bins - 1)
    }

    /// A request was offered to a bucket at `asked` and went through it, or not, at `now`.
    #[inline]
    pub(crate) fn decided(
        &mut self,
        (asked, now): (u64, u64),
        client: u32,
        bucket: BucketId,
        admitted: bool,
    ) {
        let (from, at) = (self.bin(asked), self.bin(now));
        let counted = &mut self.buckets[bucket.0 as usize];
        counted.offered[from] += 1;
        counted.admitted[at] += u32::from(admitted);
        if now >= self.fair_from {
            let own = &mut counted.by_client[client as usize];
            own.0 += 1;
            own.1 += u32::from(admitted);
        }
    }

    pub(crate) fn message(&mut self, now: u64, from: Tier, to: Tier) {
        let kind = match (from, to) {
            (Tier::Client, _) => REPORT,
            (_, Tier::Client) => DIRECTIVE,
            (Tier::Aggregator, _) => ROLLUP,
            (Tier::Controller, _) => GRANT,
        };
        let bin = self.bin(now) / SERIES_MS;
        self.messages[bin][kind] += 1;
    }

    pub(crate) fn limit(&mut self, now: u64, bucket: BucketId, limit: Option<f64>) {
        let at = self.bin(now);
        self.buckets[bucket.0 as usize].limits.push((at, limit));
    }

    /// Message rates from `from_ms` on.
    #[expect(clippy::cast_precision_loss, reason = "counts of one run")]
    pub(crate) fn message_rates(&self, clients: usize, from_ms: usize) -> Messages {
        let mut sums = [0_u64; 4];
        for bin in self.messages.iter().skip(from_ms / SERIES_MS) {
            for (sum, count) in sums.iter_mut().zip(bin) {
                *sum += u64::from(*count);
            }
        }
        let seconds = (self.bins.saturating_sub(from_ms) as f64 / 1000.0).max(1e-3);
        let [report, directive, rollup, grant] = sums.map(|sum| sum as f64 / seconds);
        Messages {
            report_per_client_s: report / clients as f64,
            directive_per_client_s: directive / clients as f64,
            rollup_per_s: rollup,
            grant_per_s: grant,
        }
    }

    /// The curves.
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    pub(crate) fn series(&self, names: &[String], warmup_s: f64) -> Series {
        let step_s = SERIES_MS as f64 / 1000.0;
        let rates = |counts: &[u32]| -> Vec<f64> {
            let sum = |bin: &[u32]| bin.iter().map(|c| u64::from(*c)).sum::<u64>() as f64;
            // The last bin may be shorter.
            counts.chunks(SERIES_MS).map(|b| sum(b) / (b.len() as f64 / 1000.0)).collect()
        };
        let bucket = |(name, counted): (&String, &Counted)| {
            let offered_rps = rates(&counted.offered);
            let admitted_rps = rates(&counted.admitted);
            let drop = |(o, a): (&f64, &f64)| if *o > 0.0 { ((o - a) / o).max(0.0) } else { 0.0 };
            let drop_ratio = offered_rps.iter().zip(&admitted_rps).map(drop).collect();
            let limit_rps = (0..offered_rps.len()).map(|bin| counted.limit_at(bin * SERIES_MS));
            let limit_rps = limit_rps.collect();
            BucketSeries { bucket: name.clone(), offered_rps, admitted_rps, limit_rps, drop_ratio }
        };
        let kind = |kind: usize| {
            self.messages.iter().map(|bin| f64::from(bin[kind]) / step_s).collect::<Vec<f64>>()
        };
        Series {
            step_ms: u32::try_from(SERIES_MS).unwrap_or(u32::MAX),
            warmup_s,
            buckets: names.iter().zip(&self.buckets).map(bucket).collect(),
            messages: MessageSeries {
                report_per_s: kind(REPORT),
                directive_per_s: kind(DIRECTIVE),
                rollup_per_s: kind(ROLLUP),
                grant_per_s: kind(GRANT),
            },
        }
    }
}

impl Counted {
    fn limit_at(&self, ms: usize) -> Option<f64> {
        self.limits.iter().rev().find(|(from, _)| *from <= ms).and_then(|(_, limit)| *limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_show_what_was_counted() {
        let mut record = Record::new(&[Some(100.0)], 2, 120, 60);
        let ms = |t: u64| t * NANOS_PER_MS;
        record.decided((ms(10), ms(10)), 0, BucketId(0), true);
        record.decided((ms(40), ms(70)), 1, BucketId(0), true);
        record.decided((ms(70), ms(70)), 1, BucketId(0), false);
        record.limit(ms(60), BucketId(0), Some(50.0));
        record.message(ms(55), Tier::Client, Tier::Aggregator);
        record.message(ms(55), Tier::Controller, Tier::Aggregator);
        let series = record.series(&["s/b".into()], 0.0);
        let curve = &series.buckets[0];
        assert_eq!(curve.offered_rps, [40.0, 20.0, 0.0]);
        assert_eq!(curve.admitted_rps, [20.0, 20.0, 0.0]);
        assert_eq!(curve.limit_rps, [Some(100.0), Some(100.0), Some(50.0)]);
        assert_eq!(curve.drop_ratio, [0.5, 0.0, 0.0]);
        assert_eq!(series.messages.report_per_s, [0.0, 20.0, 0.0]);
        assert_eq!(record.buckets[0].by_client, [(0, 0), (2, 1)]);
        let rates = record.message_rates(2, 20);
        assert!((rates.grant_per_s - 10.0).abs() < 1e-9);
        assert!((rates.report_per_client_s - 5.0).abs() < 1e-9);
    }
}
