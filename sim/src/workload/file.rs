//! Trace files: requests by time bin, as `timestamp_s,caller,procedure,requests`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::scenario::Workload;

/// The largest trace file.
const MAX_FILE_BYTES: u64 = 1 << 30;
/// The most bins.
const MAX_BINS: usize = 100_000_000;

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

/// Requests a second by time bin. The bins and their widths are of simulated time: the trace's
/// divided by the time divisor, with the same rates.
#[derive(Debug, Clone)]
pub(crate) struct TraceFile {
    bin_ns: u64,
    rps: Arc<[f64]>,
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
        let counts = counts(&text, bin_ms / 1000.0)
            .map_err(|(line, message)| TraceError::Line { path, line, message })?;
        #[expect(clippy::cast_precision_loss, reason = "counts of a trace")]
        let rps = counts.into_iter().map(|c| c as f64 / (bin_ms / 1000.0)).collect();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked")]
        let bin_ns = ((bin_ms * 1e6 / workload.time_divisor).round() as u64).max(1);
        Ok(Self { bin_ns, rps })
    }

    pub(super) fn bin_ns(&self) -> u64 {
        self.bin_ns
    }

    pub(super) fn peak_rps(&self) -> f64 {
        self.rps.iter().copied().fold(0.0, f64::max)
    }

    /// The rate of a bin; 0 after the end.
    pub(super) fn rps(&self, bin: u64) -> f64 {
        usize::try_from(bin).ok().and_then(|bin| self.rps.get(bin)).copied().unwrap_or(0.0)
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

/// All callers and procedures together, by bin.
fn counts(text: &str, bin_s: f64) -> Result<Vec<u64>, (usize, String)> {
    let mut counts: Vec<u64> = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let line_number = i + 1;
        if line.trim().is_empty() || (i == 0 && line.starts_with("timestamp")) {
            continue;
        }
        let fields: Vec<&str> = line.split(',').collect();
        let [timestamp, .., requests] = &fields[..] else {
            return Err((line_number, format!("has {} fields", fields.len())));
        };
        if fields.len() != 4 {
            return Err((line_number, format!("has {} fields", fields.len())));
        }
        let at: f64 = timestamp
            .trim()
            .parse()
            .map_err(|_| (line_number, format!("{timestamp:?} is not a time")))?;
        let requests: u64 = requests
            .trim()
            .parse()
            .map_err(|_| (line_number, format!("{requests:?} is not a count")))?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "compared next"
        )]
        let bin = (at / bin_s + 0.5).max(0.0) as usize;
        if at < 0.0 || at.is_nan() || bin >= MAX_BINS {
            return Err((line_number, format!("{timestamp:?} is out of range")));
        }
        if bin >= counts.len() {
            counts.resize(bin + 1, 0);
        }
        counts[bin] += requests;
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_one_bin_add_up_and_empty_bins_are_zero() {
        let text = "timestamp_s,caller,procedure,requests\n0.0,a,p,3\n0.0,b,p,4\n0.3,a,p,1\n";
        assert_eq!(counts(text, 0.1), Ok(vec![7, 0, 0, 1]));
    }

    #[test]
    fn a_bad_line_is_named() {
        for (text, line) in [("0.0,a,p\n", 1), ("0.0,a,p,1\nx,a,p,1\n", 2), ("0,a,p,-1\n", 1)] {
            assert_eq!(counts(text, 0.1).expect_err("bad").0, line, "{text}");
        }
        assert!(counts("-1,a,p,1\n", 0.1).is_err());
        assert!(counts("1e30,a,p,1\n", 0.1).is_err());
    }

    #[test]
    fn a_name_says_the_width_of_a_bin() {
        assert_eq!(bin_of(Path::new("x/sim_azure_llm_100ms.csv")), Some(100.0));
        assert_eq!(bin_of(Path::new("sim_wc98_19980630_60s.csv")), Some(60_000.0));
        assert_eq!(bin_of(Path::new("other.csv")), None);
    }
}
