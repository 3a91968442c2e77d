//! The control plane dies under load: no request fails or waits, limits end after ttl and ramp, and
//! come back by themselves with the control plane.
mod support;

use std::thread::sleep;
use std::time::Duration;

use support::{Plane, ZONES, json_of, load_args, now, series, sluice};

const BUCKETS: &str = "
apiVersion: sluicegate/v1
service: shop
buckets:
  - name: everything
    scope: region
    limit: 300/s
    mode: deny
";

const TTL_S: usize = 4;
const RAMP_S: usize = 2;
/// When everything is killed, in seconds from the start of the load.
const KILL_AT_S: usize = 8;
/// When everything is started again.
const RETURN_AT_S: usize = 19;
const END_S: usize = 30;
/// How soon after that limits must be enforced again.
const BACK_WITHIN_S: usize = 3;

#[test]
fn requests_pass_without_the_control_plane_and_limits_return_with_it() {
    let flags = ["--ttl-ms", "4000"];
    let mut plane = Plane::start(&[("shop.yaml", BUCKETS)], &flags);
    let out = plane.dir.path().join("series.csv");
    let path = out.to_str().expect("utf-8 path").to_owned();
    let length = format!("{END_S}s");
    let more = ["--clients", "6", "--rate", "900", "--for", &length, "--series", &path];
    let times = ["--ttl-ms", "4000", "--ramp-ms", "2000"];
    let both = [plane.aggregator_address(0), plane.aggregator_address(1)].join(",");
    let mut args = load_args(&both, &ZONES.join(","), "shop", &more);
    args.extend(times.map(str::to_owned));
    let start = now();
    let load = sluice(&args);
    let at = |second: usize| {
        let due = start + Duration::from_secs(second as u64);
        sleep(due.saturating_duration_since(now()));
    };

    at(KILL_AT_S);
    let controller = plane.controller.address("listen");
    let aggregators = [plane.aggregator_address(0), plane.aggregator_address(1)];
    plane.controller.kill();
    plane.aggregators.iter_mut().for_each(support::Process::kill);
    at(RETURN_AT_S);
    let dir = plane.dir.path().to_owned();
    plane.controller = support::start_controller(&dir, &controller, &flags);
    plane.aggregators = ZONES
        .iter()
        .zip(&aggregators)
        .map(|(zone, listen)| support::start_aggregator(&dir, zone, listen, &controller, &flags))
        .collect();
    let returned_s = (now() - start).as_secs_f64();

    let report = json_of(load);
    let seconds = series(&out);
    let told = format!("{seconds:#?}\nback at {returned_s:.1} s");
    assert_eq!(report["errors"], 0, "no request fails: {report}");
    let p999_us = report["latency_us"]["p99_9"].as_f64().expect("a quantile");
    assert!(p999_us < 5_000.0, "no request waits: p99.9 is {p999_us} us");

    let near = |s: &support::Second| (255..=345).contains(&s.admitted);
    assert!(seconds[KILL_AT_S - 3..KILL_AT_S - 1].iter().all(near), "limited before: {told}");
    // The load's own start-up shifts its seconds by a little; hence one second of room.
    let open = KILL_AT_S + TTL_S + RAMP_S + 1;
    assert!(
        seconds[open..RETURN_AT_S - 1].iter().all(|s| s.dropped == 0 && s.offered > 800),
        "all pass after ttl and ramp: {told}"
    );
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small time")]
    let back = returned_s.ceil() as usize + BACK_WITHIN_S;
    assert!(seconds[back..END_S - 1].iter().all(near), "limited again: {told}");
    assert!(END_S - 1 - back >= 3, "the test was too slow to tell: {told}");
}
