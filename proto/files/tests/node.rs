//! Node settings: defaults, files, flags, and what is said of bad ones.

use std::fs;
use std::path::Path;
use std::time::Duration;

use clap::{CommandFactory, FromArgMatches, Parser};
use proptest::prelude::*;
use sluicegate_files::node::{
    self, AggregatorFlags, ClientFlags, ClientLimits, ControllerFlags, Kind, Limits, SettingsFile,
    SidecarFlags,
};
use sluicegate_model::Law;

#[derive(Parser)]
struct Command<F: clap::Args> {
    #[command(flatten)]
    flags: F,
}

/// The flags as a command line gives them.
fn flags<F: clap::Args + Default>(line: &str) -> F {
    let matches = Command::<F>::command()
        .try_get_matches_from(std::iter::once("sluice").chain(line.split_whitespace()))
        .unwrap_or_else(|e| panic!("{e}"));
    Command::<F>::from_arg_matches(&matches).unwrap_or_else(|e| panic!("{e}")).flags
}

fn file(text: &str) -> Option<SettingsFile<'_>> {
    Some(SettingsFile { path: "node.yaml", bytes: text.as_bytes() })
}

fn sidecar_errors(text: &str) -> String {
    node::sidecar(file(text), SidecarFlags::default(), "host").expect_err("bad").to_string()
}

#[test]
fn nothing_given_is_one_machine() {
    let controller = node::controller(None, ControllerFlags::default(), "host-1").expect("good");
    assert_eq!(controller.node.as_str(), "host-1");
    assert_eq!(controller.region.as_str(), "default");
    assert_eq!(controller.listen.to_string(), "127.0.0.1:7400");
    assert_eq!(controller.http_listen.to_string(), "127.0.0.1:7480");
    assert_eq!(controller.buckets_dir, Path::new("configs"));
    assert_eq!(controller.tick, Duration::from_millis(1000));
    assert_eq!(controller.ttl, Duration::from_secs(10));
    assert_eq!(controller.law, Law::Ratio);
    assert_eq!(controller.limits, Limits::CONTROLLER);

    let aggregator = node::aggregator(None, AggregatorFlags::default(), "h").expect("good");
    assert_eq!(aggregator.listen.to_string(), "127.0.0.1:7401");
    assert_eq!(aggregator.controllers, [controller.listen.to_string()]);
    assert_eq!(aggregator.limits, Limits::AGGREGATOR);

    let sidecar = node::sidecar(None, SidecarFlags::default(), "h").expect("good");
    assert_eq!(sidecar.listen.to_string(), "127.0.0.1:7402");
    assert_eq!(
        (sidecar.caller_key.as_str(), sidecar.procedure_key.as_str()),
        ("caller", "procedure")
    );
    assert!(sidecar.headers);
    assert_eq!(sidecar.client.aggregators, [aggregator.listen.to_string()]);
    assert_eq!(sidecar.client.ramp, Duration::from_secs(10));
    assert!(sidecar.client.services.is_empty());
    let limits = ClientLimits { max_identities: 65_536, max_values: 200_000 };
    assert_eq!(sidecar.client.limits, limits);
    assert_eq!(node::client(None, ClientFlags::default(), "h").expect("good"), sidecar.client);
}

#[test]
fn a_file_is_taken_and_flags_win() {
    let text = concat!(
        "apiVersion: sluicegate/v1\nkind: aggregator\nnode: a-1\nzone: eu-1a\nregion: eu\n",
        "listen: \"[::]:9000\"\ncontrollers: [ctl-1:7400, \"http://10.0.0.1:7400\"]\n",
        "tick_ms: 50\nttl_ms: 2_000\nmax_sessions: 7\nmax_session_rps: 5_000\n",
    );
    let from_file = node::aggregator(file(text), AggregatorFlags::default(), "h").expect("good");
    assert_eq!(from_file.node.as_str(), "a-1");
    assert_eq!(from_file.zone.as_str(), "eu-1a");
    assert_eq!(from_file.listen.to_string(), "[::]:9000");
    assert_eq!(from_file.http_listen.to_string(), "127.0.0.1:7481");
    assert_eq!(from_file.controllers, ["ctl-1:7400", "10.0.0.1:7400"]);
    assert_eq!(
        (from_file.tick, from_file.ttl),
        (Duration::from_millis(50), Duration::from_secs(2))
    );
    assert_eq!((from_file.limits.max_sessions, from_file.limits.max_session_rps), (7, 5_000));
    assert_eq!(from_file.limits.max_keys, Limits::AGGREGATOR.max_keys);

    let line = "--zone eu-1b --controllers a:1,b:2 --max-sessions 9 --tick-ms 100";
    let both = node::aggregator(file(text), flags(line), "h").expect("good");
    assert_eq!(both.zone.as_str(), "eu-1b");
    assert_eq!(both.controllers, ["a:1", "b:2"]);
    assert_eq!((both.limits.max_sessions, both.limits.max_session_rps), (9, 5_000));
    assert_eq!((both.tick, both.ttl), (Duration::from_millis(100), Duration::from_secs(2)));
    assert_eq!(both.node.as_str(), "a-1");
}

#[test]
fn everything_wrong_in_a_file_is_told_at_its_place() {
    let text = concat!(
        "apiVersion: sluicegate/v1\nkind: sidecar\nzoen: eu-1a\nregion: \" eu\"\ntick_ms: 5\n",
        "ramp_ms: soon\nlisten: localhost\naggregators: aggregator:7401\nservices: [a, \"\"]\n",
        "headers: maybe\ncaller_key: procedure\nhttp_listen:\n",
    );
    let expected = r#"node.yaml:3:1: error: `zoen` is not a field of the settings of a sidecar
  3 | zoen: eu-1a
    | ^^^^
    = did you mean `zone`?

node.yaml:4:9: error: region: the name ` eu` begins or ends with white space
  4 | region: " eu"
    |         ^^^^^

node.yaml:5:10: error: tick_ms: 5 is out of range; expected 50 to 60_000
  5 | tick_ms: 5
    |          ^

node.yaml:6:10: error: ramp_ms: `soon` is not a whole number; expected digits, such as 500 or 22_000
  6 | ramp_ms: soon
    |          ^^^^

node.yaml:7:9: error: listen: `localhost` is not an address to listen on
  7 | listen: localhost
    |         ^^^^^^^^^
    = write an IP address and a port: 127.0.0.1:7400, 0.0.0.0:7400 or [::]:7400

node.yaml:8:14: error: aggregators: expected a list
  8 | aggregators: aggregator:7401
    |              ^^^^^^^^^^^^^^^
    = write [aggregator:7401]

node.yaml:9:11: error: services: the name `` is empty
  9 | services: [a, ""]
    |           ^

node.yaml:10:10: error: headers: expected `true` or `false`, found `maybe`
  10 | headers: maybe
     |          ^^^^^

node.yaml:12:1: error: http_listen: `http_listen` has no value
  12 | http_listen:
     | ^^^^^^^^^^^
     = write a value, or remove the line"#;
    assert_eq!(sidecar_errors(text), expected);
}

#[test]
fn what_is_wrong_with_a_flag_names_the_flag() {
    let errors =
        |line: &str| node::controller(None, flags(line), "host").expect_err("bad").to_string();
    assert_eq!(
        errors("--max-keys-per-session 0"),
        "--max-keys-per-session: error: 0 is out of range; expected 1 to 50_000_000"
    );
    assert_eq!(
        errors("--law plain"),
        "--law: error: `plain` is not a law; expected `grant` or `ratio`"
    );
    let text = "apiVersion: sluicegate/v1\nkind: controller\nttl_ms: 3_000\n";
    let found = node::controller(file(text), flags("--tick-ms 60000"), "h").expect_err("bad");
    assert!(
        found.to_string().starts_with(
            "node.yaml:3:9: error: ttl_ms: ttl_ms is 3_000, which is less than 4 ticks of 60_000 ms"
        ),
        "{found}"
    );
    let found = node::controller(None, flags("--tick-ms 60000"), "h").expect_err("bad");
    assert!(found.to_string().starts_with("--tick-ms: error: ttl_ms is 10_000"), "{found}");
    assert!(errors("--listen 127.0.0.1:5 --http-listen 127.0.0.1:5").contains("`listen` too"));
    let found = node::controller(None, ControllerFlags::default(), " ").expect_err("bad");
    assert!(found.to_string().starts_with("node: error: the name ` ` begins"), "{found}");
}

#[test]
fn the_law_is_one_of_two() {
    let head = "apiVersion: sluicegate/v1\nkind: controller\n";
    for law in Law::ALL {
        let text = format!("{head}law: {}\n", law.name());
        let found = node::controller(file(&text), ControllerFlags::default(), "h").expect("good");
        assert_eq!(found.law, law);
        let found = node::controller(file(&text), flags("--law ratio"), "h").expect("good");
        assert_eq!(found.law, Law::Ratio, "the flag wins");
    }
    let bad = format!("{head}law: Grant\n");
    let found = node::controller(file(&bad), ControllerFlags::default(), "h").expect_err("bad");
    assert!(found.to_string().starts_with("node.yaml:3:6: error: law: `Grant` is not a law"));
}

#[test]
fn addresses_are_checked() {
    let address = |text: &str| {
        let flags = ClientFlags { aggregators: Some(vec![text.into()]), ..Default::default() };
        node::client(None, flags, "h").map(|s| s.aggregators[0].clone()).ok()
    };
    for good in ["a:1", "aggregator.zone-a.svc:7401", "10.0.0.7:65535", "[::1]:7401"] {
        assert_eq!(address(good).as_deref(), Some(good));
    }
    assert_eq!(address("http://a:1").as_deref(), Some("a:1"));
    for bad in [
        "",
        "a",
        ":1",
        "a:",
        "a:0",
        "a:65536",
        "a:+1",
        "a b:1",
        "https://a:1",
        "a/b:1",
        "[::1:1",
        "[x]:1",
    ] {
        assert_eq!(address(bad), None, "{bad}");
    }
    let flags = ClientFlags { aggregators: Some(Vec::new()), ..Default::default() };
    let none = node::client(None, flags, "h").expect_err("bad");
    assert!(none.to_string().contains("0 addresses; expected 1 to 16"), "{none}");
}

#[test]
fn the_kind_must_be_the_right_one() {
    let head = "apiVersion: sluicegate/v1\n";
    let said = sidecar_errors(&format!("{head}kind: controller\n"));
    assert!(said.contains("these are the settings of a controller; expected those of a sidecar"));
    assert!(sidecar_errors(&format!("{head}kind: sidcar\n")).contains("did you mean `sidecar`?"));
    assert!(sidecar_errors(head).contains("`kind` is missing"));
    assert!(sidecar_errors("kind: sidecar\n").contains("`apiVersion` is missing"));
    assert!(sidecar_errors("").contains("the file is empty"));
    assert!(
        sidecar_errors("- a\n")
            .contains("expected a map with the fields of the settings of a sidecar")
    );
    for kind in Kind::ALL {
        let text = format!("{head}kind: {kind}\n");
        assert_eq!(node::kind_of(file(&text).expect("a file")), Some(kind));
        node::check(kind, file(&text).expect("a file")).expect("defaults are good");
    }
    assert_eq!(node::kind_of(file("service: a\n").expect("a file")), None);
}

#[test]
fn the_examples_are_good() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/node");
    let mut kinds = Vec::new();
    for entry in fs::read_dir(dir).expect("configs/node is there") {
        let path = entry.expect("it can be listed").path();
        let bytes = fs::read(&path).expect("it can be read");
        let label = path.display().to_string();
        let file = SettingsFile { path: &label, bytes: &bytes };
        let kind = node::kind_of(file).expect("it names a kind");
        node::check(kind, file).unwrap_or_else(|e| panic!("{e}"));
        kinds.push(kind.as_str());
    }
    kinds.sort_unstable();
    assert_eq!(kinds, ["aggregator", "controller", "sidecar"]);
}

#[test]
fn each_setting_says_its_true_default_and_range() {
    for (kind, command) in [
        (Kind::Controller, Command::<ControllerFlags>::command()),
        (Kind::Aggregator, Command::<AggregatorFlags>::command()),
        (Kind::Sidecar, Command::<SidecarFlags>::command()),
        (Kind::Client, Command::<ClientFlags>::command()),
    ] {
        let docs = node::docs(kind);
        let arguments: Vec<String> = command
            .get_arguments()
            .filter_map(|a| a.get_long().filter(|l| *l != "help").map(|l| l.replace('-', "_")))
            .collect();
        assert_eq!(arguments.len(), docs.len(), "{kind}: a flag for each field");
        for doc in docs {
            assert!(arguments.iter().any(|a| a == doc.name), "{kind}: no flag for {}", doc.name);
            assert!(doc.doc.contains("Default: "), "{}: {}", doc.name, doc.doc);
            check_range(kind, doc);
        }
    }
}

/// Tries the two ends of a range as the doc gives it, and one beyond each.
fn check_range(kind: Kind, doc: node::SettingDoc) {
    let number =
        |t: &str| t.trim_matches(',').trim_end_matches('.').replace('_', "").parse::<u64>().ok();
    let words: Vec<&str> = doc.doc.split_whitespace().collect();
    let ends = words.windows(3).find_map(|w| match (number(w[0]), w[1], number(w[2])) {
        (Some(low), "to", Some(high)) => Some((low, high)),
        _ => None,
    });
    let Some((low, high)) = ends else { return };
    let good = |n: u64| {
        // A tick of its upper end asks for a longer ttl, a ttl of its lower end for a shorter tick.
        let beside = match doc.name {
            "tick_ms" => "ttl_ms: 3_600_000",
            "ttl_ms" => "tick_ms: 50",
            _ => "region: r",
        };
        let text =
            format!("apiVersion: sluicegate/v1\nkind: {kind}\n{}: {n}\n{beside}\n", doc.name);
        node::check(kind, file(&text).expect("a file")).is_ok()
    };
    assert!(good(low) && good(high), "{}: {}", doc.name, doc.doc);
    assert!(!good(high + 1), "{}: {}", doc.name, doc.doc);
    assert!(low == 0 || !good(low - 1), "{}: {}", doc.name, doc.doc);
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let file = SettingsFile { path: "random", bytes: &bytes };
        for kind in Kind::ALL {
            prop_assert!(node::check(kind, file).is_err());
        }
        prop_assert_eq!(node::kind_of(file), None);
    }

    #[test]
    fn mutated_files_never_panic(at in any::<proptest::sample::Index>(), cut in 0_usize..9, piece in "[ -~\\n]{0,5}") {
        let mut text: Vec<char> = include_str!("../../../configs/node/sidecar.yaml").chars().collect();
        let at = at.index(text.len());
        let end = (at + cut).min(text.len());
        text.splice(at..end, piece.chars());
        let text: String = text.into_iter().collect();
        if let Err(invalid) = node::check(Kind::Sidecar, SettingsFile { path: "m", bytes: text.as_bytes() }) {
            prop_assert!(!invalid.errors.is_empty());
        }
    }
}
