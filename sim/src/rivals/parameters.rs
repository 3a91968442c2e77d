//! What can be set of each rival, `rivals:` in a scenario. The defaults are those of the public
//! descriptions where they name one, and of the study where they do not.

use serde::{Deserialize, Serialize};

/// The parameters of all rivals.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rivals {
    /// Law `proxy-bucket`.
    pub proxy_bucket: ProxyBucket,
    /// Law `envoy-redis`.
    pub envoy_redis: EnvoyRedis,
    /// Law `batch-window`.
    pub batch_window: BatchWindow,
    /// Law `batch-rate`.
    pub batch_rate: BatchRate,
    /// Law `batch-bucket`.
    pub batch_bucket: BatchBucket,
    /// Law `prefetch`.
    pub prefetch: Prefetch,
}

/// A token bucket in each client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProxyBucket {
    /// Between two reports, two steps of the tiers above, and two refills of the buckets.
    pub interval_ms: u64,
    /// How long unused tokens are kept; the public description says 10 to 20 seconds.
    pub keep_ms: u64,
}

impl Default for ProxyBucket {
    fn default() -> Self {
        Self { interval_ms: 1000, keep_ms: 10_000 }
    }
}

/// A central fixed window that every request asks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EnvoyRedis {
    /// The window.
    pub window_ms: u64,
    /// Without an answer after this, a request goes through.
    pub timeout_ms: u64,
    /// Where the store stands.
    pub store: Store,
}

impl Default for EnvoyRedis {
    fn default() -> Self {
        Self { window_ms: 1000, timeout_ms: 20, store: Store::Near }
    }
}

/// Where the store of `envoy-redis` stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Store {
    /// One link from each client, as its aggregator is, although all zones of a region share it.
    #[default]
    Near,
    /// Where the region's controller is, two links from each client.
    Far,
}

/// Which way batch reports and what answers them go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Route {
    /// Through the aggregators, which sum them up, as in the study.
    #[default]
    Tiers,
    /// Straight to the node that owns the count, as in the public description.
    Direct,
}

/// Batch reports to a central fixed window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BatchWindow {
    /// Between two reports, and two steps of the tiers above.
    pub interval_ms: u64,
    /// Which way they go.
    pub route: Route,
    /// The window.
    pub window_ms: u64,
}

impl Default for BatchWindow {
    fn default() -> Self {
        Self { interval_ms: 100, route: Route::Tiers, window_ms: 1000 }
    }
}

/// Batch reports to a central estimate of the rate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BatchRate {
    /// Between two reports, and two steps of the tiers above.
    pub interval_ms: u64,
    /// Which way they go.
    pub route: Route,
    /// The rate is estimated over this.
    pub estimate_ms: u64,
    /// How long a rejection rate holds, unless another one comes.
    pub hold_ms: u64,
}

impl Default for BatchRate {
    fn default() -> Self {
        Self { interval_ms: 100, route: Route::Tiers, estimate_ms: 100, hold_ms: 1000 }
    }
}

/// Batch reports to a central token bucket.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BatchBucket {
    /// Between two reports, and two steps of the tiers above.
    pub interval_ms: u64,
    /// Which way they go.
    pub route: Route,
    /// How far below zero the bucket may go, in seconds of the limit; as far as it comes by default.
    pub most_debt_s: Option<f64>,
}

impl Default for BatchBucket {
    fn default() -> Self {
        Self { interval_ms: 100, route: Route::Tiers, most_debt_s: None }
    }
}

/// Leases of capacity.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Prefetch {
    /// Between two requests for capacity.
    pub refresh_ms: u64,
    /// How long a lease lives.
    pub lease_ms: u64,
    /// How long a server that has just started grants what it hears that others have.
    pub learning_ms: u64,
    /// A client's bucket holds this much of its capacity.
    pub burst_ms: u64,
    /// A client wants this many times what it was last offered.
    pub headroom_x: f64,
    /// How capacity is shared out when there is too little.
    pub sharing: Sharing,
}

impl Default for Prefetch {
    fn default() -> Self {
        Self {
            refresh_ms: 1000,
            lease_ms: 10_000,
            learning_ms: 10_000,
            burst_ms: 500,
            headroom_x: 1.5,
            sharing: Sharing::Proportional,
        }
    }
}

/// How `prefetch` shares out capacity when there is too little.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sharing {
    /// Everybody's equal part; what some leave of theirs goes to the others in proportion to what
    /// they want beyond it.
    #[default]
    Proportional,
    /// The largest cap that all fit under.
    Fair,
}

impl Rivals {
    /// Every field that makes no sense, with what is wrong.
    pub(crate) fn problems(&self) -> Vec<(String, String)> {
        let Self { proxy_bucket, envoy_redis, batch_window, batch_rate, batch_bucket, prefetch } =
            self;
        let tick = (10, 60_000);
        let span = (1, 3_600_000);
        let mut fields = vec![
            ("proxy_bucket.interval_ms", proxy_bucket.interval_ms, tick),
            ("proxy_bucket.keep_ms", proxy_bucket.keep_ms, (0, 60_000)),
            ("envoy_redis.window_ms", envoy_redis.window_ms, span),
            ("envoy_redis.timeout_ms", envoy_redis.timeout_ms, span),
            ("batch_window.interval_ms", batch_window.interval_ms, tick),
            ("batch_window.window_ms", batch_window.window_ms, span),
            ("batch_rate.interval_ms", batch_rate.interval_ms, tick),
            ("batch_rate.estimate_ms", batch_rate.estimate_ms, tick),
            ("batch_rate.hold_ms", batch_rate.hold_ms, span),
            ("batch_bucket.interval_ms", batch_bucket.interval_ms, tick),
            ("prefetch.refresh_ms", prefetch.refresh_ms, tick),
            ("prefetch.lease_ms", prefetch.lease_ms, span),
            ("prefetch.learning_ms", prefetch.learning_ms, (0, 3_600_000)),
            ("prefetch.burst_ms", prefetch.burst_ms, (1, 60_000)),
        ];
        fields.retain(|(_, value, (least, most))| !(least..=most).contains(&value));
        let mut problems: Vec<(String, String)> = fields
            .into_iter()
            .map(|(field, value, (least, most))| {
                (format!("rivals.{field}"), format!("is {value}, must be {least} to {most}"))
            })
            .collect();
        if let Some(debt) = batch_bucket.most_debt_s.filter(|d| !(0.0..=3600.0).contains(d)) {
            let message = format!("is {debt}, must be 0 to 3600");
            problems.push(("rivals.batch_bucket.most_debt_s".into(), message));
        }
        if !(1.0..=100.0).contains(&prefetch.headroom_x) {
            let message = format!("is {}, must be 1 to 100", prefetch.headroom_x);
            problems.push(("rivals.prefetch.headroom_x".into(), message));
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_make_sense_and_zeros_are_named() {
        assert_eq!(Rivals::default().problems(), []);
        let mut rivals = Rivals::default();
        rivals.batch_rate.interval_ms = 0;
        rivals.batch_bucket.most_debt_s = Some(f64::NAN);
        let named: Vec<String> = rivals.problems().into_iter().map(|p| p.0).collect();
        assert_eq!(named, ["rivals.batch_rate.interval_ms", "rivals.batch_bucket.most_debt_s"]);
    }
}
