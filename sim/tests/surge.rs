//! The plain law on the study's surge, against the study's numbers: medians over eight seeds, as
//! the study has them. Shorter than the scenarios themselves, because all that is looked at here is
//! over two seconds after the step.

use sluicegate_sim::{BucketMeasures, Law, run, scenario};

fn surge(name: &str) -> Vec<BucketMeasures> {
    let builtin = scenario::builtin(name).expect("a scenario");
    let settings = ["warmup_s=2".to_owned(), "duration_s=4".to_owned()];
    let scenario = scenario::parse(name, builtin.text, &settings).expect("good");
    let one = |seed| {
        let run = run(&scenario, Law::Ratio, seed, &mut |_| {}).expect("it runs");
        run.outcome.buckets.into_iter().next().expect("a bucket")
    };
    (1..=8).map(one).collect()
}

fn median(all: &[BucketMeasures], of: impl Fn(&BucketMeasures) -> Option<f64>) -> f64 {
    let mut values: Vec<f64> = all.iter().map(|m| of(m).expect("a measure")).collect();
    values.sort_by(f64::total_cmp);
    f64::midpoint(values[values.len() / 2], values[(values.len() - 1) / 2])
}

fn near(value: f64, to: f64, tolerance: f64, what: &str) {
    assert!((value / to - 1.0).abs() <= tolerance, "{what} is {value}, the study has {to}");
}

#[test]
fn ticks_of_100_ms_cut_a_surge_as_the_study_has_it() {
    let all = surge("surge");
    near(median(&all, |m| m.cut_ms), 295.0, 0.2, "cut");
    near(median(&all, |m| m.vol_limit_s), 2.702, 0.15, "vol");
    near(median(&all, |m| m.max1s_x), 3.683, 0.15, "max1s");
}

#[test]
fn a_high_limit_is_overshot_less() {
    let all = surge("surge-high-limit");
    near(median(&all, |m| m.cut_ms), 300.0, 0.2, "cut");
    near(median(&all, |m| m.vol_limit_s), 0.661, 0.15, "vol");
    near(median(&all, |m| m.max1s_x), 1.651, 0.15, "max1s");
}
