//! Recorded traffic: a CSV of counts in equal bins, read whole and checked, then replayed. Knows no
//! clock and no target.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::hash::{mix, unit};
use super::schedule::Arrival;

/// The most bytes a trace file may have.
pub(crate) const MAX_TRACE_BYTES: u64 = 1 << 30;
/// The most rows a trace may have.
pub(crate) const MAX_ROWS: usize = 10_000_000;
/// The most callers, and the most procedures, of a load.
pub(crate) const MAX_NAMES: usize = 100_000;
/// The most requests of one row, scaled.
pub(crate) const MAX_ROW_REQUESTS: u64 = 10_000_000;

const HEADER: &str = "timestamp_s,caller,procedure,requests";

/// A trace, checked.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Trace {
    /// How long each bin is.
    pub(crate) bin: Duration,
    /// The callers, in order of appearance.
    pub(crate) callers: Vec<String>,
    /// The procedures, in order of appearance.
    pub(crate) procedures: Vec<String>,
    rows: Vec<Row>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Row {
    starts: Duration,
    caller: u32,
    procedure: u32,
    requests: u64,
}

/// What is wrong with a trace, and where.
#[derive(Debug, thiserror::Error)]
#[error("{}{}: {problem}", path.display(), line.map(|l| format!(":{l}")).unwrap_or_default())]
pub(crate) struct BadTrace {
    path: PathBuf,
    line: Option<usize>,
    problem: String,
}

impl Trace {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// Says which line breaks the format, and what was expected there.
    pub(crate) fn read(path: &Path, scale: u64) -> Result<Self, BadTrace> {
        let fail = |problem: String| BadTrace { path: path.to_owned(), line: None, problem };
        let bin = bin_of(path).ok_or_else(|| {
            fail(
                "the name does not tell the length of a bin: expected a name that ends in \
                 _100ms.csv, _1s.csv, _60s.csv or the like"
                    .to_owned(),
            )
        })?;
        let bytes =
            std::fs::metadata(path).map_err(|e| fail(format!("cannot be read: {e}")))?.len();
        if bytes > MAX_TRACE_BYTES {
            return Err(fail(format!("is {bytes} bytes long, the most is {MAX_TRACE_BYTES}")));
        }
        let text =
            std::fs::read_to_string(path).map_err(|e| fail(format!("cannot be read: {e}")))?;
        Self::parse(path, &text, bin, scale)
    }

    fn parse(path: &Path, text: &str, bin: Duration, scale: u64) -> Result<Self, BadTrace> {
        let fail = |line: Option<usize>, problem: String| BadTrace {
            path: path.to_owned(),
            line,
            problem,
        };
        let mut lines = text.lines().enumerate();
        let first = lines.next().map_or("", |(_, l)| l);
        if first.trim() != HEADER {
            return Err(fail(Some(1), format!("found \"{first}\", expected \"{HEADER}\"")));
        }
        let mut names = Names::default();
        let mut rows: Vec<Row> = Vec::new();
        for (at, line) in lines {
            if line.trim().is_empty() {
                continue;
            }
            let row =
                row(line, scale, &mut names).map_err(|problem| fail(Some(at + 1), problem))?;
            if rows.last().is_some_and(|last| last.starts > row.starts) {
                let told = format!(
                    "found timestamp_s {} after a later one, expected rows in order of time",
                    row.starts.as_secs_f64()
                );
                return Err(fail(Some(at + 1), told));
            }
            if rows.len() == MAX_ROWS {
                return Err(fail(Some(at + 1), format!("more rows than the most, {MAX_ROWS}")));
            }
            rows.push(row);
        }
        if rows.is_empty() {
            return Err(fail(None, "has no rows, expected at least one".to_owned()));
        }
        Ok(Self { bin, callers: names.callers.list, procedures: names.procedures.list, rows })
    }

    /// From the start of the first bin to the end of the last one.
    pub(crate) fn length(&self) -> Duration {
        let (Some(first), Some(last)) = (self.rows.first(), self.rows.last()) else {
            return Duration::ZERO;
        };
        last.starts - first.starts + self.bin
    }

    /// Requests of each caller over the whole trace.
    #[cfg(test)]
    pub(crate) fn requests(&self) -> u64 {
        self.rows.iter().map(|r| r.requests).sum()
    }

    /// Its requests, each at its time.
    pub(crate) fn replay(self, seed: u64) -> Replay {
        Replay { trace: self, seed, next_row: 0, bin: VecDeque::new(), number: 0 }
    }
}

/// The length of a bin, from the last part of a file's name.
fn bin_of(path: &Path) -> Option<Duration> {
    let last = path.file_stem()?.to_str()?.rsplit('_').next()?;
    super::schedule::span(last).ok()
}

#[derive(Debug, Default)]
struct Names {
    callers: Interned,
    procedures: Interned,
}

#[derive(Debug, Default)]
struct Interned {
    places: HashMap<String, u32>,
    list: Vec<String>,
}

impl Interned {
    fn place(&mut self, name: &str, what: &str) -> Result<u32, String> {
        if let Some(place) = self.places.get(name) {
            return Ok(*place);
        }
        if self.list.len() == MAX_NAMES {
            return Err(format!("more different values of {what} than the most, {MAX_NAMES}"));
        }
        #[expect(clippy::cast_possible_truncation, reason = "bounded by MAX_NAMES")]
        let place = self.list.len() as u32;
        self.places.insert(name.to_owned(), place);
        self.list.push(name.to_owned());
        Ok(place)
    }
}

fn row(line: &str, scale: u64, names: &mut Names) -> Result<Row, String> {
    let fields: Vec<&str> = line.trim_end_matches('\r').split(',').collect();
    let [time, caller, procedure, requests] = fields[..] else {
        return Err(format!(
            "found {} fields in \"{line}\", expected 4: {HEADER} (without quotes or commas in them)",
            fields.len()
        ));
    };
    let starts = time.parse().ok().and_then(|s| Duration::try_from_secs_f64(s).ok());
    let starts = starts.filter(|s| *s <= super::schedule::MAX_LENGTH).ok_or_else(|| {
        format!(
            "found timestamp_s \"{time}\", expected seconds since the trace's start, 0 to 31 days"
        )
    })?;
    let bad = || format!("found requests \"{requests}\", expected a whole number, 0 or more");
    let requests: u64 = requests.parse().map_err(|_| bad())?;
    let scaled =
        requests.checked_mul(scale).filter(|n| *n <= MAX_ROW_REQUESTS).ok_or_else(|| {
            format!(
                "found {requests} requests times {scale}, the most is {MAX_ROW_REQUESTS} in a row"
            )
        })?;
    Ok(Row {
        starts,
        caller: names.callers.place(caller, "caller")?,
        procedure: names.procedures.place(procedure, "procedure")?,
        requests: scaled,
    })
}

/// A trace on its way. The first bin starts at zero; within a bin, each row's requests are spread
/// evenly, from a place of the row's own so that the rows do not march in step.
#[derive(Debug)]
pub(crate) struct Replay {
    trace: Trace,
    seed: u64,
    next_row: usize,
    bin: VecDeque<Arrival>,
    number: u64,
}

impl Replay {
    fn fill(&mut self) -> bool {
        let Some(first) = self.trace.rows.get(self.next_row) else { return false };
        let origin = self.trace.rows.first().map_or(Duration::ZERO, |r| r.starts);
        let starts = first.starts;
        let mut bin = Vec::new();
        while let Some(row) = self.trace.rows.get(self.next_row).filter(|r| r.starts == starts) {
            let shift = unit(mix(self.seed, self.next_row as u64));
            for k in 0..row.requests {
                #[expect(clippy::cast_precision_loss, reason = "bounded by MAX_ROW_REQUESTS")]
                let place = (k as f64 + shift) / row.requests as f64;
                bin.push(Arrival {
                    due: starts - origin + self.trace.bin.mul_f64(place),
                    number: 0,
                    caller: row.caller,
                    procedure: row.procedure,
                });
            }
            self.next_row += 1;
        }
        bin.sort_by_key(|a| a.due);
        for arrival in &mut bin {
            arrival.number = self.number;
            self.number += 1;
        }
        self.bin = bin.into();
        true
    }
}

impl Iterator for Replay {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        while self.bin.is_empty() {
            if !self.fill() {
                return None;
            }
        }
        self.bin.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str =
        "timestamp_s,caller,procedure,requests\n0.2,web,get,3\n0.2,app,get,1\n0.4,web,put,2\n";

    fn parse(text: &str, scale: u64) -> Result<Trace, BadTrace> {
        Trace::parse(Path::new("t_100ms.csv"), text, Duration::from_millis(100), scale)
    }

    #[test]
    fn every_request_is_replayed_inside_its_bin() {
        let trace = parse(GOOD, 20).expect("good");
        assert_eq!(trace.callers, ["web", "app"]);
        assert_eq!(trace.length(), Duration::from_millis(300));
        assert_eq!(trace.requests(), 120);
        let all: Vec<_> = trace.replay(5).collect();
        assert_eq!(all.len(), 120);
        assert!(all.windows(2).all(|w| w[0].due <= w[1].due && w[0].number + 1 == w[1].number));
        let late: Vec<_> = all.iter().filter(|a| a.procedure == 1).collect();
        assert_eq!(late.len(), 40);
        let (from, to) = (Duration::from_millis(200), Duration::from_millis(300));
        assert!(late.iter().all(|a| a.due >= from && a.due < to), "{late:?}");
    }

    #[test]
    fn one_seed_gives_one_replay() {
        let of = |seed| parse(GOOD, 7).expect("good").replay(seed).collect::<Vec<_>>();
        assert_eq!(of(3), of(3));
        assert_ne!(of(3), of(4));
    }

    #[test]
    fn a_bad_row_is_told_with_its_line() {
        let head = HEADER;
        for (text, told) in [
            (String::new(), "t_100ms.csv:1: found \"\", expected \"timestamp_s"),
            ("time,caller\n".to_owned(), "t_100ms.csv:1: found \"time,caller\""),
            (format!("{head}\n"), "t_100ms.csv: has no rows"),
            (format!("{head}\n1,a,b,1\n2,a,b\n"), "t_100ms.csv:3: found 3 fields"),
            (format!("{head}\n1,\"a,c\",b,1\n"), "t_100ms.csv:2: found 5 fields"),
            (format!("{head}\nx,a,b,1\n"), "t_100ms.csv:2: found timestamp_s \"x\""),
            (format!("{head}\n-1,a,b,1\n"), "t_100ms.csv:2: found timestamp_s \"-1\""),
            (format!("{head}\n1,a,b,1.5\n"), "t_100ms.csv:2: found requests \"1.5\""),
            (format!("{head}\n1,a,b,-1\n"), "t_100ms.csv:2: found requests \"-1\""),
            (format!("{head}\n2,a,b,1\n\n1,a,b,1\n"), "t_100ms.csv:4: found timestamp_s 1 after"),
            (format!("{head}\n1,a,b,99999999\n"), "t_100ms.csv:2: found 99999999 requests times 2"),
        ] {
            let error = parse(&text, 2).expect_err(&text).to_string();
            assert!(error.starts_with(told), "{text:?}: {error}");
        }
    }

    #[test]
    fn the_bin_stands_in_the_name() {
        assert_eq!(bin_of(Path::new("d/sim_x_100ms.csv")), Some(Duration::from_millis(100)));
        assert_eq!(bin_of(Path::new("sim_60s.csv")), Some(Duration::from_secs(60)));
        assert_eq!(bin_of(Path::new("hist_5min.csv")), None);
        let error = Trace::read(Path::new("hist_5min.csv"), 1).expect_err("no bin").to_string();
        assert!(error.contains("length of a bin"), "{error}");
        let error = Trace::read(Path::new("/no/such_1s.csv"), 1).expect_err("missing").to_string();
        assert!(error.contains("cannot be read"), "{error}");
    }
}
