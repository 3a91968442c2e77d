//! Which plots a comparison is worth: what each shows, over which time, on which scale.

use super::axis::{Axis, Scale};
use super::chart::{Curve, Look, Plot, Point, Span};
use super::series::{bins_before, bins_of, count, middle, points, thin_out, trailing, window};
use super::strip::{Row, Strip};
use super::summary::{Cell, Summary};
use super::{Comparison, File, LawRuns, theme};
use crate::outcome::{BucketSeries, Measure, Series};
use crate::scenario::{Fault, FaultKind, Shape, Which, Workload};

/// The plots of one bucket, or of the messages.
#[derive(Debug)]
pub(super) struct Plots {
    /// `service/bucket`; `None` for the messages.
    pub(super) bucket: Option<String>,
    pub(super) figures: Vec<Figure>,
}

/// A plot and what is to be said of it.
#[derive(Debug)]
pub(super) struct Figure {
    /// Its file's name, without an ending.
    pub(super) stem: String,
    pub(super) place: Place,
    pub(super) caption: String,
    pub(super) drawing: Drawing,
    /// The same on a linear scale, where the first is logarithmic.
    pub(super) linear: Option<Drawing>,
}

/// Where on a page it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Among the measures at a glance.
    Glance,
    /// Alone.
    Wide,
    /// Beside another.
    Half,
}

#[derive(Debug)]
pub(super) enum Drawing {
    Plot(Plot),
    Strip(Strip),
}

/// From how many limits on a load dwarfs the limit.
const DWARFED_X: f64 = 6.0;
/// What is averaged in plots that compare laws.
const MEAN_MS: u32 = 1000;
/// Around what happens, in plots that look closely.
const CLOSE_S: (f64, f64) = (-0.4, 3.6);
/// Shorter runs need no closer look.
const CLOSE_FROM_S: f64 = 8.0;
/// Values this many times apart need a logarithmic scale.
const APART_X: f64 = 20.0;
impl Drawing {
    pub(super) fn inline(&self) -> String {
        match self {
            Self::Plot(plot) => plot.inline(),
            Self::Strip(strip) => strip.inline(),
        }
    }

    fn alone(&self) -> String {
        match self {
            Self::Plot(plot) => plot.alone(),
            Self::Strip(strip) => strip.alone(),
        }
    }
}

impl Plots {
    pub(super) fn files(&self) -> impl Iterator<Item = File> + '_ {
        self.figures.iter().flat_map(|figure| {
            let file = |name: String, drawing: &Drawing| File { name, text: drawing.alone() };
            let linear = figure.linear.as_ref();
            std::iter::once(file(format!("{}.svg", figure.stem), &figure.drawing))
                .chain(linear.map(|d| file(format!("{}-linear.svg", figure.stem), d)))
        })
    }
}

/// All plots of a comparison.
pub(super) fn all(comparison: &Comparison) -> Vec<Plots> {
    let buckets = comparison.buckets();
    let summaries = comparison.summaries();
    let mut plots: Vec<Plots> = buckets
        .iter()
        .enumerate()
        .map(|(place, name)| {
            let own: Vec<&Summary> = summaries.iter().filter(|s| s.bucket == *name).collect();
            let prefix = if buckets.len() > 1 { format!("{}-", slug(name)) } else { String::new() };
            let Some(of) = OfBucket::new(comparison, place, prefix) else { return Vec::new() };
            of.figures(&own)
        })
        .zip(&buckets)
        .map(|(figures, name)| Plots { bucket: Some((*name).to_owned()), figures })
        .collect();
    plots.extend(messages(comparison));
    plots
}

/// What the plots of one bucket share.
struct OfBucket<'c> {
    comparison: &'c Comparison,
    place: usize,
    prefix: String,
    /// The first law's curves: what was offered is much the same under every law.
    offered: &'c Series,
    limit: Option<f64>,
    most_rps: f64,
    least_rps: f64,
    /// Whether the load, over a second, is so much more than the limit.
    is_dwarfed: bool,
}

impl<'c> OfBucket<'c> {
    fn new(comparison: &'c Comparison, place: usize, prefix: String) -> Option<Self> {
        let offered = &comparison.laws.first()?.series;
        let curves = offered.buckets.get(place)?;
        let limit = curves.limit_rps.iter().copied().flatten().reduce(f64::max);
        let from = bins_before(offered, window(offered).0);
        let all = comparison.laws.iter().filter_map(|l| l.series.buckets.get(place));
        let seen = all.flat_map(|b| b.offered_rps.iter().chain(&b.admitted_rps).skip(from));
        let most_rps = seen.copied().chain(limit).fold(0.0, f64::max);
        let calm = trailing(&curves.offered_rps, bins_of(offered, MEAN_MS));
        let calm = calm.get(from..).unwrap_or_default();
        let least_rps = calm.iter().copied().filter(|v| *v > 0.0).fold(f64::INFINITY, f64::min);
        let is_dwarfed = limit.is_some_and(|l| l > 0.0 && calm.iter().any(|v| *v > DWARFED_X * l));
        Some(Self { comparison, place, prefix, offered, limit, most_rps, least_rps, is_dwarfed })
    }

    fn figures(&self, summaries: &[&Summary]) -> Vec<Figure> {
        let mut figures = self.glance(summaries);
        figures.push(self.overview());
        figures.extend(self.close());
        figures.extend(self.comparison.laws.iter().map(|law| self.panel(law, summaries)));
        figures.push(self.drops());
        figures
    }

    fn glance(&self, summaries: &[&Summary]) -> Vec<Figure> {
        let measures = self.comparison.scenario.telling_measures();
        let applies = |m: &&Measure| {
            summaries.iter().any(|s| !matches!(s.cell(**m), (Cell::None, Cell::None)))
        };
        let figure = |measure: &Measure| Figure {
            stem: format!("{}measure-{}", self.prefix, slug(measure.name())),
            place: Place::Glance,
            caption: String::new(),
            drawing: Drawing::Strip(self.strip(*measure, summaries)),
            linear: None,
        };
        measures.iter().filter(applies).map(figure).collect()
    }

    fn strip(&self, measure: Measure, summaries: &[&Summary]) -> Strip {
        let rows: Vec<Row> = summaries
            .iter()
            .zip(&self.comparison.laws)
            .map(|(summary, law)| {
                let buckets = law.outcomes.iter().filter_map(|o| o.buckets.get(self.place));
                let (median, _) = summary.cell(measure);
                Row {
                    name: law.law.name().to_owned(),
                    colour: theme::colour(law.law),
                    dots: buckets.filter_map(|b| measure.of(b)).collect(),
                    median: median.value(),
                    label: measure.cell(median),
                }
            })
            .collect();
        let values = || rows.iter().flat_map(|r| r.dots.iter().copied().chain(r.median));
        let most = values().fold(0.0, f64::max);
        let least = values().filter(|v| *v > 0.0).fold(f64::INFINITY, f64::min);
        let medians: Vec<f64> = rows.iter().filter_map(|r| r.median).filter(|m| *m > 0.0).collect();
        let smallest = medians.iter().copied().fold(f64::INFINITY, f64::min);
        let axis = if least.is_finite() && most / smallest > APART_X {
            Axis::log("", least.max(most / 1e4), most)
        } else {
            Axis::linear("", most, 5)
        };
        let scale = if axis.is_log() { ", log scale" } else { "" };
        let good = match measure {
            Measure::MeanX | Measure::Jain => "1 is right",
            Measure::Min1sX => "more is better",
            Measure::CutMs
            | Measure::BandMs
            | Measure::PeakX
            | Measure::Max1sX
            | Measure::VolLimitS
            | Measure::WasteLimitS
            | Measure::Sd100Pct
            | Measure::Sd1sPct => "less is better",
        };
        let goal = match measure {
            Measure::MeanX | Measure::PeakX | Measure::Max1sX | Measure::Min1sX | Measure::Jain => {
                Some(1.0)
            }
            Measure::CutMs
            | Measure::BandMs
            | Measure::VolLimitS
            | Measure::WasteLimitS
            | Measure::Sd100Pct
            | Measure::Sd1sPct => None,
        };
        let told: Vec<String> = rows.iter().map(|r| format!("{} {}", r.name, r.label)).collect();
        let title = measure.title();
        let unit = measure.unit();
        Strip {
            title: format!("{title}, {unit}"),
            subtitle: format!("{} ({good}{scale})", measure.about()),
            alt: format!("{title} in {unit}, median: {}", told.join(", ")),
            axis,
            rows,
            goal,
        }
    }

    fn overview(&self) -> Figure {
        let bins = bins_of(self.offered, MEAN_MS);
        let (from, to) = window(self.offered);
        let draw = |scale| {
            let mut curves = self.context(from, to, 1);
            curves.extend(self.admitted(from, to, bins, Look::Law));
            self.plot("All laws: what was let through", 960.0, 380.0, (from, to), scale, curves)
        };
        self.figure(
            "overview",
            Place::Wide,
            "Each point of a law is the mean over the second before it.".into(),
            draw,
        )
    }

    fn close(&self) -> Option<Figure> {
        let (_, end) = window(self.offered);
        let focus = self.focus().filter(|_| end >= CLOSE_FROM_S)?;
        let (from, to) = (focus + CLOSE_S.0, (focus + CLOSE_S.1).min(end));
        let draw = |scale| {
            let mut curves = self.context(from, to, 1);
            curves.extend(self.admitted(from, to, 1, Look::Thin));
            self.plot("Around the first change, closely", 960.0, 380.0, (from, to), scale, curves)
        };
        let step = self.offered.step_ms;
        let caption = format!("Each point is the mean over {step} ms.");
        Some(self.figure("closely", Place::Wide, caption, draw))
    }

    /// When something first happens, if it does.
    fn focus(&self) -> Option<f64> {
        let scenario = &self.comparison.scenario;
        let change = |w: &Workload| match w.shape {
            Shape::Step | Shape::Bursts => Some(w.at_s.unwrap_or(scenario.warmup_s)),
            Shape::OnOff => Some(scenario.warmup_s),
            Shape::Constant | Shape::Sine | Shape::Trace => None,
        };
        let workloads = std::iter::once(&scenario.workload).chain(&scenario.more_workloads);
        let changes = workloads.filter_map(change);
        let first = changes.chain(scenario.faults.iter().map(|f| f.at_s)).reduce(f64::min)?;
        Some(first - scenario.warmup_s)
    }

    fn panel(&self, law: &LawRuns, summaries: &[&Summary]) -> Figure {
        let name = law.law.name();
        let (from, to) = window(&law.series);
        let draw = |scale| {
            let mut curves = self.context_of(&law.series, from, to, 1);
            let own = law.series.buckets.get(self.place);
            curves.extend(own.map(|own| Curve {
                name: "let through".into(),
                look: Look::Thin(theme::colour(law.law)),
                points: points(&law.series, &own.admitted_rps, from, to),
            }));
            let mut plot = self.plot(name, 470.0, 260.0, (from, to), scale, curves);
            let worst = summaries.iter().find(|s| s.law == law.law);
            let worst = worst.and_then(|s| s.cell(Measure::Max1sX).0.value());
            if let Some(worst) = worst {
                plot.alt.push_str(&format!("; at most {worst:.2} times the limit in a second"));
            }
            plot
        };
        let caption = String::new();
        self.figure(&format!("law-{}", slug(name)), Place::Half, caption, draw)
    }

    fn drops(&self) -> Figure {
        let bins = bins_of(self.offered, MEAN_MS);
        let (from, to) = window(self.offered);
        let ratio = |series: &Series, own: &BucketSeries, admitted: &[f64]| {
            let offered = trailing(&own.offered_rps, bins);
            let admitted = trailing(admitted, bins);
            let share = |(o, a): (&f64, &f64)| if *o > 0.0 { ((o - a) / o).max(0.0) } else { 0.0 };
            let shares: Vec<f64> = offered.iter().zip(&admitted).map(share).collect();
            points(series, &shares, from, to)
        };
        let mut curves = Vec::new();
        for law in &self.comparison.laws {
            let Some(own) = law.series.buckets.get(self.place) else { continue };
            curves.push(Curve {
                name: law.law.name().to_owned(),
                look: Look::Law(theme::colour(law.law)),
                points: ratio(&law.series, own, &own.admitted_rps),
            });
        }
        if let Some(own) = self.offered.buckets.get(self.place) {
            let due = own.offered_rps.iter().zip(&own.limit_rps);
            let due: Vec<f64> = due.map(|(o, l)| l.map_or(*o, |l| l.min(*o))).collect();
            curves.push(Curve {
                name: "what is over the limit".into(),
                look: Look::Due,
                points: ratio(self.offered, own, &due),
            });
        }
        let mut plot = Plot {
            title: "Share that was dropped".into(),
            alt: format!("The share dropped over time under {}", self.laws()),
            width: 960.0,
            height: 300.0,
            x: time_axis(from, to, 14),
            y: Axis::linear("dropped", 1.0, 5).percent(),
            curves,
            spans: self.spans(),
        };
        thin_out(&mut plot.curves);
        Figure {
            stem: format!("{}drop-ratio", self.prefix),
            place: Place::Wide,
            caption: "Each point is over the second before it.".into(),
            drawing: Drawing::Plot(plot),
            linear: None,
        }
    }

    /// What was offered, and the limit.
    fn context(&self, from: f64, to: f64, bins: usize) -> Vec<Curve> {
        self.context_of(self.offered, from, to, bins)
    }

    fn context_of(&self, series: &Series, from: f64, to: f64, bins: usize) -> Vec<Curve> {
        let Some(own) = series.buckets.get(self.place) else { return Vec::new() };
        let mut curves = vec![Curve {
            name: "offered".into(),
            look: Look::Offered,
            points: points(series, &trailing(&own.offered_rps, bins), from, to),
        }];
        if self.limit.is_some() {
            let limits = own.limit_rps.iter().enumerate();
            let limits = limits.map(|(i, limit)| (middle(series, i), *limit));
            curves.push(Curve {
                name: "limit".into(),
                look: Look::Limit,
                points: limits.filter(|(at, _)| (from..=to).contains(at)).collect(),
            });
        }
        curves
    }

    fn admitted(&self, from: f64, to: f64, bins: usize, look: fn(usize) -> Look) -> Vec<Curve> {
        let curve = |law: &LawRuns| {
            let own = law.series.buckets.get(self.place)?;
            Some(Curve {
                name: law.law.name().to_owned(),
                look: look(theme::colour(law.law)),
                points: points(&law.series, &trailing(&own.admitted_rps, bins), from, to),
            })
        };
        self.comparison.laws.iter().filter_map(curve).collect()
    }

    fn plot(
        &self,
        title: &str,
        width: f64,
        height: f64,
        (from, to): (f64, f64),
        scale: Scale,
        mut curves: Vec<Curve>,
    ) -> Plot {
        thin_out(&mut curves);
        let y = match (scale, self.limit) {
            (Scale::Log, Some(limit)) => {
                let least = self.least_rps.min(limit / 5.0).max(limit / 1000.0);
                Axis::log("requests a second (log)", least, self.most_rps)
            }
            (Scale::Log | Scale::Linear, _) => {
                let seen = curves.iter().flat_map(|c| &c.points).filter_map(|(_, v)| *v);
                Axis::linear("requests a second", seen.fold(0.0, f64::max), 5)
            }
        };
        let names: Vec<&str> = curves.iter().map(|c| c.name.as_str()).collect();
        Plot {
            title: title.to_owned(),
            alt: format!("{title}: requests a second over time; curves: {}", names.join(", ")),
            width,
            height,
            x: time_axis(from, to, if width > 700.0 { 14 } else { 7 }),
            y,
            curves,
            spans: self.spans(),
        }
    }

    fn figure(
        &self,
        stem: &str,
        place: Place,
        caption: String,
        draw: impl Fn(Scale) -> Plot,
    ) -> Figure {
        let linear = Drawing::Plot(draw(Scale::Linear));
        let (drawing, linear) = match self.is_dwarfed {
            true => (Drawing::Plot(draw(Scale::Log)), Some(linear)),
            false => (linear, None),
        };
        let caption = match linear {
            Some(_) if place == Place::Wide => {
                format!("{caption} On the log scale, nothing at all is drawn at the bottom.")
            }
            _ => caption,
        };
        Figure { stem: format!("{}{stem}", self.prefix), place, caption, drawing, linear }
    }

    fn spans(&self) -> Vec<Span> {
        spans(self.comparison)
    }

    fn laws(&self) -> String {
        let names: Vec<&str> = self.comparison.laws.iter().map(|l| l.law.name()).collect();
        names.join(", ")
    }
}

/// Messages of clients over time. They are the whole world's, not a bucket's.
fn messages(comparison: &Comparison) -> Option<Plots> {
    let first = &comparison.laws.first()?.series;
    let (from, to) = window(first);
    let clients = count(comparison.scenario.clients);
    let mut curves: Vec<Curve> = comparison
        .laws
        .iter()
        .map(|law| {
            let m = &law.series.messages;
            let both = m.report_per_s.iter().zip(&m.directive_per_s);
            let both: Vec<f64> = both.map(|(up, down)| (up + down) / clients).collect();
            let calm = trailing(&both, bins_of(&law.series, MEAN_MS));
            Curve {
                name: law.law.name().to_owned(),
                look: Look::Law(theme::colour(law.law)),
                points: points(&law.series, &calm, from, to),
            }
        })
        .collect();
    thin_out(&mut curves);
    // Before that, a world is only starting.
    let measured = |(at, value): &Point| value.filter(|_| *at >= 0.0);
    let seen = || curves.iter().flat_map(|c| &c.points).filter_map(measured);
    let most = seen().fold(0.0, f64::max);
    let least = seen().filter(|v| *v > 0.0).fold(f64::INFINITY, f64::min);
    let title = "messages per client and second";
    let y = if least.is_finite() && most / least > APART_X {
        Axis::log(&format!("{title} (log)"), least.max(most / 1e5), most)
    } else {
        Axis::linear(title, most, 5)
    };
    let names: Vec<&str> = comparison.laws.iter().map(|l| l.law.name()).collect();
    let plot = Plot {
        title: "Messages of a client, both ways".into(),
        alt: format!("Messages per client and second over time under {}", names.join(", ")),
        width: 960.0,
        height: 300.0,
        x: time_axis(from, to, 14),
        y,
        curves,
        spans: spans(comparison),
    };
    let figure = Figure {
        stem: "messages".into(),
        place: Place::Wide,
        caption: "Each point is the mean over the second before it; a call to a central store and \
                  its answer are two messages."
            .into(),
        drawing: Drawing::Plot(plot),
        linear: None,
    };
    Some(Plots { bucket: None, figures: vec![figure] })
}

/// The faults, as they lie in time.
fn spans(comparison: &Comparison) -> Vec<Span> {
    let scenario = &comparison.scenario;
    let end = scenario.duration_s;
    let span = |fault: &Fault| Span {
        from: fault.at_s - scenario.warmup_s,
        to: fault.for_s.map_or(end, |for_s| (fault.at_s + for_s).min(end)) - scenario.warmup_s,
        name: fault_name(fault),
    };
    scenario.faults.iter().map(span).collect()
}

/// A fault in a few words.
pub(super) fn fault_name(fault: &Fault) -> String {
    let word = |value: serde_json::Value| value.as_str().unwrap_or_default().replace('-', " ");
    let kind = word(serde_json::json!(fault.fault));
    let tier = word(serde_json::json!(fault.tier));
    let which = match (fault.node, fault.zone) {
        (Which::One(one), _) => format!(" {one}"),
        (Which::All, Some(zone)) => format!("s of zone {zone}"),
        (Which::All, None) => "s".into(),
    };
    match fault.fault {
        FaultKind::Limit => {
            let to = fault.limit_rps.unwrap_or(0);
            format!("{}/{}: limit {to} a second", fault.service, fault.bucket)
        }
        FaultKind::Load => format!("load × {}, {tier}{which}", fault.load_x),
        FaultKind::OneClient => "all load on one client".into(),
        FaultKind::Remove => format!("{} is taken out", fault.service),
        FaultKind::Cut
        | FaultKind::Break
        | FaultKind::Degrade
        | FaultKind::Crash
        | FaultKind::Pause
        | FaultKind::PauseAgent
        | FaultKind::Clock
        | FaultKind::Churn => format!("{kind}: {tier}{which}"),
    }
}

fn time_axis(from: f64, to: f64, ticks: usize) -> Axis {
    Axis::exact("seconds since the measures begin", from, to, ticks)
}

/// A name that may be part of a file's name.
fn slug(name: &str) -> String {
    let kept = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    name.chars().map(kept).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_have_names() {
        let named = |fault| fault_name(&Fault { fault, ..Fault::default() });
        assert_eq!(named(FaultKind::Cut), "cut: clients");
        assert_eq!(named(FaultKind::PauseAgent), "pause agent: clients");
        let zone = Fault { fault: FaultKind::Crash, zone: Some(2), ..Fault::default() };
        assert_eq!(fault_name(&zone), "crash: clients of zone 2");
    }

    #[test]
    fn slugs_are_safe_in_file_names() {
        assert_eq!(slug("api/all"), "api-all");
        assert_eq!(slug("../x"), "---x");
    }
}
