//! What an embedder sets, and how it is checked. Knows nothing of what is done with it.

use std::time::Duration;

use sluicegate_model::{InvalidName, Name};
use sluicegate_proto::transport::{Address, InvalidAddress};

/// How a client embeds. Every field has a default but `aggregators`.
///
/// ```
/// use sluicegate_client::Settings;
///
/// let settings = Settings {
///     node: "checkout-7".into(),
///     zone: "eu-1a".into(),
///     region: "eu-1".into(),
///     ..Settings::new(["http://aggregator:7401"])
/// };
/// assert_eq!(settings.tick.as_millis(), 1000);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// This process, for people: shown where sessions are listed. Need not be unique.
    pub node: String,
    /// The zone this process runs in. Buckets of scope `zone` are summed over it.
    pub zone: String,
    /// The region this process runs in.
    pub region: String,
    /// The zone's aggregators, `http://host:port` or `host:port`, in order of preference: the
    /// client uses one at a time, and the next when that one fails. Every client of a zone should
    /// name them in the same order, or buckets of scope `zone` are summed in several places.
    pub aggregators: Vec<String>,
    /// The services whose buckets this process needs; empty means every one. Naming them keeps
    /// the buckets of all others out of this process.
    pub services: Vec<String>,
    /// How often counts are reported, 50 ms to 60 s.
    pub tick: Duration,
    /// How long without a word from the aggregator before control counts as lost.
    pub ttl: Duration,
    /// Over how long buckets then change to what their `on_control_loss` says.
    pub ramp: Duration,
    /// How often the agent looks at the counts of keys in use, 1 ms to `tick`.
    pub look: Duration,
    /// Bounds on what connections may cost.
    pub limits: Limits,
}

/// Bounds of what a client may cost its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How long the last report may take at shutdown.
    pub shutdown_timeout: Duration,
    /// The most combinations of service, caller and procedure that are remembered. Others are
    /// matched anew with each request: right, but slower.
    pub max_identities: usize,
    /// The most values (of buckets with `per`) that are counted apart, over all buckets.
    pub max_values: usize,
}

impl Limits {
    /// The most that `max_identities` and `max_values` may be.
    pub const MAX_KEYS: usize = 1 << 24;
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            shutdown_timeout: Duration::from_millis(500),
            max_identities: 65_536,
            max_values: 200_000,
        }
    }
}

impl Default for Settings {
    /// Zone and region `default`, a tick of 1 s, ttl and ramp of 10 s each, and no aggregators:
    /// those must be set.
    fn default() -> Self {
        Self {
            node: "client".into(),
            zone: "default".into(),
            region: "default".into(),
            aggregators: Vec::new(),
            services: Vec::new(),
            tick: Duration::from_secs(1),
            ttl: Duration::from_secs(10),
            ramp: Duration::from_secs(10),
            look: Duration::from_millis(10),
            limits: Limits::default(),
        }
    }
}

/// Why a client does not start. Nothing of it depends on the network.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A name is not one.
    #[error("{field}: {text:?} {source}; set a name such as `eu-1a`")]
    Name {
        /// Which setting.
        field: &'static str,
        /// What it holds.
        text: String,
        /// What is wrong with it.
        source: InvalidName,
    },
    /// No aggregator named.
    #[error("aggregators: none is given; name at least one, such as `http://aggregator:7401`")]
    NoAggregators,
    /// An address that cannot be used.
    #[error("aggregators[{index}]: {source}")]
    Address {
        /// Which of them.
        index: usize,
        /// What is wrong with it.
        source: InvalidAddress,
    },
    /// A number out of its range.
    #[error("{field}: {value:?} is out of range; it must be {range}")]
    Range {
        /// Which setting.
        field: &'static str,
        /// What it holds.
        value: Duration,
        /// What would do.
        range: &'static str,
    },
    /// A bound that cannot be.
    #[error("limits.{field}: {value} is out of range; it must be 1 to {}", Limits::MAX_KEYS)]
    Bound {
        /// Which setting.
        field: &'static str,
        /// What it holds.
        value: usize,
    },
    /// The operating system refused the agent's thread or its runtime.
    #[error("the agent's {what} cannot be made: {source}; see this process's limits")]
    Agent {
        /// Thread or runtime.
        what: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
}

impl Settings {
    /// The defaults, with these aggregators.
    pub fn new<A: Into<String>>(aggregators: impl IntoIterator<Item = A>) -> Self {
        Self { aggregators: aggregators.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// Checks everything, so that what is left can only fail in the operating system.
    pub(crate) fn check(self, session: u64) -> Result<Checked, StartError> {
        let Self { node, zone, region, aggregators, services, tick, ttl, ramp, look, limits } =
            self;
        let ms = Duration::from_millis;
        in_range("tick", tick, ms(50)..=ms(60_000), "50 ms to 60 s")?;
        in_range("ttl", ttl, ms(50)..=ms(3_600_000), "50 ms to 1 h")?;
        in_range("ramp", ramp, ms(0)..=ms(3_600_000), "at most 1 h")?;
        in_range("look", look, ms(1)..=tick, "1 ms to tick")?;
        let Limits { shutdown_timeout, max_identities, max_values } = limits;
        in_range("limits.shutdown_timeout", shutdown_timeout, ms(0)..=ms(60_000), "at most 60 s")?;
        for (field, value) in [("max_identities", max_identities), ("max_values", max_values)] {
            if !(1..=Limits::MAX_KEYS).contains(&value) {
                return Err(StartError::Bound { field, value });
            }
        }
        if aggregators.is_empty() {
            return Err(StartError::NoAggregators);
        }
        let addresses = aggregators.iter().enumerate().map(|(index, text)| {
            text.parse().map_err(|source| StartError::Address { index, source })
        });
        Ok(Checked {
            aggregators: addresses.collect::<Result<_, _>>()?,
            core: sluicegate_client_core::Settings {
                services: services.iter().map(|s| name("services", s)).collect::<Result<_, _>>()?,
                tick,
                ttl,
                ramp,
                look,
                max_identities,
                max_values,
                ..sluicegate_client_core::Settings::new(
                    name("node", &node)?,
                    session,
                    name("zone", &zone)?,
                    name("region", &region)?,
                )
            },
            shutdown_timeout,
        })
    }
}

/// Settings that cannot be wrong.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) core: sluicegate_client_core::Settings,
    /// At least one.
    pub(crate) aggregators: Vec<Address>,
    pub(crate) shutdown_timeout: Duration,
}

fn name(field: &'static str, text: &str) -> Result<Name, StartError> {
    Name::new(text).map_err(|source| StartError::Name { field, text: text.into(), source })
}

fn in_range(
    field: &'static str,
    value: Duration,
    allowed: std::ops::RangeInclusive<Duration>,
    range: &'static str,
) -> Result<(), StartError> {
    if allowed.contains(&value) { Ok(()) } else { Err(StartError::Range { field, value, range }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(settings: Settings) -> String {
        settings.check(1).expect_err("refused").to_string()
    }

    #[test]
    fn defaults_need_only_an_aggregator() {
        assert!(refused(Settings::default()).starts_with("aggregators: none is given"));
        let checked = Settings::new(["127.0.0.1:7401"]).check(7).expect("fine");
        assert_eq!(checked.aggregators[0].to_string(), "127.0.0.1:7401");
        assert_eq!(checked.core.session, 7);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let base = || Settings::new(["http://a:1"]);
        let zone = refused(Settings { zone: " x".into(), ..base() });
        assert_eq!(
            zone,
            "zone: \" x\" begins or ends with white space; set a name such as `eu-1a`"
        );
        assert!(
            refused(Settings { node: String::new(), ..base() }).starts_with("node: \"\" is empty")
        );
        assert!(
            refused(Settings { services: vec!["ok".into(), "".into()], ..base() })
                .contains("services")
        );
        let message = refused(Settings::new(["http://fine:1", "https://a:1"]));
        assert!(message.starts_with("aggregators[1]: \"https://a:1\""), "{message}");
        assert!(message.contains("write host:port"), "{message}");
    }

    #[test]
    fn times_have_ranges() {
        let base = || Settings::new(["http://a:1"]);
        let ms = Duration::from_millis;
        assert!(refused(Settings { tick: ms(49), ..base() }).contains("50 ms to 60 s"));
        assert!(refused(Settings { look: ms(1001), ..base() }).contains("1 ms to tick"));
        assert!(refused(Settings { ttl: ms(0), ..base() }).contains("ttl"));
        assert!(Settings { ramp: ms(0), ..base() }.check(1).is_ok(), "no ramp is a choice");
        let limits = Limits { max_values: 0, ..Limits::default() };
        assert!(refused(Settings { limits, ..base() }).contains("limits.max_values: 0"));
    }
}
