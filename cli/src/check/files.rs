//! Which files `sluice check` is about. Finds them; reads of them only what tells bucket files and
//! node settings apart.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use sluicegate_files::{Diagnostic, Severity, node};

/// How deep directories are looked through.
const MAX_DEPTH: usize = 16;
/// The most files that are looked at.
const MAX_FILES: usize = 100_000;
/// How much of a file is searched for its kind.
const MAX_SEARCHED_BYTES: u64 = 1 << 20;

/// The files to check.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Bucket files, by their directory: those of one directory must fit together.
    pub(crate) buckets: BTreeMap<PathBuf, Vec<PathBuf>>,
    /// Node settings.
    pub(crate) nodes: Vec<PathBuf>,
    /// Files below the directories that were named which are about something else.
    pub(crate) others: Vec<PathBuf>,
    /// What cannot be looked at.
    pub(crate) errors: Vec<Diagnostic>,
}

/// Every file that the arguments name: files as they are, directories with all YAML files in and
/// below them that are not hidden. What stands directly in a directory that is named must be ours,
/// as it must for the controller that reads it; further down there may be files of other programs.
pub(crate) fn find(arguments: &[PathBuf]) -> Found {
    let mut found = Found::default();
    for path in arguments {
        match std::fs::metadata(path) {
            Ok(meta) if meta.is_dir() => {
                let before = found.len();
                descend(path, 0, &mut found);
                if found.len() == before && found.errors.is_empty() {
                    found.error(path, "holds no file that ends in .yaml or .yml");
                }
            }
            Ok(_) => found.file(path, kind(path)),
            Err(error) => found.error(path, &format!("cannot be read: {error}")),
        }
    }
    found.nodes.sort();
    found.nodes.dedup();
    for files in found.buckets.values_mut() {
        files.sort();
        files.dedup();
    }
    found
}

impl Found {
    /// How many files there are.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len() + self.buckets.values().map(Vec::len).sum::<usize>()
    }

    fn error(&mut self, path: &Path, message: &str) {
        let path = path.display().to_string();
        self.errors.push(Diagnostic::whole(Severity::Error, &path, message.to_owned()));
    }

    fn file(&mut self, path: &Path, kind: Option<Kind>) {
        if kind == Some(Kind::Node) {
            self.nodes.push(path.to_owned());
        } else {
            let dir = path.parent().unwrap_or(Path::new("")).to_owned();
            self.buckets.entry(dir).or_default().push(path.to_owned());
        }
    }
}

fn descend(dir: &Path, depth: usize, found: &mut Found) {
    if depth > MAX_DEPTH {
        found.error(dir, &format!("is more than {MAX_DEPTH} directories deep"));
        return;
    }
    let listed = std::fs::read_dir(dir).and_then(|entries| entries.collect::<Result<Vec<_>, _>>());
    let mut entries = match listed {
        Ok(entries) => entries,
        Err(error) => {
            found.error(dir, &format!("cannot be listed: {error}"));
            return;
        }
    };
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        // A linked directory is not followed, so that no circle is walked.
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            descend(&path, depth + 1, found);
        } else if is_yaml(&path) && path.is_file() {
            if found.len() >= MAX_FILES {
                found.error(dir, &format!("there are more than {MAX_FILES} files to check"));
                return;
            }
            match kind(&path) {
                None if depth > 0 => found.others.push(path),
                kind => found.file(&path, kind),
            }
        }
    }
}

fn is_yaml(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "yaml" || e == "yml")
}

/// What a file is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Buckets,
    Node,
}

/// Told by the fields at the top of the document: node settings name their kind, bucket files have
/// no such field. None if there is no field of either, or the file is of a kind of others.
fn kind(path: &Path) -> Option<Kind> {
    let top = Top::of(path);
    match top.kind {
        Some(_) if top.is_of_our_version => Some(Kind::Node),
        Some(text) => node::Kind::nearest(&text).map(|_| Kind::Node),
        None => top.is_like_ours.then_some(Kind::Buckets),
    }
}

/// The kind of node that a file of settings is most likely meant for.
pub(super) fn kind_meant(path: &Path) -> node::Kind {
    let named = Top::of(path).kind;
    named.and_then(|text| node::Kind::nearest(&text)).unwrap_or(node::Kind::Controller)
}

/// What the fields at the top of a file say of it.
#[derive(Debug, Default)]
struct Top {
    kind: Option<String>,
    is_of_our_version: bool,
    /// Whether a field is there that bucket files have.
    is_like_ours: bool,
}

impl Top {
    fn of(path: &Path) -> Self {
        let mut top = Self::default();
        let Ok(file) = std::fs::File::open(path) else { return top };
        for line in BufReader::new(file.take(MAX_SEARCHED_BYTES)).lines().map_while(Result::ok) {
            let Some((field, value)) = line.split_once(':') else { continue };
            let value = value.split(" #").next().unwrap_or("").trim().trim_matches(['"', '\'']);
            match field {
                "kind" => top.kind = Some(value.to_owned()),
                "apiVersion" => {
                    top.is_of_our_version = value.starts_with("sluicegate/");
                    top.is_like_ours = true;
                }
                "service" | "buckets" => top.is_like_ours = true,
                _ => {}
            }
        }
        top
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn directories_are_walked_and_kinds_told_apart() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        for sub in ["node", ".hidden", "empty"] {
            fs::create_dir(at(sub)).expect("made");
        }
        for (name, text) in [
            ("b.yaml", "service: b\n"),
            ("a.yml", "service: a\n"),
            ("schema.json", "{}"),
            ("broken.yaml", "servcie: b\n"),
            ("node/controller.yaml", "# why\nkind: controller\n"),
            ("node/envoy.yaml", "admin:\n"),
            ("node/misspelt.yaml", "kind: Controler # a comment\n"),
            ("node/map.yaml", "apiVersion: v1\nkind: ConfigMap\n"),
            ("node/unknown.yaml", "apiVersion: sluicegate/v1\nkind: door\n"),
            ("map.yaml", "apiVersion: v1\nkind: ConfigMap\n"),
            (".hidden/x.yaml", "service: x\n"),
        ] {
            fs::write(at(name), text).expect("written");
        }
        let found = find(&[dir.path().to_owned()]);
        assert!(found.errors.is_empty(), "{:?}", found.errors);
        let nodes = ["controller", "misspelt", "unknown"];
        assert_eq!(found.nodes, nodes.map(|n| at(&format!("node/{n}.yaml"))));
        let buckets = ["a.yml", "b.yaml", "broken.yaml", "map.yaml"];
        assert_eq!(found.buckets[dir.path()], buckets.map(at));
        assert_eq!(found.others, ["node/envoy.yaml", "node/map.yaml"].map(at));
        assert_eq!(kind_meant(&at("node/misspelt.yaml")), node::Kind::Controller);

        let named = find(&[at("b.yaml"), at("b.yaml"), at("schema.json")]);
        assert_eq!(named.buckets[dir.path()], [at("b.yaml"), at("schema.json")], "as told");
    }

    #[test]
    fn what_is_missing_or_empty_is_an_error() {
        let dir = tempfile::tempdir().expect("a directory");
        let found = find(&[dir.path().to_owned(), dir.path().join("no")]);
        let told: Vec<_> = found.errors.iter().map(Diagnostic::headline).collect();
        assert_eq!(told.len(), 2);
        assert!(told[0].contains("holds no file"), "{told:?}");
        assert!(told[1].contains("cannot be read"), "{told:?}");
    }
}
