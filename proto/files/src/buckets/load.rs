//! The one place here that reads files: a directory of bucket files, as it stands on disk or as
//! Kubernetes mounts it (files that are links into `..data`, swapped as a whole).

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use sluicegate_model::{Law, Name, ServiceBuckets};

use super::{parse_bytes, whole};
use crate::diagnostic::Diagnostic;
use crate::source::too_large;
use crate::tree::MAX_FILE_BYTES;
use crate::walk::grouped;

/// The most bucket files in one directory.
pub const MAX_FILES: usize = 10_000;

/// The most bytes of bucket files in one directory.
pub const MAX_TOTAL_BYTES: usize = 256 * 1024 * 1024;

/// How often a directory is read again because it was swapped meanwhile.
const MAX_READS: usize = 3;

/// A file that cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed {
    /// The file.
    pub path: PathBuf,
    /// The service it is about, if that can be told.
    pub service: Option<Name>,
}

/// What a directory (or a list of files) says.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Loaded {
    /// Each good file with its service, in the order of the file names.
    pub services: Vec<(PathBuf, ServiceBuckets)>,
    /// What may not be meant.
    pub warnings: Vec<Diagnostic>,
    /// What is wrong, of all files together.
    pub errors: Vec<Diagnostic>,
    /// The files that have errors. The last good version of what they are about stays in force.
    pub failed: Vec<Failed>,
    /// Whether everything could be listed. If not, nothing may be taken for removed.
    pub complete: bool,
}

impl Loaded {
    /// Whether a service that came from `path` earlier is gone: it is in no file now, and no file
    /// that cannot be read may be about it.
    #[must_use]
    pub fn is_removed(&self, path: &Path, service: &Name) -> bool {
        self.complete
            && !self.services.iter().any(|(_, s)| s.service == *service)
            && !self.failed.iter().any(|f| f.service.as_ref() == Some(service) || f.path == path)
    }
}

/// Reads every `*.yaml` and `*.yml` file that stands directly in `dir` and is not hidden, for a
/// control plane under `law`.
///
/// Never fails as a whole: what cannot be read is in [`Loaded::errors`].
#[must_use]
pub fn load_dir(dir: &Path, law: Law) -> Loaded {
    let mut loaded = read_dir(dir, law);
    for _ in 1..MAX_READS {
        let (before, found) = loaded;
        if before == stamp(dir) {
            return found;
        }
        loaded = read_dir(dir, law);
    }
    loaded.1
}

/// Reads these files, whatever their names, for a control plane under `law`.
#[must_use]
pub fn load_files(files: &[PathBuf], law: Law) -> Loaded {
    let mut loaded = Loaded { complete: true, ..Loaded::default() };
    read_all(files, law, &mut loaded);
    loaded
}

/// What changes when a directory, or the data behind it, is swapped for another.
type Stamp = (Option<PathBuf>, Option<PathBuf>);

fn stamp(dir: &Path) -> Stamp {
    (fs::canonicalize(dir).ok(), fs::read_link(dir.join("..data")).ok())
}

fn read_dir(dir: &Path, law: Law) -> (Stamp, Loaded) {
    let before = stamp(dir);
    let mut loaded = Loaded { complete: true, ..Loaded::default() };
    match bucket_files(dir) {
        Ok(mut files) => {
            if files.len() > MAX_FILES {
                let (n, most) = (grouped(files.len() as u64), grouped(MAX_FILES as u64));
                let message = format!("{n} bucket files; only the first {most} are read");
                loaded.errors.push(whole(&dir.display().to_string(), message));
                loaded.complete = false;
                files.truncate(MAX_FILES);
            }
            read_all(&files, law, &mut loaded);
        }
        Err(e) => {
            let message = format!("the directory cannot be read: {e}");
            loaded.errors.push(whole(&dir.display().to_string(), message));
            loaded.complete = false;
        }
    }
    (before, loaded)
}

fn bucket_files(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if is_bucket_file(&path) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// By its name, and only a regular file once links are followed: a pipe would block for ever.
fn is_bucket_file(path: &Path) -> bool {
    let hidden = path.file_name().and_then(OsStr::to_str).is_none_or(|n| n.starts_with('.'));
    let yaml = matches!(path.extension().and_then(OsStr::to_str), Some("yaml" | "yml"));
    // A link to nothing is taken, so that it is reported and not passed over.
    !hidden && yaml && fs::metadata(path).map_or(true, |m| m.is_file())
}

fn read_all(files: &[PathBuf], law: Law, loaded: &mut Loaded) {
    let mut total = 0;
    for path in files {
        let label = path.display().to_string();
        let bytes = match read(path) {
            Ok(bytes) => bytes,
            Err(e) => {
                loaded.errors.push(whole(&label, format!("the file cannot be read: {e}")));
                loaded.failed.push(Failed { path: path.clone(), service: None });
                continue;
            }
        };
        total += bytes.len();
        if bytes.len() > MAX_FILE_BYTES || total > MAX_TOTAL_BYTES {
            let error = match bytes.len() > MAX_FILE_BYTES {
                true => too_large(&label),
                false => {
                    let mib = MAX_TOTAL_BYTES / (1024 * 1024);
                    whole(
                        &label,
                        format!(
                            "the bucket files together are larger than {mib} MiB, the most that is read"
                        ),
                    )
                }
            };
            loaded.errors.push(error);
            loaded.failed.push(Failed { path: path.clone(), service: None });
            continue;
        }
        let parsed = parse_bytes(&label, &bytes, law);
        loaded.warnings.extend(parsed.warnings);
        loaded.errors.extend(parsed.errors);
        match parsed.service {
            Some(service) => loaded.services.push((path.clone(), service)),
            None => loaded.failed.push(Failed { path: path.clone(), service: parsed.name }),
        }
    }
    refuse_twins(loaded);
}

/// A little more than the limit at most, so that a file that grows is noticed and not swallowed.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    if fs::metadata(path)?.is_dir() {
        return Err(io::Error::other("it is a directory"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_FILE_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A service in two files is in neither: which of them is meant is not for a program to guess. A
/// file with errors counts too.
fn refuse_twins(loaded: &mut Loaded) {
    let mut files: BTreeMap<Name, Vec<PathBuf>> = BTreeMap::new();
    let good = loaded.services.iter().map(|(path, s)| (s.service.clone(), path.clone()));
    let bad = loaded.failed.iter().filter_map(|f| Some((f.service.clone()?, f.path.clone())));
    for (service, path) in good.chain(bad) {
        files.entry(service).or_default().push(path);
    }
    files.retain(|_, paths| paths.len() > 1);
    for (service, paths) in &mut files {
        paths.sort();
        let names: Vec<String> = paths.iter().map(|p| format!("`{}`", p.display())).collect();
        let message = format!(
            "the service `{service}` stands in {} files, so none of them is applied: {}",
            paths.len(),
            names.join(", ")
        );
        let help = "keep its buckets together in one file".to_owned();
        let error = whole(&paths[0].display().to_string(), message).with_help(Some(help));
        loaded.errors.push(error);
        loaded.services.retain(|(_, s)| s.service != *service);
        for path in paths.iter() {
            if !loaded.failed.iter().any(|f| f.path == *path) {
                loaded.failed.push(Failed { path: path.clone(), service: Some(service.clone()) });
            }
        }
    }
}
