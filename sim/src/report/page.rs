//! `report.html`: the whole comparison on one page that needs nothing else.

use std::fmt::Write as _;

use super::plots::{Figure, Place, Plots};
use super::summary::{Cell, Summary, worse};
use super::text::{escape, plain, short};
use super::{Comparison, plots, theme};
use crate::outcome::Measure;
use crate::scenario::{Scenario, Shape, Switch, Workload};

/// How the page itself looks; plots bring their own.
const PAGE: &str = "\
*{box-sizing:border-box}\
body{margin:0;background:var(--bg);color:var(--ink);\
font:16px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif}\
main{max-width:1080px;margin:0 auto;padding:32px 24px 64px}\
h1{font-size:30px;line-height:1.2;margin:0 0 4px}h2{font-size:21px;margin:44px 0 6px}\
h3{font-size:16px;margin:24px 0 8px}p{margin:6px 0;max-width:75ch}\
.lead{font-size:18px}.soft,figcaption{color:var(--soft)}\
figure{margin:12px 0;break-inside:avoid}figcaption{font-size:13px;padding-left:6px}\
figure>svg{display:block;width:100%;height:auto}\
.pair,.glance{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,440px),1fr));gap:10px 24px}\
.pair figure,.glance figure{margin:4px 0}\
.tools{display:flex;gap:6px;font-size:14px;margin:12px 0 0;color:var(--soft);align-items:center}\
.tools input{position:absolute;opacity:0}\
.tools label{border:1px solid var(--rule);border-radius:6px;padding:2px 12px;cursor:pointer}\
.tools label:has(:checked){background:var(--ink);color:var(--bg);border-color:var(--ink)}\
.tools label:has(:focus-visible){outline:2px solid var(--law0);outline-offset:2px}\
.as-linear{display:none!important}\
body:has(#scale-linear:checked) .as-linear{display:block!important}\
body:has(#scale-linear:checked) .as-log{display:none!important}\
.scroll{overflow-x:auto}\
table{border-collapse:collapse;font-size:13.5px;line-height:1.35;font-variant-numeric:tabular-nums;width:100%}\
th,td{padding:5px 7px;text-align:right;border-bottom:1px solid var(--grid)}td{white-space:nowrap}\
th:first-child,td:first-child{text-align:left}\
thead th{vertical-align:bottom;border-bottom:1px solid var(--rule);font-weight:600}\
thead small{display:block;font-weight:400;color:var(--soft)}\
td small{display:block;color:var(--soft);line-height:1.2}\
.best{font-weight:700}\
.key{display:inline-block;width:10px;height:10px;border-radius:3px;margin-right:7px}\
dl{display:grid;grid-template-columns:max-content 1fr;gap:3px 18px;margin:8px 0;font-size:15px}\
dt{color:var(--soft)}dd{margin:0}\
pre{background:var(--grid);border-radius:8px;padding:12px 14px;overflow-x:auto;font-size:13px;line-height:1.45}\
pre,code{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}\
.wrap{white-space:pre-wrap;overflow-wrap:anywhere}\
details{margin:12px 0}summary{cursor:pointer}\
@page{margin:14mm}\
@media print{main{max-width:none;padding:0}body{font-size:11pt}.tools{display:none}\
.pair,.glance{grid-template-columns:1fr 1fr}h2,h3,main>p.soft{break-after:avoid}table{break-inside:avoid}figcaption{font-size:9pt}\
table{font-size:8.5pt}th,td{padding:3px 4px}pre{white-space:pre-wrap;overflow-wrap:anywhere}\
.scroll{overflow:visible}}";

pub(super) fn page(comparison: &Comparison, plots: &[Plots]) -> String {
    let scenario = &comparison.scenario;
    let name = escape(&scenario.name);
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <title>{name}: laws compared</title>\n<style>{}{PAGE}</style>\n</head>\n<body>\n<main>\n\
         <h1>{name}</h1>\n<p class=\"lead\">{}</p>\n<p class=\"soft\">{}</p>\n",
        theme::style(),
        escape(&scenario.about),
        escape(&conditions_line(comparison)),
    );
    if plots.iter().flat_map(|p| &p.figures).any(|f| f.linear.is_some()) {
        page.push_str(
            "<div class=\"tools\" role=\"radiogroup\" aria-label=\"Scale of the plots\">Scale\
             <label><input type=\"radio\" name=\"scale\" id=\"scale-log\" checked>log</label>\
             <label><input type=\"radio\" name=\"scale\" id=\"scale-linear\">linear</label></div>\n",
        );
    }
    let summaries = comparison.summaries();
    let is_one = comparison.buckets().len() == 1;
    for plots in plots {
        match &plots.bucket {
            Some(bucket) => {
                let own: Vec<&Summary> = summaries.iter().filter(|s| s.bucket == *bucket).collect();
                bucket_section(&mut page, comparison, bucket, is_one, plots, &own);
            }
            None => {
                page.push_str("<h2>Messages</h2>\n");
                figures(&mut page, &plots.figures, Place::Wide, "");
                messages_table(&mut page, comparison, &summaries);
            }
        }
    }
    conditions(&mut page, comparison);
    reproduce(&mut page, comparison);
    page.push_str("</main>\n</body>\n</html>\n");
    page
}

fn bucket_section(
    page: &mut String,
    comparison: &Comparison,
    bucket: &str,
    is_one: bool,
    plots: &Plots,
    summaries: &[&Summary],
) {
    if !is_one {
        let _ = writeln!(page, "<h2>Bucket {}</h2>", escape(bucket));
    }
    let h = if is_one { "h2" } else { "h3" };
    let seeds = comparison.seeds();
    let _ = writeln!(page, "<{h}>At a glance</{h}>");
    let shown = match seeds.len() {
        0 | 1 => "The bar is the run's value.".to_owned(),
        n => format!("A dot is a run; the bar ends at the median of {n} seeds."),
    };
    let _ = writeln!(page, "<p class=\"soft\">{shown}</p>");
    figures(page, &plots.figures, Place::Glance, "glance");
    let _ = writeln!(page, "<{h}>Over time</{h}>");
    if let (Some(first), true) = (seeds.first(), seeds.len() > 1) {
        let _ = writeln!(page, "<p class=\"soft\">Curves are of seed {first}.</p>");
    }
    let (drops, wide): (Vec<&Figure>, Vec<&Figure>) =
        plots.figures.iter().partition(|f| f.stem.ends_with("drop-ratio"));
    for figure in wide.iter().filter(|f| f.place == Place::Wide) {
        write_figure(page, figure);
    }
    let _ = writeln!(page, "<{h}>Law by law</{h}>");
    figures(page, &plots.figures, Place::Half, "pair");
    let _ = writeln!(page, "<{h}>What was dropped</{h}>");
    for figure in drops {
        write_figure(page, figure);
    }
    let _ = writeln!(page, "<{h}>Every measure</{h}>");
    measures_table(page, summaries, seeds.len());
}

fn figures(page: &mut String, figures: &[Figure], place: Place, class: &str) {
    if !class.is_empty() {
        let _ = writeln!(page, "<div class=\"{class}\">");
    }
    for figure in figures.iter().filter(|f| f.place == place) {
        write_figure(page, figure);
    }
    if !class.is_empty() {
        page.push_str("</div>\n");
    }
}

fn write_figure(page: &mut String, figure: &Figure) {
    page.push_str("<figure>");
    match &figure.linear {
        None => page.push_str(&figure.drawing.inline()),
        Some(linear) => {
            let with = |class: &str, svg: String| {
                svg.replacen("class=\"plot\"", &format!("class=\"plot {class}\""), 1)
            };
            page.push_str(&with("as-log", figure.drawing.inline()));
            page.push_str(&with("as-linear", linear.inline()));
        }
    }
    if !figure.caption.is_empty() {
        let _ = write!(page, "<figcaption>{}</figcaption>", escape(&figure.caption));
    }
    page.push_str("</figure>\n");
}

fn measures_table(page: &mut String, summaries: &[&Summary], seeds: usize) {
    if seeds > 1 {
        page.push_str(
            "<p class=\"soft\">Medians over the seeds, below them the worst. The best median is \
             bold.</p>\n",
        );
    }
    page.push_str("<div class=\"scroll\"><table><thead><tr><th>law</th>");
    for measure in Measure::ALL {
        let (title, unit) = (escape(measure.title()), escape(measure.unit()));
        let _ = write!(
            page,
            "<th title=\"{}\">{title}<small>{unit}</small></th>",
            escape(measure.name())
        );
    }
    page.push_str("</tr></thead><tbody>\n");
    for summary in summaries {
        let _ = write!(page, "<tr><td>{}</td>", law_name(summary));
        for measure in Measure::ALL {
            let (median, worst) = summary.cell(measure);
            let best = if is_best(measure, median, summaries) { " class=\"best\"" } else { "" };
            let _ = write!(page, "<td{best}>{}", escape(&measure.cell(median)));
            if seeds > 1 && median != Cell::None {
                let _ = write!(page, "<small>{}</small>", escape(&measure.cell(worst)));
            }
            page.push_str("</td>");
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody></table></div>\n");
}

/// Whether no other law's median is better.
fn is_best(measure: Measure, median: Cell, all: &[&Summary]) -> bool {
    let Some(own) = median.value() else { return false };
    let same = |a: f64, b: f64| (a - b).abs() < 1e-9;
    let others = all.iter().filter_map(|s| s.cell(measure).0.value());
    let is_worst_or_same = |other: f64| same(own, other) || same(worse(measure, own, other), other);
    all.len() > 1 && others.clone().all(is_worst_or_same) && others.clone().any(|o| !same(o, own))
}

fn law_name(summary: &Summary) -> String {
    format!(
        "<span class=\"key\" style=\"background:var(--law{})\"></span>{}",
        theme::colour(summary.law),
        escape(summary.law.name())
    )
}

fn messages_table(page: &mut String, comparison: &Comparison, summaries: &[Summary]) {
    page.push_str(
        "<div class=\"scroll\"><table><thead><tr><th>law</th>\
         <th>from a client<small>per client and second</small></th>\
         <th>to a client<small>per client and second</small></th>\
         <th>aggregators to controllers<small>a second, all</small></th>\
         <th>controllers to aggregators<small>a second, all</small></th></tr></thead><tbody>\n",
    );
    let first = comparison.buckets().first().copied().unwrap_or_default();
    for summary in summaries.iter().filter(|s| s.bucket == first) {
        let m = &summary.messages;
        let _ = write!(page, "<tr><td>{}</td>", law_name(summary));
        for value in
            [m.report_per_client_s, m.directive_per_client_s, m.rollup_per_s, m.grant_per_s]
        {
            let _ = write!(page, "<td>{}</td>", short(value));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody></table></div>\n");
}

fn conditions_line(comparison: &Comparison) -> String {
    let s = &comparison.scenario;
    let seeds = comparison.seeds();
    let seeds = match (seeds.first(), seeds.last()) {
        (Some(first), Some(last)) if first != last => format!("seeds {first} to {last}"),
        (Some(one), _) => format!("seed {one}"),
        (None, _) => "no runs".into(),
    };
    format!(
        "{} clients in {} zones, tick {} ms, {} s of which {} s warm-up, {seeds}.",
        s.clients,
        s.zones,
        s.tick_ms,
        plain(s.duration_s),
        plain(s.warmup_s)
    )
}

fn conditions(page: &mut String, comparison: &Comparison) {
    let s = &comparison.scenario;
    page.push_str("<h2>Conditions</h2>\n");
    if !s.notes.trim().is_empty() {
        for paragraph in s.notes.trim().split("\n\n") {
            let _ = writeln!(page, "<p>{}</p>", escape(paragraph));
        }
    }
    page.push_str("<dl>");
    for (term, text) in facts(s) {
        let _ = write!(page, "<dt>{}</dt><dd>{}</dd>", escape(&term), escape(&text));
    }
    page.push_str("</dl>\n");
    if let Ok(yaml) = serde_saphyr::to_string(s) {
        let _ = writeln!(
            page,
            "<details><summary>The whole scenario, with every default and setting</summary>\
             <pre>{}</pre></details>",
            escape(yaml.trim_end())
        );
    }
}

/// The conditions that matter, in words.
fn facts(s: &Scenario) -> Vec<(String, String)> {
    let mut facts = Vec::new();
    let mut fact = |term: &str, text: String| facts.push((term.to_owned(), text));
    let regions =
        if s.regions == 1 { "1 region".to_owned() } else { format!("{} regions", s.regions) };
    fact("World", format!("{} clients, {} zones, {regions}", s.clients, s.zones));
    fact(
        "Links, one way",
        format!(
            "client–aggregator {} ms, aggregator–controller {} ms{}",
            s.hops.client_aggregator_ms,
            s.hops.aggregator_controller_ms,
            match (s.hops.loss, s.hops.duplicate) {
                (l, d) if l > 0.0 || d > 0.0 => {
                    format!(", {} % lost, {} % twice", plain(l * 100.0), plain(d * 100.0))
                }
                _ => String::new(),
            }
        ),
    );
    let guard = if s.guard == Switch::On { ", guard on" } else { "" };
    fact(
        "Control",
        format!(
            "tick {} ms, directives live {} s, then ramp {} s{guard}",
            s.tick_ms,
            plain(s.ttl_s),
            plain(s.ramp_s)
        ),
    );
    for service in s.all_services() {
        for bucket in &service.buckets {
            let limit = match bucket.limit_rps {
                Some(limit) => {
                    let burst = bucket.burst.map(|b| format!(", burst {b}")).unwrap_or_default();
                    format!("{} requests a second{burst}", short(whole(limit)))
                }
                None => "no limit".into(),
            };
            fact(&format!("Limit {}/{}", service.service, bucket.bucket), limit);
        }
    }
    for workload in std::iter::once(&s.workload).chain(&s.more_workloads) {
        fact("Load", load(workload));
    }
    for fault in &s.faults {
        let lasting =
            fault.for_s.map_or(", to the end".into(), |f| format!(", for {} s", plain(f)));
        let at = plain(fault.at_s - s.warmup_s);
        fact("Fault", format!("{} at {at} s{lasting}", plots::fault_name(fault)));
    }
    facts
}

/// A workload in words.
fn load(w: &Workload) -> String {
    let amount = |x: Option<f64>, rps: Option<f64>| match (x, rps) {
        (Some(x), _) => format!("{} × limit", plain(x)),
        (None, Some(rps)) => format!("{} a second", short(rps)),
        (None, None) => "as recorded".into(),
    };
    let (load, from) = (amount(w.load_x, w.load_rps), amount(w.from_x, w.from_rps));
    let ms = |ms: Option<f64>| plain(ms.unwrap_or_default());
    let shape = match w.shape {
        Shape::Constant => load,
        Shape::Step => format!("{from}, then {load}"),
        Shape::Sine => format!("a wave from {from} to {load}, {} ms long", ms(w.period_ms)),
        Shape::OnOff => format!("{load} and {from} in turn, {} ms long", ms(w.period_ms)),
        Shape::Bursts => {
            let on = w.on_ms.or(w.period_ms.map(|p| p / 2.0));
            format!("{from} with bursts of {load}, {} ms every {} ms", ms(on), ms(w.period_ms))
        }
        Shape::Trace => {
            let file = w.file.as_ref().map(|f| f.display().to_string()).unwrap_or_default();
            format!("trace {file}, time divided by {}, peak {load}", plain(w.time_divisor))
        }
    };
    let mut text = format!("on {}: {shape}; ", w.service);
    text += &match w.zipf {
        z if z > 0.0 => format!("Zipf {} over the clients", plain(z)),
        _ => "even over the clients".into(),
    };
    text += &match w.batch {
        b if b > 1.0 => format!(", in batches of {} on average", plain(b)),
        _ => ", Poisson arrivals".into(),
    };
    if let Some(r) = &w.retries {
        let p = plain(r.probability * 100.0);
        text += &format!(", up to {} retries with {p} % after {} ms", r.max, r.delay_ms);
    }
    text
}

fn reproduce(page: &mut String, comparison: &Comparison) {
    let _ = writeln!(
        page,
        "<h2>Again</h2>\n<p>The same command gives the same numbers, bit for bit (sluice {}):</p>\n\
         <pre class=\"wrap\">{}</pre>\n\
         <details><summary>The hash of every run's trace</summary><div class=\"scroll\"><table>\
         <thead><tr><th>law</th><th>seed</th><th>SHA-256 over every decision and message</th></tr>\
         </thead><tbody>",
        escape(&comparison.how.version),
        escape(&comparison.how.command)
    );
    for outcome in comparison.laws.iter().flat_map(|l| &l.outcomes) {
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td>{}</td><td><code>{}</code></td></tr>",
            escape(&outcome.law),
            outcome.seed,
            escape(&outcome.trace_sha256)
        );
    }
    page.push_str("</tbody></table></div></details>\n");
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn whole(number: u64) -> f64 {
    number as f64
}
