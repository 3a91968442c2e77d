//! Which services are in force, and what a reading of the directory changes. Decides; touches
//! neither disk nor core.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use sluicegate_files::buckets::{Failed, Loaded};
use sluicegate_files::{Diagnostic, Severity};
use sluicegate_model::{Name, ServiceBuckets};
use sluicegate_proto::wire;

/// What a reading changes.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Change {
    /// Services new or changed.
    pub(crate) changed: Vec<Arc<ServiceBuckets>>,
    /// Services gone.
    pub(crate) removed: Vec<Name>,
}

impl Change {
    pub(crate) fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.removed.is_empty()
    }
}

/// What is in force, and from which file.
#[derive(Debug, Default)]
pub(crate) struct Store {
    services: BTreeMap<Name, (PathBuf, Arc<ServiceBuckets>)>,
}

impl Store {
    /// Takes a reading in: good files are put in force; a service whose file is broken keeps its
    /// last good version; a service whose file is gone goes. Services that no child could take in
    /// become errors of `loaded`.
    pub(crate) fn take(&mut self, loaded: &mut Loaded) -> Change {
        refuse_oversize(loaded);
        let mut change = Change::default();
        for (path, service) in &loaded.services {
            match self.services.get_mut(&service.service) {
                Some((known_path, known)) => {
                    known_path.clone_from(path);
                    if **known == *service {
                        continue;
                    }
                    *known = Arc::new(service.clone());
                    change.changed.push(Arc::clone(known));
                }
                None => {
                    let made = Arc::new(service.clone());
                    let name = service.service.clone();
                    self.services.insert(name, (path.clone(), Arc::clone(&made)));
                    change.changed.push(made);
                }
            }
        }
        self.services.retain(|name, (path, _)| {
            let gone = loaded.is_removed(path, name);
            if gone {
                change.removed.push(name.clone());
            }
            !gone
        });
        change
    }

    /// Whether some version of a service is in force.
    pub(crate) fn has(&self, service: &str) -> bool {
        self.services.contains_key(service)
    }

    /// Services in force.
    pub(crate) fn len(&self) -> usize {
        self.services.len()
    }
}

/// A service that is fine as a file but does not fit into a message is an error of its file.
fn refuse_oversize(loaded: &mut Loaded) {
    let services = std::mem::take(&mut loaded.services);
    for (path, service) in services {
        match wire::check_service(&service) {
            Ok(()) => loaded.services.push((path, service)),
            Err(e) => {
                let message =
                    format!("the service `{}` cannot be sent to clients: {e}", service.service);
                let label = path.display().to_string();
                loaded.errors.push(Diagnostic::whole(Severity::Error, &label, message));
                loaded.failed.push(Failed { path, service: Some(service.service) });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use sluicegate_files::buckets;

    use super::*;
    use sluicegate_model::Law;

    /// A reading of these files.
    fn reading(files: &[(&str, &str)]) -> Loaded {
        let dir = tempfile::tempdir().expect("a directory");
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).expect("written");
        }
        let mut loaded = buckets::load_dir(dir.path(), Law::Grant);
        // As if the directory were always the same one.
        let rebase = |path: &mut PathBuf| {
            *path = PathBuf::from("/d").join(path.file_name().expect("a file"));
        };
        loaded.services.iter_mut().for_each(|(path, _)| rebase(path));
        loaded.failed.iter_mut().for_each(|f| rebase(&mut f.path));
        loaded
    }

    fn service(name: &str, limit: u32) -> String {
        format!(
            "apiVersion: sluicegate/v1\nservice: {name}\nbuckets:\n  - name: all\n    scope: \
             region\n    limit: {limit}/s\n    mode: deny\n"
        )
    }

    fn names(change: &Change) -> (Vec<&str>, Vec<&str>) {
        let changed = change.changed.iter().map(|s| s.service.as_str()).collect();
        (changed, change.removed.iter().map(Name::as_str).collect())
    }

    #[test]
    fn only_what_differs_is_a_change() {
        let mut store = Store::default();
        let (a, b) = (service("a", 1), service("b", 1));
        let change = store.take(&mut reading(&[("a.yaml", &a), ("b.yaml", &b)]));
        assert_eq!(names(&change), (vec!["a", "b"], vec![]));
        let b2 = service("b", 2);
        let change = store.take(&mut reading(&[("a.yaml", &a), ("b.yaml", &b2)]));
        assert_eq!(names(&change), (vec!["b"], vec![]));
        assert!(store.take(&mut reading(&[("a.yaml", &a), ("b.yaml", &b2)])).is_empty());
        let change = store.take(&mut reading(&[("renamed.yaml", &a)]));
        assert_eq!(names(&change), (vec![], vec!["b"]), "a file may be renamed");
        assert_eq!(store.len(), 1);
    }

    #[test]
    fn a_broken_file_keeps_its_service_and_no_other() {
        let mut store = Store::default();
        let (a, b) = (service("a", 1), service("b", 1));
        store.take(&mut reading(&[("a.yaml", &a), ("b.yaml", &b)]));
        let b2 = service("b", 2);
        for broken in [a.replace("1/s", "-1/s"), "{".to_owned()] {
            let mut store = Store { services: store.services.clone() };
            let mut loaded = reading(&[("a.yaml", &broken), ("b.yaml", &b2)]);
            let change = store.take(&mut loaded);
            assert_eq!(names(&change), (vec!["b"], vec![]), "{broken}");
            assert!(!loaded.errors.is_empty());
            assert_eq!(store.len(), 2);
        }
    }

    #[test]
    fn a_service_in_two_files_keeps_what_it_has() {
        let mut store = Store::default();
        let a = service("a", 1);
        store.take(&mut reading(&[("a.yaml", &a)]));
        let a2 = service("a", 2);
        let mut loaded = reading(&[("a.yaml", &a), ("twin.yaml", &a2)]);
        assert!(store.take(&mut loaded).is_empty());
        assert_eq!(loaded.errors.len(), 1);
        assert_eq!(store.len(), 1);
    }

    #[test]
    fn a_listing_that_failed_removes_nothing() {
        let mut store = Store::default();
        store.take(&mut reading(&[("a.yaml", &service("a", 1))]));
        let mut nothing = Loaded { complete: false, ..Loaded::default() };
        assert!(store.take(&mut nothing).is_empty());
        assert_eq!(store.len(), 1);
    }
}
