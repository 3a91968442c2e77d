//! The named scenarios, embedded.

/// A scenario by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Builtin {
    /// Its name.
    pub name: &'static str,
    /// Its file.
    pub text: &'static str,
}

/// All of them, in the order in which a list shows them.
#[must_use]
pub fn builtins() -> &'static [Builtin] {
    BUILTINS
}

/// The one of that name.
#[must_use]
pub fn builtin(name: &str) -> Option<Builtin> {
    BUILTINS.iter().copied().find(|b| b.name == name)
}

macro_rules! embedded {
    ($($name:literal),* $(,)?) => {
        &[$(Builtin {
            name: $name,
            text: include_str!(concat!("../../scenarios/", $name, ".yaml")),
        }),*]
    };
}

const BUILTINS: &[Builtin] = embedded!["surge", "surge-high-limit"];
