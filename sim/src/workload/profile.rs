//! How a load runs over time: a rate that is constant for a while, and until when.

use super::file::{TraceError, TraceFile};
use crate::scenario::{Shape, Workload};

const MS: u64 = 1_000_000;

/// A rate over time. Times in nanoseconds of world time.
#[derive(Debug, Clone)]
pub(crate) enum Profile {
    Constant(f64),
    Step {
        at: u64,
        from: f64,
        to: f64,
    },
    Sine {
        period: u64,
        low: f64,
        high: f64,
    },
    OnOff {
        period: u64,
        on: u64,
        begin: u64,
        high: f64,
        low: f64,
    },
    /// Request by request; each stands for `scale` on average.
    Trace {
        scale: f64,
        file: TraceFile,
    },
}

impl Profile {
    /// Of a workload that was checked, on a limit if its load is relative to one.
    pub(crate) fn new(
        workload: &Workload,
        limit_rps: Option<f64>,
        warmup: u64,
    ) -> Result<Self, TraceError> {
        let rate =
            |x: Option<f64>, rps: Option<f64>| x.map(|x| x * limit_rps.unwrap_or(0.0)).or(rps);
        let load = rate(workload.load_x, workload.load_rps);
        let low = rate(workload.from_x, workload.from_rps).unwrap_or(0.0);
        let high = load.unwrap_or(0.0);
        let at = workload.at_s.map_or(warmup, crate::setup::nanos);
        let period = period(workload.period_ms.unwrap_or(1000.0)).max(1);
        let on = workload.on_ms.map_or(period / 2, self::period);
        Ok(match workload.shape {
            Shape::Constant => Self::Constant(high),
            Shape::Step => Self::Step { at, from: low, to: high },
            Shape::Sine => Self::Sine { period, low, high },
            Shape::OnOff => Self::OnOff { period, on, begin: 0, high, low },
            Shape::Bursts => Self::OnOff { period, on, begin: at, high, low },
            Shape::Trace => {
                let file = TraceFile::load(workload)?;
                let scale = load.map_or(1.0, |peak| peak / file.peak_rps().max(1e-9));
                Self::Trace { scale, file }
            }
        })
    }

    /// The rate at `now`, and when it may be another.
    pub(crate) fn rate(&self, now: u64) -> (f64, u64) {
        match self {
            Self::Constant(rate) => (*rate, u64::MAX),
            Self::Step { at, from, .. } if now < *at => (*from, *at),
            Self::Step { to, .. } => (*to, u64::MAX),
            Self::Sine { period, low, high } => {
                // Constant over a millisecond, at the value of its middle.
                let from = now / MS * MS;
                #[expect(clippy::cast_precision_loss, reason = "a phase")]
                let phase = ((from + MS / 2) % period) as f64 / *period as f64;
                let wave = libm::sin(phase * std::f64::consts::TAU);
                ((low + high) / 2.0 + (high - low) / 2.0 * wave, from + MS)
            }
            Self::OnOff { period, on, begin, high, low } => {
                if now < *begin {
                    return (*low, *begin);
                }
                // In step with the world's time, not with the beginning.
                let start = now / period * period;
                if now < start + on {
                    (*high, start + on)
                } else {
                    (*low, (start + period).max(now + 1))
                }
            }
            // Its requests are listed: see `Replay`.
            Self::Trace { .. } => (0.0, u64::MAX),
        }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked: an hour")]
fn period(ms: f64) -> u64 {
    (ms * 1e6).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(workload: Workload) -> Profile {
        Profile::new(&workload, Some(100.0), 8000 * MS).expect("no file")
    }

    #[test]
    fn a_step_comes_at_the_end_of_the_warm_up() {
        let p = of(Workload {
            shape: Shape::Step,
            from_x: Some(0.5),
            load_rps: Some(300.0),
            ..Workload::default()
        });
        assert_eq!(p.rate(0), (50.0, 8000 * MS));
        assert_eq!(p.rate(8000 * MS), (300.0, u64::MAX));
    }

    #[test]
    fn a_multiple_of_the_limit_wins_over_a_rate() {
        let p = of(Workload { load_x: Some(2.0), load_rps: Some(7.0), ..Workload::default() });
        assert_eq!(p.rate(5), (200.0, u64::MAX));
    }

    #[test]
    fn on_and_off_take_turns() {
        let p = of(Workload {
            shape: Shape::OnOff,
            load_x: Some(4.0),
            from_x: Some(0.1),
            period_ms: Some(300.0),
            ..Workload::default()
        });
        assert_eq!(p.rate(0), (400.0, 150 * MS));
        assert_eq!(p.rate(150 * MS), (10.0, 300 * MS));
        assert_eq!(p.rate(300 * MS), (400.0, 450 * MS));
    }

    #[test]
    fn bursts_begin_late_and_are_short() {
        let p = of(Workload {
            shape: Shape::Bursts,
            load_x: Some(20.0),
            from_x: Some(0.9),
            period_ms: Some(3000.0),
            on_ms: Some(100.0),
            ..Workload::default()
        });
        assert_eq!(p.rate(3000 * MS), (90.0, 8000 * MS));
        assert_eq!(p.rate(8000 * MS), (90.0, 9000 * MS));
        assert_eq!(p.rate(9000 * MS), (2000.0, 9100 * MS));
    }

    #[test]
    fn a_wave_goes_up_first() {
        let p = of(Workload {
            shape: Shape::Sine,
            load_x: Some(2.5),
            from_x: Some(0.5),
            period_ms: Some(20_000.0),
            ..Workload::default()
        });
        let at = |ms: u64| p.rate(ms * MS).0;
        assert!((at(0) - 150.0).abs() < 0.1);
        assert!((at(5000) - 250.0).abs() < 0.1);
        assert!((at(15_000) - 50.0).abs() < 0.1);
        assert_eq!(p.rate(7 * MS + 1).1, 8 * MS);
    }
}
