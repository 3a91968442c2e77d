//! What users meet who give good and bad arguments and files: output and exit codes of the real
//! binary.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const GOOD: &str = "\
apiVersion: sluicegate/v1
service: shop
buckets:
  - name: web
    scope: region
    match: { caller: web }
    limit: 10/s
    mode: deny
  - name: each-user
    scope: zone
    per: [user]
    limit: 5/s
    values: { vip: 50/s }
    mode: shadow
";

fn sluice(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sluice")).args(args).output().expect("the binary runs")
}

fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn last_json(output: &Output) -> Value {
    let text = stdout(output);
    let last = text.lines().last().unwrap_or_default();
    serde_json::from_str(last).unwrap_or_else(|e| panic!("{e}: {last}\n{}", stderr(output)))
}

fn with_files(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    for (name, text) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        fs::write(path, text).expect("written");
    }
    dir
}

fn text(path: &Path) -> &str {
    path.to_str().expect("utf-8 path")
}

#[test]
fn the_repositorys_own_examples_are_valid() {
    let checked = sluice(&["check", "../configs"]);
    assert_eq!(code(&checked), Some(0), "{}", stdout(&checked));
    assert!(stdout(&checked).contains("0 errors"), "{}", stdout(&checked));
}

#[test]
fn check_names_file_line_and_column_and_exits_with_2() {
    let broken = GOOD.replace("limit: 10/s", "limit: ten");
    let node = "apiVersion: sluicegate/v1\nkind: aggregator\nzone: a\ntick_ms: soon\n";
    let dir =
        with_files(&[("shop.yaml", &broken), ("node/a.yaml", node), ("node/other.yaml", "x: 1\n")]);
    let checked = sluice(&["check", text(dir.path())]);
    assert_eq!(code(&checked), Some(2));
    let told = stdout(&checked);
    assert!(told.contains("shop.yaml:7:12: error"), "{told}");
    assert!(told.contains("a.yaml:4:10: error"), "{told}");
    assert!(told.contains("other.yaml: skipped"), "{told}");

    let json = last_json(&sluice(&["check", "--json", text(dir.path())]));
    let errors = json["errors"].as_array().expect("a list");
    assert_eq!(errors.len(), 2, "{json}");
    let of_shop = errors.iter().find(|e| e["line"] == 7).expect("the limit");
    assert_eq!(of_shop["column"], 12);
    assert_eq!(of_shop["text"], "ten");
}

#[test]
fn check_takes_the_law_to_be_grant_unless_told_otherwise() {
    let guarded = GOOD.replace("limit: 10/s", "limit: 500/s\n    guard: on");
    let dir = with_files(&[("shop.yaml", &guarded)]);
    assert_eq!(code(&sluice(&["check", text(dir.path())])), Some(0));
    let under_ratio = sluice(&["check", "--law", "ratio", text(dir.path())]);
    assert_eq!(code(&under_ratio), Some(2));
    let told = stdout(&under_ratio);
    assert!(
        told.contains("shop.yaml:8:5: error: buckets[0].guard: `guard` needs the law grant"),
        "{told}"
    );
}

#[test]
fn check_tells_other_files_of_kubernetes_and_misspelt_kinds() {
    let dir = with_files(&[
        ("map.yaml", "apiVersion: v1\nkind: ConfigMap\n"),
        ("node.yaml", "apiVersion: sluicegate/v1\nkind: Aggregater\n"),
        ("below/map.yaml", "apiVersion: v1\nkind: ConfigMap\n"),
    ]);
    let checked = sluice(&["check", text(dir.path())]);
    assert_eq!(code(&checked), Some(2));
    let told = stdout(&checked);
    assert!(told.contains("this is a ConfigMap of Kubernetes"), "{told}");
    assert!(told.contains("did you mean `aggregator`?"), "{told}");
    assert!(told.contains("below/map.yaml: skipped"), "{told}");
}

#[test]
fn check_tells_a_service_in_two_files_and_a_missing_path() {
    let dir = with_files(&[("a.yaml", GOOD), ("b.yaml", GOOD)]);
    let checked = sluice(&["check", text(dir.path()), "/no/such/place"]);
    assert_eq!(code(&checked), Some(2));
    let told = stdout(&checked);
    assert!(told.contains("shop") && told.contains("b.yaml"), "{told}");
    assert!(told.contains("/no/such/place: error: cannot be read"), "{told}");
}

#[test]
fn explain_tells_which_buckets_match_and_why_others_do_not() {
    let dir = with_files(&[("shop.yaml", GOOD)]);
    let file = dir.path().join("shop.yaml");
    for buckets in [text(dir.path()), text(&file)] {
        let args = ["explain", "--buckets", buckets, "--service", "shop", "--caller", "app"];
        let explained = sluice(&[&args[..], &["--dimension", "user=vip", "--json"]].concat());
        assert_eq!(code(&explained), Some(0), "{}", stderr(&explained));
        let json = last_json(&explained);
        let [web, each] = [&json["buckets"][0], &json["buckets"][1]];
        assert_eq!(web["matches"], false);
        assert_eq!(web["because"][0], "caller: wants web, got \"app\"");
        assert_eq!((&each["matches"], &each["key"]), (&true.into(), &"vip".into()));
        assert_eq!(each["limit_rps"], 50.0);
    }
    let text_form = stdout(&sluice(&[
        "explain",
        "--buckets",
        text(&file),
        "--service",
        "shop",
        "--caller",
        "web",
    ]));
    assert!(text_form.contains("Counted by 1 of 2 buckets"), "{text_form}");
    assert!(text_form.contains("per user: wants any value, got none"), "{text_form}");
}

#[test]
fn explain_tells_the_flag_of_a_built_in_dimension() {
    let dir = with_files(&[("shop.yaml", GOOD)]);
    let args = ["explain", "--buckets", text(dir.path()), "--service", "shop"];
    let explained = sluice(&[&args[..], &["--dimension", "caller=web"]].concat());
    assert_eq!(code(&explained), Some(2));
    assert!(stderr(&explained).contains("use --caller web"), "{}", stderr(&explained));
}

#[test]
fn explain_tells_an_unknown_service_and_a_broken_file() {
    let dir = with_files(&[
        ("shop.yaml", GOOD),
        ("bad.yaml", "apiVersion: sluicegate/v1\nservice: bad\n"),
    ]);
    let explain =
        |service| sluice(&["explain", "--buckets", text(dir.path()), "--service", service]);
    let unknown = explain("shopp");
    assert_eq!(code(&unknown), Some(2));
    assert!(stderr(&unknown).contains("services there: shop"), "{}", stderr(&unknown));
    let broken = explain("bad");
    assert_eq!(code(&broken), Some(2));
    assert!(stderr(&broken).contains("bad.yaml"), "{}", stderr(&broken));
    assert_eq!(code(&explain("shop")), Some(0), "another team's mistake blocks nobody");
}

#[test]
fn a_bad_trace_is_told_with_file_and_line() {
    let head = "timestamp_s,caller,procedure,requests\n";
    let rows = format!("{head}0.1,web,get,3\n0.2,web,get,many\n");
    let dir = with_files(&[("t_100ms.csv", &rows), ("t.csv", &rows)]);
    let load = |name: &str| {
        let path = dir.path().join(name);
        sluice(&["load", "--url", "http://127.0.0.1:1/", "--trace", text(&path)])
    };
    let bad = load("t_100ms.csv");
    assert_eq!(code(&bad), Some(2));
    assert!(stderr(&bad).contains("t_100ms.csv:3: found requests \"many\""), "{}", stderr(&bad));
    let nameless = load("t.csv");
    assert_eq!(code(&nameless), Some(2));
    assert!(stderr(&nameless).contains("length of a bin"), "{}", stderr(&nameless));
}

#[test]
fn wrong_arguments_exit_with_2_and_failed_work_with_1() {
    for args in [
        &["nonsense"][..],
        &["demo", "--for", "3s"],
        &["load", "--rate", "1"],
        &["status"],
        &["controller", "--tick-ms", "1"],
        &["controller", "--config", "/no/such/file.yaml"],
        &["controller", "--buckets-dir", "/no/such/dir"],
        &["aggregator", "--log-level", "x=loud"],
    ] {
        let output = sluice(args);
        assert_eq!(code(&output), Some(2), "{args:?}: {}", stderr(&output));
        assert!(!stderr(&output).is_empty(), "{args:?} says why");
    }
    let unreachable = sluice(&["status", "--controller", "http://127.0.0.1:1"]);
    assert_eq!(code(&unreachable), Some(1));
    let refused = sluice(&["load", "--url", "http://127.0.0.1:1/", "--rate", "20", "--for", "1s"]);
    assert_eq!(code(&refused), Some(1), "{}", stdout(&refused));
    assert!(
        stderr(&refused).contains("every request failed: no connection"),
        "{}",
        stderr(&refused)
    );
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let command =
        format!("{} --help >/dev/null; {0} check ../configs | true", env!("CARGO_BIN_EXE_sluice"));
    let output = Command::new("sh").args(["-c", &command]).output().expect("sh runs");
    assert_eq!(code(&output), Some(0));
    assert_eq!(stderr(&output), "");
}

#[test]
fn parts_of_a_load_add_up_to_the_whole() {
    let load = |part: &str| {
        let args = ["load", "--url", "http://127.0.0.1:1/", "--rate", "200", "--for", "1s"];
        last_json(&sluice(&[&args[..], &["--part", part, "--json"]].concat()))
    };
    let offered: u64 =
        ["1/3", "2/3", "3/3"].map(load).iter().filter_map(|r| r["offered"].as_u64()).sum();
    assert_eq!(offered, 200);
}
