//! Names of services, buckets and dimensions.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// The longest name of a service, bucket, dimension or node, in bytes.
pub const MAX_NAME_BYTES: usize = 200;

/// The longest value of a `per` dimension that gets a key of its own, in bytes. A request with a
/// longer one is counted on its bucket's overflow key.
pub const MAX_VALUE_BYTES: usize = 1024;

/// A checked name: 1 to [`MAX_NAME_BYTES`] bytes, no control characters, no blank at either end.
///
/// Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

/// Why a text is not a [`Name`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidName {
    /// No text at all.
    #[error("is empty")]
    Empty,
    /// Longer than the limit.
    #[error("is {bytes} bytes long, the most is {MAX_NAME_BYTES}")]
    TooLong {
        /// The length found.
        bytes: usize,
    },
    /// A control character.
    #[error("holds a control character at byte {at}")]
    Control {
        /// Byte offset of the character.
        at: usize,
    },
    /// White space at the start or the end.
    #[error("begins or ends with white space")]
    Blank,
}

impl Name {
    /// Checks `text`.
    ///
    /// # Errors
    /// Says which rule of [`Name`] the text breaks.
    pub fn new(text: &str) -> Result<Self, InvalidName> {
        if text.is_empty() {
            return Err(InvalidName::Empty);
        }
        if text.len() > MAX_NAME_BYTES {
            return Err(InvalidName::TooLong { bytes: text.len() });
        }
        if let Some((at, _)) = text.char_indices().find(|(_, c)| c.is_control()) {
            return Err(InvalidName::Control { at });
        }
        if text.trim() != text {
            return Err(InvalidName::Blank);
        }
        Ok(Self(Arc::from(text)))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl PartialEq<str> for Name {
    fn eq(&self, other: &str) -> bool {
        &*self.0 == other
    }
}

impl std::str::FromStr for Name {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        Self::new(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_checked() {
        assert_eq!(Name::new("payments.v1").expect("fine").as_str(), "payments.v1");
        assert_eq!(Name::new(""), Err(InvalidName::Empty));
        assert_eq!(Name::new(" a"), Err(InvalidName::Blank));
        assert_eq!(Name::new("a\u{7}b"), Err(InvalidName::Control { at: 1 }));
        assert_eq!(Name::new(&"x".repeat(201)), Err(InvalidName::TooLong { bytes: 201 }));
    }
}
