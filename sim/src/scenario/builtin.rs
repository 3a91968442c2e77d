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

const BUILTINS: &[Builtin] = embedded![
    "surge",
    "surge-high-limit",
    "surge-from-quiet",
    "sine",
    "on-off",
    "steady",
    "batches",
    "low-limit",
    "retries",
    "churn",
    "loss",
    "zone-cut",
    "controller-down",
    "aggregators-down",
    "skew-move",
    "short-bursts",
    "zone-death",
    "trace",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::parse;

    #[test]
    fn each_is_good_and_bears_its_name() {
        for Builtin { name, text } in builtins() {
            let scenario = parse(&format!("{name}.yaml"), text, &[]).expect("good");
            assert_eq!(scenario.name, *name);
            assert!(!scenario.about.is_empty(), "{name} says what it is about");
        }
        assert_eq!(builtin("surge").map(|b| b.name), Some("surge"));
        assert_eq!(builtin("nothing"), None);
    }
}
