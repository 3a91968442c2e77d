//! The memory of a limit.

use proptest::prelude::*;

use super::super::{Level, Observed};
use super::{WINDOW, at, close};

const LIMIT: f64 = 1000.0;

fn seen(admitted: f64) -> Observed {
    Observed { limit_rps: LIMIT, depth: 100.0, demand_rps: 3000.0, admitted, window: WINDOW }
}

#[test]
fn credit_is_spent_over_two_seconds_and_debt_is_paid_back_gently() {
    let mut level = Level::full(at(0), LIMIT, 100.0, WINDOW);
    close(level.level(), 100.0, 1e-9);
    let full = level.step(at(0), &seen(0.0), true, true);
    close(full.rps, LIMIT + 50.0, 1e-9);
    // 300 too many: 200 in debt, a fifth of a second.
    let small = level.step(at(0), &seen(300.0), true, true);
    close(level.level(), -200.0, 1e-9);
    // 3 % as the even part, and 4.7 % for noise at such a limit, but never faster than over 2 s.
    close(small.rps, LIMIT * (1.0 - 0.03 - 0.0471), 1.0);
    // A whole second of debt costs more than a third of the limit.
    let large = level.step(at(0), &seen(800.0), true, true);
    close(level.level(), -1000.0, 1e-9);
    close(large.rps, LIMIT * (1.0 - 0.03 - 0.375 - 0.0471), 1.0);
    assert!(small.rps > large.rps);
}

#[test]
fn a_debt_is_bounded_and_so_is_credit() {
    let mut level = Level::full(at(0), LIMIT, 100.0, WINDOW);
    let _ = level.step(at(1), &seen(1e9), true, true);
    close(level.level(), -LIMIT, 1e-9);
    let _ = level.step(at(100_000), &seen(0.0), true, true);
    close(level.level(), 100.0, 1e-9);
}

#[test]
fn at_a_low_limit_noise_is_no_debt_to_stop_for() {
    let seen = |admitted| Observed { limit_rps: 5.0, depth: 1.0, admitted, ..seen(0.0) };
    let mut level = Level::full(at(0), 5.0, 1.0, WINDOW);
    // More than the burst, so that chance arrivals are not held against the next.
    assert!(level.level() > 5.0);
    let after = level.step(at(0), &seen(8.0), true, true);
    assert!(after.rps > 3.0 && after.rps < 5.0, "{}", after.rps);
}

#[test]
fn what_estimates_get_wrong_on_average_is_corrected() {
    let mut level = Level::full(at(0), LIMIT, 100.0, WINDOW);
    let mut factor = 1.0;
    for step in 1..2000_u64 {
        // Of what is allowed, 10 % less is admitted than meant.
        let admitted = level.step(at(step * 100), &seen(90.0 * factor), true, true);
        factor = admitted.correction;
    }
    assert!((1.05..=1.2).contains(&factor), "{factor}");
    // Once nothing is held back there is nothing to correct.
    for step in 2000..2100_u64 {
        let calm = Observed { demand_rps: 500.0, ..seen(50.0) };
        factor = level.step(at(step * 100), &calm, true, true).correction;
    }
    close(factor, 1.0, 0.01);
}

#[test]
fn without_memory_the_limit_is_all_there_is() {
    let mut level = Level::full(at(0), LIMIT, 100.0, WINDOW);
    for step in 0..10 {
        let allowance = level.step(at(step * 100), &seen(5000.0), false, true);
        close(allowance.rps, LIMIT, 1e-9);
        close(allowance.correction, 1.0, 1e-9);
    }
}

proptest! {
    /// A loop that admits what it is allowed converges to the limit from any debt, and never is the
    /// allowance negative, above twice the limit, or off by more than the correction may be.
    #[test]
    fn it_settles_at_the_limit(debt in 0.0_f64..5_000.0, limit in 10.0_f64..100_000.0) {
        let seen = |admitted| Observed {
            limit_rps: limit,
            depth: limit * 0.1,
            demand_rps: limit * 5.0,
            admitted,
            window: WINDOW,
        };
        let mut level = Level::full(at(0), limit, limit * 0.1, WINDOW);
        let mut allowed = level.step(at(0), &seen(debt), true, true);
        let mut last = 0.0;
        for step in 1..1000_u64 {
            last = allowed.rps * allowed.correction;
            prop_assert!(allowed.rps >= 0.0 && allowed.rps <= 2.0 * limit);
            prop_assert!((0.7..=1.4).contains(&allowed.correction));
            allowed = level.step(at(step * 100), &seen(last * 0.1), true, true);
        }
        prop_assert!((last / limit - 1.0).abs() < 0.03, "{last} of {limit}");
    }
}
