//! A plot as SVG: curves over time on two axes. Knows numbers and names, no laws and no measures.

use std::fmt::Write as _;

use super::axis::Axis;
use super::text::escape;
use super::theme;

/// A plot over time.
#[derive(Debug, Clone)]
pub(super) struct Plot {
    pub(super) title: String,
    /// What it shows, for those who cannot see it.
    pub(super) alt: String,
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) curves: Vec<Curve>,
    pub(super) spans: Vec<Span>,
}

/// One curve.
#[derive(Debug, Clone)]
pub(super) struct Curve {
    pub(super) name: String,
    pub(super) look: Look,
    pub(super) points: Vec<Point>,
}

/// Seconds, and a value; a gap where there is none.
pub(super) type Point = (f64, Option<f64>);

/// How a curve is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// Filled down to the bottom.
    Offered,
    /// Dashed, in steps.
    Limit,
    /// Dashed: what ought to be.
    Due,
    /// A line in the colour of that number.
    Law(usize),
    /// The same, thinner: for curves that go up and down a lot.
    Thin(usize),
}

/// Something that lasts from one time to another.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Span {
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) name: String,
}

const LEFT: f64 = 56.0;
const RIGHT: f64 = 16.0;
const TITLE: f64 = 26.0;
const LEGEND: f64 = 22.0;
const BOTTOM: f64 = 42.0;
/// The most names of spans one below the other.
const LANES: usize = 4;
const LANE: [f64; LANES] = [0.0, 1.0, 2.0, 3.0];
/// How wide a letter is, about.
const LETTER: f64 = 6.4;

impl Plot {
    /// As a part of a page that has the style.
    pub(super) fn inline(&self) -> String {
        self.draw("")
    }

    /// As a file of its own.
    pub(super) fn alone(&self) -> String {
        self.draw(&alone_head())
    }

    fn draw(&self, head: &str) -> String {
        let frame = Frame::new(self);
        let mut svg = open(self.width, self.height, &self.alt, head);
        let _ = write!(
            svg,
            "<text class=\"title\" x=\"{LEFT}\" y=\"16\">{}</text>",
            escape(&self.title)
        );
        self.legend(&mut svg);
        for curve in self.curves.iter().filter(|c| c.look == Look::Offered) {
            frame.curve(&mut svg, self, curve);
        }
        frame.grid(&mut svg, self);
        frame.spans(&mut svg, self);
        // The first one named is drawn last, on top of the others.
        for curve in self.curves.iter().rev().filter(|c| c.look != Look::Offered) {
            frame.curve(&mut svg, self, curve);
        }
        svg.push_str("</svg>");
        svg
    }

    fn legend(&self, svg: &mut String) {
        let mut x = LEFT;
        let y = TITLE + 8.0;
        for curve in &self.curves {
            let (middle, after) = (y - 4.0, x + 24.0);
            let _ = match curve.look {
                Look::Offered => write!(
                    svg,
                    "<rect class=\"offered\" x=\"{x:.1}\" y=\"{:.1}\" width=\"18\" height=\"9\"/>",
                    y - 8.5
                ),
                Look::Limit | Look::Due | Look::Law(_) | Look::Thin(_) => write!(
                    svg,
                    "<path class=\"{}\" d=\"M{x:.1} {middle:.1}h18\"/>",
                    class(curve.look)
                ),
            };
            let _ = write!(
                svg,
                "<text class=\"soft\" x=\"{after:.1}\" y=\"{y:.1}\">{}</text>",
                escape(&curve.name)
            );
            x = after + width_of(&curve.name) + 18.0;
        }
    }
}

/// Where the curves are.
struct Frame {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
}

impl Frame {
    fn new(plot: &Plot) -> Self {
        let top = TITLE + LEGEND + 6.0;
        Self {
            left: LEFT,
            top,
            width: plot.width - LEFT - RIGHT,
            height: plot.height - top - BOTTOM,
        }
    }

    fn x(&self, plot: &Plot, at: f64) -> f64 {
        self.left + plot.x.place(at) * self.width
    }

    fn y(&self, plot: &Plot, value: f64) -> f64 {
        self.top + (1.0 - plot.y.place(value)) * self.height
    }

    fn grid(&self, svg: &mut String, plot: &Plot) {
        let bottom = self.top + self.height;
        let right = self.left + self.width;
        for (value, label) in &plot.y.ticks {
            let y = self.y(plot, *value);
            let _ = write!(
                svg,
                "<path class=\"grid\" d=\"M{:.1} {y:.1}H{right:.1}\"/>\
                 <text class=\"soft end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                self.left,
                self.left - 7.0,
                y + 4.0,
                escape(label)
            );
        }
        for (at, label) in &plot.x.ticks {
            let x = self.x(plot, *at);
            let _ = write!(
                svg,
                "<path class=\"base\" d=\"M{x:.1} {bottom:.1}v5\"/>\
                 <text class=\"soft mid\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>",
                bottom + 18.0,
                escape(label)
            );
        }
        let _ = write!(
            svg,
            "<path class=\"base\" d=\"M{:.1} {bottom:.1}H{right:.1}\"/>\
             <text class=\"soft mid\" x=\"{:.1}\" y=\"{:.1}\">{}</text>\
             <text class=\"soft mid\" transform=\"translate(12 {:.1}) rotate(-90)\">{}</text>",
            self.left,
            self.left + self.width / 2.0,
            bottom + 35.0,
            escape(&plot.x.title),
            self.top + self.height / 2.0,
            escape(&plot.y.title),
        );
        if plot.x.holds(0.0) && plot.x.place(0.0) > 0.0 {
            let x = self.x(plot, 0.0);
            let _ =
                write!(svg, "<path class=\"begin\" d=\"M{x:.1} {:.1}V{bottom:.1}\"/>", self.top);
        }
    }

    /// Each span with its name, in lanes one below the other where names would overlap.
    fn spans(&self, svg: &mut String, plot: &Plot) {
        let right = self.left + self.width;
        let mut lanes = [f64::NEG_INFINITY; LANES];
        for span in &plot.spans {
            let (from, to) = (self.x(plot, span.from), self.x(plot, span.to));
            if to - from < 0.5 && !plot.x.holds(span.from) {
                continue;
            }
            let name = escape(&span.name);
            let _ = write!(
                svg,
                "<rect class=\"fault\" x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" \
                 height=\"{:.1}\"><title>{name}</title></rect>",
                self.top,
                (to - from).max(1.5),
                self.height,
            );
            let width = width_of(&span.name);
            let x = (from + 4.0).min(right - width).max(self.left);
            // Beyond the last lane, pointing at it still tells.
            let Some(lane) = lanes.iter().position(|end| x > *end) else { continue };
            lanes[lane] = x + width;
            let y = self.top + 12.0 + 14.0 * LANE[lane];
            let _ = write!(svg, "<text class=\"soft\" x=\"{x:.1}\" y=\"{y:.1}\">{name}</text>");
        }
    }

    fn curve(&self, svg: &mut String, plot: &Plot, curve: &Curve) {
        let points: Vec<(f64, Option<f64>)> = curve
            .points
            .iter()
            .map(|(at, value)| (self.x(plot, *at), value.map(|v| self.y(plot, v))))
            .collect();
        if curve.look == Look::Offered {
            let path = area(&points, self.top + self.height);
            let _ = write!(svg, "<path class=\"offered\" d=\"{path}\"/>");
            let _ = write!(svg, "<path class=\"offered-edge\" d=\"{}\"/>", line(&points));
            return;
        }
        let path = if curve.look == Look::Limit { steps(&points) } else { line(&points) };
        let _ = write!(svg, "<path class=\"{}\" d=\"{path}\"/>", class(curve.look));
    }
}

fn class(look: Look) -> String {
    match look {
        Look::Offered => "offered-edge".into(),
        Look::Limit | Look::Due => "limit".into(),
        Look::Law(n) => format!("line law{n}"),
        Look::Thin(n) => format!("thin law{n}"),
    }
}

/// Through all points; what lies on a level line between its ends is left out.
fn line(points: &[(f64, Option<f64>)]) -> String {
    let mut path = String::new();
    let mut is_down = false;
    for (i, (x, y)) in points.iter().enumerate() {
        let Some(y) = y else {
            is_down = false;
            continue;
        };
        let is_level = |other: Option<&(f64, Option<f64>)>| {
            other.and_then(|(_, o)| *o).is_some_and(|o| (o - y).abs() < 0.05)
        };
        if is_down && is_level(points.get(i - 1)) && is_level(points.get(i + 1)) {
            continue;
        }
        let _ = write!(path, "{}{x:.1} {y:.1}", if is_down { 'L' } else { 'M' });
        is_down = true;
    }
    path
}

fn steps(points: &[(f64, Option<f64>)]) -> String {
    let mut path = String::new();
    let mut before: Option<f64> = None;
    for (x, y) in points {
        match (before, y) {
            (None, Some(y)) => {
                let _ = write!(path, "M{x:.1} {y:.1}");
            }
            (Some(old), Some(y)) if (old - y).abs() >= 0.05 => {
                let _ = write!(path, "H{x:.1}V{y:.1}");
            }
            (Some(_), Some(_)) => {}
            (Some(_), None) => {
                let _ = write!(path, "H{x:.1}");
            }
            (None, None) => {}
        }
        before = *y;
    }
    if let (Some(_), Some((x, _))) = (before, points.last()) {
        let _ = write!(path, "H{x:.1}");
    }
    path
}

fn area(points: &[(f64, Option<f64>)], bottom: f64) -> String {
    let known = points.iter().filter_map(|(x, y)| y.map(|y| (*x, Some(y)))).collect::<Vec<_>>();
    let (Some((first, _)), Some((last, _))) = (known.first(), known.last()) else {
        return String::new();
    };
    // Drawn to its last point, along the bottom, and back up.
    format!("{}H{last:.1}V{bottom:.1}H{first:.1}Z", line(&known))
}

/// How wide a text is, about.
#[expect(clippy::cast_precision_loss, reason = "a few letters")]
pub(super) fn width_of(text: &str) -> f64 {
    text.chars().count() as f64 * LETTER
}

/// The beginning of a picture.
pub(super) fn open(width: f64, height: f64, alt: &str, head: &str) -> String {
    let alt = escape(alt);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"plot\" role=\"img\" \
         viewBox=\"0 0 {width:.0} {height:.0}\" aria-label=\"{alt}\"><title>{alt}</title>{head}"
    )
}

/// What a picture needs that stands alone.
pub(super) fn alone_head() -> String {
    format!(
        "<style>{}</style><rect width=\"100%\" height=\"100%\" style=\"fill:var(--panel)\"/>",
        theme::style()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_line_is_drawn_by_its_ends() {
        let level = [(0.0, Some(5.0)), (1.0, Some(5.0)), (2.0, Some(5.0)), (3.0, Some(9.0))];
        assert_eq!(line(&level), "M0.0 5.0L2.0 5.0L3.0 9.0");
        assert_eq!(line(&[(0.0, Some(1.0)), (1.0, None), (2.0, Some(3.0))]), "M0.0 1.0M2.0 3.0");
        assert_eq!(steps(&level), "M0.0 5.0H3.0V9.0H3.0");
        assert_eq!(area(&level[2..], 20.0), "M2.0 5.0L3.0 9.0H3.0V20.0H2.0Z");
        assert_eq!(area(&[], 20.0), "");
    }

    #[test]
    fn names_of_spans_do_not_overlap() {
        let span = |from: f64| Span { from, to: 1.0, name: "a long name of a span".into() };
        let plot = Plot {
            title: String::new(),
            alt: String::new(),
            width: 400.0,
            height: 200.0,
            x: Axis::exact("s", 0.0, 1.0, 4),
            y: Axis::linear("y", 1.0, 4),
            curves: Vec::new(),
            spans: vec![span(0.0), span(0.1), span(0.9)],
        };
        let svg = plot.inline();
        let rows: Vec<&str> = svg
            .split("<text ")
            .filter(|t| t.split("</text>").next().is_some_and(|t| t.contains("a long name")))
            .filter_map(|t| t.split("y=\"").nth(1)?.split('"').next())
            .collect();
        assert_eq!(rows, ["66.0", "80.0", "66.0"]);
    }

    #[test]
    fn a_plot_names_everything() {
        let curve = |name: &str, look| Curve {
            name: name.into(),
            look,
            points: vec![(0.0, Some(1.0)), (1.0, Some(2.0))],
        };
        let plot = Plot {
            title: "A < B".into(),
            alt: "two curves".into(),
            width: 400.0,
            height: 200.0,
            x: Axis::exact("seconds", -1.0, 1.0, 4),
            y: Axis::linear("requests a second", 2.0, 4),
            curves: vec![curve("offered", Look::Offered), curve("ratio", Look::Law(0))],
            spans: vec![Span { from: 0.2, to: 0.4, name: "cut".into() }],
        };
        let svg = plot.alone();
        for needed in [
            "A &lt; B",
            "two curves",
            "seconds",
            "requests a second",
            ">offered<",
            ">ratio<",
            ">cut<",
        ] {
            assert!(svg.contains(needed), "{needed} is not in {svg}");
        }
        assert!(svg.contains("prefers-color-scheme:dark") && svg.contains("@media print"));
        assert!(!plot.inline().contains("<style"));
    }
}
