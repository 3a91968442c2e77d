//! The law by itself: its formula, its bounds, and how it settles in a closed loop with delays.

use std::collections::VecDeque;
use std::time::Duration;

use proptest::prelude::*;
use sluicegate_law::ratio::{Credit, Observed, drop_ratio};
use sluicegate_model::{AdmitRatio, Limit, TokenRate};

fn per_second(requests: u64) -> Limit {
    Limit::Tokens(TokenRate::per_second(requests, None).expect("a sound limit"))
}

fn per_window(requests: u64, window: Duration) -> Limit {
    Limit::Tokens(TokenRate::per_window(requests, window, None).expect("a sound limit"))
}

/// A fleet that offers a steady load and hears of a decision `delay` ticks after it was made.
struct Loop {
    limit: Limit,
    credit: Credit,
    tick: Duration,
    in_force: VecDeque<AdmitRatio>,
    charged: VecDeque<u64>,
    carry: f64,
}

impl Loop {
    fn new(limit: Limit, tick: Duration, delay: usize) -> Self {
        Self {
            limit,
            credit: Credit::full(&limit),
            tick,
            in_force: std::iter::repeat_n(AdmitRatio::ALL, delay).collect(),
            charged: std::iter::repeat_n(0, delay).collect(),
            carry: 0.0,
        }
    }

    /// One tick; says what was admitted in it.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small numbers")]
    fn run(&mut self, offered_rps: f64) -> u64 {
        let admit = self.in_force.pop_front().expect("never empty");
        let exact = offered_rps * self.tick.as_secs_f64() * admit.share() + self.carry;
        let admitted = exact.floor() as u64;
        self.carry = exact - exact.floor();
        self.charged.push_back(admitted);
        let charged = self.charged.pop_front().expect("never empty");
        let seen = Observed { elapsed: self.tick, tick: self.tick, offered_rps, charged };
        let next = self.credit.step(&self.limit, &seen);
        self.in_force.push_back(next);
        admitted
    }
}

#[test]
fn half_above_the_limit_is_dropped_at_a_third() {
    let mut fleet = Loop::new(per_second(22_000), Duration::from_secs(1), 1);
    for _ in 0..30 {
        fleet.run(33_000.0);
    }
    for _ in 0..100 {
        fleet.run(33_000.0);
        let ratio = fleet.in_force.back().expect("never empty").drop_ratio();
        assert!((ratio - 1.0 / 3.0).abs() < 0.001, "{ratio}");
    }
    assert!((drop_ratio(33_000.0, 22_000.0) - 1.0 / 3.0).abs() < 1e-12);
}

#[test]
fn a_limit_of_zero_admits_nothing_and_unlimited_everything() {
    let seen = Observed {
        elapsed: Duration::from_secs(1),
        tick: Duration::from_secs(1),
        offered_rps: 0.0,
        charged: 0,
    };
    let zero = per_second(0);
    assert_eq!(Credit::full(&zero).step(&zero, &seen), AdmitRatio::NONE);
    let flood = Observed { offered_rps: 1e12, charged: u64::MAX, ..seen };
    let mut credit = Credit::full(&Limit::Unlimited);
    assert_eq!(credit.step(&Limit::Unlimited, &flood), AdmitRatio::ALL);
    // Any other limit leaves a little, however large the flood.
    let one = per_second(1);
    assert!(
        Credit::full(&one).step(&one, &Observed { offered_rps: 1e30, ..flood }) > AdmitRatio::NONE
    );
}

#[test]
fn a_limit_per_minute_gives_its_burst_after_a_pause_and_then_its_rate() {
    let limit = per_window(600, Duration::from_secs(60));
    let mut fleet = Loop::new(limit, Duration::from_secs(1), 1);
    let mut admitted: Vec<u64> = (0..120).map(|_| fleet.run(100.0)).collect();
    let first: u64 = admitted[..30].iter().sum();
    // The burst of 600 and 30 s of 10/s, within what the first undecided ticks cost.
    assert!((800..=1000).contains(&first), "{first}");
    let settled: u64 = admitted[60..].iter().sum();
    assert!((590..=610).contains(&settled), "{settled}");

    for _ in 0..60 {
        fleet.run(0.0);
    }
    admitted = (0..30).map(|_| fleet.run(100.0)).collect();
    let after_pause: u64 = admitted.iter().sum();
    assert!((800..=1000).contains(&after_pause), "{after_pause}");
}

#[test]
fn a_higher_limit_adds_no_burst_and_a_lower_one_caps_it() {
    let (low, high) = (per_window(100, Duration::from_secs(60)), per_second(50_000));
    assert!(Credit::full(&low).under(&high).level() <= 100.0);
    assert!(Credit::full(&high).under(&low).level() <= 100.0);
    let mut spent = Credit::full(&low);
    let seen = Observed {
        elapsed: Duration::from_secs(1),
        tick: Duration::from_secs(1),
        offered_rps: 1000.0,
        charged: 1000,
    };
    let _ = spent.step(&low, &seen);
    assert!(!spent.is_full_after(&low, Duration::from_secs(30)));
    assert!(spent.is_full_after(&low, Duration::from_secs(60)));
}

fn limits() -> impl Strategy<Value = Limit> {
    let tokens = (0_u64..1_000_000, 1_u64..100_000, proptest::option::of(1_u64..1_000_000))
        .prop_map(|(requests, ms, burst)| {
            TokenRate::per_window(requests, Duration::from_millis(ms), burst)
                .map_or(Limit::Unlimited, Limit::Tokens)
        });
    prop_oneof![1 => Just(Limit::Unlimited), 9 => tokens]
}

proptest! {
    #[test]
    fn a_ratio_stays_in_its_range_and_credit_between_nothing_and_the_depth(
        limit in limits(),
        steps in proptest::collection::vec(
            (0_u64..200_000, 50_u64..60_000, 0.0_f64..1e12, any::<u64>()), 1..50),
    ) {
        let mut credit = Credit::full(&limit);
        for (elapsed_ms, tick_ms, offered_rps, charged) in steps {
            let tick = Duration::from_millis(tick_ms);
            let elapsed = Duration::from_millis(elapsed_ms);
            let admit = credit.step(&limit, &Observed { elapsed, tick, offered_rps, charged });
            prop_assert!((0.0..=1.0).contains(&admit.share()));
            prop_assert_eq!(admit == AdmitRatio::NONE, limit.denies_all());
            if let Limit::Tokens(t) = limit {
                prop_assert!((0.0..=t.depth()).contains(&credit.level()));
                // Never less than the plain formula admits.
                let plain = 1.0 - drop_ratio(offered_rps, t.rate_rps());
                prop_assert!(t.requests() == 0 || admit.share() >= plain - 1e-6);
            }
        }
    }

    #[test]
    fn a_closed_loop_admits_the_limit_and_does_not_swing(
        limit_rps in 10_u64..100_000,
        times in 1.05_f64..20.0,
        delay in 1_usize..=3,
        tick_ms in prop_oneof![Just(50_u64), Just(100), Just(1000), Just(5000)],
    ) {
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let limit = limit_rps as f64;
        let tick = Duration::from_millis(tick_ms);
        let mut fleet = Loop::new(per_second(limit_rps), tick, delay);
        let settle = 60_000 / tick_ms;
        for _ in 0..settle {
            fleet.run(limit * times);
        }
        let ticks = 200_u32;
        let mut admitted = 0;
        let mut ratios = Vec::new();
        for _ in 0..ticks {
            admitted += fleet.run(limit * times);
            ratios.push(fleet.in_force.back().expect("never empty").share() * times);
        }
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let mean = admitted as f64 / (tick * ticks).as_secs_f64() / limit;
        // Whole requests: one more or less over the run.
        let slack = 0.005 + 2.0 / (limit * (tick * ticks).as_secs_f64());
        prop_assert!((mean - 1.0).abs() <= slack, "mean {}", mean);
        for share in ratios {
            prop_assert!((share - 1.0).abs() < 0.06, "swings to {} of the limit", share);
        }
    }
}
