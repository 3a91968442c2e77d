//! Values that scenario files hold beside plain numbers. Each reads from a file and from the command
//! line alike, and cannot be wrong once read.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::ser::{Serialize, Serializer};

/// A range of delays, written `1..5` (milliseconds), or one number for a fixed delay.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DelayMs {
    from: f64,
    to: f64,
}

/// A text or number that is not a [`DelayMs`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is not a range of delays: write 1..5 or 3, in milliseconds, at most 600000")]
pub struct InvalidDelay {
    /// The text.
    pub found: String,
}

impl DelayMs {
    /// The longest delay.
    pub const MOST: f64 = 600_000.0;

    /// From `from` to `to` milliseconds; `None` unless `0 <= from <= to <=` [`DelayMs::MOST`].
    #[must_use]
    pub fn new(from: f64, to: f64) -> Option<Self> {
        (from >= 0.0 && from <= to && to <= Self::MOST).then_some(Self { from, to })
    }

    /// The shortest, in milliseconds.
    #[must_use]
    pub fn from_ms(&self) -> f64 {
        self.from
    }

    /// The longest, in milliseconds.
    #[must_use]
    pub fn to_ms(&self) -> f64 {
        self.to
    }

    /// The shortest.
    #[must_use]
    pub fn shortest(&self) -> Duration {
        ms(self.from)
    }

    /// How much longer than the shortest the longest is.
    #[must_use]
    pub fn spread(&self) -> Duration {
        ms(self.to - self.from)
    }
}

fn ms(ms: f64) -> Duration {
    Duration::from_secs_f64(ms / 1000.0)
}

impl FromStr for DelayMs {
    type Err = InvalidDelay;

    fn from_str(text: &str) -> Result<Self, InvalidDelay> {
        let invalid = || InvalidDelay { found: text.to_owned() };
        let number = |t: &str| t.trim().parse::<f64>().map_err(|_| invalid());
        let (from, to) = match text.split_once("..") {
            Some((from, to)) => (number(from)?, number(to)?),
            None => (number(text)?, number(text)?),
        };
        Self::new(from, to).ok_or_else(invalid)
    }
}

impl fmt::Display for DelayMs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.from.to_bits() == self.to.to_bits() {
            write!(f, "{}", self.from)
        } else {
            write!(f, "{}..{}", self.from, self.to)
        }
    }
}

impl Serialize for DelayMs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for DelayMs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Delay;
        impl Visitor<'_> for Delay {
            type Value = DelayMs;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("delays in milliseconds, such as 1..5 or 3")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<DelayMs, E> {
                text.parse().map_err(E::custom)
            }
            fn visit_f64<E: Error>(self, ms: f64) -> Result<DelayMs, E> {
                DelayMs::new(ms, ms)
                    .ok_or_else(|| E::custom(InvalidDelay { found: ms.to_string() }))
            }
            #[expect(clippy::cast_precision_loss, reason = "far below 2^52 or refused")]
            fn visit_u64<E: Error>(self, ms: u64) -> Result<DelayMs, E> {
                self.visit_f64(ms as f64)
            }
            #[expect(clippy::cast_precision_loss, reason = "far below 2^52 or refused")]
            fn visit_i64<E: Error>(self, ms: i64) -> Result<DelayMs, E> {
                self.visit_f64(ms as f64)
            }
        }
        deserializer.deserialize_any(Delay)
    }
}

/// `on` or `off`; `true` and `false` read the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Switch {
    /// Off.
    #[default]
    Off,
    /// On.
    On,
}

impl Serialize for Switch {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(match self {
            Self::Off => "off",
            Self::On => "on",
        })
    }
}

impl<'de> Deserialize<'de> for Switch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OnOff;
        impl Visitor<'_> for OnOff {
            type Value = Switch;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("on or off")
            }
            fn visit_bool<E: Error>(self, on: bool) -> Result<Switch, E> {
                Ok(if on { Switch::On } else { Switch::Off })
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Switch, E> {
                match text {
                    "on" => Ok(Switch::On),
                    "off" => Ok(Switch::Off),
                    other => Err(E::custom(format!("{other:?} is neither on nor off"))),
                }
            }
        }
        deserializer.deserialize_any(OnOff)
    }
}

/// `all`, or the number of one (counted from 0).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Which {
    /// Every one.
    #[default]
    All,
    /// One.
    One(usize),
}

impl Which {
    /// The numbers meant, of `count` there are.
    pub fn of(self, count: usize) -> std::ops::Range<usize> {
        match self {
            Self::All => 0..count,
            Self::One(one) => one.min(count)..(one + 1).min(count),
        }
    }
}

impl Serialize for Which {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::All => serializer.serialize_str("all"),
            Self::One(one) => serializer.serialize_u64(*one as u64),
        }
    }
}

impl<'de> Deserialize<'de> for Which {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AllOrOne;
        impl Visitor<'_> for AllOrOne {
            type Value = Which;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("all, or a number counted from 0")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Which, E> {
                match text {
                    "all" => Ok(Which::All),
                    other => {
                        let one = other.parse();
                        one.map(Which::One).map_err(|_| {
                            E::custom(format!("{other:?} is neither all nor a number from 0"))
                        })
                    }
                }
            }
            fn visit_u64<E: Error>(self, one: u64) -> Result<Which, E> {
                usize::try_from(one).map(Which::One).map_err(E::custom)
            }
            fn visit_i64<E: Error>(self, one: i64) -> Result<Which, E> {
                usize::try_from(one)
                    .map(Which::One)
                    .map_err(|_| E::custom(format!("{one} is not a number counted from 0")))
            }
        }
        deserializer.deserialize_any(AllOrOne)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_ranges_or_one_number() {
        let d = |t: &str| t.parse::<DelayMs>();
        assert_eq!(d("1..5"), Ok(DelayMs { from: 1.0, to: 5.0 }));
        assert_eq!(d("0.5"), Ok(DelayMs { from: 0.5, to: 0.5 }));
        for bad in ["", "5..1", "-1", "-1..2", "1..", "x", "NaN", "1..700000"] {
            assert_eq!(d(bad), Err(InvalidDelay { found: bad.into() }));
        }
        assert_eq!(d("5..30").expect("fine").spread(), Duration::from_millis(25));
        for text in ["1..5", "3", "0.25..0.5"] {
            assert_eq!(d(text).expect("fine").to_string(), text);
        }
    }

    #[test]
    fn which_names_those_there_are() {
        assert_eq!(Which::All.of(3), 0..3);
        assert_eq!(Which::One(2).of(3), 2..3);
        assert!(Which::One(3).of(3).is_empty());
    }
}
