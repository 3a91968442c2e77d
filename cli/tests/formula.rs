//! The plain law between real processes: what is over the limit is dropped in proportion, the same
//! everywhere.
mod support;

use support::{Plane, ZONES, json_of, load_args, sluice};

const BUCKETS: &str = "
apiVersion: sluicegate/v1
service: shop
buckets:
  - name: everything
    scope: region
    limit: 1000/s
    mode: deny
";

/// The seconds that count: after the law has seen the load, before it ends.
const SETTLED: std::ops::Range<usize> = 6..16;

#[test]
fn one_and_a_half_times_the_limit_is_dropped_at_a_third_by_every_instance() {
    let plane = Plane::start(&[("shop.yaml", BUCKETS)], &[]);
    let loads: Vec<_> = ZONES
        .iter()
        .enumerate()
        .map(|(zone, name)| {
            let series = plane.dir.path().join(format!("series-{name}.csv"));
            let path = series.to_str().expect("utf-8 path");
            let more = ["--clients", "5", "--rate", "750", "--for", "17s", "--series", path];
            let args = load_args(&plane.aggregator_address(zone), name, "shop", &more);
            (sluice(&args), series)
        })
        .collect();
    for (child, series) in loads {
        let report = json_of(child);
        assert_eq!(report["errors"], 0, "{report}");
        let seconds = support::series(&series);
        let offered: u64 = seconds[SETTLED].iter().map(|s| s.offered).sum();
        let dropped: u64 = seconds[SETTLED].iter().map(|s| s.dropped).sum();
        #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
        let ratio = dropped as f64 / offered as f64;
        assert!((ratio - 1.0 / 3.0).abs() <= 0.01, "{}: dropped {ratio}", series.display());
    }
    let mut plane = plane;
    for server in plane.aggregators.iter_mut().chain([&mut plane.controller]) {
        assert_eq!(server.terminate(), Some(0), "SIGTERM ends it in order");
    }
}
