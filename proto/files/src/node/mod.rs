//! Node settings: what a controller, an aggregator, a sidecar or an embedded client is told, from a
//! YAML file and from flags. Flags win. Does no I/O: the caller reads the file, and says the name of
//! the host.

mod flags;
mod resolve;
mod settings;

use std::fmt;

pub use flags::{
    AggregatorFlags, ClientFlags, ControllerFlags, Flags, LimitFlags, ListenFlags, NodeFlags,
    SettingDoc, SidecarFlags,
};
pub use settings::{
    AggregatorSettings, ClientLimits, ClientSettings, ControllerSettings, Limits, SidecarSettings,
};

use crate::diagnostic::{Diagnostic, Report};
use crate::source;
use crate::suggest::nearest;
use crate::tree::{self, Node, Tree, Value};
use resolve::Resolver;

/// The kinds of node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Works out limits for a region.
    Controller,
    /// Adds up the counts of a zone.
    Aggregator,
    /// Answers an Envoy.
    Sidecar,
    /// Is embedded in a process.
    Client,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Controller, Self::Aggregator, Self::Sidecar, Self::Client];

    /// The word in `kind:`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Controller => "controller",
            Self::Aggregator => "aggregator",
            Self::Sidecar => "sidecar",
            Self::Client => "client",
        }
    }

    /// The one that `text` names, or is most likely meant to name.
    #[must_use]
    pub fn nearest(text: &str) -> Option<Self> {
        let name = nearest(text, Self::ALL.iter().map(|k| k.as_str()))?;
        Self::ALL.into_iter().find(|k| k.as_str() == name)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A settings file that was read from disk.
#[derive(Debug, Clone, Copy)]
pub struct SettingsFile<'a> {
    /// What messages call it.
    pub path: &'a str,
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// Why settings cannot be used: everything that is wrong, in the file and in the flags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidSettings {
    /// At least one.
    pub errors: Vec<Diagnostic>,
}

impl fmt::Display for InvalidSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.errors.iter().enumerate() {
            if i > 0 {
                f.write_str("\n\n")?;
            }
            fmt::Display::fmt(error, f)?;
        }
        Ok(())
    }
}

impl std::error::Error for InvalidSettings {}

/// The settings of a controller. `host` is its name if nothing gives one.
///
/// # Errors
/// Everything that is wrong, at once.
pub fn controller(
    file: Option<SettingsFile<'_>>,
    flags: ControllerFlags,
    host: &str,
) -> Result<ControllerSettings, InvalidSettings> {
    Resolver::resolve(Kind::Controller, file, flags, host, resolve::controller)
}

/// The settings of an aggregator. `host` is its name if nothing gives one.
///
/// # Errors
/// Everything that is wrong, at once.
pub fn aggregator(
    file: Option<SettingsFile<'_>>,
    flags: AggregatorFlags,
    host: &str,
) -> Result<AggregatorSettings, InvalidSettings> {
    Resolver::resolve(Kind::Aggregator, file, flags, host, resolve::aggregator)
}

/// The settings of a sidecar. `host` is its name if nothing gives one.
///
/// # Errors
/// Everything that is wrong, at once.
pub fn sidecar(
    file: Option<SettingsFile<'_>>,
    flags: SidecarFlags,
    host: &str,
) -> Result<SidecarSettings, InvalidSettings> {
    Resolver::resolve(Kind::Sidecar, file, flags, host, resolve::sidecar)
}

/// The settings of an embedded client. `host` is its name if nothing gives one.
///
/// # Errors
/// Everything that is wrong, at once.
pub fn client(
    file: Option<SettingsFile<'_>>,
    flags: ClientFlags,
    host: &str,
) -> Result<ClientSettings, InvalidSettings> {
    Resolver::resolve(Kind::Client, file, flags, host, resolve::client)
}

/// Which kind of node a file is about; `None` if it is not a settings file.
#[must_use]
pub fn kind_of(file: SettingsFile<'_>) -> Option<Kind> {
    let text = source::text(file.path, file.bytes).ok()?;
    let Tree::Whole(Node { value: Value::Map(entries), .. }) =
        tree::read(text, &mut Report::new(file.path, text))
    else {
        return None;
    };
    let (_, node) = entries.iter().find(|(key, _)| key.text == "kind")?;
    match &node.value {
        Value::Scalar { text, .. } => Kind::ALL.into_iter().find(|k| k.as_str() == text),
        Value::List(_) | Value::Map(_) | Value::Reported => None,
    }
}

/// Checks a settings file of that kind, without flags.
///
/// # Errors
/// Everything that is wrong, at once.
pub fn check(kind: Kind, file: SettingsFile<'_>) -> Result<(), InvalidSettings> {
    const HOST: &str = "host";
    match kind {
        Kind::Controller => controller(Some(file), ControllerFlags::default(), HOST).map(drop),
        Kind::Aggregator => aggregator(Some(file), AggregatorFlags::default(), HOST).map(drop),
        Kind::Sidecar => sidecar(Some(file), SidecarFlags::default(), HOST).map(drop),
        Kind::Client => client(Some(file), ClientFlags::default(), HOST).map(drop),
    }
}

/// Every setting of that kind, for a reference.
#[must_use]
pub fn docs(kind: Kind) -> Vec<SettingDoc> {
    match kind {
        Kind::Controller => ControllerFlags::docs(),
        Kind::Aggregator => AggregatorFlags::docs(),
        Kind::Sidecar => SidecarFlags::docs(),
        Kind::Client => ClientFlags::docs(),
    }
}
