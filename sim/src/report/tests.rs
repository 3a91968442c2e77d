//! A report of a small world, whole.

use super::*;
use crate::scenario;

const SCENARIO: &str = "\
name: small <world>
about: A step, and a cut.
notes: Two buckets & one fault.
measures: [cut_ms, max1s_x]
clients: 8
zones: 2
duration_s: 4
warmup_s: 1
services:
  - service: api
    buckets:
      - {bucket: all, limit_rps: 200}
      - {bucket: seen, mode: observe}
workload: {shape: step, from_x: 0.5, load_x: 10}
faults:
  - {fault: cut, tier: aggregator, at_s: 2, for_s: 1}
";

fn comparison(seeds: std::ops::Range<u64>) -> Comparison {
    let scenario = scenario::parse("small.yaml", SCENARIO, &[]).expect("a scenario");
    let how = Reproduce { command: "sluice sim compare 'small'".into(), version: "1.2.3".into() };
    let mut comparison = Comparison::new(scenario.clone(), how);
    let run = |seed| crate::run(&scenario, Law::Ratio, seed, &mut |_| {}).expect("runs");
    let runs: Vec<crate::Run> = seeds.map(run).collect();
    if let Some(first) = runs.first() {
        let series = first.series.clone();
        let outcomes = runs.into_iter().map(|r| r.outcome).collect();
        comparison.add(Law::Ratio, outcomes, series);
    }
    comparison
}

#[test]
fn a_report_is_a_page_a_table_and_pictures() {
    let files = comparison(1..3).files();
    let names: Vec<&str> = files.iter().map(|f| f.name.as_str()).collect();
    for needed in [
        "results.csv",
        "report.html",
        "messages.svg",
        "api-all-overview.svg",
        "api-all-overview-linear.svg",
        "api-all-law-ratio.svg",
        "api-all-drop-ratio.svg",
        "api-all-measure-cut-ms.svg",
        "api-seen-overview.svg",
    ] {
        assert!(names.contains(&needed), "{needed} is not in {names:?}");
    }
    let mut unique = names.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), names.len(), "no file is written twice");
    for file in files.iter().filter(|f| f.name.ends_with(".svg")) {
        assert!(file.text.starts_with("<svg ") && file.text.ends_with("</svg>"), "{}", file.name);
        assert!(!file.text.contains("NaN") && !file.text.contains("inf"), "{}", file.name);
    }
}

#[test]
fn a_page_needs_nothing_else_and_says_how_to_get_it_again() {
    let files = comparison(1..3).files();
    let page = &files.iter().find(|f| f.name == "report.html").expect("a page").text;
    for needed in [
        "<h1>small &lt;world&gt;</h1>",
        "Two buckets &amp; one fault.",
        "sluice sim compare &#39;small&#39;",
        "cut: aggregators at 1 s, for 1 s",
        "seeds 1 to 2",
        "limit_rps: 200",
    ] {
        assert!(page.contains(needed), "{needed} is not in the page");
    }
    for foreign in ["http://", "https://", "src=", "@import", "url("] {
        let found = page.replace("http://www.w3.org/2000/svg", "").contains(foreign);
        assert!(!found, "the page fetches {foreign}");
    }
}

#[test]
fn results_have_a_row_for_each_seed_and_bucket() {
    let comparison = comparison(3..6);
    let files = comparison.files();
    let csv = &files[0].text;
    let rows: Vec<Vec<&str>> = csv.lines().map(|l| l.split(',').collect()).collect();
    assert_eq!(rows.len(), 1 + 3 * 2);
    assert_eq!(rows[0][..6], ["scenario", "law", "seed", "bucket", "cut_ms", "band_ms"]);
    assert!(rows.iter().all(|r| r.len() == rows[0].len()), "{csv}");
    assert_eq!(rows[2][3..6], ["api/seen", "", ""], "what does not apply is empty");
    let again = self::comparison(3..6).files();
    assert_eq!(again, files, "the same runs make the same files");
}

#[test]
fn summaries_hold_the_median_and_the_worst() {
    let comparison = comparison(1..4);
    let summaries = comparison.summaries();
    assert_eq!(summaries.len(), 2);
    let mut peaks: Vec<f64> =
        comparison.laws[0].outcomes.iter().filter_map(|o| o.buckets[0].peak_x).collect();
    peaks.sort_by(f64::total_cmp);
    let (median, worst) = summaries[0].cell(Measure::PeakX);
    assert_eq!((median, worst), (Cell::Is(peaks[1]), Cell::Is(peaks[2])));
}

#[test]
fn a_comparison_without_runs_is_still_a_report() {
    assert!(comparison(0..0).files().iter().any(|f| f.text.contains("no runs")));
}
