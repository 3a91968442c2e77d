//! The settings of a node as they may be given: each is a field of the file and a flag of the
//! command, defined once. The doc comment of a field is its `--help` and its line in the reference.

use std::path::PathBuf;

use crate::diagnostic::{Problem, Report};
use crate::tree::{Node, Value};
use crate::walk::{FieldName, Trail, count, scalar};

/// One setting: its name in the file and what it means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SettingDoc {
    /// The name of the field in a file; the flag is the same with dashes.
    pub name: &'static str,
    /// What it means, with default and range.
    pub doc: &'static str,
}

impl FieldName for SettingDoc {
    fn name(&self) -> &'static str {
        self.name
    }

    fn refusal(&self) -> Option<String> {
        None
    }
}

/// A set of settings of which each may be given or not.
pub trait Flags: Default {
    /// Every setting, in the order of the reference.
    fn docs() -> Vec<SettingDoc>;
    /// What is given here, and for the rest what `file` gives.
    #[must_use]
    fn over(self, file: Self) -> Self;
    /// The names of the settings that are given.
    fn given(&self) -> Vec<&'static str>;
}

/// A set of settings that can be read from a tree, one field at a time.
pub(crate) trait FromFile: Flags {
    /// Reads the field `name`; `false` if it is not one of these.
    fn set(&mut self, name: &str, node: &Node, report: &mut Report<'_>) -> bool;
}

/// The type of a setting, as a file holds it.
trait Setting: Sized {
    fn read(node: &Node, trail: &Trail<'_>, report: &mut Report<'_>) -> Option<Self>;
}

impl Setting for u64 {
    fn read(node: &Node, trail: &Trail<'_>, report: &mut Report<'_>) -> Option<Self> {
        count(node, trail, 0..=u64::MAX, report)
    }
}

impl Setting for String {
    fn read(node: &Node, trail: &Trail<'_>, report: &mut Report<'_>) -> Option<Self> {
        scalar(node, trail, "a text", report).map(str::to_owned)
    }
}

impl Setting for PathBuf {
    fn read(node: &Node, trail: &Trail<'_>, report: &mut Report<'_>) -> Option<Self> {
        scalar(node, trail, "a path", report).map(Self::from)
    }
}

impl Setting for bool {
    fn read(node: &Node, trail: &Trail<'_>, report: &mut Report<'_>) -> Option<Self> {
        match scalar(node, trail, "`true` or `false`", report)? {
            "true" => Some(true),
            "false" => Some(false),
            text => {
                let p = format!("expected `true` or `false`, found `{}`", text.escape_debug());
                report.error(node.at, trail, p);
                None
            }
        }
    }
}

impl Setting for Vec<String> {
    fn read(node: &Node, trail: &Trail<'_>, report: &mut Report<'_>) -> Option<Self> {
        match &node.value {
            Value::List(items) => {
                let texts: Vec<Option<String>> = items
                    .iter()
                    .enumerate()
                    .map(|(i, item)| String::read(item, &trail.item(i), report))
                    .collect();
                texts.into_iter().collect()
            }
            Value::Reported => None,
            Value::Scalar { text, .. } => {
                let p = Problem::new("expected a list").help(format!("write [{text}]"));
                report.error(node.at, trail, p);
                None
            }
            Value::Map(_) => {
                report.error(node.at, trail, "expected a list, found a map");
                None
            }
        }
    }
}

/// Defines a set of settings: `doc [arguments for clap] name: type`, and the sets it includes.
macro_rules! settings {
    (
        $(#[doc = $about:literal])+
        $set:ident {
            $( $(#[doc = $doc:literal])+ [$($arg:tt)*] $name:ident: $type:ty, )*
        }
        $( includes { $( $part:ident: $Part:ty, )* } )?
    ) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, Default, PartialEq, Eq, clap::Args)]
        pub struct $set {
            $( $(#[doc = $doc])+ #[arg(long, $($arg)*)] pub $name: Option<$type>, )*
            $( $(
                #[allow(missing_docs)]
                #[command(flatten)]
                pub $part: $Part,
            )* )?
        }

        impl Flags for $set {
            fn docs() -> Vec<SettingDoc> {
                #[allow(unused_mut)]
                let mut docs = vec![$(
                    SettingDoc { name: stringify!($name), doc: concat!($($doc),+).trim() },
                )*];
                $( $( docs.extend(<$Part>::docs()); )* )?
                docs
            }

            fn over(self, file: Self) -> Self {
                Self {
                    $( $name: self.$name.or(file.$name), )*
                    $( $( $part: self.$part.over(file.$part), )* )?
                }
            }

            fn given(&self) -> Vec<&'static str> {
                #[allow(unused_mut)]
                let mut names = Vec::new();
                $( names.extend(self.$name.as_ref().map(|_| stringify!($name))); )*
                $( $( names.extend(self.$part.given()); )* )?
                names
            }
        }

        impl FromFile for $set {
            fn set(&mut self, name: &str, node: &Node, report: &mut Report<'_>) -> bool {
                match name {
                    $( stringify!($name) => {
                        let trail = Trail::Top;
                        self.$name = Setting::read(node, &trail.field(name), report);
                        true
                    } )*
                    _ => {
                        $( $( if self.$part.set(name, node, report) { return true; } )* )?
                        false
                    }
                }
            }
        }
    };
}

settings! {
    /// What every node says of itself.
    NodeFlags {
        /// The name of this node, for people: shown where nodes are listed. Default: the name of the host.
        [value_name = "NAME"] node: String,
        /// The region this node runs in. Default: default.
        [value_name = "NAME"] region: String,
        /// How often this node reports or works out limits, in milliseconds, 50 to 60_000. Default: 1_000.
        [value_name = "N"] tick_ms: u64,
        /// How long an order to drop stays in force unless it is renewed, in milliseconds, 200 to 3_600_000, and at least 4 ticks. Default: 10_000.
        [value_name = "N"] ttl_ms: u64,
    }
}

settings! {
    /// Where a node can be reached.
    ListenFlags {
        /// The address for gRPC. Default: 127.0.0.1:7400 (controller), :7401 (aggregator), :7402 (sidecar).
        [value_name = "ADDRESS:PORT"] listen: String,
        /// The address for /metrics and /healthz. Default: 127.0.0.1:7480 (controller), :7481 (aggregator), :7482 (sidecar).
        [value_name = "ADDRESS:PORT"] http_listen: String,
    }
}

settings! {
    /// What the streams of a node may cost it. What is beyond is refused and counted.
    LimitFlags {
        /// The most streams open at once, 1 to 1_000_000. Default: 100_000 (aggregator), 1_000 (controller).
        [value_name = "N"] max_sessions: u64,
        /// The most keys of the whole node, 1 to 50_000_000. Default: 4_000_000 (aggregator), 10_000_000 (controller).
        [value_name = "N"] max_keys: u64,
        /// The most keys of one stream, 1 to 50_000_000. Default: 262_144 (aggregator), 4_000_000 (controller).
        [value_name = "N"] max_keys_per_session: u64,
        /// The largest message that is read, in bytes, 65_536 to 67_108_864. Default: 4_194_304.
        [value_name = "BYTES"] max_message_bytes: u64,
        /// The most requests a second that one stream may claim for one key, 1 to 1_000_000_000_000. Default: 10_000_000 (aggregator), 1_000_000_000 (controller).
        [value_name = "RPS"] max_session_rps: u64,
    }
}

settings! {
    /// The settings of a controller.
    ControllerFlags {
        /// The directory with the bucket files. Default: configs.
        [value_name = "DIR"] buckets_dir: PathBuf,
        /// How limits become drop ratios, for the whole control plane: grant (zones are granted parts of a limit, and surges are reported at once; what guard, fair_by and priority need) or ratio (the share of the last interval that was over the limit). Default: ratio.
        [value_name = "LAW"] law: String,
    }
    includes { node: NodeFlags, listen: ListenFlags, limits: LimitFlags, }
}

settings! {
    /// The settings of an aggregator.
    AggregatorFlags {
        /// The zone this node serves. Default: default.
        [value_name = "NAME"] zone: String,
        /// The controllers of the region, host:port each, at most 16. Default: 127.0.0.1:7400.
        [value_name = "HOST:PORT", value_delimiter = ','] controllers: Vec<String>,
    }
    includes { node: NodeFlags, listen: ListenFlags, limits: LimitFlags, }
}

settings! {
    /// The settings of a client, as embedded in a process or in the sidecar.
    ClientFlags {
        /// The zone this process runs in. Default: default.
        [value_name = "NAME"] zone: String,
        /// The aggregators of the zone, host:port each, in order of preference, at most 16. Default: 127.0.0.1:7401.
        [value_name = "HOST:PORT", value_delimiter = ','] aggregators: Vec<String>,
        /// The services whose buckets are needed; none means all, at most 10_000. Default: none.
        [value_name = "NAME", value_delimiter = ','] services: Vec<String>,
        /// Once control is lost, over how long buckets change to what their on_control_loss says, in milliseconds, 0 to 3_600_000. Default: 10_000.
        [value_name = "N"] ramp_ms: u64,
        /// The most combinations of service, caller and procedure that are remembered, 1 to 16_777_216. Default: 65_536.
        [value_name = "N"] max_identities: u64,
        /// The most values of per dimensions that are counted apart, over all buckets, 1 to 16_777_216. Default: 200_000.
        [value_name = "N"] max_values: u64,
    }
    includes { node: NodeFlags, }
}

settings! {
    /// The settings of a sidecar.
    SidecarFlags {
        /// The descriptor entry that names the caller. Default: caller.
        [value_name = "KEY"] caller_key: String,
        /// The descriptor entry that names the procedure. Default: procedure.
        [value_name = "KEY"] procedure_key: String,
        /// Whether answers to refused requests carry x-ratelimit-* and retry-after headers. Default: true.
        [value_name = "BOOL"] headers: bool,
    }
    includes { client: ClientFlags, listen: ListenFlags, }
}
