//! The demo as a newcomer runs it: limits are held to within 5 %, and nothing else is lost.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

#[expect(clippy::disallowed_methods, reason = "tests of real processes run in real time")]
fn now() -> Instant {
    Instant::now()
}

#[test]
fn the_demo_holds_every_limit_and_spares_the_rest() {
    let start = now();
    let run = Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(["demo", "--for", "8s", "--json"])
        .output()
        .expect("the binary runs");
    let took = start.elapsed();
    let stdout = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{stdout}\n{}", String::from_utf8_lossy(&run.stderr));
    assert!(took < Duration::from_secs(8 + 6), "it ends in time: {took:?}");
    let json: Value = serde_json::from_str(stdout.lines().last().unwrap_or_default())
        .unwrap_or_else(|e| panic!("{e}: {stdout}"));
    assert_eq!(json["errors"], 0, "{json}");
    let rps =
        |row: &Value, what: &str| row[what].as_f64().unwrap_or_else(|| panic!("{what}: {row}"));
    let (mut over, mut under) = (0, 0);
    for row in json["buckets"].as_array().expect("rows") {
        let (offered, admitted) = (rps(row, "offered_rps"), rps(row, "admitted_rps"));
        let dropped = rps(row, "dropped_rps");
        assert!((offered - admitted - dropped).abs() < 1.0, "counts add up: {row}");
        let limit = row["limit_rps"].as_f64();
        match (row["mode"].as_str(), limit) {
            (Some("deny"), Some(limit)) if offered > limit => {
                over += 1;
                assert!((admitted / limit - 1.0).abs() <= 0.05, "within 5 % of its limit: {row}");
            }
            (Some("shadow"), Some(limit)) => {
                assert!(dropped == 0.0, "a shadow drops nothing: {row}");
                let wanted = offered - limit;
                assert!((rps(row, "would_drop_rps") / wanted - 1.0).abs() < 0.1, "{row}");
            }
            (_, limit) => {
                under += usize::from(limit.is_some());
                assert!(dropped == 0.0, "what is under its limit loses nothing: {row}");
            }
        }
    }
    assert!(over >= 6 && under >= 4, "the demo shows both sides: {json}");
}
