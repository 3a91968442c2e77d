//! Numbers and measures as people read them.

use super::summary::Cell;
use crate::outcome::Measure;

/// Three digits that count, with `k`, `M` or `G` from ten thousand up.
pub(super) fn short(value: f64) -> String {
    let size = value.abs();
    let (value, suffix) = match size {
        s if s >= 1e9 => (value / 1e9, "G"),
        s if s >= 1e6 => (value / 1e6, "M"),
        s if s >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    format!("{}{suffix}", plain(value))
}

/// Three digits that count, without zeros that say nothing.
pub(super) fn plain(value: f64) -> String {
    let size = value.abs();
    let digits = match size {
        s if s >= 100.0 => 0,
        s if s >= 10.0 => 1,
        s if s >= 1.0 => 2,
        s if s >= 0.1 => 3,
        s if s > 0.0 => 4,
        _ => 0,
    };
    let text = format!("{value:.digits$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

impl Measure {
    /// What a measure is called in a heading.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::CutMs => "Time to cut",
            Self::BandMs => "Time to settle",
            Self::PeakX => "Worst 100 ms",
            Self::Max1sX => "Worst second",
            Self::Min1sX => "Emptiest second",
            Self::VolLimitS => "Excess volume",
            Self::WasteLimitS => "Waste",
            Self::MeanX => "Mean, settled",
            Self::Sd100Pct => "Unrest, 100 ms",
            Self::Sd1sPct => "Unrest, 1 s",
            Self::Jain => "Fairness",
        }
    }

    /// Its unit.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Self::CutMs | Self::BandMs => "ms",
            Self::PeakX | Self::Max1sX | Self::MeanX => "× limit",
            Self::Min1sX => "× due",
            Self::VolLimitS | Self::WasteLimitS => "s of limit",
            Self::Sd100Pct | Self::Sd1sPct => "% of limit",
            Self::Jain => "Jain",
        }
    }

    /// What it says, in a line.
    #[must_use]
    pub fn about(self) -> &'static str {
        match self {
            Self::CutMs => "until 50 ms are at most 1.1 times the limit",
            Self::BandMs => "until every 300 ms stay within 5 % for 3 s",
            Self::PeakX => "the most let through in any 100 ms",
            Self::Max1sX => "the most let through in any second",
            Self::Min1sX => "the least let through in any second, of what was due",
            Self::VolLimitS => "how far the output ran ahead of the limit",
            Self::WasteLimitS => "what was due in the first 10 s and held back",
            Self::MeanX => "let through once things have settled",
            Self::Sd100Pct => "standard deviation of windows of 100 ms",
            Self::Sd1sPct => "standard deviation of windows of a second",
            Self::Jain => "of the clients' admitted shares; 1 is fair",
        }
    }

    /// A value with the digits that its measure deserves.
    #[must_use]
    pub fn format(self, value: f64) -> String {
        match self {
            Self::CutMs | Self::BandMs => format!("{value:.0}"),
            Self::PeakX | Self::Max1sX | Self::Min1sX => format!("{value:.2}"),
            Self::MeanX | Self::Jain => format!("{value:.3}"),
            Self::VolLimitS | Self::WasteLimitS if value >= 9.995 => format!("{value:.1}"),
            Self::VolLimitS | Self::WasteLimitS => format!("{value:.2}"),
            Self::Sd100Pct | Self::Sd1sPct => format!("{value:.1}"),
        }
    }

    /// A cell of a table.
    #[must_use]
    pub fn cell(self, cell: Cell) -> String {
        match cell {
            Cell::Is(number) => self.format(number),
            Cell::Never => "never".into(),
            Cell::None => "–".into(),
        }
    }
}

/// Text that may stand anywhere in HTML and SVG.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c if c.is_control() && c != '\n' && c != '\t' => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let texts = [0.0, 0.05, 1.0, 1.25, 42.0, 950.0, 1500.0, 22_000.0, 1_500_000.0].map(short);
        assert_eq!(texts, ["0", "0.05", "1", "1.25", "42", "950", "1500", "22k", "1.5M"]);
    }

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(escape("<b a='\"&\u{1b}"), "&lt;b a=&#39;&quot;&amp;\u{fffd}");
    }

    #[test]
    fn cells_say_never_and_nothing() {
        assert_eq!(Measure::CutMs.cell(Cell::Is(2490.4)), "2490");
        assert_eq!(Measure::VolLimitS.cell(Cell::Is(22.449)), "22.4");
        assert_eq!(Measure::BandMs.cell(Cell::Never), "never");
        assert_eq!(Measure::Jain.cell(Cell::None), "–");
    }
}
