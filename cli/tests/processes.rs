//! The processes one by one: where they say they listen, what they show, and how they end.
mod support;

use std::fs;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;
use support::{Plane, Process, http_get, json_of, load_args, now, sluice};

const BUCKETS: &str = "\
apiVersion: sluicegate/v1
service: shop
buckets:
  - name: everything
    scope: region
    limit: 100/s
    mode: deny
";

const TICK: [&str; 4] = ["--tick-ms", "100", "--ttl-ms", "2000"];

fn status_text(http: &str, which: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(["status", which, &format!("http://{http}")])
        .output()
        .expect("the binary runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_control_plane_shows_who_is_limited_and_ends_in_order() {
    let mut plane = Plane::start(&[("shop.yaml", BUCKETS)], &TICK);
    let up = plane.aggregator_address(0);
    let flags = ["--zone", "a", "--region", "r1", "--aggregators", &up, "--listen", "127.0.0.1:0"];
    let sidecar_flags = [&["sidecar", "--http-listen", "127.0.0.1:0"], &flags[..]].concat();
    let mut sidecar = Process::server(plane.dir.path(), "sidecar", &sidecar_flags);
    let http = [
        plane.controller.address("http_listen"),
        plane.aggregators[0].address("http_listen"),
        sidecar.address("http_listen"),
    ];

    let more = ["--clients", "3", "--rate", "300", "--for", "4s", "--tick-ms", "100"];
    let load = sluice(&load_args(&up, "a", "shop", &more));
    sleep(Duration::from_secs(3));
    for (address, which) in http.iter().zip(["--controller", "--aggregator"]) {
        let text = status_text(address, which);
        assert!(text.contains("shop/everything"), "{text}");
        let status: Value = serde_json::from_str(&http_get(address, "/status").1).expect("JSON");
        let ratio = status["keys"][0]["drop_ratio"].as_f64().expect("a ratio");
        assert!((0.5..0.8).contains(&ratio), "{status}");
        let for_s = status["keys"][0]["limited_for_s"].as_f64().expect("a time");
        assert!((0.5..4.0).contains(&for_s), "{status}");
    }
    for address in &http {
        assert_eq!(http_get(address, "/healthz").0, 200);
        assert_eq!(http_get(address, "/healthz/live").0, 200);
        let (code, metrics) = http_get(address, "/metrics");
        assert_eq!(code, 200);
        assert!(metrics.contains("# TYPE sluicegate_"), "{metrics}");
    }
    assert!(status_text(&http[2], "--sidecar").contains("connected"), "the sidecar has a status");
    let report = json_of(load);
    assert_eq!((&report["offered"], &report["errors"]), (&1200.into(), &0.into()));
    assert!(report["dropped"].as_u64().expect("a count") > 300, "{report}");

    assert_eq!(sidecar.terminate(), Some(0), "{}", sidecar.log_text());
    for aggregator in &mut plane.aggregators {
        assert_eq!(aggregator.terminate(), Some(0), "{}", aggregator.log_text());
    }
    assert_eq!(plane.controller.terminate(), Some(0), "{}", plane.controller.log_text());
}

#[test]
fn an_aggregator_without_configuration_is_live_but_not_ready() {
    let dir = tempfile::tempdir().expect("a directory");
    let nobody = format!("127.0.0.1:{}", support::free_port());
    let aggregator = support::start_aggregator(dir.path(), "a", "127.0.0.1:0", &nobody, &[]);
    let http = aggregator.address("http_listen");
    let (code, body) = http_get(&http, "/healthz");
    assert_eq!(code, 503, "{body}");
    assert!(body.contains("no configuration yet"), "{body}");
    assert_eq!(http_get(&http, "/healthz/live").0, 200);
    assert!(status_text(&http, "--aggregator").contains("NOT READY"), "as the status says");
}

#[test]
fn settings_come_from_a_file_and_flags_win() {
    let dir = tempfile::tempdir().expect("a directory");
    let buckets = dir.path().join("buckets");
    fs::create_dir(&buckets).expect("made");
    let file = dir.path().join("controller.yaml");
    let text = "apiVersion: sluicegate/v1\nkind: controller\nnode: from-file\nregion: from-file\n\
                listen: 127.0.0.1:0\nhttp_listen: 127.0.0.1:0\n";
    fs::write(&file, text).expect("written");
    let path = |p: &std::path::Path| p.to_str().expect("utf-8 path").to_owned();
    let (config, dir_flag) = (path(&file), path(&buckets));
    let args = ["controller", "--config", &config, "--region", "r9", "--buckets-dir", &dir_flag];
    let controller = Process::server(dir.path(), "controller", &args);
    let (_, body) = http_get(&controller.address("http_listen"), "/status");
    let status: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!((&status["node"], &status["region"]), (&"from-file".into(), &"r9".into()));
}

#[test]
fn a_broken_bucket_file_shows_in_the_status_and_the_last_good_version_stays() {
    let plane = Plane::start(&[("shop.yaml", BUCKETS)], &TICK);
    let file = plane.dir.path().join("buckets/shop.yaml");
    fs::write(&file, BUCKETS.replace("100/s", "lots")).expect("written");
    let http = plane.controller.address("http_listen");
    let deadline = now() + Duration::from_secs(10);
    loop {
        let text = status_text(&http, "--controller");
        if text.contains("NOT IN FORCE") {
            assert!(text.contains("shop.yaml:6:12"), "{text}");
            break;
        }
        assert!(now() < deadline, "the status does not tell: {text}");
        sleep(Duration::from_millis(100));
    }
    assert_eq!(plane.status()["ready"], true, "the last good version is in force");
}
