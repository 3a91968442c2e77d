//! A bar with the time left for whoever watches a terminal; nothing elsewhere. Knows nothing of what
//! takes so long.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::clock;

const REDRAW: Duration = Duration::from_millis(200);

/// What is drawn.
#[derive(Debug)]
pub(crate) struct Bar {
    bar: ProgressBar,
    drawn: Instant,
}

impl Bar {
    /// Of that length; one without a length shows only that something goes on.
    pub(crate) fn new(length: Option<u64>) -> Self {
        let bar = match length {
            Some(length) => ProgressBar::new(length),
            None => ProgressBar::no_length(),
        };
        let template = match length {
            Some(_) => "{bar:30} {msg}",
            None => "{spinner} {msg}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Self { bar, drawn: clock::now() }
    }

    /// How long it is, if it has a length.
    pub(crate) fn length(&self) -> Option<u64> {
        self.bar.length()
    }

    /// Whether somebody watches, and it is time to draw again.
    pub(crate) fn is_due(&mut self) -> bool {
        if self.bar.is_hidden() || self.drawn.elapsed() < REDRAW {
            return false;
        }
        self.drawn = clock::now();
        true
    }

    /// Draws.
    pub(crate) fn draw(&self, position: u64, message: String) {
        self.bar.set_position(position);
        self.bar.set_message(message);
    }

    /// Lets others write without the bar in between.
    pub(crate) fn suspend(&self, write: impl FnOnce()) {
        self.bar.suspend(write);
    }

    /// Takes the bar away.
    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }
}

/// A time left, as people say it: `8 s`, `2 min 5 s`.
pub(crate) fn left(time: Duration) -> String {
    match time.as_secs() {
        s @ 0..=99 => format!("{s} s left"),
        s => format!("{} min {} s left", s / 60, s % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_left_read_well() {
        assert_eq!(left(Duration::from_millis(8900)), "8 s left");
        assert_eq!(left(Duration::from_secs(125)), "2 min 5 s left");
    }

    #[test]
    fn nobody_watches_a_test() {
        let mut bar = Bar::new(Some(5));
        assert_eq!(bar.length(), Some(5));
        assert!(!bar.is_due(), "standard error is no terminal here, or it is too early");
    }
}
