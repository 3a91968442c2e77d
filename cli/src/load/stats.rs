//! What a load met: counts by caller and by second, and how long things took. Knows no clock.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// The longest time that is told apart from longer ones.
const LONGEST: Duration = Duration::from_secs(600);
/// The most seconds that are kept apart; later ones are counted in the totals only.
pub(crate) const MAX_SERIES_S: usize = 7 * 24 * 3600;
/// The most kinds of errors that are counted apart.
const MAX_ERROR_KINDS: usize = 50;
/// A load whose 99th percentile of lateness is above this did not keep its times.
const LATE: Duration = Duration::from_millis(20);

/// What became of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It went through.
    Admitted,
    /// It went through only because the bucket that would have dropped it is in shadow.
    WouldDrop,
    /// The limiter dropped it.
    Dropped,
    /// It failed for another reason.
    Failed,
    /// It was not sent: as many as allowed were already under way.
    NotSent,
}

/// How many requests met which fate. `offered = admitted + dropped + errors`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub(crate) struct Tally {
    pub(crate) offered: u64,
    pub(crate) admitted: u64,
    pub(crate) would_drop: u64,
    pub(crate) dropped: u64,
    pub(crate) errors: u64,
    pub(crate) not_sent: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, fate: Fate) {
        match fate {
            Fate::Admitted => self.admitted += 1,
            Fate::WouldDrop => {
                self.admitted += 1;
                self.would_drop += 1;
            }
            Fate::Dropped => self.dropped += 1,
            Fate::Failed => self.errors += 1,
            Fate::NotSent => {
                self.not_sent += 1;
                return;
            }
        }
        self.offered += 1;
    }
}

/// Everything measured so far.
#[derive(Debug)]
pub(crate) struct Stats {
    pub(crate) total: Tally,
    pub(crate) callers: Vec<Tally>,
    /// By the second in which requests were due.
    pub(crate) series: Vec<Tally>,
    latency_ns: Histogram<u64>,
    lateness_ns: Histogram<u64>,
    errors_by: BTreeMap<String, u64>,
}

/// How long a load took.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Took {
    /// From its start until nothing was left to send.
    pub(crate) ran: Duration,
    /// What its schedule says of that.
    pub(crate) scheduled: Duration,
    /// Whether it was stopped before its time.
    pub(crate) interrupted: bool,
}

impl Stats {
    /// For so many callers.
    pub(crate) fn new(callers: usize) -> anyhow::Result<Self> {
        let empty = || Histogram::new_with_bounds(1, nanos(LONGEST), 3);
        Ok(Self {
            total: Tally::default(),
            callers: vec![Tally::default(); callers],
            series: Vec::new(),
            latency_ns: empty()?,
            lateness_ns: empty()?,
            errors_by: BTreeMap::new(),
        })
    }

    /// A request was due at `due` and began `late` after that.
    pub(crate) fn began(&mut self, late: Duration) {
        self.lateness_ns.saturating_record(nanos(late).max(1));
    }

    /// A request ended; `latency` unless it was not sent.
    pub(crate) fn ended(&mut self, due: Duration, caller: u32, fate: Fate, latency: Duration) {
        self.total.add(fate);
        if let Some(tally) = self.callers.get_mut(caller as usize) {
            tally.add(fate);
        }
        let second = usize::try_from(due.as_secs()).unwrap_or(usize::MAX);
        if second < MAX_SERIES_S {
            if self.series.len() <= second {
                self.series.resize(second + 1, Tally::default());
            }
            self.series[second].add(fate);
        }
        if fate != Fate::NotSent {
            self.latency_ns.saturating_record(nanos(latency).max(1));
        }
    }

    /// Counts an error by what it was. Kinds beyond the bound are counted together.
    pub(crate) fn error(&mut self, kind: &str) {
        let known = self.errors_by.contains_key(kind);
        let kind = if known || self.errors_by.len() < MAX_ERROR_KINDS { kind } else { "other" };
        *self.errors_by.entry(kind.to_owned()).or_default() += 1;
    }

    /// The report of a load that took so long, with the callers' names.
    pub(crate) fn report(&self, took: Took, callers: &[String]) -> Report {
        let Took { ran, scheduled, interrupted } = took;
        let per_second = |n: u64| per_second(n, ran);
        let total = self.total;
        let mut by_caller: Vec<CallerReport> = callers
            .iter()
            .zip(&self.callers)
            .filter(|(_, t)| **t != Tally::default())
            .map(|(name, t)| CallerReport {
                caller: name.clone(),
                counts: *t,
                offered_rps: per_second(t.offered),
                admitted_rps: per_second(t.admitted),
                dropped_rps: per_second(t.dropped),
                would_drop_rps: per_second(t.would_drop),
            })
            .collect();
        by_caller.sort_by(|a, b| {
            b.counts.offered.cmp(&a.counts.offered).then_with(|| a.caller.cmp(&b.caller))
        });
        let lateness_ms = Quantiles::of(&self.lateness_ns, 1e6);
        Report {
            seconds: ran.as_secs_f64(),
            counts: total,
            intended_rps: self::per_second(total.offered + total.not_sent, scheduled),
            offered_rps: per_second(total.offered),
            admitted_rps: per_second(total.admitted),
            dropped_rps: per_second(total.dropped),
            would_drop_rps: per_second(total.would_drop),
            kept_up: total.not_sent == 0 && self.lateness_ns.value_at_quantile(0.99) <= nanos(LATE),
            interrupted,
            errors_by: self.errors_by.clone(),
            latency_us: Quantiles::of(&self.latency_ns, 1e3),
            lateness_ms,
            callers: by_caller,
        }
    }

    /// The seconds as a CSV.
    pub(crate) fn series_csv(&self) -> String {
        let mut csv = "second,offered,admitted,would_drop,dropped,errors,not_sent\n".to_owned();
        for (second, t) in self.series.iter().enumerate() {
            csv.push_str(&format!(
                "{second},{},{},{},{},{},{}\n",
                t.offered, t.admitted, t.would_drop, t.dropped, t.errors, t.not_sent
            ));
        }
        csv
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
fn per_second(n: u64, ran: Duration) -> f64 {
    if ran.is_zero() { 0.0 } else { n as f64 / ran.as_secs_f64() }
}

/// What a load reports at its end; `--json` prints it as it is.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// How long the load ran.
    pub(crate) seconds: f64,
    #[serde(flatten)]
    pub(crate) counts: Tally,
    /// What the load was to send.
    pub(crate) intended_rps: f64,
    /// What it sent.
    pub(crate) offered_rps: f64,
    pub(crate) admitted_rps: f64,
    pub(crate) dropped_rps: f64,
    pub(crate) would_drop_rps: f64,
    /// Whether every request was sent, and sent about when it was due.
    pub(crate) kept_up: bool,
    /// Whether it was stopped before its time.
    pub(crate) interrupted: bool,
    /// Errors by what they were.
    pub(crate) errors_by: BTreeMap<String, u64>,
    /// From when a request was due (over HTTP) or began (embedded) to its end.
    pub(crate) latency_us: Quantiles,
    /// From when a request was due to when it began.
    pub(crate) lateness_ms: Quantiles,
    pub(crate) callers: Vec<CallerReport>,
}

/// One caller of a report.
#[derive(Debug, Serialize)]
pub(crate) struct CallerReport {
    pub(crate) caller: String,
    #[serde(flatten)]
    pub(crate) counts: Tally,
    pub(crate) offered_rps: f64,
    pub(crate) admitted_rps: f64,
    pub(crate) dropped_rps: f64,
    pub(crate) would_drop_rps: f64,
}

/// Quantiles of a time.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Quantiles {
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) p99_9: f64,
    pub(crate) max: f64,
}

impl Quantiles {
    fn of(histogram: &Histogram<u64>, nanos_per_unit: f64) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "times far below 2^52 ns")]
        let at = |q: f64| histogram.value_at_quantile(q) as f64 / nanos_per_unit;
        #[expect(clippy::cast_precision_loss, reason = "times far below 2^52 ns")]
        let max = histogram.max() as f64 / nanos_per_unit;
        Self { p50: at(0.5), p90: at(0.9), p99: at(0.99), p99_9: at(0.999), max }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats() -> Stats {
        let mut stats = Stats::new(2).expect("bounds are fine");
        let ms = Duration::from_millis;
        for (due, caller, fate) in [
            (0, 0, Fate::Admitted),
            (100, 1, Fate::Dropped),
            (1900, 0, Fate::WouldDrop),
            (1950, 0, Fate::Failed),
            (1999, 1, Fate::NotSent),
        ] {
            if fate != Fate::NotSent {
                stats.began(ms(1));
            }
            stats.ended(ms(due), caller, fate, ms(10));
        }
        stats
    }

    fn took(seconds: u64) -> Took {
        let ran = Duration::from_secs(seconds);
        Took { ran, scheduled: ran, interrupted: false }
    }

    #[test]
    fn kinds_of_errors_are_bounded() {
        let mut stats = Stats::new(1).expect("bounds are fine");
        (0..60).for_each(|code| stats.error(&code.to_string()));
        assert_eq!(stats.errors_by.len(), MAX_ERROR_KINDS + 1);
        assert_eq!(stats.errors_by["other"], 10);
    }

    #[test]
    fn each_fate_is_counted_once_everywhere() {
        let stats = stats();
        let wanted =
            Tally { offered: 4, admitted: 2, would_drop: 1, dropped: 1, errors: 1, not_sent: 1 };
        assert_eq!(stats.total, wanted);
        assert_eq!(
            stats.callers[1],
            Tally { offered: 1, dropped: 1, not_sent: 1, ..Tally::default() }
        );
        assert_eq!(
            stats.series_csv(),
            "second,offered,admitted,would_drop,dropped,errors,not_sent\n0,2,1,0,1,0,0\n1,2,1,1,0,1,1\n"
        );
    }

    #[test]
    fn the_report_holds_rates_and_quantiles() {
        let names = ["few".to_owned(), "many".to_owned()];
        let report = stats().report(took(2), &names);
        let json = serde_json::to_value(&report).expect("plain data");
        assert_eq!(json["offered"], 4);
        assert_eq!(json["offered_rps"], 2.0);
        assert_eq!(json["intended_rps"], 2.5);
        assert_eq!(json["kept_up"], false, "one was not sent");
        assert_eq!(json["callers"][0]["caller"], "few");
        assert_eq!(json["callers"][0]["admitted_rps"], 1.0);
        let p50 = json["latency_us"]["p50"].as_f64().expect("a number");
        assert!((p50 / 10_000.0 - 1.0).abs() < 0.01, "{p50}");
    }

    #[test]
    fn a_late_load_did_not_keep_up() {
        let mut stats = Stats::new(1).expect("bounds are fine");
        stats.began(Duration::from_millis(500));
        stats.ended(Duration::ZERO, 0, Fate::Admitted, Duration::from_millis(1));
        let report = stats.report(took(1), &["a".to_owned()]);
        assert!(!report.kept_up);
        assert!(report.lateness_ms.p99 > 400.0);
    }
}
