//! The one place of this crate that reads clocks.
//!
//! Both clocks count from the same origin, so that a time of one can be compared with a time of the
//! other; the coarse one lags by at most one tick of the kernel (1 to 10 ms).

use rustix::time::{ClockId, clock_gettime};
use sluicegate_client_core::CoarseClock;
use sluicegate_model::Time;

/// The clock that a drop may read: no system call, a few nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Coarse;

impl CoarseClock for Coarse {
    #[inline]
    fn now(&self) -> Time {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        return read(ClockId::MonotonicCoarse);
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        return read(ClockId::Monotonic);
    }
}

/// The agent's clock.
pub(crate) fn now() -> Time {
    read(ClockId::Monotonic)
}

fn read(clock: ClockId) -> Time {
    let t = clock_gettime(clock);
    let s = u64::try_from(t.tv_sec).unwrap_or(0);
    let ns = u64::try_from(t.tv_nsec).unwrap_or(0);
    Time::from_nanos(s.saturating_mul(1_000_000_000).saturating_add(ns))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn both_clocks_share_their_origin_and_go_forward() {
        let coarse = Coarse.now();
        let fine = now();
        assert!(fine >= coarse, "the coarse clock lags");
        assert!(fine.since(coarse) < Duration::from_secs(1), "{:?}", fine.since(coarse));
        std::thread::sleep(Duration::from_millis(30));
        assert!(Coarse.now().since(coarse) >= Duration::from_millis(15));
    }
}
