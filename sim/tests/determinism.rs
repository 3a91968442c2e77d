//! One seed, one history: in this process, in another one, and not for another seed.

use std::process::Command;

use sluicegate_sim::scenario::{self, Scenario};
use sluicegate_sim::{Law, run};

/// Set in the process that only prints its trace.
const ONLY_PRINT: &str = "SLUICEGATE_SIM_PRINT_TRACE";

/// A small world with everything in it: several buckets and kinds of requests, retries, bad links,
/// crashes, clocks that are off, a change of a limit.
const BUSY: &str = "
name: busy
clients: 40
zones: 4
regions: 2
duration_s: 12
warmup_s: 2
hops: {loss: 0.02, duplicate: 0.02, order: any}
services:
  - service: api
    buckets:
      - {bucket: all, limit_rps: 400}
      - {bucket: web, limit_rps: 200, caller: [web*], scope: zone}
      - {bucket: try, limit_rps: 100, mode: shadow}
      - {bucket: each, limit_rps: 100, per: [user]}
  - service: other
    buckets: [{bucket: all, limit_rps: 50}]
workload:
  load_x: 3
  batch: 2
  retries: {max: 2, probability: 0.5, delay_ms: 20..200}
  mix:
    - {share: 2, caller: web-1, procedure: get, dimensions: {user: a}}
    - {share: 1, caller: batch, dimensions: {user: b}}
    - {share: 1}
more_workloads:
  - {service: other, shape: sine, from_x: 0.5, load_x: 2, period_ms: 700}
faults:
  - {fault: crash, tier: controller, node: 0, at_s: 3, for_s: 2}
  - {fault: crash, tier: client, zone: 1, silent: true, at_s: 4, for_s: 3}
  - {fault: cut, tier: aggregator, node: 3, way: down, at_s: 2, for_s: 8}
  - {fault: pause, tier: aggregator, node: 0, at_s: 3, for_s: 1}
  - {fault: pause-agent, node: 3, at_s: 2, for_s: 2}
  - {fault: clock, tier: aggregator, node: 2, skew_ms: 500, drift_ppm: 200, at_s: 1}
  - {fault: limit, limit_rps: 800, at_s: 5, for_s: 3}
  - {fault: churn, at_s: 6, for_s: 3}
";

fn busy() -> Scenario {
    scenario::parse("busy.yaml", BUSY, &[]).expect("a good scenario")
}

fn trace(seed: u64) -> String {
    run(&busy(), Law::Ratio, seed, &mut |_| {}).expect("it runs").outcome.trace_sha256
}

#[test]
fn the_same_seed_does_the_same_in_two_processes() {
    let here = trace(7);
    if std::env::var_os(ONLY_PRINT).is_some() {
        println!("trace {here}");
        return;
    }
    let name = "the_same_seed_does_the_same_in_two_processes";
    let other = Command::new(std::env::current_exe().expect("a test has a file"))
        .args(["--exact", name, "--nocapture"])
        .env(ONLY_PRINT, "1")
        .output()
        .expect("it starts");
    let printed = String::from_utf8_lossy(&other.stdout);
    assert!(printed.contains(&format!("trace {here}")), "{here} here, there: {printed}");
}

#[test]
fn another_seed_does_something_else() {
    assert_eq!(trace(1), trace(1));
    assert_ne!(trace(1), trace(2));
}

#[test]
fn everything_in_it_happens() {
    let run = run(&busy(), Law::Ratio, 3, &mut |_| {}).expect("it runs");
    let names: Vec<&str> = run.outcome.buckets.iter().map(|b| b.bucket.as_str()).collect();
    assert_eq!(names, ["api/all", "api/web", "api/try", "api/each", "other/all"]);
    for series in &run.series.buckets {
        assert!(series.offered_rps.iter().sum::<f64>() > 0.0, "{} is asked", series.bucket);
        assert!(series.drop_ratio.iter().any(|d| *d > 0.0), "{} drops", series.bucket);
    }
    let all = &run.series.buckets[0];
    let limit_at = |s: usize| all.limit_rps[s * 1000 / run.series.step_ms as usize];
    assert_eq!([limit_at(1), limit_at(6), limit_at(10)], [Some(400.0), Some(800.0), Some(400.0)]);
}
