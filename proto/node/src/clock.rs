//! The one place where this crate reads a clock.

use std::time::{Duration, Instant};

use sluicegate_model::Time;

/// Monotonic time since the start of the node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock(Instant);

impl Clock {
    #[expect(
        clippy::disallowed_methods,
        reason = "the shell's clock: cores are handed its reading"
    )]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// Since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    /// What a core is told.
    pub(crate) fn now(&self) -> Time {
        // From 1 s on, so that no core takes the first moment for `Time::ZERO`, "at once".
        Time::from_millis(1000) + self.elapsed()
    }
}
