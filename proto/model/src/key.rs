//! Keys: the things that are counted.

use std::fmt;

use crate::Name;

/// Which of a bucket's counts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyValues {
    /// The only one of a bucket without `per`.
    Whole,
    /// That of one combination of values, in the order of the bucket's `per`.
    Each(Box<[Box<str>]>),
    /// That of all values without a key of their own.
    Overflow,
}

/// The name of one counted thing: a bucket, plus the values of its `per` dimensions.
///
/// Structured, never one joined text, so that no choice of values collides.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyName {
    /// The service.
    pub service: Name,
    /// The bucket.
    pub bucket: Name,
    /// Which count of the bucket.
    pub values: KeyValues,
}

impl fmt::Display for KeyValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => Ok(()),
            Self::Overflow => f.write_str("(overflow)"),
            Self::Each(values) => {
                for (i, value) in values.iter().enumerate() {
                    if i > 0 {
                        f.write_str(", ")?;
                    }
                    write!(f, "{}", value.escape_debug())?;
                }
                Ok(())
            }
        }
    }
}

impl fmt::Display for KeyName {
    /// For people; not an encoding.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.service, self.bucket)?;
        match &self.values {
            KeyValues::Whole => Ok(()),
            values => write!(f, "[{values}]"),
        }
    }
}
