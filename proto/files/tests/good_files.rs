//! Good files become the model that they describe, and random or broken ones never a panic.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use proptest::prelude::*;
use sluicegate_files::buckets::{self, Parsed};
use sluicegate_files::{MAX_FILE_BYTES, MAX_FINDINGS_PER_FILE};
use sluicegate_model::{
    Bucket, Law, Limit, Match, Mode, Name, OnControlLoss, Overflow, Owner, Pattern, Per, Request,
    Rule, Scope, Select, ServiceBuckets, TokenRate,
};

fn name(text: &str) -> Name {
    Name::new(text).expect("a good name")
}

fn per_second(requests: u64, burst: Option<u64>) -> Limit {
    Limit::Tokens(TokenRate::per_second(requests, burst).expect("a good limit"))
}

fn per_window(requests: u64, window: Duration, burst: Option<u64>) -> Limit {
    Limit::Tokens(TokenRate::per_window(requests, window, burst).expect("a good limit"))
}

fn said(parsed: &Parsed) -> String {
    let findings = parsed.errors.iter().chain(&parsed.warnings);
    findings.map(|d| format!("{d}\n")).collect()
}

/// The service of a file without errors or warnings.
fn good(text: &str) -> ServiceBuckets {
    let parsed = buckets::parse("good.yaml", text);
    assert!(parsed.errors.is_empty() && parsed.warnings.is_empty(), "{}", said(&parsed));
    let service = parsed.service.expect("no errors");
    assert_eq!(parsed.name.as_ref(), Some(&service.service));
    service
}

/// The one bucket with these fields.
fn bucket(fields: &str) -> Bucket {
    let head = "apiVersion: sluicegate/v1\nservice: s\nbuckets:\n  - name: b\n    scope: region\n";
    let mut service = good(&format!("{head}{fields}"));
    assert_eq!(service.buckets.len(), 1);
    service.buckets.remove(0)
}

fn limit(text: &str) -> Limit {
    bucket(&format!("    limit: {text}\n")).limit
}

fn configs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs")
}

#[test]
fn a_whole_file_becomes_the_model() {
    let service = good(include_str!("good/payments.yaml"));
    let rule = Rule {
        on: Match {
            caller: vec![Pattern::Exact("checkout-web".into())],
            procedure: vec![Pattern::Prefix("payments.v1.Pay/".into())],
            dimensions: BTreeMap::new(),
        },
        not: Vec::new(),
    };
    let global = Bucket {
        name: name("checkout-web"),
        scope: Scope::Global,
        rule,
        limit: per_second(22_000, None),
        mode: Mode::Deny,
        per: None,
        on_control_loss: OnControlLoss::Open,
        guard: false,
        enforce: 1.0,
        max_drop: 1.0,
        sharing: None,
    };
    let rule = Rule {
        on: Match {
            dimensions: BTreeMap::from([(name("workspace_id"), vec![Pattern::Any])]),
            ..Match::default()
        },
        not: vec![
            Match { caller: vec![Pattern::Prefix("batch-".into())], ..Match::default() },
            Match {
                caller: vec![Pattern::Exact("admin".into())],
                procedure: vec![Pattern::Exact("Read".into()), Pattern::Exact("List".into())],
                ..Match::default()
            },
        ],
    };
    let per_workspace = Bucket {
        name: name("per-workspace"),
        scope: Scope::Zone,
        rule,
        limit: per_second(50, Some(100)),
        mode: Mode::Shadow,
        per: Some(Per {
            dimensions: vec![name("workspace_id")],
            values: BTreeMap::from([
                (vec!["12345".into()], per_second(500, None)),
                (vec!["0012".into()], per_window(5, Duration::from_secs(10), Some(20))),
                (vec!["1_000".into()], per_window(7, Duration::from_secs(60), None)),
                (vec!["internal".into()], Limit::Unlimited),
            ]),
            max_keys: 20_000,
            overflow: Overflow::Limit(per_second(1_000, Some(50))),
        }),
        on_control_loss: OnControlLoss::Share,
        guard: false,
        enforce: 1.0,
        max_drop: 1.0,
        sharing: None,
    };
    let expected = ServiceBuckets {
        service: name("payments"),
        owner: Owner {
            owner: Some("team-payments".into()),
            contact: Some("#payments".into()),
            runbook: Some("first line\nsecond line\n".into()),
        },
        select: Select::MostSpecific,
        buckets: vec![global, per_workspace],
    };
    assert_eq!(service, expected);
}

#[test]
fn defaults_are_the_documented_ones() {
    let found = bucket("    limit: 3/s\n");
    assert_eq!(found.rule, Rule::default());
    assert_eq!(found.mode, Mode::Deny);
    assert_eq!(found.on_control_loss, OnControlLoss::Open);
    assert_eq!(found.per, None);
    let per = bucket("    limit: 3/s\n    per: [caller]\n").per.expect("per");
    assert_eq!((per.max_keys, per.overflow), (100_000, Overflow::Observe));
    assert!(per.values.is_empty());
    let service = good("apiVersion: sluicegate/v1\nservice: s\nbuckets: []\n");
    assert_eq!((service.select, service.owner), (Select::All, Owner::default()));
}

#[test]
fn limits_in_all_their_shapes() {
    assert_eq!(limit("22_000/s"), per_second(22_000, None));
    assert_eq!(limit("100/m"), per_window(100, Duration::from_secs(60), None));
    assert_eq!(limit("5/h"), per_window(5, Duration::from_secs(3600), None));
    assert_eq!(limit("unlimited"), Limit::Unlimited);
    assert_eq!(limit("\"5/s\""), per_second(5, None), "quotes do no harm");
    assert!(limit("0/s").denies_all());
    let windows =
        [("500ms", 500), ("10s", 10_000), ("5m", 300_000), ("2h", 7_200_000), ("1d", 86_400_000)];
    for (text, ms) in windows {
        let found = limit(&format!("{{ requests: 5, window: {text} }}"));
        assert_eq!(found, per_window(5, Duration::from_millis(ms), None), "{text}");
    }
    let Limit::Tokens(tokens) = bucket("    limit: 100/m\n    burst: 7\n").limit else {
        panic!("a limit");
    };
    assert!((tokens.depth() - 7.0).abs() < 1e-9, "burst is the depth of a minute's bucket too");
}

#[test]
fn several_per_dimensions_have_listed_values() {
    let found = bucket(concat!(
        "    limit: 5/s\n    per: [workspace_id, user]\n    values:\n",
        "      - { values: { user: ann, workspace_id: 007 }, limit: 9/s, burst: 30 }\n",
        "      - values: { workspace_id: \"\", user: \"true\" }\n        limit: unlimited\n",
    ));
    let expected = BTreeMap::from([
        (vec!["007".into(), "ann".into()], per_second(9, Some(30))),
        (vec!["".into(), "true".into()], Limit::Unlimited),
    ]);
    assert_eq!(found.per.expect("per").values, expected, "in the order of `per`");
}

#[test]
fn scalars_that_yaml_would_retype_keep_their_text() {
    let found = bucket(
        "    limit: 5/s\n    match: { caller: [no, 1.50, 0x1F, ~x], dimensions: { on: yes } }\n",
    );
    let exact = |t: &str| Pattern::Exact(t.into());
    assert_eq!(found.rule.on.caller, vec![exact("no"), exact("1.50"), exact("0x1F"), exact("~x")]);
    assert_eq!(found.rule.on.dimensions[&name("on")], vec![exact("yes")]);
}

#[test]
fn what_is_matched_is_what_the_file_says() {
    let service = good(include_str!("good/payments.yaml"));
    let request = Request {
        service: "payments",
        caller: "checkout-web",
        procedure: "payments.v1.Pay/Charge",
        dimensions: &[("workspace_id", "9")],
    };
    assert_eq!(service.matching(&request), vec![0, 1]);
    assert_eq!(service.matching(&Request { caller: "batch-7", ..request }), Vec::<usize>::new());
    let admin = Request { caller: "admin", procedure: "List", ..request };
    assert!(service.matching(&admin).is_empty(), "caller and procedure both meet the `not`");
    assert_eq!(service.matching(&Request { procedure: "Write", ..admin }), vec![1]);
}

#[test]
fn what_may_not_be_meant_is_a_warning() {
    let text = concat!(
        "apiVersion: sluicegate/v1\nservice: s\nbuckets:\n",
        "  - name: b\n    scope: zone\n    limit: 5/s\n    mode: allow\n    per: [user]\n",
        "    match: { caller: [\"a*b\", \" c\"] }\n    values: { \"x*\": 5/s }\n",
    );
    let parsed = buckets::parse("w.yaml", text);
    assert!(parsed.errors.is_empty(), "{}", said(&parsed));
    assert_eq!(said(&parsed), include_str!("good/warnings.txt"));
    let service = parsed.service.expect("warnings do not keep a file from being applied");
    assert_eq!(service.buckets[0].mode, Mode::Shadow);
}

#[test]
fn the_name_of_the_service_survives_errors() {
    let named = |text: &str| buckets::parse("f", text).name.map(|n| n.to_string());
    assert_eq!(named("service: a\nbuckets: 5\n").as_deref(), Some("a"));
    assert_eq!(
        named("service: a\nbuckets: [\n").as_deref(),
        Some("a"),
        "the text breaks off later"
    );
    assert_eq!(named("buckets: [\nservice: a\n"), None);
    assert_eq!(named("service: [a]\n"), None);
}

#[test]
fn the_examples_are_good_and_say_nothing() {
    let services = ["catalog", "checkout", "payments", "search", "workspace-api"];
    examples_are_good(&configs(), Law::Ratio, &services);
    examples_are_good(&configs().join("grant"), Law::Grant, &["images"]);
}

fn examples_are_good(dir: &Path, law: Law, expected: &[&str]) {
    let loaded = buckets::load_dir(dir, law);
    let findings: Vec<String> =
        loaded.errors.iter().chain(&loaded.warnings).map(ToString::to_string).collect();
    assert!(findings.is_empty(), "{}", findings.join("\n"));
    assert!(loaded.complete && loaded.failed.is_empty());
    let services: Vec<&str> = loaded.services.iter().map(|(_, s)| s.service.as_str()).collect();
    assert_eq!(services, expected);
    for (path, _) in &loaded.services {
        let text = std::fs::read_to_string(path).expect("it was read before");
        let first = text.lines().next().and_then(|l| l.split_once("$schema="));
        let (_, schema) = first.unwrap_or_else(|| panic!("{} names no schema", path.display()));
        assert!(dir.join(schema).is_file(), "{schema} is no file");
    }
}

/// The examples of the reference are files, or buckets of one.
#[test]
fn the_reference_shows_only_good_files() {
    let reference = include_str!("../../../docs/reference/bucket-files.md");
    let blocks: Vec<&str> =
        reference.split("```yaml\n").skip(1).filter_map(|b| b.split("```").next()).collect();
    assert!(blocks.len() >= 4, "found {}", blocks.len());
    for block in blocks {
        let service = match block.starts_with("apiVersion:") {
            true => good(block),
            false => good(&format!("apiVersion: sluicegate/v1\nservice: s\nbuckets:\n{block}")),
        };
        assert_eq!(service.buckets.len(), 1, "{block}");
    }
}

#[test]
fn the_reference_names_every_field() {
    let reference = include_str!("../../../docs/reference/bucket-files.md");
    let schema = sluicegate_files::schema::bucket_file();
    let fields_of = |at: &str| schema.pointer(at).and_then(|p| p.as_object()).expect("fields");
    for at in [
        "/properties",
        "/$defs/bucket/properties",
        "/$defs/match/properties",
        "/$defs/priority/properties",
    ] {
        for field in fields_of(at).keys() {
            assert!(reference.contains(&format!("| `{field}` |")), "no row for {field}");
        }
    }
}

#[test]
fn bounds_are_kept() {
    let huge = "#".repeat(MAX_FILE_BYTES + 1);
    let parsed = buckets::parse("huge.yaml", &huge);
    assert_eq!(parsed.errors.len(), 1);
    assert!(parsed.errors[0].message.contains("larger than 4 MiB"), "{}", parsed.errors[0]);

    let head = "apiVersion: sluicegate/v1\nservice: s\nbuckets:\n";
    let many: String =
        (0..10_001).map(|i| format!(" - {{name: b{i}, scope: zone, limit: 1/s}}\n")).collect();
    let parsed = buckets::parse("many.yaml", &format!("{head}{many}"));
    assert!(said(&parsed).contains("10_001 buckets; the most is 10_000"), "{}", said(&parsed));

    let values: String = (0..100_001).map(|i| format!("      {i}: 1/s\n")).collect();
    let one =
        " - name: b\n   scope: zone\n   limit: 1/s\n   per: [a]\n   max_keys: 200000\n   values:\n";
    let parsed = buckets::parse("values.yaml", &format!("{head}{one}{values}"));
    assert!(said(&parsed).contains("100_001 values; the most is 100_000"), "{}", said(&parsed));

    let nodes = format!("{head} - [{}]\n", "a,".repeat(1_000_001));
    let parsed = buckets::parse("nodes.yaml", &nodes);
    assert!(said(&parsed).contains("more than 1000000 values"), "{}", said(&parsed));

    let wrong: String = (0..200).map(|i| format!("x{i}xxxxxxxx: 1\n")).collect();
    let parsed = buckets::parse("wrong.yaml", &wrong);
    assert_eq!(parsed.errors.len(), MAX_FINDINGS_PER_FILE + 1, "and one that counts the rest");
}

#[test]
fn hostile_text_is_refused_in_bounded_work() {
    const BYTES: usize = 1 << 20;
    let pieces = [
        "[", "{", "- ", "-\n", "? ", "&a ", "- *a\n", "!a ", "\"", "''", "a,", "a: ", "---\n",
        "#\n", "\u{feff}",
    ];
    for piece in pieces {
        for head in ["", "apiVersion: sluicegate/v1\nservice: s\nbuckets:\n"] {
            let text = format!("{head}{}", piece.repeat(BYTES / piece.len()));
            let parsed = buckets::parse("hostile", &text);
            assert!(parsed.service.is_none() && !parsed.errors.is_empty(), "{head}{piece}");
            assert!(parsed.errors.len() <= MAX_FINDINGS_PER_FILE + 1, "{head}{piece}");
        }
    }
    let wide: String = (0..100_000).map(|i| format!("k{i}: 1\n")).collect();
    assert_eq!(buckets::parse("wide", &wide).errors.len(), MAX_FINDINGS_PER_FILE + 1);
}

/// Pieces of which mutated files are made: what YAML and the format find special.
const PIECES: [&str; 24] = [
    "\n",
    "\n  ",
    "  - ",
    ": ",
    "{",
    "}",
    "[",
    "]",
    ",",
    "\"",
    "'",
    "*",
    "&a",
    "*a",
    "!t",
    "#",
    "|",
    ">",
    "---\n",
    "\t",
    "\r\n",
    "\u{feff}",
    "limit: ",
    "per: [a]\n",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let parsed = buckets::parse_bytes("random", &bytes, Law::Grant);
        prop_assert_eq!(parsed.service.is_some(), parsed.errors.is_empty());
    }

    #[test]
    fn random_text_never_panics(text in proptest::collection::vec(
        prop_oneof![proptest::sample::select(PIECES.to_vec()).prop_map(str::to_owned), "[ -~]{0,6}"], 0..60,
    )) {
        let parsed = buckets::parse("random", &text.concat());
        prop_assert_eq!(parsed.service.is_some(), parsed.errors.is_empty());
    }

    /// A file with a few edits is read, or refused with places that exist.
    #[test]
    fn mutated_files_never_panic(edits in proptest::collection::vec(
        (any::<proptest::sample::Index>(), 0_usize..12, proptest::sample::select(PIECES.to_vec())), 1..6,
    )) {
        let mut text: Vec<char> = include_str!("good/payments.yaml").chars().collect();
        for (at, cut, piece) in edits {
            let at = at.index(text.len());
            let end = (at + cut).min(text.len());
            text.splice(at..end, piece.chars());
        }
        let text: String = text.into_iter().collect();
        let parsed = buckets::parse("mutated", &text);
        prop_assert_eq!(parsed.service.is_some(), parsed.errors.is_empty());
        for finding in &parsed.errors {
            prop_assert!(!finding.message.is_empty());
            prop_assert!(finding.line as usize <= text.split('\n').count(), "{}", finding);
            prop_assert!(finding.line > 0, "{}", finding);
        }
    }

    /// Any limit that can be written is read as the numbers in it.
    #[test]
    fn written_limits_are_read_back(n in 0_u64..1_000_000_000, unit in 0_usize..3, burst in proptest::option::of(1_u64..1_000_000)) {
        let (letter, seconds) = [("s", 1), ("m", 60), ("h", 3600)][unit];
        let beside = burst.map_or_else(String::new, |b| format!("    burst: {b}\n"));
        let found = bucket(&format!("    limit: {n}/{letter}\n{beside}")).limit;
        let expected = match unit {
            0 => per_second(n, burst),
            _ => per_window(n, Duration::from_secs(seconds), burst),
        };
        prop_assert_eq!(found, expected);
    }

    /// Whatever text stands in quotes as a value is that value in the model.
    #[test]
    fn quoted_values_keep_their_text(value in "[ -~äß€]{1,30}") {
        prop_assume!(value != "*" && !value.ends_with('*'));
        let quoted = value.replace('\\', "\\\\").replace('"', "\\\"");
        let found = bucket(&format!("    limit: 1/s\n    per: [a]\n    values: {{ \"{quoted}\": 2/s }}\n"));
        let values = found.per.expect("per").values;
        prop_assert_eq!(values.into_keys().collect::<Vec<_>>(), vec![vec![value.into_boxed_str()]]);
    }
}
