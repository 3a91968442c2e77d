//! The report of a load for people.

use super::stats::{Quantiles, Report};
use crate::table::{Align, Table, percent, rate};

/// The most callers that are listed; `--json` has all.
const MAX_CALLERS: usize = 30;

/// The lines of the report.
pub(crate) fn lines(report: &Report) -> Vec<String> {
    let counts = &report.counts;
    let mut lines = vec![format!(
        "{:.1} s{}: {} requests offered, {} a second of {} intended",
        report.seconds,
        if report.interrupted { " (interrupted)" } else { "" },
        counts.offered,
        rate(report.offered_rps),
        rate(report.intended_rps),
    )];
    lines.push(String::new());
    lines.extend(table(report).lines(None));
    let left_out = report.callers.len().saturating_sub(MAX_CALLERS);
    if left_out > 0 {
        lines.push(format!("and {left_out} more callers; --json has all"));
    }
    lines.push(String::new());
    lines.push(format!("latency   {}", quantiles(&report.latency_us, "us")));
    lines.push(format!("lateness  {}", quantiles(&report.lateness_ms, "ms")));
    if counts.errors > 0 {
        let kinds: Vec<String> =
            report.errors_by.iter().map(|(kind, n)| format!("{kind}: {n}")).collect();
        lines.push(format!("errors    {}", kinds.join(", ")));
    }
    if counts.not_sent > 0 {
        lines.push(format!(
            "not sent  {}: as many as allowed were under way (--max-in-flight)",
            counts.not_sent
        ));
    }
    if !report.kept_up {
        lines.push(
            "This machine did not keep up: requests were sent later than they were due, or not at \
             all. Lower the rate, or share the load out with --part."
                .to_owned(),
        );
    }
    lines
}

fn table(report: &Report) -> Table {
    let right = |heading| (heading, Align::Right);
    let mut table = Table::new([
        ("caller", Align::Left),
        right("offered"),
        right("offered/s"),
        right("admitted/s"),
        right("dropped/s"),
        right("dropped"),
        right("would drop"),
        right("errors"),
    ]);
    let counts = &report.counts;
    let shown = report.callers.iter().take(MAX_CALLERS);
    let named = report.callers.len() > 1 || report.callers.iter().any(|c| !c.caller.is_empty());
    for c in shown.filter(|_| named) {
        table.row([
            if c.caller.is_empty() { "(none)".to_owned() } else { c.caller.clone() },
            c.counts.offered.to_string(),
            rate(c.offered_rps),
            rate(c.admitted_rps),
            rate(c.dropped_rps),
            share(c.counts.dropped, c.counts.offered),
            share(c.counts.would_drop, c.counts.offered),
            c.counts.errors.to_string(),
        ]);
    }
    table.row([
        "all".to_owned(),
        counts.offered.to_string(),
        rate(report.offered_rps),
        rate(report.admitted_rps),
        rate(report.dropped_rps),
        share(counts.dropped, counts.offered),
        share(counts.would_drop, counts.offered),
        counts.errors.to_string(),
    ]);
    table
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
fn share(part: u64, whole: u64) -> String {
    percent(if whole == 0 { 0.0 } else { part as f64 / whole as f64 })
}

fn quantiles(q: &Quantiles, unit: &str) -> String {
    format!(
        "p50 {} {unit}, p90 {} {unit}, p99 {} {unit}, p99.9 {} {unit}, max {} {unit}",
        short(q.p50),
        short(q.p90),
        short(q.p99),
        short(q.p99_9),
        short(q.max)
    )
}

fn short(value: f64) -> String {
    if value < 10.0 { format!("{value:.2}") } else { format!("{value:.0}") }
}
