//! Which requests of a load this process sends, and through which of its clients. Knows no clock
//! and no target.

use std::str::FromStr;
use std::time::Duration;

use super::hash::{Weighted, mix, unit};
use super::schedule::{Arrival, Source};

/// The most processes that may share a load.
const MAX_PARTS: u32 = 10_000;

/// One of several processes that share a load: `2/5`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    /// From 0.
    pub(crate) index: u32,
    pub(crate) of: u32,
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = || format!("\"{text}\" is no part: expected I/N, I from 1 to N, as in 2/5");
        let (index, of) = text.split_once('/').ok_or_else(wanted)?;
        let (index, of): (u32, u32) =
            (index.parse().map_err(|_| wanted())?, of.parse().map_err(|_| wanted())?);
        if index == 0 || index > of || of > MAX_PARTS {
            return Err(wanted());
        }
        Ok(Self { index: index - 1, of })
    }
}

impl Part {
    /// The whole load.
    pub(crate) const WHOLE: Self = Self { index: 0, of: 1 };

    /// Whether a client of the load belongs to this part.
    pub(crate) fn owns(&self, client: usize) -> bool {
        client % self.of as usize == self.index as usize
    }
}

/// A load as this process sees it.
#[derive(Debug)]
pub(crate) struct Plan {
    source: Source,
    clients: Weighted,
    seed: u64,
    part: Part,
    until: Option<Duration>,
}

impl Plan {
    /// The requests of `source` up to `until`, shared out over the clients of the whole load, as
    /// far as they fall to `part`.
    pub(crate) fn new(
        source: Source,
        clients: Weighted,
        seed: u64,
        part: Part,
        until: Option<Duration>,
    ) -> Self {
        Self { source, clients, seed, part, until }
    }
}

impl Iterator for Plan {
    /// A request, and which of the load's clients sends it.
    type Item = (Arrival, usize);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let arrival = self.source.next()?;
            if self.until.is_some_and(|until| arrival.due >= until) {
                return None;
            }
            let client = self.clients.pick(unit(mix(self.seed, arrival.number)));
            if self.part.owns(client) {
                return Some((arrival, client));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::schedule::{Step, Stepped};
    use super::*;
    use std::collections::BTreeSet;

    fn plan(part: &str, skew: f64) -> Plan {
        let steps = vec![Step { rate_rps: 1000.0, length: Duration::from_secs(3) }];
        let callers = Weighted::new(&[1.0]).expect("usable");
        let source = Source::Stepped(Stepped::new(steps, callers, 1));
        let clients = Weighted::zipf(10, skew).expect("usable");
        let part = part.parse().expect("a part");
        Plan::new(source, clients, 1, part, Some(Duration::from_secs(2)))
    }

    #[test]
    fn parts_share_a_load_without_overlap() {
        let whole: BTreeSet<_> = plan("1/1", 1.0).map(|(a, c)| (a.number, c)).collect();
        assert_eq!(whole.len(), 2000, "it ends at its time");
        let mut parts = BTreeSet::new();
        for part in ["1/3", "2/3", "3/3"] {
            for (arrival, client) in plan(part, 1.0) {
                assert!(parts.insert((arrival.number, client)), "sent twice");
            }
        }
        assert_eq!(parts, whole);
    }

    #[test]
    fn skew_gives_the_first_client_more() {
        let of_first = |skew| plan("1/1", skew).filter(|(_, c)| *c == 0).count();
        assert!(of_first(1.0) > 2 * of_first(0.0));
    }

    #[test]
    fn bad_parts_are_told() {
        for bad in ["", "1", "0/3", "4/3", "a/3", "1/0", "1/99999", "-1/3"] {
            let error = bad.parse::<Part>().expect_err(bad);
            assert!(error.contains("expected I/N"), "{error}");
        }
    }
}
