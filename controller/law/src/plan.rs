//! A tick's output as data, checked before anything is sent.

use std::time::Duration;

use sluicegate_model::{AdmitRatio, Directive, Invariant, KeyId, Limit, Mode, Term};

/// What a root means to say this tick.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The term it is published under.
    pub term: Term,
    /// Sequence numbers up to and including this were used before.
    pub seq_before: u64,
    /// The longest that a directive to clients may live.
    pub max_ttl: Duration,
    /// The longest that a directive to a child that passes it on may live.
    pub max_grant_ttl: Duration,
    /// What to say, at most one directive a key and child, with rising sequence numbers.
    pub set: Vec<Planned>,
}

/// One directive of a [`Plan`], with what it was made from.
#[derive(Debug, Clone, PartialEq)]
pub struct Planned {
    /// The node's own number of the key.
    pub key: u32,
    /// The child that it is for, by its stream and its own number of the key; `None` for all alike.
    pub child: Option<(u32, KeyId)>,
    /// The limit it enforces.
    pub limit: Limit,
    /// The mode of its bucket.
    pub mode: Mode,
    /// What to say.
    pub directive: Directive,
}

/// A promise that a [`Plan`] would break.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{invariant}: the directive at place {place} {what}")]
pub struct Violation {
    /// Which promise.
    pub invariant: Invariant,
    /// The place in [`Plan::set`].
    pub place: usize,
    /// What is wrong.
    pub what: &'static str,
}

impl Plan {
    /// Adds a directive, under the next sequence number.
    pub(crate) fn push(&mut self, planned: Planned) {
        let last = self.set.last().map_or(self.seq_before, |p| p.directive.seq);
        let directive = Directive { seq: last + 1, ..planned.directive };
        self.set.push(Planned { directive, ..planned });
    }

    /// Every promise that this plan would break, at most one a directive. Empty is good.
    #[must_use]
    pub fn check(&self) -> Vec<Violation> {
        let repeated = self.repeated_keys();
        let mut found = Vec::new();
        let mut last_seq = self.seq_before;
        for (place, planned) in self.set.iter().enumerate() {
            let broken = if planned.directive.seq <= last_seq {
                Some((Invariant::I5, "has a sequence number that was used before"))
            } else if repeated.binary_search(&(planned.key, planned.child)).is_ok() {
                Some((Invariant::I2, "is not the only one of its key"))
            } else {
                self.check_one(planned)
            };
            if let Some((invariant, what)) = broken {
                found.push(Violation { invariant, place, what });
            }
            last_seq = last_seq.max(planned.directive.seq);
        }
        found
    }

    fn repeated_keys(&self) -> Vec<(u32, Option<(u32, KeyId)>)> {
        let mut keys: Vec<_> = self.set.iter().map(|p| (p.key, p.child)).collect();
        keys.sort_unstable();
        let mut repeated: Vec<_> = keys.windows(2).filter(|w| w[0] == w[1]).map(|w| w[0]).collect();
        repeated.dedup();
        repeated
    }

    fn check_one(&self, planned: &Planned) -> Option<(Invariant, &'static str)> {
        let d = &planned.directive;
        if d.term != self.term {
            return Some((Invariant::I5, "is not of the plan's term"));
        }
        let max_ttl = if planned.child.is_some() { self.max_grant_ttl } else { self.max_ttl };
        if d.ttl.is_zero() || d.ttl > max_ttl {
            return Some((Invariant::I2, "lives for no time or for too long"));
        }
        if d.limit_rps.is_nan()
            || d.limit_rps < 0.0
            || !d.headroom.is_finite()
            || !d.sigma.is_finite()
        {
            return Some((Invariant::I2, "has a limit or guard that is not a number"));
        }
        if d.grant.is_some_and(|g| !g.rps.is_finite() || g.base_rps > g.rps || g.base_rps < 0.0) {
            return Some((Invariant::I2, "grants what is not a number, or less than its base"));
        }
        match planned.limit {
            Limit::Unlimited if d.admit != AdmitRatio::ALL => {
                Some((Invariant::I2, "drops although nothing is limited"))
            }
            Limit::Tokens(_) if planned.limit.denies_all() != (d.admit == AdmitRatio::NONE) => {
                Some((Invariant::I2, "denies all although the limit is not 0, or the reverse"))
            }
            Limit::Unlimited | Limit::Tokens(_) => {
                let drops = planned.mode == Mode::Observe && d.admit != AdmitRatio::ALL;
                drops.then_some((Invariant::I6, "drops for a bucket that only observes"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use sluicegate_model::TokenRate;

    use super::*;

    fn planned(key: u32, seq: u64) -> Planned {
        Planned {
            key,
            child: None,
            limit: Limit::Tokens(TokenRate::per_second(10, None).expect("fine")),
            mode: Mode::Deny,
            directive: Directive {
                admit: AdmitRatio::from_share(0.5),
                headroom: 0.0,
                sigma: 0.0,
                grant: None,
                limit_rps: 10.0,
                sessions: 1,
                term: 3,
                seq,
                ttl: Duration::from_secs(10),
            },
        }
    }

    fn plan(set: Vec<Planned>) -> Plan {
        let max_ttl = Duration::from_secs(10);
        Plan { term: 3, seq_before: 5, max_ttl, max_grant_ttl: max_ttl * 6, set }
    }

    fn broken(change: impl FnOnce(&mut Planned)) -> Option<Invariant> {
        let mut p = planned(1, 6);
        change(&mut p);
        plan(vec![p]).check().first().map(|v| v.invariant)
    }

    #[test]
    fn a_sound_plan_passes() {
        assert_eq!(plan(vec![planned(1, 6), planned(2, 7)]).check(), []);
    }

    #[test]
    fn each_broken_promise_is_found() {
        assert_eq!(broken(|p| p.directive.term = 2), Some(Invariant::I5));
        assert_eq!(broken(|p| p.directive.seq = 5), Some(Invariant::I5));
        assert_eq!(broken(|p| p.directive.ttl = Duration::ZERO), Some(Invariant::I2));
        assert_eq!(broken(|p| p.directive.ttl = Duration::from_secs(11)), Some(Invariant::I2));
        assert_eq!(broken(|p| p.directive.limit_rps = f64::NAN), Some(Invariant::I2));
        assert_eq!(broken(|p| p.directive.admit = AdmitRatio::NONE), Some(Invariant::I2));
        assert_eq!(broken(|p| p.limit = Limit::Unlimited), Some(Invariant::I2));
        assert_eq!(broken(|p| p.mode = Mode::Observe), Some(Invariant::I6));
        let zero = Limit::Tokens(TokenRate::per_second(0, None).expect("fine"));
        assert_eq!(broken(|p| p.limit = zero), Some(Invariant::I2));
    }

    #[test]
    fn two_directives_of_one_key_are_found() {
        let found = plan(vec![planned(1, 6), planned(1, 7)]).check();
        assert_eq!(found.iter().map(|v| v.place).collect::<Vec<_>>(), [0, 1]);
        assert!(found[0].to_string().contains("only one of its key"));
    }
}
