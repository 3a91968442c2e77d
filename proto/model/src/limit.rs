//! Limits: how much, over what time.

use std::fmt;
use std::time::Duration;

/// The limit of a bucket or of one of its values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Limit {
    /// Counted, never limited.
    Unlimited,
    /// A token bucket. A rate of zero denies every request.
    Tokens(TokenRate),
}

/// A token bucket: `requests` tokens a `window`, up to `depth` of them kept.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TokenRate {
    requests: u64,
    window: Duration,
    depth: f64,
}

/// Why numbers do not make a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidLimit {
    /// The window is zero or too long.
    #[error("the window must be longer than 0 and at most 31 days")]
    Window,
    /// More requests than can be counted.
    #[error("the most is 1_000_000_000_000 requests a window")]
    Requests,
    /// More requests a second than can be told apart.
    #[error("the most is 1_000_000_000_000 requests a second")]
    Rate,
    /// The burst is not usable.
    #[error("burst must be between 1 and 1_000_000_000_000 requests")]
    Burst,
}

impl TokenRate {
    /// The most requests a window or a burst may name.
    pub const MAX_REQUESTS: u64 = 1_000_000_000_000;
    /// The longest window.
    pub const MAX_WINDOW: Duration = Duration::from_secs(31 * 24 * 3600);
    /// The depth of a rate, where none is given, in seconds of that rate.
    pub const DEFAULT_BURST_S: f64 = 0.1;

    /// `requests` a second with the depth `burst`; without one, [`Self::DEFAULT_BURST_S`] of the
    /// rate and at least 1.
    ///
    /// # Errors
    /// Says which bound is broken.
    pub fn per_second(requests: u64, burst: Option<u64>) -> Result<Self, InvalidLimit> {
        #[expect(clippy::cast_precision_loss, reason = "bounded by MAX_REQUESTS, far below 2^52")]
        let default = (requests as f64 * Self::DEFAULT_BURST_S).max(1.0);
        Self::checked(requests, Duration::from_secs(1), burst, default)
    }

    /// `requests` a `window`: a bucket as deep as `requests` (or `burst`), refilled evenly over the
    /// window.
    ///
    /// # Errors
    /// Says which bound is broken.
    pub fn per_window(
        requests: u64,
        window: Duration,
        burst: Option<u64>,
    ) -> Result<Self, InvalidLimit> {
        #[expect(clippy::cast_precision_loss, reason = "bounded by MAX_REQUESTS, far below 2^52")]
        let default = requests as f64;
        Self::checked(requests, window, burst, default)
    }

    /// From its three numbers as [`Self::requests`], [`Self::window`] and [`Self::depth`] give them.
    /// Without requests the depth does not matter.
    ///
    /// # Errors
    /// Says which bound is broken.
    pub fn from_parts(requests: u64, window: Duration, depth: f64) -> Result<Self, InvalidLimit> {
        #[expect(clippy::cast_precision_loss, reason = "1e12 is exact")]
        let fits = (1.0..=Self::MAX_REQUESTS as f64).contains(&depth);
        if requests > 0 && !fits {
            return Err(InvalidLimit::Burst);
        }
        Self::checked(requests, window, None, depth)
    }

    fn checked(
        requests: u64,
        window: Duration,
        burst: Option<u64>,
        default_depth: f64,
    ) -> Result<Self, InvalidLimit> {
        if window.is_zero() || window > Self::MAX_WINDOW {
            return Err(InvalidLimit::Window);
        }
        if requests > Self::MAX_REQUESTS {
            return Err(InvalidLimit::Requests);
        }
        if burst.is_some_and(|b| b == 0 || b > Self::MAX_REQUESTS) {
            return Err(InvalidLimit::Burst);
        }
        #[expect(clippy::cast_precision_loss, reason = "bounded by MAX_REQUESTS, far below 2^52")]
        let depth = burst.map_or(default_depth, |b| b as f64);
        let depth = if requests == 0 { 0.0 } else { depth };
        let made = Self { requests, window, depth };
        if made.rate_rps() > 1e12 {
            return Err(InvalidLimit::Rate);
        }
        Ok(made)
    }

    /// Requests a window.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// The window.
    #[must_use]
    pub fn window(&self) -> Duration {
        self.window
    }

    /// The rate in requests a second; 0 denies everything.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "bounded by MAX_REQUESTS, far below 2^52")]
    pub fn rate_rps(&self) -> f64 {
        self.requests as f64 / self.window.as_secs_f64()
    }

    /// How many requests may come at once after a pause.
    #[must_use]
    pub fn depth(&self) -> f64 {
        self.depth
    }
}

impl Limit {
    /// A limit up to this many requests a second is low: under the law grant it is not shared out
    /// among zones, and no client guards it, because counts that small say too little.
    pub const LOW_RPS: f64 = 200.0;

    /// The rate in requests a second; `None` if unlimited.
    #[must_use]
    pub fn rate_rps(&self) -> Option<f64> {
        match self {
            Self::Unlimited => None,
            Self::Tokens(t) => Some(t.rate_rps()),
        }
    }

    /// Whether this limit denies every request.
    #[must_use]
    pub fn denies_all(&self) -> bool {
        matches!(self, Self::Tokens(t) if t.requests == 0)
    }
}

impl fmt::Display for Limit {
    /// As a bucket file writes it: `22000/s`, `100/m`, `5 per 10s`, `unlimited`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unlimited => f.write_str("unlimited"),
            Self::Tokens(t) => match (t.window.as_secs(), t.window.subsec_nanos()) {
                (1, 0) => write!(f, "{}/s", t.requests),
                (60, 0) => write!(f, "{}/m", t.requests),
                (3600, 0) => write!(f, "{}/h", t.requests),
                _ => write!(f, "{} per {:?}", t.requests, t.window),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_follows_the_kind_of_limit() {
        let rate = TokenRate::per_second(22_000, None).expect("fine");
        assert!((rate.depth() - 2200.0).abs() < 1e-9);
        assert!((TokenRate::per_second(3, None).expect("fine").depth() - 1.0).abs() < 1e-9);
        let minute = TokenRate::per_window(100, Duration::from_secs(60), None).expect("fine");
        assert!((minute.depth() - 100.0).abs() < 1e-9);
        assert!((minute.rate_rps() - 100.0 / 60.0).abs() < 1e-9);
        assert!((TokenRate::per_second(50, Some(100)).expect("fine").depth() - 100.0).abs() < 1e-9);
    }

    #[test]
    fn zero_denies_and_bounds_hold() {
        let zero = Limit::Tokens(TokenRate::per_second(0, None).expect("zero is a limit"));
        assert!(zero.denies_all());
        assert_eq!(TokenRate::per_second(1, Some(0)), Err(InvalidLimit::Burst));
        assert_eq!(TokenRate::per_window(1, Duration::ZERO, None), Err(InvalidLimit::Window));
        assert_eq!(TokenRate::per_second(u64::MAX, None), Err(InvalidLimit::Requests));
        assert_eq!(
            TokenRate::per_window(1_000_000_000_000, Duration::from_nanos(1), None),
            Err(InvalidLimit::Rate)
        );
    }

    #[test]
    fn parts_make_the_same_limit_again() {
        for t in [
            TokenRate::per_second(25, None),
            TokenRate::per_second(0, None),
            TokenRate::per_window(7, Duration::from_secs(600), Some(3)),
        ] {
            let t = t.expect("fine");
            assert_eq!(TokenRate::from_parts(t.requests(), t.window(), t.depth()), Ok(t));
        }
        for depth in [0.0, 0.5, -1.0, 2e12, f64::NAN, f64::INFINITY] {
            let made = TokenRate::from_parts(1, Duration::from_secs(1), depth);
            assert_eq!(made, Err(InvalidLimit::Burst), "{depth}");
        }
    }

    #[test]
    fn limits_read_as_they_are_written() {
        let l = |t| Limit::Tokens(t);
        assert_eq!(l(TokenRate::per_second(5, None).expect("fine")).to_string(), "5/s");
        let t = TokenRate::per_window(5, Duration::from_secs(10), None).expect("fine");
        assert_eq!(l(t).to_string(), "5 per 10s");
    }
}
