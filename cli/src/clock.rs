//! The command's one look at the clock.

use std::time::Instant;

/// Now, on the monotonic clock.
pub(crate) fn now() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "the command is a shell; this is its clock")]
    Instant::now()
}
