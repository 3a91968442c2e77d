//! A strip: one measure of every law in one row each, a dot for every seed, a bar to the median.

use std::fmt::Write as _;

use super::axis::Axis;
use super::chart::{alone_head, open};
use super::text::escape;

/// A measure of every law.
#[derive(Debug, Clone)]
pub(super) struct Strip {
    pub(super) title: String,
    /// The unit, and which way is good.
    pub(super) subtitle: String,
    pub(super) alt: String,
    pub(super) axis: Axis,
    pub(super) rows: Vec<Row>,
    /// Where the limit is on the axis, or whatever a good law comes near to.
    pub(super) goal: Option<f64>,
}

/// One law.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) colour: usize,
    /// A value for every seed that has one.
    pub(super) dots: Vec<f64>,
    pub(super) median: Option<f64>,
    /// The median as a text.
    pub(super) label: String,
}

const WIDTH: f64 = 470.0;
const LEFT: f64 = 100.0;
const RIGHT: f64 = 64.0;
const TOP: f64 = 48.0;
const ROW: f64 = 24.0;
const BOTTOM: f64 = 26.0;

impl Strip {
    pub(super) fn inline(&self) -> String {
        self.draw("")
    }

    pub(super) fn alone(&self) -> String {
        self.draw(&alone_head())
    }

    #[expect(clippy::cast_precision_loss, reason = "a handful of rows")]
    fn draw(&self, head: &str) -> String {
        let bottom = TOP + ROW * self.rows.len() as f64;
        let mut svg = open(WIDTH, bottom + BOTTOM, &self.alt, head);
        let _ = write!(
            svg,
            "<text class=\"title\" x=\"10\" y=\"16\">{}</text>\
             <text class=\"soft\" x=\"10\" y=\"33\">{}</text>",
            escape(&self.title),
            escape(&self.subtitle)
        );
        for (value, label) in &self.axis.ticks {
            let x = self.x(*value);
            let _ = write!(
                svg,
                "<path class=\"grid\" d=\"M{x:.1} {TOP:.1}V{bottom:.1}\"/>\
                 <text class=\"soft mid\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>",
                bottom + 16.0,
                escape(label)
            );
        }
        if let Some(goal) = self.goal.filter(|g| self.axis.holds(*g)) {
            let x = self.x(goal);
            let _ = write!(svg, "<path class=\"limit\" d=\"M{x:.1} {TOP:.1}V{bottom:.1}\"/>");
        }
        for (place, row) in self.rows.iter().enumerate() {
            self.row(&mut svg, row, TOP + ROW * (place as f64 + 0.5));
        }
        svg.push_str("</svg>");
        svg
    }

    fn row(&self, svg: &mut String, row: &Row, y: f64) {
        let n = row.colour;
        let _ = write!(
            svg,
            "<text class=\"end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            LEFT - 10.0,
            y + 4.0,
            escape(&row.name)
        );
        if let Some(median) = row.median {
            let x = self.x(median);
            let _ = write!(
                svg,
                "<path class=\"stem law{n}\" d=\"M{LEFT:.1} {y:.1}H{x:.1}\"/>\
                 <path class=\"median law{n}\" d=\"M{x:.1} {:.1}v14\"/>",
                y - 7.0
            );
        }
        for value in &row.dots {
            let _ = write!(
                svg,
                "<circle class=\"dot fill{n}\" cx=\"{:.1}\" cy=\"{y:.1}\" r=\"2.6\"/>",
                self.x(*value)
            );
        }
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            WIDTH - RIGHT + 12.0,
            y + 4.0,
            escape(&row.label)
        );
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + self.axis.place(value) * (WIDTH - LEFT - RIGHT)
    }
}
