//! Axes: from numbers to places between 0 and 1, with ticks at round numbers.

use super::text::{plain, short};

/// One axis.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Axis {
    /// What it measures, with its unit.
    pub(super) title: String,
    /// Where ticks stand, and what they say.
    pub(super) ticks: Vec<(f64, String)>,
    scale: Scale,
    from: f64,
    to: f64,
}

/// How numbers become places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scale {
    Linear,
    Log,
}

impl Axis {
    /// From `from` to `to` exactly, with about `count` ticks.
    pub(super) fn exact(title: &str, from: f64, to: f64, count: usize) -> Self {
        let to = if to > from { to } else { from + 1.0 };
        let step = round_step((to - from) / amount(count.max(1)));
        let ticks = multiples(step, from, to);
        Self::new(title, ticks, Scale::Linear, from, to)
    }

    /// From 0 to a round number from `most` up.
    pub(super) fn linear(title: &str, most: f64, count: usize) -> Self {
        let most = if most > 0.0 { most } else { 1.0 };
        let step = round_step(most / amount(count.max(1)));
        let to = (most / step - 1e-9).ceil().max(1.0) * step;
        Self::new(title, multiples(step, 0.0, to), Scale::Linear, 0.0, to)
    }

    /// Logarithmic between round numbers around `least` and `most`, both above 0.
    pub(super) fn log(title: &str, least: f64, most: f64) -> Self {
        let least = least.max(1e-9);
        let most = most.max(least * 2.0);
        let decade = |v: f64| v.log10().floor();
        let from = floor_125(least);
        let to = [1.0, 2.0, 5.0, 10.0]
            .map(|m| m * 10_f64.powf(decade(most)))
            .into_iter()
            .find(|v| *v >= most * (1.0 - 1e-9))
            .unwrap_or(most);
        let steps: &[f64] = if to / from > 2000.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let mut ticks = Vec::new();
        let mut power = decade(from);
        while power <= decade(to) + 0.5 {
            let within = steps.iter().map(|m| m * 10_f64.powf(power));
            ticks.extend(within.filter(|v| *v >= from * 0.999 && *v <= to * 1.001));
            power += 1.0;
        }
        Self::new(title, ticks, Scale::Log, from, to)
    }

    fn new(title: &str, ticks: Vec<f64>, scale: Scale, from: f64, to: f64) -> Self {
        // All in thousands, if the largest is.
        let is_in_k = ticks.iter().any(|v| (1e4..1e6).contains(&v.abs()));
        let label = |v: f64| match v.abs() {
            s if is_in_k && (1e3..1e4).contains(&s) => format!("{}k", plain(v / 1e3)),
            _ => short(v),
        };
        let ticks = ticks.into_iter().map(|v| (v, label(v))).collect();
        Self { title: title.to_owned(), ticks, scale, from, to }
    }

    /// The same with shares of 1 written as percentages.
    pub(super) fn percent(mut self) -> Self {
        for (at, label) in &mut self.ticks {
            *label = format!("{:.0} %", *at * 100.0);
        }
        self
    }

    pub(super) fn is_log(&self) -> bool {
        self.scale == Scale::Log
    }

    /// Where a number is: 0 at the beginning of the axis, 1 at its end, within them at any rate.
    pub(super) fn place(&self, value: f64) -> f64 {
        let place = match self.scale {
            Scale::Linear => (value - self.from) / (self.to - self.from),
            Scale::Log => (value.max(self.from) / self.from).ln() / (self.to / self.from).ln(),
        };
        place.clamp(0.0, 1.0)
    }

    pub(super) fn holds(&self, value: f64) -> bool {
        (self.from..=self.to).contains(&value)
    }
}

/// The largest of 1, 2, 5 times a power of ten that is not above `value`.
fn floor_125(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    let fits = [5.0, 2.0, 1.0].into_iter().find(|m| m * power <= value * (1.0 + 1e-9));
    fits.unwrap_or(1.0) * power
}

/// A round step of at least `least`.
fn round_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    let fits = [1.0, 2.0, 5.0, 10.0].into_iter().find(|m| m * power >= least * (1.0 - 1e-9));
    fits.unwrap_or(10.0) * power
}

fn multiples(step: f64, from: f64, to: f64) -> Vec<f64> {
    let mut ticks = Vec::new();
    let mut count = (from / step - 1e-9).ceil();
    while count * step <= to + step * 1e-9 && ticks.len() < 100 {
        // Written so that there is no -0.
        ticks.push(count * step + 0.0);
        count += 1.0;
    }
    ticks
}

#[expect(clippy::cast_precision_loss, reason = "a handful")]
fn amount(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|(_, l)| l.as_str()).collect()
    }

    #[test]
    fn linear_ticks_are_round() {
        let axis = Axis::linear("x", 367_000.0, 5);
        assert_eq!(labels(&axis), ["0", "100k", "200k", "300k", "400k"]);
        assert!((axis.place(200_000.0) - 0.5).abs() < 1e-9);
        assert_eq!(
            labels(&Axis::exact("t", -1.0, 17.0, 9)),
            ["0", "2", "4", "6", "8", "10", "12", "14", "16"]
        );
        assert_eq!(labels(&Axis::linear("p", 1.0, 4).percent()), ["0 %", "50 %", "100 %"]);
    }

    #[test]
    fn log_ticks_are_round() {
        let axis = Axis::log("x", 11_000.0, 367_000.0);
        assert_eq!(labels(&axis), ["10k", "20k", "50k", "100k", "200k", "500k"]);
        assert!(axis.place(0.0).abs() < 1e-9, "what is below stands at the bottom");
        assert!((axis.place(1e9) - 1.0).abs() < 1e-9);
        assert_eq!(labels(&Axis::log("x", 2500.0, 20_000.0)), ["2k", "5k", "10k", "20k"]);
        assert_eq!(labels(&Axis::log("x", 1.0, 1e6)).len(), 7);
    }

    #[test]
    fn nothing_still_makes_an_axis() {
        for axis in
            [Axis::linear("x", 0.0, 4), Axis::exact("x", 1.0, 1.0, 4), Axis::log("x", 0.0, 0.0)]
        {
            assert!(axis.ticks.len() >= 2, "{axis:?}");
            assert!(axis.place(0.5).is_finite());
        }
    }
}
