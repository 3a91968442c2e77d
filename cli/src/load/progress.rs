//! The progress of a load for whoever watches: a bar with the time left on a terminal, nothing
//! elsewhere.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::stats::Tally;
use crate::clock;

const REDRAW: Duration = Duration::from_millis(200);

/// What is drawn.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    drawn: Instant,
    before: (Duration, Tally),
}

impl Progress {
    /// For a load of that length; a load without one shows only how far it is.
    pub(crate) fn new(length: Option<Duration>) -> Self {
        let bar = match length {
            Some(length) => ProgressBar::new(millis(length)),
            None => ProgressBar::no_length(),
        };
        let template = match length {
            Some(_) => "{bar:30} {msg}",
            None => "{spinner} {msg}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Self { bar, drawn: clock::now(), before: (Duration::ZERO, Tally::default()) }
    }

    /// Shows the state `elapsed` after the start, if it is time to.
    pub(crate) fn show(&mut self, elapsed: Duration, total: &Tally) {
        if self.bar.is_hidden() || self.drawn.elapsed() < REDRAW {
            return;
        }
        self.drawn = clock::now();
        self.bar.set_position(millis(elapsed));
        let (before, tally) = self.before;
        let over = elapsed.saturating_sub(before);
        if over.is_zero() {
            return;
        }
        #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
        let rate = |now: u64, then: u64| (now - then) as f64 / over.as_secs_f64();
        let left = match self.bar.length() {
            Some(length) => {
                let left = Duration::from_millis(length.saturating_sub(millis(elapsed)));
                format!("{} s left", left.as_secs())
            }
            None => format!("{} s", elapsed.as_secs()),
        };
        self.bar.set_message(format!(
            "{left}  offered {:.0}/s  admitted {:.0}/s  dropped {:.0}/s  errors {}",
            rate(total.offered, tally.offered),
            rate(total.admitted, tally.admitted),
            rate(total.dropped, tally.dropped),
            total.errors + total.not_sent,
        ));
        if over >= Duration::from_secs(1) {
            self.before = (elapsed, *total);
        }
    }

    /// Takes the bar away.
    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
