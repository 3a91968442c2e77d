//! `sluice sim` as people run it: what it prints, what it writes, how it fails.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const MEASURES: [&str; 12] = [
    "bucket",
    "cut_ms",
    "band_ms",
    "peak_x",
    "max1s_x",
    "min1s_x",
    "vol_limit_s",
    "waste_limit_s",
    "mean_x",
    "sd100_pct",
    "sd1s_pct",
    "jain",
];
/// A world that takes no time.
const SMALL: [&str; 8] =
    ["--set", "clients=20", "--set", "duration_s=5", "--set", "warmup_s=1", "--set", "zones=2"];

fn sim(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    command.arg("sim").args(args).output().expect("the binary runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("utf-8")
}

/// What a command printed that must have gone well, and kept quiet beside it.
fn fine(args: &[&str]) -> String {
    let out = sim(args);
    assert!(out.status.success(), "{args:?}: {}", text(&out.stderr));
    assert_eq!(text(&out.stderr), "", "no bar is drawn where nobody watches");
    text(&out.stdout)
}

/// What a command said that must have been asked the wrong way.
fn refused(args: &[&str]) -> String {
    let out = sim(args);
    assert_eq!(out.status.code(), Some(2), "{args:?}: {}", text(&out.stdout));
    text(&out.stderr)
}

fn run(args: &[&str]) -> Value {
    let args = [&["run", "surge", "--json"], args, &SMALL].concat();
    let printed = fine(&args);
    assert_eq!(printed.lines().count(), 1, "one object, on one line");
    serde_json::from_str(&printed).expect("JSON")
}

fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> =
        value.as_object().expect("an object").keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

fn sorted<'a>(names: &[&'a str]) -> Vec<&'a str> {
    let mut names = names.to_vec();
    names.sort_unstable();
    names
}

#[test]
fn the_json_of_a_run_has_its_shape() {
    let json = run(&["--seed", "7"]);
    let wanted =
        ["scenario", "law", "seed", "virtual_s", "wall_s", "trace_sha256", "buckets", "messages"];
    assert_eq!(keys(&json), sorted(&wanted));
    assert_eq!(keys(&json["buckets"][0]), sorted(&MEASURES));
    let wanted = ["report_per_client_s", "directive_per_client_s", "rollup_per_s", "grant_per_s"];
    assert_eq!(keys(&json["messages"]), sorted(&wanted));
    assert_eq!((&json["scenario"], &json["law"]), (&"surge".into(), &"ratio".into()));
    assert_eq!((json["seed"].as_u64(), json["virtual_s"].as_f64()), (Some(7), Some(5.0)));
    assert!(json["wall_s"].as_f64().expect("a number") > 0.0);
    assert_eq!(json["buckets"][0]["bucket"], "api/all");
    assert!(json["buckets"][0]["cut_ms"].as_f64().expect("reached") > 0.0);
    assert_eq!(json["trace_sha256"].as_str().map(str::len), Some(64));
    let band = run(&["--set", "duration_s=2"]);
    let band = &band["buckets"][0]["band_ms"];
    assert!(band.is_null() || band.is_number(), "{band}");
}

#[test]
fn what_is_never_reached_is_null() {
    // Nothing is ever over no limit, and five seconds are too short for a band of three and a cut
    // that does not come.
    let never = run(&["--law", "batch-bucket", "--seed", "1"]);
    assert!(never["buckets"][0]["band_ms"].is_null(), "it never settles: {never}");
    let out =
        fine(&[&["run", "surge", "--law", "batch-bucket", "--seed", "1"][..], &SMALL].concat());
    let line = out.lines().find(|l| l.starts_with("band_ms")).expect("a line");
    assert!(line.contains("never"), "{line}");
}

#[test]
fn two_processes_see_the_same_history_and_another_seed_another() {
    for law in ["ratio", "envoy-redis"] {
        let one = run(&["--law", law, "--seed", "7"]);
        let two = run(&["--law", law, "--seed", "7"]);
        let other = run(&["--law", law, "--seed", "8"]);
        assert_eq!(one["trace_sha256"], two["trace_sha256"], "{law}");
        assert_eq!(one["buckets"], two["buckets"], "{law}");
        assert_ne!(one["trace_sha256"], other["trace_sha256"], "{law}");
    }
}

#[test]
fn a_run_can_be_read_by_people() {
    let printed = fine(&[&["run", "surge", "--seed", "3"][..], &SMALL].concat());
    for needed in ["surge: ", "law ratio, seed 3", "max1s_x", "× limit", "messages: ", "trace "] {
        assert!(printed.contains(needed), "{needed} is not in\n{printed}");
    }
}

#[test]
fn the_list_names_scenarios_laws_and_measures() {
    let printed = fine(&["list"]);
    for needed in ["surge-high-limit", "zone-death", "vol_limit_s", "Laws: ratio, ", "envoy-redis"]
    {
        assert!(printed.contains(needed), "{needed} is not in\n{printed}");
    }
    let json: Value = serde_json::from_str(&fine(&["list", "--json"])).expect("JSON");
    let scenarios = json["scenarios"].as_array().expect("a list");
    assert_eq!(scenarios.len() + 4, printed.lines().count() + 1, "one line each");
}

#[test]
fn a_comparison_writes_its_files() {
    let dir = tempfile::tempdir().expect("a directory");
    let compare = |out: &Path| {
        let out = out.to_str().expect("utf-8");
        let args =
            ["compare", "surge", "--laws", "ratio,batch-rate", "--seeds", "3..4", "--out", out];
        fine(&[&args[..], &SMALL].concat())
    };
    let (one, two) = (dir.path().join("deep/one"), dir.path().join("two"));
    let printed = compare(&one);
    for needed in ["api/all", "LAW", "ratio ", "batch-rate ", "report.html"] {
        assert!(printed.contains(needed), "{needed} is not in\n{printed}");
    }
    compare(&two);
    let read = |name: &str| std::fs::read_to_string(one.join(name)).expect("written");
    let csv = read("results.csv");
    let rows: Vec<Vec<&str>> = csv.lines().map(|l| l.split(',').collect()).collect();
    assert_eq!(rows.len(), 1 + 2 * 2, "a row for each law and seed");
    assert_eq!(rows[0][..4], ["scenario", "law", "seed", "bucket"]);
    assert_eq!(rows[0][4..15], MEASURES[1..]);
    assert_eq!(rows[4][1..4], ["batch-rate", "4", "api/all"]);
    assert_eq!(csv, std::fs::read_to_string(two.join("results.csv")).expect("written"));
    // The curves are those of the run that `run` makes of the same seed.
    let hash = run(&["--seed", "3"])["trace_sha256"].as_str().expect("text").to_owned();
    assert!(rows[1].contains(&hash.as_str()));
    let page = read("report.html");
    assert!(page.contains(&hash) && page.contains("--seeds 3..4 --set clients=20"));
    for svg in ["overview.svg", "drop-ratio.svg", "messages.svg", "law-batch-rate.svg"] {
        assert!(read(svg).starts_with("<svg "), "{svg}");
    }
}

#[test]
fn a_bad_scenario_is_told_with_its_place() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("bad.yaml");
    let path = path.to_str().expect("utf-8");
    for (file, place, reason) in [
        ("name: x\nclient: 5\n", "2:1", "unknown field"),
        ("name: x\nworkload:\n  shape: stap\n", "3:10", "step"),
        ("name: x\nclients: 0\nworkload: {load_x: 1}\n", "2:1", "must be 1 to 100000"),
        ("name: x\nworkload: {load_x: 1}\nfaults:\n  - {zone: 6}\n", "4:6", "there are 6"),
        ("name: [\n", "1:", "expected"),
    ] {
        std::fs::write(path, file).expect("written");
        for command in [&["run", path][..], &["compare", path, "--laws", "ratio", "--out", "x"]] {
            let told = refused(command);
            let wanted = format!("error: {path}:{place}");
            assert!(told.starts_with(&wanted) && told.contains(reason), "{file}\n{told}");
        }
    }
    assert!(!Path::new("x").exists(), "nothing is made for what cannot run");
}

#[test]
fn what_cannot_be_asked_is_refused_with_the_flag() {
    for (args, reason) in [
        (&["run", "surge", "--set", "client=5"][..], "--set client=5: unknown field"),
        (&["run", "surge", "--set", "clients=many"], "--set clients=many: "),
        (&["run", "surge", "--set", "clients"], "write path=value"),
        (&["run", "surge", "--set", "faults[0].at_s=1"], "there is no item 0"),
        (&["run", "no-such"], "there is no scenario \"no-such\"; there are surge, "),
        (&["run", "no/such.yaml"], "no/such.yaml: "),
        (&["run", "surge", "--law", "best"], "there is no law \"best\"; there are: ratio"),
        (&["run", "surge", "--set", "guard=on"], "guard: "),
        (&["compare", "surge", "--laws", "ratio,ratio", "--out", "x"], "ratio stands twice"),
        (
            &["compare", "surge", "--laws", "ratio", "--seeds", "8..1", "--out", "x"],
            "goes backwards",
        ),
        (&["faults", "--seeds", "1", "--law", "envoy-redis"], "promises nothing"),
        (&["faults"], "--seeds"),
    ] {
        let told = refused(args);
        assert!(told.contains(reason), "{args:?}: {told}");
    }
}

#[test]
fn worlds_with_faults_hold_their_promises() {
    let printed = fine(&["faults", "--seeds", "500..503"]);
    let last = printed.lines().last().expect("a line");
    let (passed, failed) = last.split_once(" passed, ").expect("the last line");
    assert!(passed.parse::<u32>().expect("a number") >= 4, "{last}");
    assert_eq!(failed, "0 failed");
    assert!(fine(&["faults", "--seeds", "500"]).ends_with("\n1 passed, 0 failed\n"));
}
