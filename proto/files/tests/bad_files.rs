//! Each `tests/bad/NNN-name.yaml` is refused with exactly the text of `NNN-name.err` beside it; those
//! with `under-ratio` in their names because of the law, and they are good under grant.
//! After a change of messages: `UPDATE_BAD=1 cargo test -p sluicegate-files --test bad_files`, and
//! read what came out.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use sluicegate_files::buckets;
use sluicegate_model::Law;

fn bad() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bad")
}

fn with_extension(extension: &str) -> BTreeSet<PathBuf> {
    let entries = fs::read_dir(bad()).expect("tests/bad is there");
    let paths = entries.map(|e| e.expect("it can be listed").path());
    paths.filter(|p| p.extension().is_some_and(|e| e == extension)).collect()
}

fn is_bad_under_ratio(path: &Path) -> bool {
    path.to_string_lossy().contains("under-ratio")
}

/// Everything that is said of a file.
fn rendered(path: &Path) -> String {
    let label = path.file_name().expect("a file").to_string_lossy().into_owned();
    let bytes = fs::read(path).expect("it can be read");
    let law = if is_bad_under_ratio(path) { Law::Ratio } else { Law::Grant };
    let parsed = buckets::parse_bytes(&label, &bytes, law);
    if law == Law::Ratio {
        let under_grant = buckets::parse_bytes(&label, &bytes, Law::Grant);
        assert_eq!(under_grant.errors, [], "{label}");
    }
    assert!(parsed.service.is_none(), "{label} is read as a good file");
    assert!(!parsed.errors.is_empty(), "{label} is refused without a reason");
    let mut text = String::new();
    for finding in parsed.errors.iter().chain(&parsed.warnings) {
        writeln!(text, "{finding}\n").expect("a string takes all");
    }
    text
}

/// The first lines that differ.
fn difference(expected: &str, found: &str) -> String {
    let mut text = String::new();
    let longest = expected.lines().count().max(found.lines().count());
    for i in 0..longest {
        let (want, have) = (expected.lines().nth(i), found.lines().nth(i));
        if want != have {
            writeln!(text, "line {}:", i + 1).expect("a string takes all");
            writeln!(text, "  - {}", want.unwrap_or("(nothing)")).expect("a string takes all");
            writeln!(text, "  + {}", have.unwrap_or("(nothing)")).expect("a string takes all");
        }
    }
    text
}

#[test]
fn every_bad_file_is_refused_with_its_message() {
    let update = std::env::var_os("UPDATE_BAD").is_some();
    let files = with_extension("yaml");
    assert!(files.len() >= 40, "only {} bad files", files.len());
    let mut wrong = String::new();
    for path in &files {
        let found = rendered(path);
        let beside = path.with_extension("err");
        if update {
            fs::write(&beside, &found).expect("tests/bad can be written");
        }
        let expected = fs::read_to_string(&beside).unwrap_or_default();
        if expected != found {
            let difference = difference(&expected, &found);
            writeln!(wrong, "{}:\n{difference}", path.display()).expect("a string takes all");
        }
    }
    assert!(wrong.is_empty(), "messages differ:\n{wrong}");
    let expected: BTreeSet<PathBuf> = files.iter().map(|f| f.with_extension("err")).collect();
    assert_eq!(with_extension("err"), expected, "expectations without a file");
}

#[test]
fn every_finding_points_into_the_file() {
    for path in with_extension("yaml") {
        let bytes = fs::read(&path).expect("it can be read");
        let Ok(source) = std::str::from_utf8(&bytes) else { continue };
        let lines: Vec<&str> = source.split('\n').collect();
        for finding in buckets::parse("f", source).errors {
            if finding.line == 0 {
                continue;
            }
            let line = lines[finding.line as usize - 1];
            let columns = line.chars().count() + 1;
            assert!((1..=columns).contains(&(finding.column as usize)), "{finding}");
            let rest: String = line.chars().skip(finding.column as usize - 1).collect();
            let text = finding.text.trim_end_matches("...");
            let plain = !text.contains('\u{fffd}');
            assert!(!plain || rest.starts_with(text), "{finding}\n{rest:?} {text:?}");
        }
    }
}
