//! Directories of bucket files, plain and as Kubernetes mounts them.

use std::fs;
use std::path::{Path, PathBuf};

use sluicegate_files::buckets::{Loaded, load_dir, load_files};
use sluicegate_model::{Law, Name};

fn file(service: &str) -> String {
    format!(
        "apiVersion: sluicegate/v1\nservice: {service}\nbuckets:\n  - {{ name: b, scope: zone, limit: 5/s }}\n"
    )
}

fn write(dir: &Path, name: &str, text: &str) -> PathBuf {
    let path = dir.join(name);
    fs::write(&path, text).expect("a temporary directory can be written");
    path
}

fn services(loaded: &Loaded) -> Vec<&str> {
    loaded.services.iter().map(|(_, s)| s.service.as_str()).collect()
}

fn said(loaded: &Loaded) -> String {
    loaded.errors.iter().map(|e| format!("{e}\n")).collect()
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a good name")
}

#[test]
fn only_bucket_files_are_read_in_order() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for (name, service) in [("b.yaml", "b"), ("a.yml", "a"), (".hidden.yaml", "h"), ("c.txt", "c")]
    {
        write(dir.path(), name, &file(service));
    }
    write(dir.path(), "d.json", "{}");
    fs::create_dir(dir.path().join("sub.yaml")).expect("a directory");
    write(&dir.path().join("sub.yaml"), "e.yaml", &file("e"));
    let loaded = load_dir(dir.path(), Law::Grant);
    assert_eq!(services(&loaded), ["a", "b"]);
    assert_eq!(said(&loaded), "");
    assert!(loaded.complete);
}

#[test]
fn one_bad_file_blocks_no_other() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    write(dir.path(), "a.yaml", &file("a"));
    let bad = write(dir.path(), "b.yaml", &file("b").replace("5/s", "5"));
    let broken = write(dir.path(), "c.yaml", "service: c\nbuckets: [\n");
    let nameless = write(dir.path(), "d.yaml", "\"");
    let loaded = load_dir(dir.path(), Law::Grant);
    assert_eq!(services(&loaded), ["a"]);
    let failed: Vec<_> =
        loaded.failed.iter().map(|f| (f.path.clone(), f.service.clone())).collect();
    assert_eq!(
        failed,
        [(bad, Some(name("b"))), (broken, Some(name("c"))), (nameless.clone(), None)]
    );
    assert!(said(&loaded).contains("b.yaml:4:36: error: buckets[0].limit"), "{}", said(&loaded));

    assert!(loaded.is_removed(&dir.path().join("z.yaml"), &name("z")), "it is in no file");
    assert!(!loaded.is_removed(&dir.path().join("b.yaml"), &name("b")), "its file has errors");
    assert!(!loaded.is_removed(&nameless, &name("d")), "its file cannot be read");
    assert!(!loaded.is_removed(&dir.path().join("old.yaml"), &name("c")), "it moved, with errors");
    assert!(!loaded.is_removed(&dir.path().join("old.yaml"), &name("a")), "it moved");
}

#[test]
fn a_service_in_two_files_is_in_none() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let one = write(dir.path(), "1.yaml", &file("twin"));
    let two = write(dir.path(), "2.yaml", &file("twin"));
    write(dir.path(), "3.yaml", &file("other"));
    let loaded = load_dir(dir.path(), Law::Grant);
    assert_eq!(services(&loaded), ["other"]);
    assert_eq!(loaded.errors.len(), 1);
    let message = said(&loaded);
    for path in [&one, &two] {
        assert!(message.contains(&format!("`{}`", path.display())), "{message}");
        assert!(!loaded.is_removed(path, &name("twin")), "the last good version stays");
    }
    // A second file for the service is refused even if it is the one with errors.
    write(dir.path(), "2.yaml", &file("twin").replace("zone", "zoen"));
    let loaded = load_dir(dir.path(), Law::Grant);
    assert_eq!(services(&loaded), ["other"]);
    assert_eq!(loaded.errors.len(), 2, "{}", said(&loaded));
}

#[test]
fn a_directory_that_cannot_be_read_removes_nothing() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let loaded = load_dir(&dir.path().join("gone"), Law::Grant);
    assert!(!loaded.complete);
    assert!(said(&loaded).contains("the directory cannot be read"), "{}", said(&loaded));
    assert!(!loaded.is_removed(Path::new("a.yaml"), &name("a")));
}

#[test]
fn named_files_are_read_whatever_they_are_called() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let good = write(dir.path(), ".buckets", &file("a"));
    let gone = dir.path().join("gone.yaml");
    let loaded = load_files(&[good, gone.clone(), dir.path().to_owned()], Law::Grant);
    assert_eq!(services(&loaded), ["a"]);
    assert_eq!(loaded.failed.len(), 2);
    assert!(said(&loaded).contains(&format!("{}: error: the file cannot be read", gone.display())));
    assert!(said(&loaded).contains("it is a directory"));
}

#[test]
fn an_oversized_file_is_refused_unread() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("a.yaml");
    let file = fs::File::create(&path).expect("a file");
    file.set_len(1 << 40).expect("a sparse file");
    let loaded = load_dir(dir.path(), Law::Grant);
    assert!(said(&loaded).contains("larger than 4 MiB"), "{}", said(&loaded));
}

#[cfg(unix)]
mod links {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Kubernetes: `name.yaml -> ..data/name.yaml`, `..data -> ..version`; a new version is a new
    /// directory and one rename of the link.
    #[test]
    fn the_layout_of_a_mounted_config_map() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let root = dir.path();
        let version = |name: &str, services: &[&str]| {
            fs::create_dir(root.join(name)).expect("a directory");
            for service in services {
                write(&root.join(name), &format!("{service}.yaml"), &file(service));
            }
        };
        version("..2026_01", &["a", "b"]);
        symlink("..2026_01", root.join("..data")).expect("a link");
        for service in ["a", "b"] {
            let file = format!("{service}.yaml");
            symlink(format!("..data/{file}"), root.join(&file)).expect("a link");
        }
        let loaded = load_dir(root, Law::Grant);
        assert_eq!(services(&loaded), ["a", "b"]);
        assert_eq!(loaded.services[0].0, root.join("a.yaml"), "named as the owner sees it");
        assert!(loaded.errors.is_empty(), "{}", said(&loaded));

        version("..2026_02", &["a"]);
        symlink("..2026_02", root.join("..data_tmp")).expect("a link");
        fs::rename(root.join("..data_tmp"), root.join("..data")).expect("an atomic swap");
        fs::remove_file(root.join("b.yaml")).expect("the stale link is removed");
        let loaded = load_dir(root, Law::Grant);
        assert_eq!(services(&loaded), ["a"]);
        assert!(loaded.is_removed(&root.join("b.yaml"), &name("b")));
    }

    #[test]
    fn a_link_to_nothing_is_told_and_a_pipe_is_left_alone() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        symlink("nowhere", dir.path().join("a.yaml")).expect("a link");
        let made = std::process::Command::new("mkfifo").arg(dir.path().join("b.yaml")).status();
        assert!(made.expect("mkfifo runs").success());
        let loaded = load_dir(dir.path(), Law::Grant);
        assert_eq!(loaded.failed.len(), 1, "{}", said(&loaded));
        assert!(said(&loaded).contains("a.yaml: error: the file cannot be read"));
        assert!(!loaded.is_removed(&dir.path().join("a.yaml"), &name("a")));
    }
}
