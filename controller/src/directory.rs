//! The directory of bucket files, watched: reads it when it changes, and looks every few seconds
//! whether a change went unnoticed (network file systems tell nothing).

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use sluicegate_files::buckets::{self, Loaded, MAX_FILES};
use sluicegate_files::{Diagnostic, Severity};
use sluicegate_model::Law;
use sluicegate_node::{ConfigurationProblem, Sample};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::store::{Change, Store};

/// After a change, so long without another one until the directory is read,
const SETTLE: Duration = Duration::from_millis(100);
/// but no longer than this in all.
const SETTLE_MOST: Duration = Duration::from_secs(1);

/// What stands of the directory: for status and metrics.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shown {
    pub(crate) errors: Vec<ConfigurationProblem>,
    pub(crate) warnings: Vec<ConfigurationProblem>,
    pub(crate) files_failed: usize,
    pub(crate) services: usize,
}

/// Readings, by what came of them.
#[derive(Debug, Default)]
pub(crate) struct Readings {
    changed: AtomicU64,
    unchanged: AtomicU64,
    failed: AtomicU64,
}

/// The directory and what is in force of it.
pub(crate) struct Directory {
    dir: PathBuf,
    /// Under which not every field can be enforced.
    law: Law,
    store: Store,
    stamp: Stamp,
    shown: watch::Sender<Arc<Shown>>,
    readings: Arc<Readings>,
    /// Whether a change was found. Before, an unreadable directory is no empty configuration.
    has_read: bool,
    /// Whether everything could be listed. If not, it is tried again.
    is_complete: bool,
    watch: Option<Watch>,
    /// One place: a signal says that something happened, not what.
    signals: mpsc::Receiver<()>,
}

/// What can be told of a directory without reading its files: where it is, and its entries.
type Stamp = (Option<PathBuf>, BTreeSet<EntryStamp>);

/// What can be told of a file without reading it. Another file has another number, even where the
/// clock of the file system is too coarse to tell them apart.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct EntryStamp {
    path: PathBuf,
    target: Option<PathBuf>,
    device: u64,
    number: u64,
    bytes: u64,
    modified_ns: (i64, i64),
    changed_ns: (i64, i64),
}

impl Directory {
    /// Watches `dir` from now on, so that nothing is missed between the first reading and the next.
    pub(crate) fn new(dir: PathBuf, law: Law) -> Self {
        let (signal, signals) = mpsc::channel(1);
        let mut watch = Watch::new(&dir, signal);
        if let Some(watch) = &mut watch {
            watch.follow();
        }
        Self {
            dir,
            law,
            watch,
            signals,
            store: Store::default(),
            stamp: Stamp::default(),
            shown: watch::Sender::new(Arc::default()),
            readings: Arc::default(),
            has_read: false,
            is_complete: false,
        }
    }

    pub(crate) fn shown(&self) -> watch::Receiver<Arc<Shown>> {
        self.shown.subscribe()
    }

    pub(crate) fn readings(&self) -> Arc<Readings> {
        Arc::clone(&self.readings)
    }

    /// Reads the directory. `None`: there is nothing that the core needs to be told.
    pub(crate) async fn read(&mut self) -> Option<Change> {
        let (dir, law) = (self.dir.clone(), self.law);
        // The stamp first: what changes while the files are read makes the next look differ.
        let read = move || (stamp(&dir), buckets::load_dir(&dir, law));
        let (stamp, mut loaded) = match tokio::task::spawn_blocking(read).await {
            Ok(read) => read,
            Err(e) => {
                error!(error = %e, "reading the bucket files failed");
                self.readings.failed.fetch_add(1, Relaxed);
                return None;
            }
        };
        self.stamp = stamp;
        self.is_complete = loaded.complete;
        let change = self.store.take(&mut loaded);
        self.show(&loaded);
        let first = !self.has_read && (loaded.complete || !change.is_empty());
        self.has_read |= first;
        let counter = match (loaded.errors.is_empty(), change.is_empty()) {
            (false, _) => &self.readings.failed,
            (true, false) => &self.readings.changed,
            (true, true) => &self.readings.unchanged,
        };
        counter.fetch_add(1, Relaxed);
        for service in &change.changed {
            info!(service = %service.service, buckets = service.buckets.len(), "service in force");
        }
        for service in &change.removed {
            info!(%service, "service removed: its file is gone");
        }
        (first || !change.is_empty()).then_some(change)
    }

    /// Publishes what is wrong; logs what was not wrong before.
    fn show(&self, loaded: &Loaded) {
        let before = Arc::clone(&self.shown.borrow());
        let made = Shown {
            errors: loaded.errors.iter().map(|d| problem(d, loaded)).collect(),
            warnings: loaded.warnings.iter().map(|d| problem(d, loaded)).collect(),
            files_failed: loaded.failed.len(),
            services: self.store.len(),
        };
        let diagnostics = loaded.errors.iter().chain(&loaded.warnings);
        let problems = made.errors.iter().chain(&made.warnings);
        for (diagnostic, problem) in diagnostics.zip(problems) {
            if before.errors.contains(problem) || before.warnings.contains(problem) {
                continue;
            }
            let ConfigurationProblem { path, line, column, message, .. } = problem;
            let service = problem.service.as_deref();
            match diagnostic.severity {
                Severity::Error if service.is_some_and(|name| self.store.has(name)) => error!(
                    %path, line, column, service, %message,
                    "bucket file refused; the last good version stays in force"
                ),
                // After a start there is no earlier version, or the file does not even say whose it is.
                Severity::Error => error!(
                    %path, line, column, service, %message,
                    "bucket file refused; nothing of it is in force"
                ),
                Severity::Warning => warn!(%path, line, column, %message, "in a bucket file"),
            }
        }
        if made.errors.is_empty() && !before.errors.is_empty() {
            info!("every bucket file is good again");
        }
        self.shown.send_replace(Arc::new(made));
    }

    /// Watches until `stop`; tells `changes`.
    pub(crate) async fn watch(
        mut self,
        rescan: Duration,
        changes: mpsc::Sender<Change>,
        stop: CancellationToken,
    ) {
        loop {
            if let Some(watch) = &mut self.watch {
                watch.follow();
            }
            tokio::select! {
                () = stop.cancelled() => return,
                Some(()) = self.signals.recv() => settle(&mut self.signals).await,
                () = tokio::time::sleep(rescan) => {
                    let dir = self.dir.clone();
                    let now = tokio::task::spawn_blocking(move || stamp(&dir)).await;
                    if self.is_complete && now.is_ok_and(|now| now == self.stamp) {
                        continue;
                    }
                }
            }
            if let Some(change) = self.read().await
                && changes.send(change).await.is_err()
            {
                return;
            }
        }
    }
}

/// Waits until nothing has happened for a moment.
async fn settle(signals: &mut mpsc::Receiver<()>) {
    let quiet = async {
        while let Ok(Some(())) = tokio::time::timeout(SETTLE, signals.recv()).await {
            // A signal comes at once while events go on; without a pause this would spin.
            tokio::time::sleep(SETTLE / 4).await;
        }
    };
    // It is read in any case; if events still go on, it will be read again.
    let _ = tokio::time::timeout(SETTLE_MOST, quiet).await;
}

/// The watches on the directory and on the one that holds it, in which it may be swapped.
struct Watch {
    watcher: RecommendedWatcher,
    /// The directory by a path that events name it by.
    dir: PathBuf,
    /// Where it was when it was last watched.
    followed: Option<PathBuf>,
}

impl Watch {
    fn new(dir: &Path, signal: mpsc::Sender<()>) -> Option<Self> {
        let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
        let watched = dir.clone();
        let made = notify::recommended_watcher(move |event: notify::Result<Event>| {
            if event.map_or(true, |e| matters(&e, &watched)) {
                // Full: the signal is on its way already.
                let _ = signal.try_send(());
            }
        });
        match made {
            Ok(watcher) => Some(Self { watcher, dir, followed: None }),
            Err(error) => {
                warn!(%error, "cannot watch the bucket files; looking every few seconds instead");
                None
            }
        }
    }

    /// Watches the directory that the path leads to now, if that is not being watched.
    fn follow(&mut self) {
        let now = fs::canonicalize(&self.dir).ok();
        if now.is_none() || now == self.followed {
            return;
        }
        for path in [Some(&*self.dir), self.dir.parent()].into_iter().flatten() {
            // Known or not: a path that leads elsewhere now must be watched anew.
            let _ = self.watcher.unwatch(path);
            if let Err(error) = self.watcher.watch(path, RecursiveMode::NonRecursive) {
                warn!(path = %path.display(), %error, "cannot watch; looking every few seconds");
            }
        }
        self.followed = now;
    }
}

/// Whether an event can mean that the files in `dir` are others now. Reading them is an event too,
/// and so is whatever happens to the neighbours of `dir`.
fn matters(event: &Event, dir: &Path) -> bool {
    let is_change = match event.kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => true,
        EventKind::Access(_) => false,
        _ => true,
    };
    is_change && (event.paths.is_empty() || event.paths.iter().any(|p| p.starts_with(dir)))
}

fn stamp(dir: &Path) -> Stamp {
    let of_entry = |entry: fs::DirEntry| {
        let path = entry.path();
        let target = fs::canonicalize(&path).ok();
        let meta = fs::metadata(&path).ok();
        let of = |read: fn(&fs::Metadata) -> u64| meta.as_ref().map_or(0, read);
        let at = |read: fn(&fs::Metadata) -> (i64, i64)| meta.as_ref().map_or((0, 0), read);
        EntryStamp {
            device: of(MetadataExt::dev),
            number: of(MetadataExt::ino),
            bytes: of(MetadataExt::size),
            modified_ns: at(|m| (m.mtime(), m.mtime_nsec())),
            changed_ns: at(|m| (m.ctime(), m.ctime_nsec())),
            path,
            target,
        }
    };
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    // Twice, because not every entry is a bucket file.
    (fs::canonicalize(dir).ok(), entries.take(2 * MAX_FILES).map(of_entry).collect())
}

fn problem(diagnostic: &Diagnostic, loaded: &Loaded) -> ConfigurationProblem {
    let is_of = |path: &Path| path.display().to_string() == diagnostic.path;
    let failed = loaded.failed.iter().find(|f| is_of(&f.path)).and_then(|f| f.service.as_ref());
    let good = || loaded.services.iter().find(|(p, _)| is_of(p)).map(|(_, s)| &s.service);
    let message = match diagnostic.field.as_str() {
        "" => diagnostic.message.clone(),
        field => format!("{field}: {}", diagnostic.message),
    };
    ConfigurationProblem {
        service: failed.or_else(good).map(ToString::to_string),
        path: diagnostic.path.clone(),
        line: diagnostic.line,
        column: diagnostic.column,
        message,
        help: diagnostic.help.clone(),
    }
}

/// What the directory adds to the metrics.
pub(crate) fn samples(shown: &Shown, readings: &Readings) -> Vec<Sample> {
    #[expect(clippy::cast_precision_loss, reason = "metrics are floats")]
    let gauge = |name, help, n: usize| Sample {
        name,
        help,
        is_counter: false,
        label: None,
        value: n as f64,
    };
    #[expect(clippy::cast_precision_loss, reason = "metrics are floats")]
    let reading = |result: &str, n: &AtomicU64| Sample {
        name: "configuration_readings",
        help: "Readings of the bucket files: changed, unchanged, or failed (with errors).",
        is_counter: true,
        label: Some(("result", result.to_owned())),
        value: n.load(Relaxed) as f64,
    };
    vec![
        gauge("configuration_errors", "Errors in the bucket files now.", shown.errors.len()),
        gauge("configuration_warnings", "Warnings in the bucket files now.", shown.warnings.len()),
        gauge(
            "configuration_files_failed",
            "Bucket files that are not in force as they stand.",
            shown.files_failed,
        ),
        gauge("configuration_services", "Services in force.", shown.services),
        reading("changed", &readings.changed),
        reading("unchanged", &readings.unchanged),
        reading("failed", &readings.failed),
    ]
}
