//! Two real Envoys in two zones, each with its sidecar, under one limit.
mod support;

use std::thread::sleep;
use std::time::Duration;

use support::{Envoy, Plane, Process, Upstream, ZONES, json_of, now, sluice};

const BUCKETS: &str = "
apiVersion: sluicegate/v1
service: payments
buckets:
  - name: web
    scope: region
    match: { caller: web }
    limit: 300/s
    mode: deny
  - name: trial
    scope: region
    limit: 100/s
    mode: shadow
";

fn http_load(address: &str, rate: &str, length: &str) -> std::process::Child {
    let url = format!("http://{address}/pay");
    let args = ["load", "--url", &url, "--header", "x-caller: web", "--rate", rate];
    let args = args.into_iter().chain(["--for", length, "--json"]);
    sluice(&args.map(str::to_owned).collect::<Vec<_>>())
}

#[test]
fn two_envoys_share_one_limit_and_pass_requests_without_their_sidecar() {
    let Some(binary) = Envoy::binary() else { return };
    let plane = Plane::start(&[("payments.yaml", BUCKETS)], &[]);
    let dir = plane.dir.path();
    let upstream = Upstream::start();
    let mut sidecars: Vec<Process> = ZONES
        .iter()
        .enumerate()
        .map(|(i, zone)| {
            let up = plane.aggregator_address(i);
            let args = ["sidecar", "--zone", zone, "--region", "r1", "--aggregators", &up];
            let more = ["--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"];
            Process::server(dir, &format!("sidecar-{zone}"), &[&args[..], &more[..]].concat())
        })
        .collect();
    let envoys: Vec<Envoy> = ZONES
        .iter()
        .zip(&sidecars)
        .map(|(zone, sidecar)| {
            let rls = sidecar.address("listen");
            Envoy::start(&binary, dir, &format!("envoy-{zone}"), &rls, upstream.address)
        })
        .collect();

    let start = now();
    let loads =
        [http_load(&envoys[0].address, "750", "17s"), http_load(&envoys[1].address, "150", "17s")];
    sleep(Duration::from_secs(14));
    let trial = bucket_row(&plane, "trial");
    let reports = loads.map(json_of);
    for report in &reports {
        assert_eq!(report["errors"], 0, "{report}");
    }
    let seen = upstream.count(start + Duration::from_secs(6), Duration::from_secs(10));
    println!("upstream saw {:.1} rps of a limit of 300", seen as f64 / 10.0);
    assert!((2850..=3150).contains(&seen), "upstream saw {seen} requests in 10 s, not 3000");
    // What `web` admits is offered to `trial`: 300 rps, of which 100 are within its limit.
    let would_drop_rps = trial["would_drop_rps"].as_f64().expect("a rate");
    assert!((180.0..=220.0).contains(&would_drop_rps), "{trial}");
    assert_eq!(trial["dropped_rps"].as_f64(), Some(0.0), "a shadow drops nothing: {trial}");

    sidecars.iter_mut().for_each(Process::kill);
    let before = upstream.count(start, Duration::from_secs(3600));
    let report = json_of(http_load(&envoys[0].address, "400", "3s"));
    assert_eq!(report["errors"], 0, "{report}");
    assert_eq!(report["dropped"], 0, "without its sidecar Envoy lets requests through: {report}");
    let passed = upstream.count(start, Duration::from_secs(3600)) - before;
    assert_eq!(Some(passed as u64), report["admitted"].as_u64());
}

/// The row of a bucket in the controller's status.
fn bucket_row(plane: &Plane, bucket: &str) -> serde_json::Value {
    let status = plane.status();
    let keys = status["keys"].as_array().unwrap_or_else(|| panic!("keys: {status}"));
    keys.iter()
        .find(|k| k["bucket"] == bucket)
        .unwrap_or_else(|| panic!("no {bucket} in {status}"))
        .clone()
}
