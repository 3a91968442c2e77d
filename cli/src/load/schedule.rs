//! When requests are due. An open loop: the times follow from the shape of the load alone, never
//! from how fast anything answered. Knows no clock and no target.

use std::str::FromStr;
use std::time::Duration;

use super::hash::{Weighted, even};
use super::trace::Replay;

/// The most steps a load may have.
pub(crate) const MAX_STEPS: usize = 1_000;
/// The most requests a second a load may ask for.
pub(crate) const MAX_RATE_RPS: f64 = 10_000_000.0;
/// The longest a load may last.
pub(crate) const MAX_LENGTH: Duration = Duration::from_secs(31 * 24 * 3600);

/// One request to send.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Arrival {
    /// When, after the start of the load.
    pub(crate) due: Duration,
    /// Which one of the whole load, over all its parts.
    pub(crate) number: u64,
    /// Whose, as a place in the list of callers.
    pub(crate) caller: u32,
    /// What is called, as a place in the list of procedures.
    pub(crate) procedure: u32,
}

/// A rate, for a time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Step {
    /// Requests a second; 0 is a pause.
    pub(crate) rate_rps: f64,
    /// How long.
    pub(crate) length: Duration,
}

/// Steps as a flag gives them: `100:5s,900:20s`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Steps(pub(crate) Vec<Step>);

impl FromStr for Steps {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let steps: Vec<Step> = text.split(',').map(step).collect::<Result<_, _>>()?;
        if steps.len() > MAX_STEPS {
            return Err(format!("{} steps, the most is {MAX_STEPS}", steps.len()));
        }
        Ok(Self(steps))
    }
}

fn step(text: &str) -> Result<Step, String> {
    let wanted = "expected RATE:TIME, as in 900:20s";
    let (rate, length) =
        text.split_once(':').ok_or_else(|| format!("\"{text}\" is no step: {wanted}"))?;
    let rate_rps = self::rate(rate).map_err(|e| format!("\"{text}\": {e}"))?;
    let length = span(length).map_err(|e| format!("\"{text}\": {e}"))?;
    Ok(Step { rate_rps, length })
}

/// Reads a rate in requests a second.
pub(crate) fn rate(text: &str) -> Result<f64, String> {
    let wanted = format!("expected requests a second, 0 to {MAX_RATE_RPS}");
    let rate: f64 = text.trim().parse().map_err(|_| format!("\"{text}\" is no rate: {wanted}"))?;
    if !(0.0..=MAX_RATE_RPS).contains(&rate) {
        return Err(format!("the rate {text} is out of range: {wanted}"));
    }
    Ok(rate)
}

/// Reads a time with its unit: `250ms`, `20s`, `1.5m`, `2h`.
pub(crate) fn span(text: &str) -> Result<Duration, String> {
    let wanted = "expected a time with its unit, as in 250ms, 20s, 5m or 1h";
    let text = text.trim();
    let digits = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("\"{text}\" is no time: {wanted}")),
    };
    let number: f64 =
        number.trim().parse().map_err(|_| format!("\"{text}\" is no time: {wanted}"))?;
    match Duration::try_from_secs_f64(number * seconds) {
        Ok(span) if !span.is_zero() && span <= MAX_LENGTH => Ok(span),
        _ => Err(format!("\"{text}\" is out of range: the least is above 0, the most 31 days")),
    }
}

/// The times of a load that follows steps, and whose requests they are.
#[derive(Debug, Clone)]
pub(crate) struct Stepped {
    steps: Vec<Step>,
    callers: Weighted,
    seed: u64,
    /// The step under way, and when it began.
    at: usize,
    began: Duration,
    /// The part of a request that was due when the step began.
    carried: f64,
    /// Requests of this step so far.
    done: u64,
    number: u64,
}

impl Stepped {
    /// Follows `steps`; `callers` shares the requests out.
    pub(crate) fn new(steps: Vec<Step>, callers: Weighted, seed: u64) -> Self {
        // Half a request is due at the start, so that the first one is in the middle of its share.
        Self {
            steps,
            callers,
            seed,
            at: 0,
            began: Duration::ZERO,
            carried: 0.5,
            done: 0,
            number: 0,
        }
    }
}

impl Iterator for Stepped {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        loop {
            let step = *self.steps.get(self.at)?;
            #[expect(clippy::cast_precision_loss, reason = "loads are far below 2^52 requests")]
            let after_s = (self.done as f64 + 1.0 - self.carried) / step.rate_rps;
            if after_s < step.length.as_secs_f64() {
                let arrival = Arrival {
                    due: self.began + Duration::from_secs_f64(after_s),
                    number: self.number,
                    #[expect(clippy::cast_possible_truncation, reason = "bounded by MAX_CALLERS")]
                    caller: self.callers.pick(even(self.seed, self.number)) as u32,
                    procedure: 0,
                };
                self.done += 1;
                self.number += 1;
                return Some(arrival);
            }
            #[expect(clippy::cast_precision_loss, reason = "loads are far below 2^52 requests")]
            let due = self.carried + step.rate_rps * step.length.as_secs_f64() - self.done as f64;
            // Rounding may leave a whole request due; it opens the next step.
            self.carried = due.clamp(0.0, 1.0);
            self.began += step.length;
            self.done = 0;
            self.at += 1;
        }
    }
}

/// Where the times come from.
#[derive(Debug)]
pub(crate) enum Source {
    /// From steps.
    Stepped(Stepped),
    /// From a trace.
    Replay(Replay),
}

impl Iterator for Source {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        match self {
            Self::Stepped(steps) => steps.next(),
            Self::Replay(replay) => replay.next(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn one() -> Weighted {
        Weighted::new(&[1.0]).expect("usable")
    }

    fn steps(text: &str) -> Vec<Step> {
        text.parse::<Steps>().expect("good steps").0
    }

    #[test]
    fn flags_are_read_and_bad_ones_told() {
        assert_eq!(
            steps("100:5s,0:250ms")[1],
            Step { rate_rps: 0.0, length: span("0.25s").expect("time") }
        );
        for (bad, told) in [
            ("100", "expected RATE:TIME"),
            ("x:5s", "no rate"),
            ("-1:5s", "out of range"),
            ("NaN:5s", "out of range"),
            ("1:5", "no time"),
            ("1:0s", "out of range"),
            ("1:9999h", "out of range"),
            ("", "expected RATE:TIME"),
        ] {
            let error = bad.parse::<Steps>().expect_err(bad);
            assert!(error.contains(told), "{bad}: {error}");
        }
    }

    #[test]
    fn requests_are_evenly_spaced_within_a_step() {
        let times: Vec<_> =
            Stepped::new(steps("4:1s"), one(), 0).map(|a| a.due.as_millis()).collect();
        assert_eq!(times, [125, 375, 625, 875]);
    }

    #[test]
    fn a_pause_sends_nothing_and_numbers_go_on() {
        let all: Vec<_> = Stepped::new(steps("2:1s,0:10s,2:1s"), one(), 0).collect();
        assert_eq!(all.len(), 4);
        assert!(all[2].due >= Duration::from_secs(11));
        assert_eq!(all.iter().map(|a| a.number).collect::<Vec<_>>(), [0, 1, 2, 3]);
    }

    #[test]
    fn callers_get_their_shares() {
        let callers = Weighted::new(&[3.0, 1.0]).expect("usable");
        let first = Stepped::new(steps("1000:4s"), callers, 9).filter(|a| a.caller == 0).count();
        assert!((2995..=3005).contains(&first), "{first}");
    }

    proptest! {
        #[test]
        fn as_many_as_the_steps_say(parts in proptest::collection::vec((0.0..2000.0_f64, 1_u64..3000), 1..6)) {
            let steps: Vec<Step> = parts.iter()
                .map(|(rate_rps, ms)| Step { rate_rps: *rate_rps, length: Duration::from_millis(*ms) })
                .collect();
            let wanted: f64 = steps.iter().map(|s| s.rate_rps * s.length.as_secs_f64()).sum();
            let all: Vec<_> = Stepped::new(steps, one(), 3).collect();
            #[expect(clippy::cast_precision_loss, reason = "small")]
            let got = all.len() as f64;
            prop_assert!((got - wanted).abs() <= 1.0, "{got} of {wanted}");
            prop_assert!(all.windows(2).all(|w| w[0].due <= w[1].due));
        }
    }
}
