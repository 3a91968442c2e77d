//! Trace files: requests by time bin, as `timestamp_s,caller,procedure,requests`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::scenario::Workload;

/// The largest trace file.
const MAX_FILE_BYTES: u64 = 1 << 30;
/// The most bins.
const MAX_BINS: f64 = 1e9;
/// The most pairs of caller and procedure that are told apart; the rest are one.
const MAX_KINDS: usize = 255;

/// Why a trace file could not be used.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// It cannot be read.
    #[error(
        "{path}: {source}; set SLUICEGATE_DATA to the folder of the traces, or give a full path"
    )]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is too large.
    #[error("{path}: is {bytes} bytes long, the most is {MAX_FILE_BYTES}")]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: u64,
    },
    /// A line is not what it should be.
    #[error("{path}:{line}: {message}; a line is timestamp_s,caller,procedure,requests")]
    Line {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// What is wrong.
        message: String,
    },
    /// Nobody says how wide its bins are.
    #[error(
        "{path}: the name does not end in the width of a bin, such as _100ms or _1s; give bin_ms"
    )]
    Bin {
        /// The file.
        path: PathBuf,
    },
}

/// Requests by time bin, every one of them, each of a kind: who calls what.
#[derive(Debug, Clone)]
pub(crate) struct TraceFile {
    bin_ns: u64,
    /// Callers and procedures: the most frequent first.
    pub(crate) kinds: Arc<[(String, String)]>,
    /// In the order of their bins.
    pub(crate) entries: Arc<[TraceEntry]>,
}

/// So many requests of a kind in a bin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TraceEntry {
    pub(crate) bin: u64,
    pub(crate) kind: u16,
    pub(crate) count: u64,
}

impl TraceFile {
    pub(super) fn load(workload: &Workload) -> Result<Self, TraceError> {
        let given = workload.file.clone().unwrap_or_default();
        let path = if given.is_absolute() || given.exists() {
            given
        } else {
            let folder = std::env::var_os("SLUICEGATE_DATA").unwrap_or("../shared/data".into());
            Path::new(&folder).join(given)
        };
        let read = |source| TraceError::Read { path: path.clone(), source };
        let bytes = std::fs::metadata(&path).map_err(read)?.len();
        if bytes > MAX_FILE_BYTES {
            return Err(TraceError::TooLong { path, bytes });
        }
        let Some(bin_ms) = workload.bin_ms.or_else(|| bin_of(&path)) else {
            return Err(TraceError::Bin { path });
        };
        let text = std::fs::read_to_string(&path).map_err(read)?;
        let lines = lines(&text, bin_ms / 1000.0).map_err(|(line, message)| TraceError::Line {
            path,
            line,
            message,
        })?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked")]
        let bin_ns = ((bin_ms * 1e6 / workload.time_divisor).round() as u64).max(1);
        Ok(Self::new(bin_ns, &lines))
    }

    fn new(bin_ns: u64, lines: &[Line<'_>]) -> Self {
        let mut counts: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        for line in lines {
            *counts.entry((line.caller, line.procedure)).or_default() += line.requests;
        }
        let mut kinds: Vec<((&str, &str), u64)> = counts.into_iter().collect();
        kinds.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        kinds.truncate(MAX_KINDS);
        let places: BTreeMap<(&str, &str), u16> = kinds.iter().map(|k| k.0).zip(0..).collect();
        let rest = u16::try_from(kinds.len()).unwrap_or(u16::MAX);
        let entry = |line: &Line<'_>| TraceEntry {
            bin: line.bin,
            kind: places.get(&(line.caller, line.procedure)).copied().unwrap_or(rest),
            count: line.requests,
        };
        let mut entries: Vec<TraceEntry> = lines.iter().map(entry).collect();
        entries.sort_unstable();
        let named = kinds.iter().map(|((caller, procedure), _)| (*caller, *procedure));
        let kinds = named.chain([("other", "other")]);
        Self {
            bin_ns,
            kinds: kinds.map(|(c, p)| (c.to_owned(), p.to_owned())).collect(),
            entries: entries.into(),
        }
    }

    #[cfg(test)]
    pub(super) fn of(bin_ns: u64, entries: &[TraceEntry]) -> Self {
        Self { bin_ns, kinds: Arc::default(), entries: entries.into() }
    }

    pub(crate) fn bin_ns(&self) -> u64 {
        self.bin_ns
    }

    /// The highest mean over a second of simulated time (or over a bin, if that is longer), where
    /// seconds begin with the trace.
    #[expect(clippy::cast_precision_loss, reason = "counts of a trace")]
    pub(super) fn peak_rps(&self) -> f64 {
        let bins = (1_000_000_000 / self.bin_ns).max(1);
        let mut most = 0_u64;
        for second in self.entries.chunk_by(|a, b| a.bin / bins == b.bin / bins) {
            most = most.max(second.iter().map(|e| e.count).sum());
        }
        most as f64 * 1e9 / (bins * self.bin_ns) as f64
    }
}

/// The width that a file's name ends in.
fn bin_of(path: &Path) -> Option<f64> {
    let stem = path.file_stem()?.to_str()?;
    let width = stem.rsplit('_').next()?;
    match width.strip_suffix("ms") {
        Some(ms) => ms.parse().ok(),
        None => width.strip_suffix('s')?.parse::<f64>().ok().map(|s| s * 1000.0),
    }
}

/// One line of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Line<'t> {
    bin: u64,
    caller: &'t str,
    procedure: &'t str,
    requests: u64,
}

fn lines(text: &str, bin_s: f64) -> Result<Vec<Line<'_>>, (usize, String)> {
    let is_head = |(i, line): &(usize, &str)| *i == 0 && line.starts_with("timestamp");
    let written = text.lines().enumerate().filter(|l| !l.1.trim().is_empty() && !is_head(l));
    written.map(|(i, text)| line(text, bin_s).map_err(|message| (i + 1, message))).collect()
}

fn line(text: &str, bin_s: f64) -> Result<Line<'_>, String> {
    let fields: Vec<&str> = text.split(',').map(str::trim).collect();
    let [timestamp, caller, procedure, requests] = fields[..] else {
        return Err(format!("has {} fields", fields.len()));
    };
    let at: f64 = timestamp.parse().map_err(|_| format!("{timestamp:?} is not a time"))?;
    let requests = requests.parse().map_err(|_| format!("{requests:?} is not a count"))?;
    // Times are written in decimals, and so may fall a little short of their bin.
    let bin = (at / bin_s + 1e-6).floor();
    if !(0.0..MAX_BINS).contains(&bin) {
        return Err(format!("{timestamp:?} is out of range"));
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in range")]
    let bin = bin as u64;
    Ok(Line { bin, caller, procedure, requests })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "timestamp_s,caller,procedure,requests\n0.3,a,p,1\n0.0,a,p,3\n0.0,b,p,9\n";

    #[test]
    fn every_request_has_its_bin_and_kind() {
        let file = TraceFile::new(50_000_000, &lines(TEXT, 0.1).expect("good"));
        let kinds: Vec<&str> = file.kinds.iter().map(|k| k.0.as_str()).collect();
        assert_eq!(kinds, ["b", "a", "other"]);
        let entries: Vec<_> = file.entries.iter().map(|e| (e.bin, e.kind, e.count)).collect();
        assert_eq!(entries, [(0, 0, 9), (0, 1, 3), (3, 1, 1)]);
        // All in the first second, at twice the speed.
        assert!((file.peak_rps() - 13.0).abs() < 1e-9);
    }

    #[test]
    fn rare_kinds_are_taken_together() {
        let names: Vec<String> = (0..1000).map(|i| format!("c{i}")).collect();
        let line = |caller| Line { bin: 0, caller, procedure: "p", requests: 1 };
        let all: Vec<Line<'_>> = names.iter().map(|n| line(n)).collect();
        let file = TraceFile::new(1, &all);
        assert_eq!(file.kinds.len(), MAX_KINDS + 1);
        assert_eq!(file.entries.iter().map(|e| e.count).sum::<u64>(), 1000);
    }

    #[test]
    fn a_bad_line_is_named() {
        for (text, line) in [("0.0,a,p\n", 1), ("0.0,a,p,1\nx,a,p,1\n", 2), ("0,a,p,-1\n", 1)] {
            assert_eq!(lines(text, 0.1).expect_err("bad").0, line, "{text}");
        }
        assert!(lines("-1,a,p,1\n", 0.1).is_err());
        assert!(lines("1e30,a,p,1\n", 0.1).is_err());
    }

    #[test]
    fn a_name_says_the_width_of_a_bin() {
        assert_eq!(bin_of(Path::new("x/sim_azure_llm_100ms.csv")), Some(100.0));
        assert_eq!(bin_of(Path::new("sim_wc98_19980630_60s.csv")), Some(60_000.0));
        assert_eq!(bin_of(Path::new("other.csv")), None);
    }
}
