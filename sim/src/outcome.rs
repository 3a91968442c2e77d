//! What a run comes to, in the shape that `--json` prints, and the curves behind it. Plain data.

use serde::Serialize;

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
