//! When a message goes: at once if something changed that noise does not explain, soon if it changed
//! a little, and now and then in any case.

use std::time::Duration;

use sluicegate_model::Time;

/// Of a value that noise alone moves by `noise` (a share of it): a change that is none.
const BIG: f64 = 0.10;
const BIG_NOISES: f64 = 4.0;
/// While there is this much head-room before and after, changes hardly matter.
const FREE: f64 = 1.5;
const BIG_FREE: f64 = 0.25;

/// Whether to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Push {
    /// Now.
    Now,
    /// Not before then, if it still differs.
    At(Time),
    /// Nothing to say.
    No,
}

/// The share of change between two values.
fn change(a: f64, b: f64) -> f64 {
    (a - b).abs() / a.min(b).max(1e-9)
}

/// The noise of a rate that is measured over `window`, as a share of it.
fn noise(demand_rps: f64, window: Duration) -> f64 {
    (1.0 / (demand_rps * window.as_secs_f64()).max(1.0)).sqrt()
}

/// From a node that serves clients, down to them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DownRule {
    /// The share of demand that was covered when the last one went; `None` before the first.
    told: Option<f64>,
    at: Time,
    /// Pushes that may go at once, as a token bucket: a loop that answers swings must not flood.
    tokens: f64,
    filled: Time,
}

impl DownRule {
    const GAP_MIN: Duration = Duration::from_millis(10);
    const GAP_SMALL: Duration = Duration::from_millis(100);
    const GAP_MAX: Duration = Duration::from_secs(1);
    const SMALL: f64 = 0.01;
    const TOKENS_A_SECOND: f64 = 20.0;
    const TOKENS_MOST: f64 = 8.0;

    /// Nothing sent yet.
    #[must_use]
    pub fn new(now: Time) -> Self {
        Self { told: None, at: now, tokens: Self::TOKENS_MOST, filled: now }
    }

    /// The share of demand that was covered when the last one went; all before the first.
    #[must_use]
    pub fn told(&self) -> f64 {
        self.told.unwrap_or(f64::INFINITY)
    }

    /// Whether to tell that `share` of `demand_rps` is covered now. [`Push::Now`] counts as told.
    #[must_use]
    pub fn ask(&mut self, now: Time, share: f64, demand_rps: f64, window: Duration) -> Push {
        if let Some(told) = self.told {
            let gap = now.since(self.at);
            let changed = change(share, told);
            let wanted = if gap >= Self::GAP_MAX {
                true
            } else if share > FREE && told > FREE {
                changed > BIG_FREE
            } else {
                let big = changed > BIG + BIG_NOISES * noise(demand_rps, window);
                if big && gap < Self::GAP_MIN {
                    return Push::At(self.at + Self::GAP_MIN);
                }
                big || (changed > Self::SMALL && gap >= Self::GAP_SMALL)
            };
            if !wanted {
                return Push::No;
            }
        }
        let flown = now.since(self.filled).as_secs_f64() * Self::TOKENS_A_SECOND;
        self.tokens = (self.tokens + flown).min(Self::TOKENS_MOST);
        self.filled = now;
        if self.tokens < 1.0 {
            let missing = (1.0 - self.tokens) / Self::TOKENS_A_SECOND;
            return Push::At(now + Duration::from_secs_f64(missing + 1e-6));
        }
        self.tokens -= 1.0;
        self.told = Some(share);
        self.at = now;
        Push::Now
    }
}

/// From a parent to one child that passes on: what it was told last.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GrantRule {
    told: Option<f64>,
    at: Time,
}

impl GrantRule {
    const GAP_SMALL: Duration = Duration::from_millis(50);
    const GAP_MAX: Duration = Duration::from_millis(500);
    const SMALL: f64 = 0.005;

    /// Nothing sent yet.
    #[must_use]
    pub fn new(now: Time) -> Self {
        Self { told: None, at: now }
    }

    /// Whether to tell a child with `demand_rps` that `value` (its grant, or the ratio) holds now;
    /// `share` is the share of all demand that is allowed. `true` counts as told.
    #[must_use]
    pub fn ask(
        &mut self,
        now: Time,
        value: f64,
        share: f64,
        demand_rps: f64,
        window: Duration,
    ) -> bool {
        let value = value.max(1e-9);
        if let Some(told) = self.told {
            let gap = now.since(self.at);
            let changed = change(value, told);
            let wanted = if gap >= Self::GAP_MAX {
                true
            } else if share > FREE {
                changed > BIG_FREE
            } else {
                changed > BIG + BIG_NOISES * noise(demand_rps, window)
                    || (gap >= Self::GAP_SMALL && changed > Self::SMALL)
            };
            if !wanted {
                return false;
            }
        }
        self.told = Some(value);
        self.at = now;
        true
    }
}

/// From a child up to its parent: what the parent was told last.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UpRule {
    told_rps: f64,
    at: Time,
}

impl UpRule {
    const GAP: Duration = Duration::from_millis(50);
    const GAP_FREE: Duration = Duration::from_millis(250);
    const BIG: f64 = 0.05;
    const BIG_NOISES: f64 = 3.0;

    /// Nothing sent yet.
    #[must_use]
    pub fn new() -> Self {
        Self { told_rps: 0.0, at: Time::ZERO }
    }

    /// Whether to report that `demand_rps` is offered now, of which `share` is covered. `true` counts
    /// as told.
    #[must_use]
    pub fn ask(&mut self, now: Time, demand_rps: f64, share: f64, window: Duration) -> bool {
        let told = self.told_rps.max(1.0);
        let noise = Self::BIG_NOISES * (told / window.as_secs_f64().max(1e-3)).sqrt();
        let big = (demand_rps - self.told_rps).abs() > Self::BIG * told + noise;
        let gap = if share > FREE { Self::GAP_FREE } else { Self::GAP };
        if !big && now.since(self.at) < gap {
            return false;
        }
        self.tell(now, demand_rps);
        true
    }

    /// It was reported for another reason.
    pub fn tell(&mut self, now: Time, demand_rps: f64) {
        (self.told_rps, self.at) = (demand_rps, now);
    }
}

impl Default for UpRule {
    fn default() -> Self {
        Self::new()
    }
}
