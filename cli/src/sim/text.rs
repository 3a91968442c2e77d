//! Outcomes as text for people.

use sluicegate_sim::report::{Cell, Comparison};
use sluicegate_sim::{Measure, Messages, Outcome, Scenario};

use crate::table::{Align, Table};

/// One run.
pub(super) fn outcome(scenario: &Scenario, outcome: &Outcome) -> Vec<String> {
    let mut lines = vec![
        format!("{}: {}", scenario.name, scenario.about),
        format!(
            "law {}, seed {}: {} s simulated in {:.1} s",
            outcome.law, outcome.seed, outcome.virtual_s, outcome.wall_s
        ),
        String::new(),
    ];
    let names = outcome.buckets.iter().map(|b| (b.bucket.as_str(), Align::Right));
    let mut table = Table::new(
        std::iter::once(("MEASURE", Align::Left))
            .chain(names)
            .chain([("UNIT", Align::Left), ("IS", Align::Left)]),
    );
    for measure in Measure::ALL {
        let values = outcome.buckets.iter().map(|b| measure.cell(Cell::of(measure, b)));
        table.row(
            std::iter::once(measure.name().to_owned())
                .chain(values)
                .chain([measure.unit().to_owned(), measure.about().to_owned()]),
        );
    }
    // A long line is better broken by the terminal than cut: what it ends with would be lost.
    lines.extend(table.lines(None));
    lines.push(String::new());
    lines.push(messages(&outcome.messages));
    lines.push(format!("trace {}", outcome.trace_sha256));
    lines
}

fn messages(m: &Messages) -> String {
    format!(
        "messages: {:.2} from and {:.2} to each client a second; {:.1} from and {:.1} to \
         aggregators a second",
        m.report_per_client_s, m.directive_per_client_s, m.rollup_per_s, m.grant_per_s
    )
}

/// All laws of a comparison: a table for each bucket.
pub(super) fn comparison(scenario: &Scenario, comparison: &Comparison) -> Vec<String> {
    let mut lines = vec![format!("{}: {}", scenario.name, scenario.about)];
    let summaries = comparison.summaries();
    let mut buckets: Vec<&str> = Vec::new();
    for summary in &summaries {
        if !buckets.contains(&summary.bucket.as_str()) {
            buckets.push(&summary.bucket);
        }
    }
    for bucket in buckets {
        let measures = scenario.telling_measures();
        let headings: Vec<&str> = measures.iter().map(|m| m.name()).collect();
        let mut table = Table::new(
            std::iter::once(("LAW", Align::Left))
                .chain(headings.iter().map(|h| (*h, Align::Right)))
                .chain([("reports", Align::Right), ("directives", Align::Right)]),
        );
        for summary in summaries.iter().filter(|s| s.bucket == bucket) {
            let cells = measures.iter().map(|measure| {
                let (median, worst) = summary.cell(*measure);
                match (median, worst) {
                    (Cell::None, _) => measure.cell(Cell::None),
                    (median, worst) if median == worst => measure.cell(median),
                    (median, worst) => {
                        format!("{} ({})", measure.cell(median), measure.cell(worst))
                    }
                }
            });
            let m = &summary.messages;
            let messages = [m.report_per_client_s, m.directive_per_client_s];
            table.row(
                std::iter::once(summary.law.name().to_owned())
                    .chain(cells)
                    .chain(messages.map(|m| format!("{m:.2}"))),
            );
        }
        lines.push(String::new());
        lines.push(format!(
            "{bucket}: medians over the seeds (and the worst); messages per client and second"
        ));
        // A long line is better broken by the terminal than cut: what it ends with would be lost.
        lines.extend(table.lines(None));
    }
    lines
}
