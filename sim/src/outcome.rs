//! What a run comes to, in the shape that `--json` prints, and the curves behind it. Plain data.

use serde::{Deserialize, Serialize};

/// What a run comes to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// The scenario's name.
    pub scenario: String,
    /// The law.
    pub law: String,
    /// The seed.
    pub seed: u64,
    /// How long the world lived, seconds.
    pub virtual_s: f64,
    /// How long that took, seconds. The simulator knows no wall clock: whoever called it fills
    /// this in.
    pub wall_s: f64,
    /// Over every decision and every message, in order.
    pub trace_sha256: String,
    /// The measures of each bucket.
    pub buckets: Vec<BucketMeasures>,
    /// Messages, from the end of the warm-up on.
    pub messages: Messages,
}

/// The measures of one bucket, from the end of the warm-up on. `None` where one does not apply or
/// is never reached.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct BucketMeasures {
    /// `service/bucket`.
    pub bucket: String,
    /// Until a window of 50 ms is at most 1.10 times the limit.
    pub cut_ms: Option<f64>,
    /// Until every mean over 300 ms stays within 5 % for 3 s.
    pub band_ms: Option<f64>,
    /// The most of any 100 ms, in limits.
    pub peak_x: Option<f64>,
    /// The most of any second, in limits.
    pub max1s_x: Option<f64>,
    /// The least of any second but the first, as a share of what was offered or of the limit,
    /// whichever is less.
    pub min1s_x: Option<f64>,
    /// How deep a token bucket what was admitted would need, in seconds of the limit.
    pub vol_limit_s: Option<f64>,
    /// What was not admitted in the first ten seconds although it was offered and within the limit,
    /// in seconds of the limit.
    pub waste_limit_s: Option<f64>,
    /// The mean once things have settled, in limits.
    pub mean_x: Option<f64>,
    /// The standard deviation over windows of 100 ms, percent of the limit.
    pub sd100_pct: Option<f64>,
    /// The standard deviation over windows of a second, percent of the limit.
    pub sd1s_pct: Option<f64>,
    /// Jain's index of the clients' admitted shares; 1 is fair.
    pub jain: Option<f64>,
}

/// One of the measures of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each is the field of `BucketMeasures` of its name")]
pub enum Measure {
    CutMs,
    BandMs,
    PeakX,
    Max1sX,
    Min1sX,
    VolLimitS,
    WasteLimitS,
    MeanX,
    Sd100Pct,
    Sd1sPct,
    Jain,
}

impl Measure {
    /// All of them, in the order of the fields.
    pub const ALL: [Self; 11] = [
        Self::CutMs,
        Self::BandMs,
        Self::PeakX,
        Self::Max1sX,
        Self::Min1sX,
        Self::VolLimitS,
        Self::WasteLimitS,
        Self::MeanX,
        Self::Sd100Pct,
        Self::Sd1sPct,
        Self::Jain,
    ];

    /// Its name: the field's.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::CutMs => "cut_ms",
            Self::BandMs => "band_ms",
            Self::PeakX => "peak_x",
            Self::Max1sX => "max1s_x",
            Self::Min1sX => "min1s_x",
            Self::VolLimitS => "vol_limit_s",
            Self::WasteLimitS => "waste_limit_s",
            Self::MeanX => "mean_x",
            Self::Sd100Pct => "sd100_pct",
            Self::Sd1sPct => "sd1s_pct",
            Self::Jain => "jain",
        }
    }

    /// Its value of a bucket.
    #[must_use]
    pub fn of(self, bucket: &BucketMeasures) -> Option<f64> {
        match self {
            Self::CutMs => bucket.cut_ms,
            Self::BandMs => bucket.band_ms,
            Self::PeakX => bucket.peak_x,
            Self::Max1sX => bucket.max1s_x,
            Self::Min1sX => bucket.min1s_x,
            Self::VolLimitS => bucket.vol_limit_s,
            Self::WasteLimitS => bucket.waste_limit_s,
            Self::MeanX => bucket.mean_x,
            Self::Sd100Pct => bucket.sd100_pct,
            Self::Sd1sPct => bucket.sd1s_pct,
            Self::Jain => bucket.jain,
        }
    }
}

/// How many messages were sent.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Messages {
    /// From clients to aggregators, for each client and second.
    pub report_per_client_s: f64,
    /// From aggregators to clients, for each client and second.
    pub directive_per_client_s: f64,
    /// From aggregators to controllers, a second.
    pub rollup_per_s: f64,
    /// From controllers to aggregators, a second.
    pub grant_per_s: f64,
}

/// The curves of a run, for plots.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Series {
    /// The width of a bin.
    pub step_ms: u32,
    /// Where the measures begin, seconds.
    pub warmup_s: f64,
    /// One for each bucket, in the order of [`Outcome::buckets`].
    pub buckets: Vec<BucketSeries>,
    /// Messages in each bin, both tiers, a second.
    pub messages: MessageSeries,
}

/// The curves of one bucket: one value a bin.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BucketSeries {
    /// `service/bucket`.
    pub bucket: String,
    /// Requests a second that were offered.
    pub offered_rps: Vec<f64>,
    /// Requests a second that went through.
    pub admitted_rps: Vec<f64>,
    /// The limit in force; `None` for a bucket without one.
    pub limit_rps: Vec<Option<f64>>,
    /// The share that was dropped; 0 where nothing was offered.
    pub drop_ratio: Vec<f64>,
}

/// Messages a second: one value a bin.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct MessageSeries {
    /// From clients.
    pub report_per_s: Vec<f64>,
    /// To clients.
    pub directive_per_s: Vec<f64>,
    /// From aggregators to controllers.
    pub rollup_per_s: Vec<f64>,
    /// From controllers.
    pub grant_per_s: Vec<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measure_is_the_field_of_its_name() {
        for (place, measure) in Measure::ALL.into_iter().enumerate() {
            let mut fields = serde_json::to_value(BucketMeasures::default()).expect("JSON");
            let names: Vec<String> = fields.as_object().expect("fields").keys().cloned().collect();
            assert!(names.contains(&measure.name().to_owned()), "{names:?}");
            assert_eq!(names.len(), Measure::ALL.len() + 1);
            fields[measure.name()] = place.into();
            let text = serde_json::to_value(measure).expect("JSON");
            assert_eq!(text, measure.name());
            let bucket = BucketMeasures {
                cut_ms: fields["cut_ms"].as_f64(),
                band_ms: fields["band_ms"].as_f64(),
                peak_x: fields["peak_x"].as_f64(),
                max1s_x: fields["max1s_x"].as_f64(),
                min1s_x: fields["min1s_x"].as_f64(),
                vol_limit_s: fields["vol_limit_s"].as_f64(),
                waste_limit_s: fields["waste_limit_s"].as_f64(),
                mean_x: fields["mean_x"].as_f64(),
                sd100_pct: fields["sd100_pct"].as_f64(),
                sd1s_pct: fields["sd1s_pct"].as_f64(),
                jain: fields["jain"].as_f64(),
                bucket: String::new(),
            };
            let set: Vec<Measure> =
                Measure::ALL.into_iter().filter(|m| m.of(&bucket).is_some()).collect();
            assert_eq!(set, [measure]);
        }
    }
}
