//! What can be wrong with a message, and the small checks that find it.

use std::fmt;

use sluicegate_model::{InvalidLimit, InvalidName, Name};

/// A message that breaks the protocol: where, and how.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{field} {problem}")]
pub struct Malformed {
    /// The path of the field, such as `report.entries.matched`.
    pub field: String,
    /// What is wrong with it.
    pub problem: Problem,
}

/// What is wrong with a field, and what would be right.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Problem {
    /// Nothing where something must be.
    #[error("is missing")]
    Missing,
    /// A list longer than its bound.
    #[error("has {found} elements, the most is {most}")]
    TooMany {
        /// Elements found.
        found: usize,
        /// Elements allowed.
        most: usize,
    },
    /// More bytes than the bound.
    #[error("has {found} bytes, the most is {most}")]
    TooLong {
        /// Bytes found.
        found: usize,
        /// Bytes allowed.
        most: usize,
    },
    /// A list whose length another field decides.
    #[error("has {found} elements, it must have {expected}")]
    Length {
        /// Elements found.
        found: usize,
        /// Elements needed.
        expected: usize,
    },
    /// A number (or enumerator) that is not allowed.
    #[error("is {found}, allowed is {allowed}")]
    NotAllowed {
        /// What was found, as text.
        found: String,
        /// What may stand there.
        allowed: &'static str,
    },
    /// The same thing twice.
    #[error("holds {what:?} twice, each may stand there once")]
    Twice {
        /// What.
        what: String,
    },
    /// Not a name.
    #[error("is not a name: {0}")]
    Name(InvalidName),
    /// Not a limit.
    #[error("is not a limit: {0}")]
    Limit(InvalidLimit),
    /// Bytes that are not the encoding of what should be there.
    #[error("cannot be decoded: {0}")]
    Undecodable(String),
}

impl Malformed {
    /// That `problem` is the matter with `field`.
    pub(crate) fn new(field: impl Into<String>, problem: Problem) -> Self {
        Self { field: field.into(), problem }
    }

    /// Puts `outer` before the path of the field.
    pub(crate) fn within(mut self, outer: impl fmt::Display) -> Self {
        self.field = format!("{outer}.{}", self.field);
        self
    }

    /// One word for the kind of problem, for a label of a metric.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self.problem {
            Problem::Missing => "missing",
            Problem::TooMany { .. } | Problem::TooLong { .. } => "too_large",
            Problem::Length { .. } => "unequal_columns",
            Problem::NotAllowed { .. } => "not_allowed",
            Problem::Twice { .. } => "twice",
            Problem::Name(_) => "name",
            Problem::Limit(_) => "limit",
            Problem::Undecodable(_) => "undecodable",
        }
    }
}

/// `Err` with [`Problem::NotAllowed`].
pub(crate) fn not_allowed<T>(
    field: impl Into<String>,
    found: impl fmt::Display,
    allowed: &'static str,
) -> Result<T, Malformed> {
    Err(Malformed::new(field, Problem::NotAllowed { found: found.to_string(), allowed }))
}

/// A list within its bound.
pub(crate) fn at_most(field: &str, found: usize, most: usize) -> Result<(), Malformed> {
    if found > most {
        return Err(Malformed::new(field, Problem::TooMany { found, most }));
    }
    Ok(())
}

/// A text within its bound.
pub(crate) fn text(field: &str, text: String, most: usize) -> Result<String, Malformed> {
    if text.len() > most {
        return Err(Malformed::new(field, Problem::TooLong { found: text.len(), most }));
    }
    Ok(text)
}

/// A checked name.
pub(crate) fn name(field: &str, text: &str) -> Result<Name, Malformed> {
    Name::new(text).map_err(|e| Malformed::new(field, Problem::Name(e)))
}

/// Checked names, none twice.
pub(crate) fn names(field: &str, texts: &[String], most: usize) -> Result<Vec<Name>, Malformed> {
    at_most(field, texts.len(), most)?;
    let names: Vec<Name> = texts.iter().map(|t| name(field, t)).collect::<Result<_, _>>()?;
    no_twice(field, &names)?;
    Ok(names)
}

/// A list without repetition. Costs nothing more than a scan if it is in ascending order.
pub(crate) fn no_twice<T: Ord + fmt::Display>(field: &str, list: &[T]) -> Result<(), Malformed> {
    if list.windows(2).all(|w| w[0] < w[1]) {
        return Ok(());
    }
    let mut sorted: Vec<&T> = list.iter().collect();
    sorted.sort_unstable();
    match sorted.windows(2).find(|w| w[0] == w[1]) {
        Some(w) => Err(Malformed::new(field, Problem::Twice { what: w[0].to_string() })),
        None => Ok(()),
    }
}

/// A rate or share: finite and not negative.
pub(crate) fn finite(field: &str, number: f64) -> Result<f64, Malformed> {
    if !number.is_finite() || number < 0.0 {
        return not_allowed(field, number, "a finite number that is not negative");
    }
    // Minus zero is zero.
    Ok(number + 0.0)
}
