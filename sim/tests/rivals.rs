//! Every rival in a small world: that it limits, that faults do not break it, that one seed is one
//! history, and that what is said of it in words holds.

use sluicegate_sim::{Ask, Law, Observer, Outcome, Verdict, run, run_observed, scenario};

const TEXT: &str = "\
clients: 60
zones: 3
limit_rps: 2000
warmup_s: 4
duration_s: 14
workload: { shape: step, from_x: 0.5, load_x: 3, zipf: 0.5 }
";

fn small(law: Law, seed: u64, settings: &[&str]) -> Outcome {
    let settings: Vec<String> = settings.iter().map(|&s| s.to_owned()).collect();
    let scenario = scenario::parse("small", TEXT, &settings).expect("good");
    run(&scenario, law, seed, &mut |_| {}).expect("it runs").outcome
}

fn rivals() -> impl Iterator<Item = Law> {
    Law::ALL.iter().copied().filter(|law| *law != Law::Ratio)
}

fn mean(outcome: &Outcome) -> f64 {
    outcome.buckets[0].mean_x.expect("a mean")
}

#[test]
fn all_hold_the_limit_on_average_but_the_window_that_forgets() {
    for law in rivals() {
        let mean = mean(&small(law, 1, &[]));
        let fine = if law == Law::BatchWindow { 1.2..2.5 } else { 0.85..1.15 };
        assert!(fine.contains(&mean), "{law}: {mean}");
    }
}

#[test]
fn none_drops_much_far_below_the_limit() {
    for law in rivals() {
        let mean = mean(&small(law, 1, &["workload.load_x=0.5"]));
        // Leases are of what was wanted an interval ago.
        let least = if law == Law::Prefetch { 0.46 } else { 0.48 };
        assert!((least..0.52).contains(&mean), "{law}: {mean}");
    }
}

/// Counts what becomes of requests.
#[derive(Default)]
struct Verdicts {
    dropped: u32,
    would_drop: u32,
}

impl Observer for Verdicts {
    fn decided(&mut self, _at: u64, _ask: &Ask, verdict: Verdict) -> Verdict {
        match verdict {
            Verdict::Drop(_) => self.dropped += 1,
            Verdict::WouldDrop(_) => self.would_drop += 1,
            Verdict::Admit | Verdict::Later => {}
        }
        verdict
    }
}

#[test]
fn a_shadow_bucket_drops_nothing_but_would() {
    let shadow =
        "services=[{service: api, buckets: [{bucket: all, limit_rps: 2000, mode: shadow}]}]";
    for law in rivals() {
        let scenario = scenario::parse("small", TEXT, &[shadow.to_owned()]).expect("good");
        let mut verdicts = Verdicts::default();
        run_observed(&scenario, law, 1, &mut |_| {}, &mut verdicts).expect("it runs");
        assert_eq!(verdicts.dropped, 0, "{law}");
        assert!(verdicts.would_drop > 10_000, "{law}: {}", verdicts.would_drop);
    }
}

#[test]
fn one_seed_is_one_history() {
    for law in rivals() {
        let trace = |seed| small(law, seed, &["duration_s=6"]).trace_sha256;
        assert_eq!(trace(1), trace(1), "{law}");
        assert_ne!(trace(1), trace(2), "{law}");
    }
}

#[test]
fn loss_churn_and_crashes_do_not_stop_them() {
    let faults = "faults=[{fault: churn, at_s: 5, for_s: 5}, \
                  {fault: crash, tier: aggregator, node: 0, at_s: 5, for_s: 1}, \
                  {fault: crash, tier: controller, at_s: 7, for_s: 1}, \
                  {fault: cut, tier: aggregator, node: 1, at_s: 8.5, for_s: 1}]";
    // Measured from 20 s on: a server of leases learns for ten seconds after a crash, and admits too
    // much meanwhile.
    let all = [
        faults,
        "hops.loss=0.02",
        "hops.duplicate=0.02",
        "hops.order=any",
        "warmup_s=10",
        "duration_s=26",
    ];
    for law in rivals() {
        let mean = mean(&small(law, 3, &all));
        let fine = if law == Law::BatchWindow { 1.2..2.6 } else { 0.8..1.25 };
        assert!(fine.contains(&mean), "{law}: {mean}");
    }
}

#[test]
fn a_zone_has_the_whole_limit_for_itself() {
    let zonal = "services=[{service: api, buckets: [{bucket: all, limit_rps: 500, scope: zone}]}]";
    for law in rivals().filter(|law| *law != Law::BatchWindow) {
        // Three zones, each loaded three times its limit.
        let mean = mean(&small(law, 1, &[zonal, "workload.load_x=9", "workload.from_x=1"]));
        assert!((2.5..3.5).contains(&mean), "{law}: {mean}");
    }
}

#[test]
fn without_a_store_envoy_fails_open() {
    let down = "faults=[{fault: crash, tier: controller, at_s: 4}]";
    let mean = mean(&small(Law::EnvoyRedis, 1, &[down]));
    assert!((2.9..3.1).contains(&mean), "{mean}");
}

#[test]
fn a_store_far_away_needs_a_longer_timeout() {
    let far = "rivals.envoy_redis.store=far";
    let hasty = mean(&small(Law::EnvoyRedis, 1, &[far]));
    let patient = mean(&small(Law::EnvoyRedis, 1, &[far, "rivals.envoy_redis.timeout_ms=200"]));
    assert!(hasty > 2.0, "{hasty}");
    assert!((0.9..1.1).contains(&patient), "{patient}");
}

#[test]
fn direct_reports_cut_sooner() {
    let cut = |settings: &[&str]| {
        let all = (1..=4).map(|seed| small(Law::BatchBucket, seed, settings));
        all.map(|o| o.buckets[0].vol_limit_s.expect("a volume")).sum::<f64>()
    };
    assert!(cut(&["rivals.batch_bucket.route=direct"]) < 0.9 * cut(&[]));
}

#[test]
fn parameters_are_checked_and_unknown_ones_refused() {
    let parse = |setting: &str| {
        let text = "workload: { load_x: 1 }\n";
        scenario::parse("x", text, &[setting.to_owned()]).map(|_| ()).map_err(|e| e.to_string())
    };
    let error = parse("rivals.batch_rate.interval_ms=0").expect_err("no interval");
    assert!(error.contains("interval_ms"), "{error}");
    let error = parse("rivals.batch_rate.speed=1").expect_err("unknown");
    assert!(error.contains("speed"), "{error}");
    assert_eq!(parse("rivals.proxy_bucket.keep_ms=20000"), Ok(()));
}
