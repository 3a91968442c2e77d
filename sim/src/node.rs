//! Who there is in a world, by number. Knows nothing of what they do.

use std::time::Duration;

use sluicegate_model::Time;

use crate::scenario::{Scenario, Tier};

/// A node by its number: clients first, then aggregators (one a zone), then controllers (one a
/// region).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// How many there are, and who belongs to whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Topology {
    clients: u32,
    zones: u32,
    regions: u32,
}

impl Topology {
    /// That of a scenario whose counts were checked.
    #[must_use]
    pub fn new(scenario: &Scenario) -> Self {
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX / 4);
        Self {
            clients: count(scenario.clients),
            zones: count(scenario.zones),
            regions: count(scenario.regions),
        }
    }

    /// How many clients.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.clients as usize
    }

    /// How many zones.
    #[must_use]
    pub fn zones(&self) -> usize {
        self.zones as usize
    }

    /// How many regions.
    #[must_use]
    pub fn regions(&self) -> usize {
        self.regions as usize
    }

    /// How many nodes.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.clients() + self.zones() + self.regions()
    }

    /// Every node.
    pub fn all(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.clients + self.zones + self.regions).map(NodeId)
    }

    /// The client of that number.
    #[must_use]
    pub fn client(&self, client: usize) -> NodeId {
        NodeId(number(client))
    }

    /// The aggregator of that zone.
    #[must_use]
    pub fn aggregator(&self, zone: usize) -> NodeId {
        NodeId(self.clients + number(zone))
    }

    /// The controller of that region.
    #[must_use]
    pub fn controller(&self, region: usize) -> NodeId {
        NodeId(self.clients + self.zones + number(region))
    }

    /// Where a node stands, and its number there.
    #[must_use]
    pub fn place(&self, node: NodeId) -> (Tier, usize) {
        let n = node.0;
        if n < self.clients {
            (Tier::Client, n as usize)
        } else if n < self.clients + self.zones {
            (Tier::Aggregator, (n - self.clients) as usize)
        } else {
            (Tier::Controller, (n - self.clients - self.zones) as usize)
        }
    }

    /// The zone of a client.
    #[must_use]
    pub fn zone_of(&self, client: usize) -> usize {
        client % self.zones()
    }

    /// The region of a zone.
    #[must_use]
    pub fn region_of(&self, zone: usize) -> usize {
        zone * self.regions() / self.zones()
    }

    /// The node that a node reports to.
    #[must_use]
    pub fn parent(&self, node: NodeId) -> Option<NodeId> {
        match self.place(node) {
            (Tier::Client, client) => Some(self.aggregator(self.zone_of(client))),
            (Tier::Aggregator, zone) => Some(self.controller(self.region_of(zone))),
            (Tier::Controller, _) => None,
        }
    }
}

fn number(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// A node's own monotonic clock, as a function of world time. It never goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clock {
    /// From here on, in world time.
    since: u64,
    /// What it showed then.
    shown: u64,
    /// Its rate in billionths of the true one.
    rate: u64,
}

const TRUE_RATE: u64 = 1_000_000_000;

impl Clock {
    /// A true clock.
    pub const TRUE: Self = Self { since: 0, shown: 0, rate: TRUE_RATE };

    /// What it shows at a world time.
    #[inline]
    #[must_use]
    pub fn at(&self, world: u64) -> Time {
        let passed = world.saturating_sub(self.since);
        let passed = if self.rate == TRUE_RATE { passed } else { scaled(passed, self.rate) };
        Time::from_nanos(self.shown.saturating_add(passed))
    }

    /// The first world time at which it shows at least `local`.
    #[inline]
    #[must_use]
    pub fn world(&self, local: Time) -> u64 {
        if local == Time::NEVER {
            return u64::MAX;
        }
        let to_pass = local.as_nanos().saturating_sub(self.shown);
        if self.rate == TRUE_RATE {
            return self.since.saturating_add(to_pass);
        }
        let world = u128::from(to_pass) * u128::from(TRUE_RATE);
        let world = world.div_ceil(u128::from(self.rate.max(1)));
        self.since.saturating_add(u64::try_from(world).unwrap_or(u64::MAX))
    }

    /// From `world` on it is `jump` ahead of where it was, and runs `drift_ppm` millionths fast.
    #[must_use]
    pub fn changed(&self, world: u64, jump: Duration, drift_ppm: f64) -> Self {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
        let rate = (1e9 + drift_ppm * 1e3).clamp(1e6, 1e12).round() as u64;
        Self { since: world, shown: (self.at(world) + jump).as_nanos(), rate }
    }
}

fn scaled(passed: u64, rate: u64) -> u64 {
    let shown = u128::from(passed) * u128::from(rate) / u128::from(TRUE_RATE);
    u64::try_from(shown).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_has_a_place_and_a_parent() {
        let scenario = Scenario { clients: 10, zones: 4, regions: 2, ..Scenario::default() };
        let t = Topology::new(&scenario);
        assert_eq!(t.place(NodeId(9)), (Tier::Client, 9));
        assert_eq!(t.parent(NodeId(9)), Some(t.aggregator(1)));
        assert_eq!(t.parent(t.aggregator(1)), Some(t.controller(0)));
        assert_eq!(t.parent(t.aggregator(2)), Some(t.controller(1)));
        assert_eq!(t.parent(t.controller(1)), None);
        assert_eq!(t.all().count(), t.nodes());
    }

    #[test]
    fn a_clock_jumps_drifts_and_can_be_asked_when() {
        let clock = Clock::TRUE.changed(1_000_000_000, Duration::from_secs(5), 100.0);
        assert_eq!(clock.at(1_000_000_000).as_millis(), 6000);
        assert_eq!(clock.at(11_000_000_000).as_nanos(), 16_001_000_000);
        for local in [6_000_000_001, 7_000_000_000, 16_001_000_000] {
            let world = clock.world(Time::from_nanos(local));
            assert!(clock.at(world).as_nanos() >= local);
            assert!(clock.at(world - 1).as_nanos() < local);
        }
        assert_eq!(clock.world(Time::NEVER), u64::MAX);
        assert_eq!(Clock::TRUE.world(Time::from_millis(3)), 3_000_000);
    }
}
