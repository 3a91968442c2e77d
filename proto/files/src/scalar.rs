//! The texts of numbers, durations and limits. Knows nothing of where they stand.

use std::time::Duration;

use sluicegate_model::{Limit, TokenRate};

use crate::diagnostic::{Problem, quoted};
use crate::suggest::nearest;

/// What a limit may look like, for messages.
pub(crate) const LIMIT_SHAPES: &str =
    "expected `N/s`, `N/m`, `N/h`, `{requests: N, window: 10s}` or `unlimited`";

/// A whole number: digits, with `_` between digits where it helps to read them.
pub(crate) fn count(text: &str) -> Result<u64, Problem> {
    let digits = text.replace('_', "");
    let shaped = !text.starts_with('_') && !text.ends_with('_') && !text.contains("__");
    if !shaped || digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(not_a_count(text));
    }
    digits.parse().map_err(|_| Problem::new(format!("{} is too large", quoted(text))))
}

fn not_a_count(text: &str) -> Problem {
    let problem = Problem::new(format!(
        "{} is not a whole number; expected digits, such as 500 or 22_000",
        quoted(text)
    ));
    match spelled_out(text) {
        Some(number) => problem.help(format!("write {number}")),
        None => problem,
    }
}

/// `22k`, `1.5M` or `22,000` as it would have to be written.
fn spelled_out(text: &str) -> Option<String> {
    if text.contains(',') {
        let digits = text.replace(',', "");
        return digits.bytes().all(|b| b.is_ascii_digit()).then(|| text.replace(',', "_"));
    }
    let (number, zeros) = match text.chars().last()? {
        'k' | 'K' => (&text[..text.len() - 1], "_000"),
        'm' | 'M' => (&text[..text.len() - 1], "_000_000"),
        _ => return None,
    };
    let fits =
        !number.is_empty() && number.len() <= 3 && number.bytes().all(|b| b.is_ascii_digit());
    fits.then(|| format!("{number}{zeros}"))
}

/// A share: a number above 0 up to 1, or the same as a percentage.
pub(crate) fn share(text: &str) -> Result<f64, Problem> {
    let number = text.strip_suffix('%').unwrap_or(text);
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |t: &str| !t.is_empty() && t.len() <= 20 && t.bytes().all(|b| b.is_ascii_digit());
    let read = (digits(whole) && digits(part)).then(|| number.parse::<f64>().ok()).flatten();
    let unit = if number.len() < text.len() { 100.0 } else { 1.0 };
    let problem = || {
        Problem::new(format!(
            "{} is not a share; expected a number above 0 up to 1, such as 0.25, or a percentage such as 25%",
            quoted(text)
        ))
    };
    match read {
        Some(n) if n > 0.0 && n <= unit => Ok(n / unit),
        Some(0.0) => Err(problem().help("to drop nothing, write mode: shadow")),
        Some(n) if n <= 100.0 => {
            Err(problem().help(format!("if that is a percentage, write {text}%")))
        }
        Some(_) | None => Err(problem()),
    }
}

/// A duration: a whole number and one of `ms`, `s`, `m`, `h`, `d`.
pub(crate) fn duration(text: &str) -> Result<Duration, Problem> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let shape = || {
        Problem::new(format!(
            "{} is not a duration; expected a whole number and a unit: 500ms, 10s, 5m, 2h or 1d",
            quoted(text)
        ))
    };
    if unit.is_empty() && !number.is_empty() {
        return Err(shape().help(format!("write {number}s for seconds")));
    }
    let number = count(number).map_err(|_| shape())?;
    let unit_ms: u64 = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(shape()),
    };
    let ms = number.checked_mul(unit_ms).ok_or_else(shape)?;
    Ok(Duration::from_millis(ms))
}

/// A limit before its burst is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rate {
    Unlimited,
    PerSecond(u64),
    PerWindow(u64, Duration),
}

impl Rate {
    /// The limit with this depth, or with the default one.
    pub(crate) fn with_burst(self, burst: Option<u64>) -> Result<Limit, Problem> {
        let tokens = match self {
            Self::Unlimited => return Ok(Limit::Unlimited),
            Self::PerSecond(requests) => TokenRate::per_second(requests, burst),
            Self::PerWindow(requests, window) => TokenRate::per_window(requests, window, burst),
        };
        tokens.map(Limit::Tokens).map_err(|e| Problem::new(format!("out of range: {e}")))
    }
}

/// `N/s`, `N/m`, `N/h` or `unlimited`.
pub(crate) fn rate(text: &str) -> Result<Rate, Problem> {
    if text == "unlimited" {
        return Ok(Rate::Unlimited);
    }
    let Some((number, unit)) = text.split_once('/') else {
        return Err(not_a_rate(text));
    };
    if number.trim() != number || unit.trim() != unit {
        return Err(Problem::new(format!("{} is not a limit; {LIMIT_SHAPES}", quoted(text)))
            .help(format!("write it without blanks: {}/{}", number.trim(), unit.trim())));
    }
    let requests = count(number).map_err(|p| limit_number(text, number, unit, &p))?;
    match unit {
        "s" => Ok(Rate::PerSecond(requests)),
        "m" => Ok(Rate::PerWindow(requests, Duration::from_secs(60))),
        "h" => Ok(Rate::PerWindow(requests, Duration::from_secs(3600))),
        _ => Err(wrong_unit(text, number, unit)),
    }
}

fn not_a_rate(text: &str) -> Problem {
    let problem = Problem::new(format!("{} is not a limit; {LIMIT_SHAPES}", quoted(text)));
    if count(text).is_ok() {
        return problem
            .help(format!("a limit needs a unit of time: {text}/s is {text} requests a second"));
    }
    match nearest(text, ["unlimited"]) {
        Some(word) => problem.help(format!("did you mean `{word}`?")),
        None => problem,
    }
}

fn limit_number(text: &str, number: &str, unit: &str, why: &Problem) -> Problem {
    let problem = Problem::new(format!("{} is not a limit: {}", quoted(text), why.message));
    if number.contains('.') && number.parse::<f64>().is_ok_and(|n| n > 0.0) {
        return problem.help("for a part of a request use a longer time: 1.5/s is 90/m, or {requests: 3, window: 2s}");
    }
    match &why.help {
        Some(help) => problem.help(format!("{help}/{unit}")),
        None => problem,
    }
}

fn wrong_unit(text: &str, number: &str, unit: &str) -> Problem {
    let problem = Problem::new(format!(
        "{} is not a limit: {} is not a unit of time here; {LIMIT_SHAPES}",
        quoted(text),
        quoted(unit)
    ));
    match unit.to_ascii_lowercase().as_str() {
        "sec" | "second" | "seconds" => problem.help(format!("write {number}/s")),
        "min" | "minute" | "minutes" => problem.help(format!("write {number}/m")),
        "hr" | "hour" | "hours" => problem.help(format!("write {number}/h")),
        "d" | "day" | "days" => problem.help(format!("write {{requests: {number}, window: 1d}}")),
        "s" | "m" | "h" => problem.help(format!("write {number}/{}", unit.to_ascii_lowercase())),
        _ if duration(unit).is_ok() => {
            problem.help(format!("write {{requests: {number}, window: {unit}}}"))
        }
        _ => problem,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts() {
        assert_eq!(count("0"), Ok(0));
        assert_eq!(count("22_000"), Ok(22_000));
        for bad in ["", "_", "1_", "_1", "1__0", "-1", "1.0", "1e3", "0x10", "18446744073709551616"]
        {
            assert!(count(bad).is_err(), "{bad}");
        }
        assert_eq!(count("22k").expect_err("bad").help.as_deref(), Some("write 22_000"));
        assert_eq!(count("22,000").expect_err("bad").help.as_deref(), Some("write 22_000"));
    }

    #[test]
    fn shares() {
        for (text, wanted) in [
            ("0.25", 0.25),
            ("25%", 0.25),
            ("1", 1.0),
            ("1.0", 1.0),
            ("100%", 1.0),
            ("0.5%", 0.005),
        ] {
            assert_eq!(share(text), Ok(wanted), "{text}");
        }
        for bad in [
            "", "%", "0", "0%", "0.0", "1.01", "101%", "-1", "1e-3", ".5", "5.", "nan", "inf",
            "5 %", "25%%", "0,5",
        ] {
            assert!(share(bad).is_err(), "{bad}");
        }
        let help = |t| share(t).expect_err("bad").help.unwrap_or_default();
        assert_eq!(help("25"), "if that is a percentage, write 25%");
        assert_eq!(help("0%"), "to drop nothing, write mode: shadow");
    }

    #[test]
    fn durations() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("2h"), Ok(Duration::from_secs(7200)));
        assert_eq!(duration("1d"), Ok(Duration::from_secs(86_400)));
        for bad in ["", "10", "s", "1.5s", "10 s", "10S", "-1s", "1w", "99999999999999999d"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn rates() {
        assert_eq!(rate("22_000/s"), Ok(Rate::PerSecond(22_000)));
        assert_eq!(rate("100/m"), Ok(Rate::PerWindow(100, Duration::from_secs(60))));
        assert_eq!(rate("5/h"), Ok(Rate::PerWindow(5, Duration::from_secs(3600))));
        assert_eq!(rate("unlimited"), Ok(Rate::Unlimited));
        let help = |t| rate(t).expect_err("bad").help.unwrap_or_default();
        assert_eq!(help("100/min"), "write 100/m");
        assert_eq!(help("100/d"), "write {requests: 100, window: 1d}");
        assert_eq!(help("5/10s"), "write {requests: 5, window: 10s}");
        assert_eq!(help("22k/s"), "write 22_000/s");
        assert_eq!(help("Unlimited"), "did you mean `unlimited`?");
        assert_eq!(help("100 / s"), "write it without blanks: 100/s");
    }
}
