//! The plain law on the study's surge, against the study's numbers. Two seeds, to be quick: the
//! spread over seeds is part of the tolerance.

use sluicegate_sim::{BucketMeasures, Law, run, scenario};

fn surge(name: &str, settings: &[&str]) -> Vec<BucketMeasures> {
    let builtin = scenario::builtin(name).expect("a scenario");
    let settings: Vec<String> = settings.iter().map(|s| (*s).to_owned()).collect();
    let scenario = scenario::parse(name, builtin.text, &settings).expect("good");
    let one = |seed| {
        let run = run(&scenario, Law::Ratio, seed, &mut |_| {}).expect("it runs");
        run.outcome.buckets.into_iter().next().expect("a bucket")
    };
    (1..=2).map(one).collect()
}

fn near(value: Option<f64>, to: f64, tolerance: f64, what: &str) {
    let value = value.expect("a measure");
    assert!((value / to - 1.0).abs() <= tolerance, "{what} is {value}, the study has {to}");
}

#[test]
fn ticks_of_100_ms_cut_a_surge_as_the_study_has_it() {
    for m in surge("surge", &[]) {
        near(m.cut_ms, 295.0, 0.2, "cut");
        near(m.vol_limit_s, 2.702, 0.15, "vol");
        near(m.max1s_x, 3.683, 0.15, "max1s");
        near(m.mean_x, 1.002, 0.02, "mean");
    }
}

#[test]
fn a_high_limit_is_overshot_less() {
    for m in surge("surge-high-limit", &[]) {
        near(m.vol_limit_s, 0.661, 0.2, "vol");
        near(m.max1s_x, 1.651, 0.15, "max1s");
        near(m.mean_x, 1.0, 0.02, "mean");
    }
}
