//! The life of one key's directive: in force, run out, and what follows when the control plane is
//! lost.
//!
//! A state per key and pure functions of time. It knows no slots, no messages and no cap level.

use std::time::Duration;

use sluicegate_model::{AdmitRatio, Directive, OnControlLoss, Time};

/// What the decision path is to do for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Verdict {
    /// The share to admit.
    pub(super) admit: AdmitRatio,
    /// Whether the cap applies.
    pub(super) capped: bool,
}

impl Verdict {
    /// Nothing is dropped, but for the cap.
    pub(super) const FREE: Self = Self { admit: AdmitRatio::ALL, capped: true };
}

/// What is the same for every key of the agent at one moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    pub(super) now: Time,
    /// Whether there is a stream that directives could come by.
    pub(super) connected: bool,
    /// When the control plane counts as lost if nothing more is heard of it.
    pub(super) alive_until: Time,
    pub(super) ttl: Duration,
    pub(super) ramp: Duration,
}

/// Where the key's directive is in its life.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Control {
    /// None in force and none missed so far: the key is in use since then without one.
    Free { since: Time },
    /// In force.
    Held { admit: AdmitRatio, limit_rps: f64, arrived: Time, expires: Time },
    /// The control plane is lost for this key since `since`, when `from` was in force.
    Lost { from: AdmitRatio, since: Time, why: Loss },
}

/// Why control counts as lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loss {
    /// A directive ran out that should have been refreshed. Another one ends it.
    RanOut,
    /// Nobody is there. Whoever is heard of ends it.
    Silent,
    /// Somebody is there, but whoever should direct the key is not: it was used for a ttl, and no
    /// directive came. One that comes ends it, and so does a rest.
    Missed,
}

impl Control {
    /// A directive arrived: it ends whatever was.
    pub(super) fn hold(directive: &Directive, now: Time) -> Self {
        Self::Held {
            admit: directive.admit,
            limit_rps: directive.limit_rps,
            arrived: now,
            expires: now + directive.ttl,
        }
    }

    /// Moves on with time. `used` is when the key last saw a request.
    pub(super) fn advance(&mut self, moment: &Moment, used: Time) {
        if let Self::Held { admit, arrived, expires, .. } = *self
            && moment.now >= expires
        {
            // Roots refresh the directives of keys in use, at least every quarter of a ttl. One that
            // ran out while its key was quiet is no sign that anybody is gone; but without a stream
            // there is no telling.
            let refresh_due = used >= arrived + expires.since(arrived) / 2;
            *self = if refresh_due || !moment.connected || moment.alive_until <= expires {
                Self::Lost { from: admit, since: expires, why: Loss::RanOut }
            } else {
                Self::Free { since: expires }
            };
        }
        let now = moment.now;
        match *self {
            Self::Free { .. } if now >= moment.alive_until => {
                let since = moment.alive_until;
                *self = Self::Lost { from: AdmitRatio::ALL, since, why: Loss::Silent };
            }
            // Roots direct every key in use within a few ticks.
            Self::Free { since } if now >= since + moment.ttl => {
                let since = since + moment.ttl;
                *self = if used + moment.ttl / 2 >= since {
                    Self::Lost { from: AdmitRatio::ALL, since, why: Loss::Missed }
                } else {
                    Self::Free { since: now }
                };
            }
            // Whoever comes next has its own chance to direct the key.
            Self::Lost { from, since, why: Loss::Missed } if now >= moment.alive_until => {
                *self = Self::Lost { from, since, why: Loss::Silent };
            }
            Self::Lost { why: Loss::Silent, .. } if now < moment.alive_until => {
                *self = Self::Free { since: now };
            }
            Self::Lost { why: Loss::Missed, .. } if now >= used + moment.ttl => {
                *self = Self::Free { since: now };
            }
            Self::Free { .. } | Self::Held { .. } | Self::Lost { .. } => {}
        }
    }

    /// What applies now. `share` is what [`OnControlLoss::Share`] would admit at this moment.
    pub(super) fn verdict(
        &self,
        moment: &Moment,
        on_loss: OnControlLoss,
        share: AdmitRatio,
    ) -> Verdict {
        let (from, since) = match *self {
            Self::Free { .. } => return Verdict::FREE,
            Self::Held { admit, .. } => return Verdict { admit, capped: true },
            // Nothing is dropped for want of a directive that never was: only the cap goes.
            Self::Lost { why: Loss::Missed, .. } if on_loss != OnControlLoss::Open => {
                return Verdict::FREE;
            }
            Self::Lost { from, since, .. } => (from, since),
        };
        let done = part(moment.now.since(since), moment.ramp);
        match on_loss {
            OnControlLoss::Open => Verdict {
                admit: blend(from, AdmitRatio::ALL, done),
                capped: done < 1.0 && from != AdmitRatio::ALL,
            },
            OnControlLoss::Last => Verdict { admit: from, capped: true },
            OnControlLoss::Share => Verdict { admit: blend(from, share, done), capped: true },
            OnControlLoss::Closed => {
                Verdict { admit: blend(from, AdmitRatio::NONE, done), capped: true }
            }
        }
    }

    /// Whether time alone changes the verdict of this key.
    pub(super) fn is_moving(&self) -> bool {
        matches!(self, Self::Lost { .. })
    }

    /// Whether a directive is in force.
    pub(super) fn is_held(&self) -> bool {
        matches!(self, Self::Held { .. })
    }

    /// Whether a guard applies: as long as a directive does, and through the ramp after it.
    pub(super) fn is_guarded(&self, moment: &Moment) -> bool {
        match *self {
            Self::Held { .. } => true,
            Self::Lost { since, why: Loss::RanOut, .. } => moment.now.since(since) < moment.ramp,
            Self::Free { .. } | Self::Lost { .. } => false,
        }
    }

    /// The limit that the root says is in force, while a directive is.
    pub(super) fn limit_rps(&self) -> Option<f64> {
        match *self {
            Self::Held { limit_rps, .. } => Some(limit_rps),
            Self::Free { .. } | Self::Lost { .. } => None,
        }
    }
}

/// How far `span` is through `whole`, 0 to 1.
fn part(span: Duration, whole: Duration) -> f64 {
    if span >= whole { 1.0 } else { span.as_secs_f64() / whole.as_secs_f64() }
}

fn blend(from: AdmitRatio, to: AdmitRatio, done: f64) -> AdmitRatio {
    if done >= 1.0 || from == to {
        return to;
    }
    AdmitRatio::from_share(from.share() + (to.share() - from.share()) * done)
}

/// What [`OnControlLoss::Share`] needs: the rate that a key admitted while it was directed, and,
/// once that is over, the ratio that goes on admitting it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Share {
    at: Time,
    /// How much time stands behind `admitted_rps`.
    age: Duration,
    admitted_rps: f64,
    offered_rps: f64,
    /// While lost: how much was admitted too little (or, negative, too much) at the rate to keep.
    owed: f64,
}

/// Over how long `offered_rps` remembers.
const OFFERED_MEMORY_S: f64 = 1.0;
/// Over how long what was admitted too little or too much is made up for.
const MAKE_UP_S: f64 = 2.0;

impl Share {
    pub(super) fn new(now: Time) -> Self {
        Self { at: now, age: Duration::ZERO, admitted_rps: 0.0, offered_rps: 0.0, owed: 0.0 }
    }

    /// Takes in what happened since the last call, up to `moment.now`.
    pub(super) fn observe(&mut self, moment: &Moment, lost: bool, offered: u64, charged: u64) {
        let span = moment.now.since(self.at);
        if span.is_zero() {
            return;
        }
        self.at = moment.now;
        let span_s = span.as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "counts between two looks, below 2^52")]
        let (offered, charged) = (offered as f64, charged as f64);
        let weight = span_s / (OFFERED_MEMORY_S + span_s);
        self.offered_rps += (offered / span_s - self.offered_rps) * weight;
        if lost {
            let keep = self.keep_rps(moment.ttl);
            let most = keep * MAKE_UP_S;
            self.owed = (self.owed + keep * span_s - charged).clamp(-most, most);
        } else {
            // A plain mean at first, then one that forgets over the life of a directive.
            self.age = (self.age + span).min(moment.ttl.max(span));
            let weight = span_s / self.age.as_secs_f64();
            self.admitted_rps += (charged / span_s - self.admitted_rps) * weight;
            self.owed = 0.0;
        }
    }

    /// The ratio that admits the rate to keep.
    pub(super) fn admit(&self, ttl: Duration) -> AdmitRatio {
        let allowed = self.keep_rps(ttl) + self.owed / MAKE_UP_S;
        if self.offered_rps <= allowed {
            return AdmitRatio::ALL;
        }
        AdmitRatio::from_share(allowed / self.offered_rps)
    }

    /// The rate to keep: what was admitted, but not less than could be told from nothing.
    fn keep_rps(&self, ttl: Duration) -> f64 {
        self.admitted_rps.max(1.0 / ttl.as_secs_f64().max(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(10);
    const RAMP: Duration = Duration::from_secs(10);

    fn moment(now_ms: u64, alive_until_ms: u64) -> Moment {
        Moment {
            now: Time::from_millis(now_ms),
            connected: true,
            alive_until: Time::from_millis(alive_until_ms),
            ttl: TTL,
            ramp: RAMP,
        }
    }

    fn held(share: f64) -> Control {
        let directive = Directive {
            admit: AdmitRatio::from_share(share),
            headroom: 0.0,
            sigma: 0.0,
            grant: None,
            limit_rps: 100.0,
            sessions: 1,
            term: 1,
            seq: 1,
            ttl: TTL,
        };
        Control::hold(&directive, Time::ZERO)
    }

    const FRESH: Control = Control::Free { since: Time::ZERO };

    fn shares(mut control: Control, on_loss: OnControlLoss, at_ms: &[u64]) -> Vec<(f64, bool)> {
        let verdict = |ms: &u64| {
            let m = moment(*ms, 10_000);
            control.advance(&m, m.now);
            let v = control.verdict(&m, on_loss, AdmitRatio::from_share(0.25));
            ((v.admit.share() * 1000.0).round() / 1000.0, v.capped)
        };
        at_ms.iter().map(verdict).collect()
    }

    #[test]
    fn a_directive_that_runs_out_ramps_to_what_the_owner_said() {
        let at = [9_999, 10_000, 12_500, 15_000, 20_000, 90_000];
        let open = shares(held(0.5), OnControlLoss::Open, &at);
        assert_eq!(
            open,
            [(0.5, true), (0.5, true), (0.625, true), (0.75, true), (1.0, false), (1.0, false)]
        );
        let last = shares(held(0.5), OnControlLoss::Last, &at);
        assert!(last.iter().all(|v| *v == (0.5, true)), "{last:?}");
        let share: Vec<f64> =
            shares(held(0.5), OnControlLoss::Share, &at).iter().map(|v| v.0).collect();
        assert_eq!(share, [0.5, 0.5, 0.438, 0.375, 0.25, 0.25]);
        let closed: Vec<f64> =
            shares(held(0.5), OnControlLoss::Closed, &at).iter().map(|v| v.0).collect();
        assert_eq!(closed, [0.5, 0.5, 0.375, 0.25, 0.0, 0.0]);
    }

    #[test]
    fn one_look_after_a_long_pause_lands_at_the_end() {
        assert_eq!(shares(held(0.0), OnControlLoss::Open, &[40_000]), [(1.0, false)]);
        assert_eq!(shares(held(1.0), OnControlLoss::Closed, &[40_000]), [(0.0, true)]);
    }

    #[test]
    fn a_key_never_directed_is_capped_while_somebody_is_there() {
        let open = shares(FRESH, OnControlLoss::Open, &[0, 9_999, 10_000]);
        assert_eq!(open, [(1.0, true), (1.0, true), (1.0, false)]);
        let mut control = FRESH;
        control.advance(&moment(15_000, 10_000), Time::ZERO);
        assert!(control.is_moving());
        control.advance(&moment(16_000, 26_000), Time::ZERO);
        let since = Time::from_millis(16_000);
        assert_eq!(control, Control::Free { since }, "heard of again");
    }

    /// The aggregator answers, whoever should direct the key does not.
    #[test]
    fn a_key_in_use_that_nobody_directs_is_let_go_after_a_ttl_if_open() {
        for (on_loss, ends) in
            [(OnControlLoss::Open, (1.0, false)), (OnControlLoss::Closed, (1.0, true))]
        {
            let mut control = FRESH;
            let mut at = |ms: u64| {
                let m = moment(ms, ms + 10_000);
                control.advance(&m, m.now);
                let v = control.verdict(&m, on_loss, AdmitRatio::ALL);
                (v.admit.share(), v.capped)
            };
            assert_eq!(at(9_999), (1.0, true), "a first directive may yet come");
            at(10_000);
            assert_eq!(at(20_000), ends);
            assert_eq!(at(90_000), ends);
        }
    }

    #[test]
    fn a_key_that_nobody_directs_starts_over_after_a_rest() {
        let mut control = FRESH;
        control.advance(&moment(10_000, 20_000), Time::from_millis(10_000));
        assert!(matches!(control, Control::Lost { why: Loss::Missed, .. }));
        control.advance(&moment(20_000, 30_000), Time::from_millis(10_000));
        assert_eq!(control, Control::Free { since: Time::from_millis(20_000) });
        let mut control = FRESH;
        control.advance(&moment(10_000, 20_000), Time::from_millis(1_000));
        assert!(matches!(control, Control::Free { .. }), "hardly used, so hardly missed");
    }

    #[test]
    fn a_directive_that_runs_out_on_a_quiet_key_is_no_loss() {
        let mut control = held(0.5);
        control.advance(&moment(10_000, 20_000), Time::from_millis(3_000));
        assert!(matches!(control, Control::Free { .. }), "{control:?}");
        let mut control = held(0.5);
        control.advance(&moment(10_000, 20_000), Time::from_millis(7_000));
        assert!(matches!(control, Control::Lost { why: Loss::RanOut, .. }), "a refresh was due");
        control.advance(&moment(11_000, 21_000), Time::from_millis(7_000));
        assert!(control.is_moving(), "only a directive ends it");
        let mut control = held(0.5);
        control.advance(&moment(10_000, 9_000), Time::from_millis(1_000));
        assert!(matches!(control, Control::Lost { why: Loss::RanOut, .. }), "nobody is there");
        let mut control = held(0.5);
        let cut = Moment { connected: false, ..moment(10_000, 20_000) };
        control.advance(&cut, Time::from_millis(3_000));
        assert!(
            matches!(control, Control::Lost { why: Loss::RanOut, .. }),
            "nobody could refresh it"
        );
    }

    #[test]
    fn share_keeps_the_admitted_rate_whatever_is_offered() {
        let mut share = Share::new(Time::ZERO);
        let mut now = 0;
        for _ in 0..1000 {
            now += 10;
            share.observe(&moment(now, 0), false, 4, 2);
        }
        // 200 a second were admitted; now 900 a second are offered, then 100, then 3,000.
        for (offered, seconds, keeps) in [(9_u64, 20, 200.0), (1, 20, 100.0), (30, 20, 200.0)] {
            let (mut admitted, mut acc) = (0, 0.0);
            for look in 0..seconds * 100 {
                now += 10;
                #[expect(clippy::cast_precision_loss, reason = "small")]
                let passes = offered as f64 * share.admit(TTL).share();
                acc += passes;
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "small"
                )]
                let whole = acc as u64;
                #[expect(clippy::cast_precision_loss, reason = "small")]
                let whole_f = whole as f64;
                acc -= whole_f;
                share.observe(&moment(now, 0), true, offered, whole);
                if look >= 500 {
                    admitted += whole;
                }
            }
            let rate = f64::from(u32::try_from(admitted).expect("small")) / 15.0;
            assert!((rate - keeps).abs() < keeps * 0.03, "{rate} admitted, {keeps} expected");
        }
    }
}
