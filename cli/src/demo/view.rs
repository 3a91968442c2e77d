//! How the demo shows itself: a table that is drawn over itself on a terminal, the same as plain
//! lines elsewhere, and one JSON object at the end.

use std::io::{self, Write};
use std::time::Duration;

use console::Style;
use serde::Serialize;
use sluicegate_model::Mode;

use super::rates::{Rates, Sample};
use super::scenario::Row;
use crate::explain::{mode, scope};
use crate::table::{Align, Table, percent, rate};

/// How many characters a bar has.
const BAR: usize = 24;

/// The state of the demo at one moment.
#[derive(Debug)]
pub(crate) struct Frame<'a> {
    pub(crate) elapsed: Duration,
    /// How long the demo runs; none if until it is stopped.
    pub(crate) length: Option<Duration>,
    pub(crate) step_at: Duration,
    pub(crate) term: u64,
    pub(crate) version: u64,
    /// Open streams of clients at the aggregators.
    pub(crate) sessions: usize,
    pub(crate) errors: u64,
    pub(crate) rows: &'a [Row],
    pub(crate) rates: &'a [Rates],
}

impl Frame<'_> {
    /// The lines, none longer than `width`.
    pub(crate) fn lines(&self, width: Option<usize>) -> Vec<String> {
        let mut lines = vec![self.header(), String::new()];
        lines.extend(self.table().lines(width));
        lines.push(String::new());
        lines.extend(footer(self.length.is_none()).map(str::to_owned));
        if let Some(width) = width {
            lines.iter_mut().for_each(|l| *l = console::truncate_str(l, width, "…").into_owned());
        }
        lines
    }

    /// One line that says where the demo stands.
    pub(crate) fn header(&self) -> String {
        let phase = if self.elapsed < self.step_at {
            format!("under every limit, steps up at {:.0} s", self.step_at.as_secs_f64())
        } else {
            "over several limits".to_owned()
        };
        let of = self.length.map(|l| format!(" of {} s", l.as_secs_f64())).unwrap_or_default();
        format!(
            "sluice demo  {:.1} s{of}  |  {phase}  |  {} sessions  |  term {}, configuration {}  |  \
             errors {}",
            self.elapsed.as_secs_f64(),
            self.sessions,
            self.term,
            self.version,
            self.errors,
        )
    }

    /// What each flow meets.
    pub(crate) fn table(&self) -> Table {
        let (left, right) = (|h| (h, Align::Left), |h| (h, Align::Right));
        let mut table = Table::new([
            left("bucket"),
            left("key"),
            left("scope"),
            left("mode"),
            right("limit/s"),
            right("offered/s"),
            right("admitted/s"),
            right("dropped"),
            right("would drop"),
            left(""),
        ]);
        for (row, rates) in self.rows.iter().zip(self.rates) {
            table.row([
                format!("{}/{}", row.service, row.bucket),
                row.key.clone(),
                scope(row.scope).to_owned(),
                mode(row.mode).to_owned(),
                row.limit_rps.map_or_else(|| "-".to_owned(), rate),
                rate(rates.offered_rps),
                rate(rates.admitted_rps),
                blank_if_zero(rates.drop_share()),
                blank_if_zero(rates.would_drop_share()),
                bar(row, rates),
            ]);
        }
        table
    }
}

fn blank_if_zero(share: f64) -> String {
    if share > 0.0 { percent(share) } else { "-".to_owned() }
}

fn footer(endless: bool) -> [&'static str; 4] {
    [
        "Bars: # admitted, x dropped, ~ would be dropped (shadow), | the limit. Every row is what the \
         load itself counted.",
        "Look at: checkout-web, acme, globex, push, zone-a and login are held to their limits; \
         billing, hooli, initech",
        "(its own limit) and zone-b lose nothing meanwhile; suggest is in shadow, downloads is only \
         counted. Tick 200 ms.",
        if endless { "Ctrl-C stops." } else { "Ctrl-C stops early." },
    ]
}

/// What was offered as a bar, scaled so that its limit is always at the same place.
fn bar(row: &Row, rates: &Rates) -> String {
    let limit = row.limit_rps.unwrap_or(rates.offered_rps);
    // The limit stands a third of the way in, so that three times the limit fits.
    let full = (limit * 3.0).max(1.0);
    #[expect(clippy::cast_precision_loss, reason = "a short bar")]
    let place = |rps: f64| {
        let part = (rps / full).clamp(0.0, 1.0) * BAR as f64;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a short bar")]
        let cells = part.round() as usize;
        cells.min(BAR)
    };
    let admitted = place(rates.admitted_rps - rates.would_drop_rps);
    let would = place(rates.admitted_rps).max(admitted);
    let offered = place(rates.offered_rps).max(would);
    let (green, red, yellow) = (Style::new().green(), Style::new().red(), Style::new().yellow());
    let mut bar = String::new();
    for cell in 0..BAR {
        if row.limit_rps.is_some() && cell == BAR / 3 {
            bar.push('|');
        }
        let shown = match cell {
            c if c < admitted => green.apply_to('#').to_string(),
            c if c < would => yellow.apply_to('~').to_string(),
            c if c < offered => red.apply_to('x').to_string(),
            _ => " ".to_owned(),
        };
        bar.push_str(&shown);
    }
    bar
}

/// Draws frames over each other on a terminal.
#[derive(Debug, Default)]
pub(crate) struct Screen {
    drawn: usize,
}

impl Screen {
    /// Replaces the last frame by these lines.
    pub(crate) fn draw(&mut self, lines: &[String]) -> io::Result<()> {
        let mut text = String::from("\u{1b}[?25l");
        if self.drawn > 0 {
            text.push_str(&format!("\u{1b}[{}A", self.drawn));
        }
        for line in lines {
            text.push_str(line);
            text.push_str("\u{1b}[K\n");
        }
        text.push_str("\u{1b}[J");
        self.drawn = lines.len();
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    }
}

impl Drop for Screen {
    /// Shows the cursor again.
    fn drop(&mut self) {
        if self.drawn > 0 {
            let mut out = io::stdout().lock();
            let _ = out.write_all(b"\x1b[?25h").and_then(|()| out.flush());
        }
    }
}

/// The JSON object at the end.
#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    /// How long the load ran.
    seconds: f64,
    /// Over how many of the last seconds rates are means.
    window_seconds: f64,
    /// Requests that failed for a reason other than a limit.
    errors: u64,
    buckets: Vec<BucketSummary>,
}

#[derive(Debug, Serialize)]
struct BucketSummary {
    service: &'static str,
    bucket: &'static str,
    key: String,
    scope: &'static str,
    mode: &'static str,
    limit_rps: Option<f64>,
    offered_rps: f64,
    admitted_rps: f64,
    dropped_rps: f64,
    would_drop_rps: f64,
}

impl Summary {
    /// From the last frame, whose rates are means over `window`.
    pub(crate) fn new(frame: &Frame<'_>, window: Duration) -> Self {
        let tenths = |d: Duration| (d.as_secs_f64() * 10.0).round() / 10.0;
        let round = |rps: f64| (rps * 100.0).round() / 100.0;
        let both = frame.rows.iter().zip(frame.rates);
        let buckets = both.map(|(row, rates)| BucketSummary {
            service: row.service,
            bucket: row.bucket,
            key: row.key.clone(),
            scope: scope(row.scope),
            mode: mode(row.mode),
            limit_rps: row.limit_rps,
            offered_rps: round(rates.offered_rps),
            admitted_rps: round(rates.admitted_rps),
            dropped_rps: round(rates.dropped_rps),
            would_drop_rps: round(rates.would_drop_rps),
        });
        Self {
            seconds: tenths(frame.elapsed),
            window_seconds: tenths(window),
            errors: frame.errors,
            buckets: buckets.collect(),
        }
    }
}

/// What the whole run comes to, for people.
pub(crate) fn verdict(frame: &Frame<'_>, totals: &[Sample]) -> Vec<String> {
    let over = |row: &Row, rates: &Rates| {
        row.mode == Mode::Deny && row.limit_rps.is_some_and(|l| rates.offered_rps > l)
    };
    let both = || frame.rows.iter().zip(frame.rates);
    let held: Vec<f64> = both()
        .filter(|(row, rates)| over(row, rates))
        .filter_map(|(row, rates)| Some(rates.admitted_rps / row.limit_rps? - 1.0))
        .collect();
    let mut lines = Vec::new();
    if let (Some(least), Some(most)) =
        (held.iter().copied().reduce(f64::min), held.iter().copied().reduce(f64::max))
    {
        lines.push(format!(
            "{} keys were offered more than their limit; what they admitted is {:+.1} % to {:+.1} % \
             of it.",
            held.len(),
            least * 100.0,
            most * 100.0
        ));
    }
    let spared = both().zip(totals).filter(|((row, rates), total)| {
        row.mode == Mode::Deny && !over(row, rates) && total.dropped == 0
    });
    let spared = spared.count();
    lines.push(format!("{spared} limited keys stayed under their limit and lost nothing."));
    let sent: u64 = totals.iter().map(|t| t.offered).sum();
    lines.push(format!(
        "{sent} requests in {:.1} s, {} errors.",
        frame.elapsed.as_secs_f64(),
        frame.errors
    ));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluicegate_model::Scope;

    fn rows() -> Vec<Row> {
        let row = |bucket, key: &str, mode, limit_rps| Row {
            service: "s",
            bucket,
            key: key.to_owned(),
            scope: Scope::Region,
            mode,
            limit_rps,
        };
        vec![
            row("a", "", Mode::Deny, Some(100.0)),
            row("b", "x", Mode::Shadow, Some(100.0)),
            row("c", "", Mode::Observe, None),
        ]
    }

    const RATES: [Rates; 3] = [
        Rates { offered_rps: 300.0, admitted_rps: 102.0, dropped_rps: 198.0, would_drop_rps: 0.0 },
        Rates { offered_rps: 200.0, admitted_rps: 200.0, dropped_rps: 0.0, would_drop_rps: 100.0 },
        Rates { offered_rps: 50.0, admitted_rps: 50.0, dropped_rps: 0.0, would_drop_rps: 0.0 },
    ];

    fn frame(rows: &[Row]) -> Frame<'_> {
        Frame {
            elapsed: Duration::from_millis(7040),
            length: Some(Duration::from_secs(20)),
            step_at: Duration::from_secs(6),
            term: 1,
            version: 2,
            sessions: 25,
            errors: 0,
            rows,
            rates: &RATES,
        }
    }

    #[test]
    fn a_frame_shows_every_row_and_fits() {
        let rows = rows();
        let lines = frame(&rows).lines(Some(100));
        assert!(lines.iter().all(|l| console::measure_text_width(l) <= 100));
        let text = console::strip_ansi_codes(&lines.join("\n")).into_owned();
        for told in
            ["7.0 s of 20 s", "over several limits", "25 sessions", "66.0 %", "50.0 %", "########|"]
        {
            assert!(text.contains(told), "{told} in:\n{text}");
        }
    }

    #[test]
    fn bars_show_admitted_dropped_and_the_limit() {
        let rows = rows();
        let plain = |i: usize| console::strip_ansi_codes(&bar(&rows[i], &RATES[i])).into_owned();
        assert_eq!(plain(0), "########|xxxxxxxxxxxxxxxx");
        assert_eq!(plain(1), "########|~~~~~~~~        ");
        assert_eq!(plain(2), "########                ");
    }

    #[test]
    fn the_summary_has_the_agreed_shape() {
        let rows = rows();
        let summary = Summary::new(&frame(&rows), Duration::from_secs(5));
        let json = serde_json::to_value(&summary).expect("plain data");
        assert_eq!(json["seconds"], 7.0);
        assert_eq!(json["errors"], 0);
        assert_eq!(
            json["buckets"][0],
            serde_json::json!({
                "service": "s", "bucket": "a", "key": "", "scope": "region", "mode": "deny",
                "limit_rps": 100.0, "offered_rps": 300.0, "admitted_rps": 102.0,
                "dropped_rps": 198.0, "would_drop_rps": 0.0
            })
        );
        assert_eq!(json["buckets"][2]["limit_rps"], serde_json::Value::Null);
    }

    #[test]
    fn the_verdict_tells_how_near_the_limits_were() {
        let rows = rows();
        let totals = [Sample { offered: 10, ..Sample::default() }; 3];
        let told = verdict(&frame(&rows), &totals).join("\n");
        assert!(told.contains("1 keys were offered more than their limit"), "{told}");
        assert!(told.contains("+2.0 %"), "{told}");
        assert!(told.contains("30 requests in 7.0 s, 0 errors"), "{told}");
    }
}
