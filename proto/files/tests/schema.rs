//! The schema in `configs/` is the one that the parser's tables say, and it agrees with the parser
//! on files that are good and on most that are bad.

use std::fs;
use std::path::{Path, PathBuf};

use granit_parser::{Event, Parser, ScalarStyle};
use serde_json::{Map, Value, json};
use sluicegate_files::schema;

/// Bad files about which a schema has nothing to say: what is wrong is between two values, or in
/// the text before it is a document.
const BEYOND_A_SCHEMA: [&str; 29] = [
    "018-directive.yaml",
    "020-duplicate-key.yaml",
    "021-duplicate-top-level-key.yaml",
    "029-control-characters.yaml",
    "044-owner-control-character.yaml",
    "046-twice-the-name.yaml",
    "047-name-with-blank.yaml",
    "072-limit-too-large.yaml",
    "073-limit-overflows.yaml",
    "074-limit-too-fast.yaml",
    "077-window-zero.yaml",
    "078-window-too-long.yaml",
    "086-burst-of-unlimited.yaml",
    "110-max-keys-too-large.yaml",
    "111-max-keys-below-values.yaml",
    "118-values-null-key.yaml",
    "119-values-number-twice.yaml",
    "121-values-map-for-two.yaml",
    "122-values-wrong-dimensions.yaml",
    "124-values-same-twice.yaml",
    "125-values-empty-caller.yaml",
    "133-fair-by-in-per.yaml",
    "134-fair-by-too-many-dimensions.yaml",
    "142-priority-unknown-default.yaml",
    "143-priority-default-of-no-class.yaml",
    "148-priority-in-per.yaml",
    "155-unlimited-with-what-needs-a-limit.yaml",
    "156-under-ratio-guard-and-fair-by.yaml",
    "157-under-ratio-priority.yaml",
];

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn yaml_files(dir: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder(dir)).expect("the folder is there");
    let paths = entries.map(|e| e.expect("it can be listed").path());
    let mut files: Vec<PathBuf> =
        paths.filter(|p| p.extension().is_some_and(|e| e == "yaml")).collect();
    files.sort();
    files
}

/// YAML as an editor sees it: plain numbers and booleans typed, the last of two equal keys. `None`
/// if it is not one document without aliases and tags.
fn as_json(text: &str) -> Option<Value> {
    enum Open {
        List(Vec<Value>),
        Map(Map<String, Value>, Option<String>),
    }
    let mut open: Vec<Open> = Vec::new();
    let mut root = None;
    for next in Parser::new_from_str(text) {
        let (event, _) = next.ok()?;
        if event.tag().is_some() || root.is_some() && event.is_node() {
            return None;
        }
        let value = match event {
            Event::Alias(_) => return None,
            Event::Scalar(text, style, ..) => typed(&text, style == ScalarStyle::Plain),
            Event::SequenceStart(..) => {
                open.push(Open::List(Vec::new()));
                continue;
            }
            Event::MappingStart(..) => {
                open.push(Open::Map(Map::new(), None));
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => match open.pop()? {
                Open::List(items) => Value::Array(items),
                Open::Map(entries, _) => Value::Object(entries),
            },
            _ => continue,
        };
        match open.last_mut() {
            None => root = Some(value),
            Some(Open::List(items)) => items.push(value),
            Some(Open::Map(entries, key)) => match (key.take(), value) {
                (Some(key), value) => drop(entries.insert(key, value)),
                (None, Value::String(text)) => *key = Some(text),
                (None, Value::Array(_) | Value::Object(_)) => return None,
                (None, other) => *key = Some(other.to_string()),
            },
        }
    }
    root
}

fn typed(text: &str, plain: bool) -> Value {
    if !plain {
        return json!(text);
    }
    match text {
        "" | "~" | "null" => Value::Null,
        "true" => json!(true),
        "false" => json!(false),
        _ => match (text.parse::<u64>(), text.parse::<f64>()) {
            (Ok(n), _) => json!(n),
            (_, Ok(n)) if n.is_finite() => json!(n),
            _ => json!(text),
        },
    }
}

#[test]
fn the_schema_in_configs_is_current() {
    let path = folder("../../configs/bucket-file.schema.json");
    let mut expected = serde_json::to_string_pretty(&schema::bucket_file()).expect("it is JSON");
    expected.push('\n');
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        fs::write(&path, &expected).expect("configs/ can be written");
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == expected,
        "configs/bucket-file.schema.json is out of date; refresh it with\n  \
         UPDATE_SCHEMA=1 cargo test -p sluicegate-files --test schema"
    );
}

#[test]
fn the_schema_is_one_and_takes_every_good_file() {
    let schema = schema::bucket_file();
    assert!(jsonschema::meta::is_valid(&schema), "it is not a JSON Schema");
    let validator = jsonschema::validator_for(&schema).expect("it is a JSON Schema");
    let mut files = yaml_files("../../configs");
    files.extend(yaml_files("../../configs/grant"));
    files.extend(yaml_files("tests/good"));
    assert!(files.len() >= 5);
    for path in files {
        let text = fs::read_to_string(&path).expect("it can be read");
        let document = as_json(&text).expect("one document");
        let errors: Vec<String> = validator
            .iter_errors(&document)
            .map(|e| format!("{}: {e}", e.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{}: {}", path.display(), errors.join("\n"));
    }
}

#[test]
fn the_schema_refuses_what_the_parser_refuses() {
    let validator = jsonschema::validator_for(&schema::bucket_file()).expect("a JSON Schema");
    let mut refused = 0;
    let mut taken = Vec::new();
    for path in yaml_files("tests/bad") {
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        let Some(document) = fs::read_to_string(&path).ok().and_then(|t| as_json(&t)) else {
            continue;
        };
        if validator.is_valid(&document) {
            taken.push(name);
        } else {
            refused += 1;
        }
    }
    assert_eq!(taken, BEYOND_A_SCHEMA, "bad files that the schema takes");
    assert!(refused >= 60, "only {refused} bad files are refused");
}
