//! The laws by name.

/// How directives follow from counts: one setting for a control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Law {
    /// Plain: drop the share of the last interval that was over the limit.
    Ratio,
    /// Zones receive absolute grants, surges are reported at once, and excess is remembered.
    #[default]
    Grant,
}

impl Law {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Ratio, Self::Grant];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ratio => "ratio",
            Self::Grant => "grant",
        }
    }

    /// The one of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|l| l.name() == name)
    }
}
