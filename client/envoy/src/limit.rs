//! A limit as Envoy's interface can say it.

use std::time::Duration;

use sluicegate_model::TokenRate;

use crate::rls::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;

/// Units with their length in seconds, the shortest first. Months and years have none.
const UNITS: [(Unit, u64); 5] = [
    (Unit::Second, 1),
    (Unit::Minute, 60),
    (Unit::Hour, 3600),
    (Unit::Day, 86_400),
    (Unit::Week, 604_800),
];

/// So many requests a unit of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PerUnit {
    /// At most `u32::MAX`, for the interface has no room for more.
    pub(crate) requests: u32,
    pub(crate) unit: Unit,
    /// How long the unit is, in whole seconds, at least 1.
    pub(crate) seconds: u64,
}

impl PerUnit {
    /// `rate` in the unit that its window is; with a window in between (such as 10 s) in the
    /// shortest unit that says it exactly. If none does, the window's requests, of unit unknown.
    pub(crate) fn of(rate: &TokenRate) -> Self {
        let window = rate.window();
        let named = UNITS.into_iter().find(|(_, s)| window == Duration::from_secs(*s));
        if let Some((unit, seconds)) = named {
            return Self { requests: saturated(u128::from(rate.requests())), unit, seconds };
        }
        let exact = UNITS.into_iter().find_map(|(unit, seconds)| {
            let requests = u128::from(rate.requests()) * u128::from(seconds) * 1_000_000_000;
            let window_ns = window.as_nanos();
            let whole = requests.is_multiple_of(window_ns);
            whole.then(|| Self { requests: saturated(requests / window_ns), unit, seconds })
        });
        exact.unwrap_or_else(|| Self {
            requests: saturated(u128::from(rate.requests())),
            unit: Unit::Unknown,
            seconds: whole_seconds(window),
        })
    }
}

/// Rounded up, at least 1: what a header can say.
pub(crate) fn whole_seconds(duration: Duration) -> u64 {
    let up = u64::from(duration.subsec_nanos() > 0);
    duration.as_secs().saturating_add(up).max(1)
}

fn saturated(requests: u128) -> u32 {
    u32::try_from(requests).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(requests: u64, window: Duration) -> (u32, Unit, u64) {
        let rate = TokenRate::per_window(requests, window, None).expect("a rate");
        let PerUnit { requests, unit, seconds } = PerUnit::of(&rate);
        (requests, unit, seconds)
    }

    #[test]
    fn a_limit_keeps_the_unit_of_its_window() {
        let s = Duration::from_secs;
        assert_eq!(of(300, s(1)), (300, Unit::Second, 1));
        assert_eq!(of(100, s(60)), (100, Unit::Minute, 60));
        assert_eq!(of(7, s(3600)), (7, Unit::Hour, 3600));
        assert_eq!(of(9, s(86_400)), (9, Unit::Day, 86_400));
        assert_eq!(of(9, s(604_800)), (9, Unit::Week, 604_800));
    }

    #[test]
    fn other_windows_take_the_shortest_unit_that_is_exact() {
        let s = Duration::from_secs;
        assert_eq!(of(50, s(10)), (5, Unit::Second, 1));
        assert_eq!(of(5, s(10)), (30, Unit::Minute, 60));
        assert_eq!(of(2, Duration::from_millis(500)), (4, Unit::Second, 1));
        assert_eq!(of(10, s(7)), (864_000, Unit::Week, 604_800), "a week is 86,400 times 7 s");
        assert_eq!(of(1, Duration::new(11, 1)).1, Unit::Unknown);
        assert_eq!(of(1, Duration::new(11, 1)).2, 12);
    }

    #[test]
    fn what_has_no_room_saturates() {
        assert_eq!(of(0, Duration::from_secs(1)), (0, Unit::Second, 1));
        assert_eq!(of(10_000_000_000, Duration::from_secs(1)).0, u32::MAX);
    }

    #[test]
    fn seconds_round_up() {
        assert_eq!(whole_seconds(Duration::ZERO), 1);
        assert_eq!(whole_seconds(Duration::from_millis(1001)), 2);
        assert_eq!(whole_seconds(Duration::from_secs(5)), 5);
    }
}
