//! `results.csv`: one row for each law, seed and bucket. Units are in the headings, in the names that
//! `--json` uses.

use std::fmt::Write as _;

use super::Comparison;
use crate::outcome::Measure;

pub(super) fn results(comparison: &Comparison) -> String {
    let mut csv = String::from("scenario,law,seed,bucket");
    for measure in Measure::ALL {
        let _ = write!(csv, ",{}", measure.name());
    }
    csv.push_str(
        ",report_per_client_s,directive_per_client_s,rollup_per_s,grant_per_s,virtual_s,trace_sha256\n",
    );
    for outcome in comparison.laws.iter().flat_map(|l| &l.outcomes) {
        for bucket in &outcome.buckets {
            let _ = write!(
                csv,
                "{},{},{},{}",
                quoted(&outcome.scenario),
                quoted(&outcome.law),
                outcome.seed,
                quoted(&bucket.bucket)
            );
            for measure in Measure::ALL {
                csv.push(',');
                if let Some(value) = measure.of(bucket) {
                    let _ = write!(csv, "{}", rounded(value));
                }
            }
            let m = &outcome.messages;
            for value in
                [m.report_per_client_s, m.directive_per_client_s, m.rollup_per_s, m.grant_per_s]
            {
                let _ = write!(csv, ",{}", rounded(value));
            }
            let _ = writeln!(csv, ",{},{}", outcome.virtual_s, outcome.trace_sha256);
        }
    }
    csv
}

/// Six digits after the point are more than any measure has.
fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6 + 0.0
}

/// A field as CSV takes it. A name that a spreadsheet would run is kept from it.
fn quoted(text: &str) -> String {
    let text = match text.chars().next() {
        Some('=' | '+' | '-' | '@') => format!("'{text}"),
        _ => text.to_owned(),
    };
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_stay_fields() {
        assert_eq!(quoted("api/all"), "api/all");
        assert_eq!(quoted("a,\"b\""), "\"a,\"\"b\"\"\"");
        assert_eq!(quoted("=1+1"), "'=1+1");
        assert_eq!(rounded(0.123_456_789).to_string(), "0.123457");
    }
}
