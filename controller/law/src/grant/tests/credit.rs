//! What a child makes of a grant.

use std::time::Duration;

use proptest::prelude::*;

use super::super::{Credit, Held, InForce};
use super::{WINDOW, at, close};

fn held(rps: f64, base_rps: f64, age_ms: u64) -> Held {
    Held { rps, base_rps, age: Duration::from_millis(age_ms) }
}

#[test]
fn a_grant_covers_its_share_of_demand() {
    let mut credit = Credit::new(at(0), 0.0);
    let covered = credit.step(at(0), &held(300.0, 300.0, 0), 0.0, 900.0, 500.0, WINDOW);
    close(covered.share, 1.0 / 3.0, 1e-9);
    close(covered.headroom, 0.0, 1e-9);
    close(covered.sigma, 0.6, 1e-9);
    let covered = credit.step(at(0), &held(1000.0, 1000.0, 0), 0.0, 900.0, 500.0, WINDOW);
    close(covered.headroom, 0.2, 1e-9);
    assert!(covered.share > 1.0);
}

#[test]
fn unused_grant_is_kept_for_a_tenth_of_a_second_and_spent_soon() {
    let mut credit = Credit::new(at(0), 0.0);
    let _ = credit.step(at(10_000), &held(300.0, 300.0, 0), 0.0, 100.0, 100.0, WINDOW);
    close(credit.level(), 30.0, 1e-9);
    let covered = credit.step(at(10_000), &held(300.0, 300.0, 0), 0.0, 900.0, 100.0, WINDOW);
    close(covered.share, (300.0 + 30.0 / 0.2) / 900.0, 1e-9);
}

#[test]
fn what_was_too_much_is_the_parents_to_settle_unless_it_is_silent() {
    let mut credit = Credit::new(at(0), 0.0);
    let grant = held(300.0, 270.0, 0);
    let covered = credit.step(at(100), &grant, 500.0, 900.0, 500.0, WINDOW);
    close(credit.level(), 0.0, 1e-9);
    close(covered.share, 300.0 / 900.0, 1e-9);
    // Alone, it keeps to the base and pays back by itself, with at most 30 %.
    let alone = held(300.0, 270.0, 2000);
    let covered = credit.step(at(200), &alone, 1500.0, 900.0, 500.0, WINDOW);
    close(credit.level(), -270.0, 1e-9);
    close(covered.share, 270.0 * 0.7 / 900.0, 1e-9);
}

#[test]
fn the_mean_of_ratios_is_over_the_time_they_were_in_force() {
    let mut in_force = InForce::default();
    close(in_force.mean(at(0), Duration::from_millis(50)), 1.0, 1e-9);
    in_force.set(at(1000), 1.0);
    in_force.set(at(2000), 0.5);
    in_force.set(at(2050), 0.1);
    close(in_force.mean(at(2100), Duration::from_millis(50)), 0.1, 1e-9);
    close(in_force.mean(at(2100), Duration::from_millis(100)), 0.3, 1e-9);
    close(in_force.mean(at(2100), Duration::from_millis(200)), (0.1 + 0.5 + 2.0) / 4.0, 1e-9);
    close(in_force.share(), 0.1, 1e-9);
}

proptest! {
    /// However ratios come and go, the mean lies between them and memory is bounded.
    #[test]
    fn means_lie_between(
        changes in proptest::collection::vec((0_u64..500, 0.0_f64..=1.0), 1..400),
        age_ms in 1_u64..2000,
    ) {
        let (mut in_force, mut now) = (InForce::default(), 0);
        let (mut low, mut high) = (1.0_f64, 0.0_f64);
        for (gap, share) in changes {
            now += gap;
            in_force.set(at(now), share);
            (low, high) = (low.min(share), high.max(share));
            let mean = in_force.mean(at(now), Duration::from_millis(age_ms));
            prop_assert!(mean >= low - 1e-9 && mean <= high + 1e-9, "{mean}");
        }
        prop_assert!(in_force.changes() <= 64);
    }

    /// A child that admits what its share says stays within its grant, plus what it keeps.
    #[test]
    fn a_child_stays_within_its_grant(
        grant in 10.0_f64..10_000.0,
        demands in proptest::collection::vec(0.1_f64..20.0, 50..200),
    ) {
        let mut credit = Credit::new(at(0), 0.0);
        let (mut admitted, mut now) = (0.0, 0_u64);
        for demand in demands {
            let demand = grant * demand;
            let held = held(grant, grant, 0);
            let covered = credit.step(at(now), &held, admitted, demand, grant, WINDOW);
            now += 50;
            admitted += covered.share.min(1.0) * demand * 0.05;
            #[expect(clippy::cast_precision_loss, reason = "small")]
            let most = grant * (now as f64 / 1000.0 + 0.1 + 1e-6);
            prop_assert!(admitted <= most, "{admitted} of {most} at {now}");
        }
    }
}
