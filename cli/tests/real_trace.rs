//! Recorded traffic of a shop's services through five processes of ten embedded clients each, and the
//! same through the same cores in the simulator.
mod support;

use std::path::Path;

use sluicegate_sim::{Law, run, scenario};

use support::{Plane, ZONES, json_of, load_args, sluice, trace};

const PROCESSES: usize = 5;

/// Limits at half of each caller's mean at scale 20. The trace is 180.7 s long.
const BUCKETS: &str = "
apiVersion: sluicegate/v1
service: shop
buckets:
  - { name: frontend, scope: region, match: { caller: frontend }, limit: 749/s }
  - { name: ingress, scope: region, match: { caller: ingress }, limit: 75/s }
  - { name: recommendation, scope: region, match: { caller: recommendationservice }, limit: 53/s }
";
const LIMITS_RPS: [(&str, f64); 3] =
    [("frontend", 749.0), ("ingress", 75.0), ("recommendationservice", 53.0)];

/// How much of each limit the simulator admits over the whole run: the mean of a few seeds.
fn simulated_means(trace: &Path) -> Vec<f64> {
    let file = Path::new("tests/scenarios/shop.yaml");
    let trace = format!("workload.file={}", trace.display());
    let scenario = scenario::load(file, &[trace]).expect("the scenario is sound");
    let seeds = 1..=4_u32;
    let mut means = vec![0.0; LIMITS_RPS.len()];
    for seed in seeds.clone() {
        let made = run(&scenario, Law::Ratio, u64::from(seed), &mut |_| ()).expect("it runs");
        for ((mean, bucket), (_, limit_rps)) in
            means.iter_mut().zip(&made.series.buckets).zip(LIMITS_RPS)
        {
            let bins = bucket.admitted_rps.len();
            #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
            let admitted_rps = bucket.admitted_rps.iter().sum::<f64>() / bins as f64;
            *mean += admitted_rps / limit_rps / f64::from(*seeds.end());
        }
    }
    means
}

#[test]
fn a_bursty_trace_is_held_near_its_limits_and_unlimited_callers_lose_nothing() {
    let Some(file) = trace("sim_onlineboutique_rpc_100ms.csv") else { return };
    let plane = Plane::start(&[("shop.yaml", BUCKETS)], &[]);
    let aggregators = [plane.aggregator_address(0), plane.aggregator_address(1)].join(",");
    let loads: Vec<_> = (1..=PROCESSES)
        .map(|i| {
            let part = format!("{i}/{PROCESSES}");
            let file = file.to_str().expect("utf-8 path");
            let more = ["--clients", "50", "--part", &part, "--trace", file, "--scale", "20"];
            sluice(&load_args(&aggregators, &ZONES.join(","), "shop", &more))
        })
        .collect();
    let reports: Vec<_> = loads.into_iter().map(json_of).collect();
    let sum = |caller: &str, what: &str| -> f64 {
        let callers = reports.iter().flat_map(|r| r["callers"].as_array().expect("callers"));
        callers.filter(|c| c["caller"] == caller).map(|c| c[what].as_f64().expect("number")).sum()
    };
    for report in &reports {
        assert_eq!(report["errors"], 0, "{report}");
    }
    let seconds = reports[0]["seconds"].as_f64().expect("seconds");
    let simulated = simulated_means(&file);
    for ((caller, limit_rps), simulated) in LIMITS_RPS.into_iter().zip(simulated) {
        let offered = sum(caller, "offered") / seconds / limit_rps;
        let admitted = sum(caller, "admitted") / seconds / limit_rps;
        println!(
            "{caller}: offered {offered:.3}, admitted {admitted:.3} of {limit_rps} rps; \
             simulated {simulated:.3}"
        );
        assert!((1.9..=2.1).contains(&offered), "{caller} offered {offered} of its limit");
        assert!((0.95..=1.20).contains(&admitted), "{caller} admitted {admitted} of its limit");
        let apart = admitted / simulated - 1.0;
        assert!(apart.abs() <= 0.03, "{caller}: {admitted} here, {simulated} in the simulator");
    }
    assert!(sum("checkoutservice", "offered") > 5_000.0);
    assert_eq!(sum("checkoutservice", "dropped"), 0.0, "who has no limit loses nothing");
}
