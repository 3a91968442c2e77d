//! Bucket files are reloaded while a controller runs, whatever way they are replaced, and a mistake
//! in one touches no other.

use std::net::Ipv4Addr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sluicegate_controller::{Running, Settings, StartError, start};
use sluicegate_law::{Limits, View};
use sluicegate_model::{Configuration, Down, Hello, Law, Name, Role, Up};
use sluicegate_proto::link::{Event, Link};

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

fn settings(dir: PathBuf) -> Settings {
    let mut made = Settings::new(name("c"), name("r"), (Ipv4Addr::LOCALHOST, 0).into(), dir);
    made.tick = Duration::from_millis(50);
    made.rescan = Duration::from_millis(300);
    made.limits = Limits::for_controller();
    made
}

/// One whose directory is looked at only when the operating system says that something happened.
async fn notified(dir: &Path) -> Running {
    let rescan = Duration::from_secs(3600);
    start(Settings { rescan, ..settings(dir.to_owned()) }).await.expect("started")
}

fn write(dir: &Path, service: &str, limit: &str) {
    let text = format!(
        "apiVersion: sluicegate/v1\nservice: {service}\nbuckets:\n  - name: all\n    scope: region\n    \
         limit: {limit}\n    mode: deny\n"
    );
    std::fs::write(dir.join(format!("{service}.yaml")), text).expect("written");
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("within 20 s")
}

async fn until(mut condition: impl FnMut() -> bool) {
    within(async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// An aggregator's stream, as far as configuration goes.
struct Child {
    link: Link,
    /// Limits by service, as the child has them.
    limits: std::collections::BTreeMap<String, String>,
    deltas: Vec<Vec<String>>,
}

impl Child {
    async fn connect(running: &Running) -> Self {
        let mut link = Link::start(vec![running.local_addr().into()], 1);
        let Event::Open(_) = within(link.next()).await else { panic!("open first") };
        assert!(link.send(Up::Hello(Hello {
            role: Role::Aggregator,
            node: name("a"),
            session: 1,
            zone: name("z"),
            region: name("r"),
            protocol: 1,
            services: vec![],
            seen_term: 0,
            seen_version: 0,
        })));
        Self { link, limits: std::collections::BTreeMap::new(), deltas: vec![] }
    }

    /// Takes configuration in until the limits are these.
    async fn expect(&mut self, limits: &[(&str, &str)]) {
        let wanted = limits.iter().map(|(s, l)| ((*s).to_owned(), (*l).to_owned())).collect();
        within(async {
            while self.limits != wanted {
                match self.link.next().await {
                    Event::Down(Down::Configuration(c)) => self.take(c),
                    Event::Down(Down::Update(_)) => {}
                    other => panic!("the stream stays open: {other:?}"),
                }
            }
        })
        .await;
    }

    fn take(&mut self, configuration: Configuration) {
        if configuration.full {
            self.limits.clear();
        }
        let mut touched = Vec::new();
        for service in &configuration.services {
            touched.push(service.service.to_string());
            let limit = service.buckets[0].limit.to_string();
            self.limits.insert(service.service.to_string(), limit);
        }
        for service in &configuration.removed {
            touched.push(service.to_string());
            self.limits.remove(service.as_str());
        }
        self.deltas.push(touched);
    }
}

fn version(running: &Running) -> u64 {
    let view: View = running.view().view.clone();
    view.version
}

#[tokio::test]
async fn files_come_change_and_go() {
    let dir = tempfile::tempdir().expect("a directory");
    write(dir.path(), "a", "1/s");
    write(dir.path(), "b", "1/s");
    let running = notified(dir.path()).await;
    let mut child = Child::connect(&running).await;
    child.expect(&[("a", "1/s"), ("b", "1/s")]).await;

    write(dir.path(), "b", "2/s");
    child.expect(&[("a", "1/s"), ("b", "2/s")]).await;
    write(dir.path(), "c", "3/s");
    child.expect(&[("a", "1/s"), ("b", "2/s"), ("c", "3/s")]).await;
    std::fs::remove_file(dir.path().join("a.yaml")).expect("removed");
    child.expect(&[("b", "2/s"), ("c", "3/s")]).await;
    let touched: Vec<_> = child.deltas[1..].concat();
    assert_eq!(touched, ["b", "c", "a"], "a change of one service is sent alone");
    assert!(running.status().configuration_errors.is_empty());
}

#[tokio::test]
async fn a_mistake_keeps_the_last_good_version_and_is_shown() {
    let dir = tempfile::tempdir().expect("a directory");
    write(dir.path(), "a", "1/s");
    write(dir.path(), "b", "1/s");
    let running = notified(dir.path()).await;
    let mut child = Child::connect(&running).await;
    child.expect(&[("a", "1/s"), ("b", "1/s")]).await;

    write(dir.path(), "a", "fast");
    write(dir.path(), "b", "2/s");
    child.expect(&[("a", "1/s"), ("b", "2/s")]).await;
    until(|| !running.status().configuration_errors.is_empty()).await;
    let error = running.status().configuration_errors[0].clone();
    assert_eq!(error.service.as_deref(), Some("a"));
    assert_eq!(Path::new(&error.path), dir.path().join("a.yaml"));
    assert_eq!((error.line, error.column), (6, 12), "{error:?}");
    assert!(error.message.contains("limit"), "{error:?}");
    let text = metrics(&running);
    for line in [
        "sluicegate_controller_configuration_errors{region=\"r\"} 1",
        "sluicegate_controller_configuration_files_failed{region=\"r\"} 1",
        "sluicegate_controller_configuration_services{region=\"r\"} 2",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }

    write(dir.path(), "a", "5/s");
    child.expect(&[("a", "5/s"), ("b", "2/s")]).await;
    until(|| running.status().configuration_errors.is_empty()).await;
}

#[tokio::test]
async fn what_needs_the_law_grant_is_refused_under_ratio_and_nothing_else_is() {
    for law in Law::ALL {
        let dir = tempfile::tempdir().expect("a directory");
        write(dir.path(), "a", "1_000/s");
        write(dir.path(), "b", "1_000/s");
        let rescan = Duration::from_secs(3600);
        let settings = Settings { law, rescan, ..settings(dir.path().to_owned()) };
        let running = start(settings).await.expect("started");
        let mut child = Child::connect(&running).await;
        child.expect(&[("a", "1000/s"), ("b", "1000/s")]).await;

        write(dir.path(), "a", "2_000/s\n    fair_by: user");
        write(dir.path(), "b", "2_000/s\n    enforce: 25%\n    max_drop: 0.2");
        if law == Law::Grant {
            child.expect(&[("a", "2000/s"), ("b", "2000/s")]).await;
            assert!(running.status().configuration_errors.is_empty());
            continue;
        }
        child.expect(&[("a", "1000/s"), ("b", "2000/s")]).await;
        until(|| !running.status().configuration_errors.is_empty()).await;
        let errors = running.status().configuration_errors;
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert_eq!((errors[0].service.as_deref(), errors[0].line), (Some("a"), 7));
        assert!(errors[0].message.contains("needs the law grant"), "{errors:?}");
    }
}

#[tokio::test]
async fn a_service_in_two_files_keeps_what_it_has() {
    let dir = tempfile::tempdir().expect("a directory");
    write(dir.path(), "a", "1/s");
    let running = notified(dir.path()).await;
    let before = version(&running);
    let twin = std::fs::read_to_string(dir.path().join("a.yaml")).expect("read");
    std::fs::write(dir.path().join("twin.yaml"), twin.replace("1/s", "9/s")).expect("written");
    until(|| !running.status().configuration_errors.is_empty()).await;
    assert!(running.status().configuration_errors[0].message.contains("2 files"));
    let mut child = Child::connect(&running).await;
    child.expect(&[("a", "1/s")]).await;
    assert_eq!(version(&running), before);
}

#[tokio::test]
async fn a_broken_file_at_the_start_keeps_nobody_else_out() {
    let dir = tempfile::tempdir().expect("a directory");
    write(dir.path(), "a", "fast");
    write(dir.path(), "b", "1/s");
    let running = notified(dir.path()).await;
    assert_eq!(running.status().configuration_errors.len(), 1);
    let mut child = Child::connect(&running).await;
    child.expect(&[("b", "1/s")]).await;
    assert!(running.view().is_ready);

    let missing = dir.path().join("none");
    let error = start(settings(missing)).await.expect_err("no such directory");
    assert!(matches!(error, StartError::NoDirectory { .. }), "{error}");
}

/// As Kubernetes mounts a ConfigMap: files are links into `..data`, itself a link that is replaced.
#[tokio::test]
async fn a_config_map_is_swapped() {
    let dir = tempfile::tempdir().expect("a directory");
    let generation = |n: u32| {
        let at = dir.path().join(format!("..generation_{n}"));
        std::fs::create_dir(&at).expect("created");
        write(&at, "a", &format!("{n}/s"));
        symlink(&at, dir.path().join("..data_tmp")).expect("linked");
        let data = dir.path().join("..data");
        std::fs::rename(dir.path().join("..data_tmp"), data).expect("swapped");
    };
    generation(1);
    symlink("..data/a.yaml", dir.path().join("a.yaml")).expect("linked");
    let running = notified(dir.path()).await;
    let mut child = Child::connect(&running).await;
    child.expect(&[("a", "1/s")]).await;
    for n in 2..=4 {
        generation(n);
        child.expect(&[("a", &format!("{n}/s"))]).await;
    }
}

/// The directory as a whole is a link that is replaced.
#[tokio::test]
async fn a_directory_is_swapped() {
    let dir = tempfile::tempdir().expect("a directory");
    let current = dir.path().join("current");
    let release = |n: u32| {
        let at = dir.path().join(format!("release-{n}"));
        std::fs::create_dir(&at).expect("created");
        write(&at, "a", &format!("{n}/s"));
        symlink(&at, dir.path().join("next")).expect("linked");
        std::fs::rename(dir.path().join("next"), &current).expect("swapped");
        at
    };
    release(1);
    let running = notified(&current).await;
    let mut child = Child::connect(&running).await;
    child.expect(&[("a", "1/s")]).await;
    let at = release(2);
    child.expect(&[("a", "2/s")]).await;
    // The new directory is the one that is watched now.
    tokio::time::sleep(Duration::from_millis(200)).await;
    write(&at, "a", "3/s");
    child.expect(&[("a", "3/s")]).await;
}

#[tokio::test]
async fn what_nobody_notifies_is_found_all_the_same() {
    let dir = tempfile::tempdir().expect("a directory");
    let (here, away) = (dir.path().join("here/buckets"), dir.path().join("away"));
    std::fs::create_dir_all(&here).expect("created");
    write(&here, "a", "1/s");
    let running = start(settings(here.clone())).await.expect("started");
    let mut child = Child::connect(&running).await;
    child.expect(&[("a", "1/s")]).await;
    // The directory above the one that is watched is replaced: no watch is on anything that changed.
    std::fs::create_dir_all(away.join("buckets")).expect("created");
    write(&away.join("buckets"), "a", "2/s");
    std::fs::rename(dir.path().join("here"), dir.path().join("old")).expect("moved");
    std::fs::rename(&away, dir.path().join("here")).expect("moved");
    child.expect(&[("a", "2/s")]).await;

    // While there is no directory, nothing is taken for removed.
    std::fs::rename(dir.path().join("here"), &away).expect("moved");
    until(|| !running.status().configuration_errors.is_empty()).await;
    let mut late = Child::connect(&running).await;
    late.expect(&[("a", "2/s")]).await;
    std::fs::rename(&away, dir.path().join("here")).expect("moved");
    until(|| running.status().configuration_errors.is_empty()).await;
}

fn metrics(running: &Running) -> String {
    let registry = prometheus::Registry::new();
    registry.register(Box::new(running.collector())).expect("registered");
    prometheus::TextEncoder::new().encode_to_string(&registry.gather()).expect("text")
}
