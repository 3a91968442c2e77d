//! A count that starts anew at fixed times.

/// A fixed window: what came since the last full multiple of its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct FixedWindow {
    /// Which window the count is of.
    number: u64,
    count: u64,
}

impl FixedWindow {
    /// Counts `hits` at `now`, and gives back what the window of `now` holds with them.
    pub(crate) fn add(&mut self, now: u64, length: u64, hits: u64) -> u64 {
        let number = now / length.max(1);
        if number != self.number {
            *self = Self { number, count: 0 };
        }
        self.count = self.count.saturating_add(hits);
        self.count
    }

    /// When the window of `now` ends.
    pub(crate) fn end(now: u64, length: u64) -> u64 {
        let length = length.max(1);
        (now / length + 1).saturating_mul(length)
    }
}

/// How many a window of `length` nanoseconds admits at `limit_rps`.
#[expect(clippy::cast_precision_loss, reason = "an hour at most")]
pub(crate) fn quota(limit_rps: f64, length: u64) -> f64 {
    limit_rps * (length as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_forgets_at_its_end() {
        let mut window = FixedWindow::default();
        assert_eq!(window.add(10, 100, 3), 3);
        assert_eq!(window.add(99, 100, 2), 5);
        assert_eq!(FixedWindow::end(99, 100), 100);
        assert_eq!(window.add(100, 100, 1), 1);
        assert_eq!(FixedWindow::end(100, 100), 200);
        assert!((quota(22_000.0, 500_000_000) - 11_000.0).abs() < 1e-9);
    }
}
