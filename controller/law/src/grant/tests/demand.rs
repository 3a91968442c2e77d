//! The estimate of demand.

use proptest::prelude::*;

use super::super::Demand;
use super::{WINDOW, at, close};

/// Sees `rates`, one every 10 ms, from `from_ms` on.
fn see(demand: &mut Demand, from_ms: u64, rates: impl IntoIterator<Item = f64>) -> u64 {
    let mut now = from_ms;
    for rate in rates {
        demand.see(at(now), rate, WINDOW, true);
        now += 10;
    }
    now
}

#[test]
fn a_surge_and_its_end_are_taken_as_they_are() {
    let mut demand = Demand::default();
    let now = see(&mut demand, 0, [1000.0; 50]);
    demand.see(at(now), 16_000.0, WINDOW, true);
    close(demand.rps(), 16_000.0, 1e-9);
    demand.see(at(now + 10), 900.0, WINDOW, true);
    close(demand.rps(), 900.0, 1e-9);
}

#[test]
fn noise_is_averaged_until_the_mean_rests_on_enough_requests() {
    let mut demand = Demand::default();
    // 50 a second, seen as 30 and 70 in turn: five requests a window are three or seven.
    let now = see(&mut demand, 0, (0..2000).map(|i| if i % 2 == 0 { 30.0 } else { 70.0 }));
    close(demand.rps(), 50.0, 3.0);
    // At a high rate 400 requests are there within a window, and nothing is averaged.
    let mut high = Demand::default();
    see(&mut high, now, [100_000.0, 100_400.0]);
    close(high.rps(), 100_400.0, 1e-9);
}

#[test]
fn demand_that_swings_is_replaced_by_its_mean_until_it_is_calm() {
    let mut demand = Demand::default();
    // 4,000 and 100 a second, 150 ms each.
    let swing = |i: u64| if (i / 15).is_multiple_of(2) { 4000.0 } else { 100.0 };
    let now = see(&mut demand, 0, (0..600).map(swing));
    assert!(demand.is_resonant());
    close(demand.rps(), 2050.0, 400.0);
    let now = see(&mut demand, now, [1000.0; 500]);
    assert!(!demand.is_resonant());
    close(demand.rps(), 1000.0, 1.0);
    // Without damping the same swings are followed.
    let mut bare = Demand::default();
    for i in 0..600 {
        bare.see(at(now + i * 10), swing(i), WINDOW, false);
    }
    close(bare.rps(), swing(599), 1.0);
}

#[test]
fn a_slow_wave_is_no_resonance() {
    let mut demand = Demand::default();
    let wave = |i: u64| {
        #[expect(clippy::cast_precision_loss, reason = "small")]
        let phase = i as f64 * 0.01 / 20.0 * std::f64::consts::TAU;
        22_000.0 * (1.5 + phase.sin())
    };
    see(&mut demand, 0, (0..4000).map(wave));
    assert!(!demand.is_resonant());
    close(demand.rps(), wave(3999), 100.0);
}

proptest! {
    /// Whatever comes, the estimate stays within what was seen.
    #[test]
    fn the_estimate_stays_within_what_was_seen(
        rates in proptest::collection::vec(0.0_f64..1e6, 1..300),
        gaps_ms in proptest::collection::vec(0_u64..2000, 300),
    ) {
        let (mut demand, mut now) = (Demand::default(), 0);
        let (mut low, mut high) = (f64::INFINITY, 0.0_f64);
        for (rate, gap) in rates.iter().zip(gaps_ms) {
            now += gap;
            demand.see(at(now), *rate, WINDOW, true);
            (low, high) = (low.min(*rate), high.max(*rate));
            prop_assert!(demand.rps() >= low - 1e-6 && demand.rps() <= high + 1e-6);
        }
    }
}
