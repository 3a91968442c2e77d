//! The progress of a load for whoever watches: a bar with the time left and the rates of now.

use std::time::Duration;

use super::stats::Tally;
use crate::progress::{Bar, left};

/// What is drawn.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: Bar,
    before: (Duration, Tally),
}

impl Progress {
    /// For a load of that length; a load without one shows only how far it is.
    pub(crate) fn new(length: Option<Duration>) -> Self {
        Self { bar: Bar::new(length.map(millis)), before: (Duration::ZERO, Tally::default()) }
    }

    /// Shows the state `elapsed` after the start, if it is time to.
    pub(crate) fn show(&mut self, elapsed: Duration, total: &Tally) {
        if !self.bar.is_due() {
            return;
        }
        let (before, tally) = self.before;
        let over = elapsed.saturating_sub(before);
        if over.is_zero() {
            return;
        }
        #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
        let rate = |now: u64, then: u64| (now - then) as f64 / over.as_secs_f64();
        let time = match self.bar.length() {
            Some(length) => left(Duration::from_millis(length.saturating_sub(millis(elapsed)))),
            None => format!("{} s", elapsed.as_secs()),
        };
        let message = format!(
            "{time}  offered {:.0}/s  admitted {:.0}/s  dropped {:.0}/s  errors {}",
            rate(total.offered, tally.offered),
            rate(total.admitted, tally.admitted),
            rate(total.dropped, tally.dropped),
            total.errors + total.not_sent,
        );
        self.bar.draw(millis(elapsed), message);
        if over >= Duration::from_secs(1) {
            self.before = (elapsed, *total);
        }
    }

    /// Takes the bar away.
    pub(crate) fn end(&self) {
        self.bar.end();
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
