//! Model to wire and back: the only place where one becomes the other. Encoding cannot fail;
//! decoding says which field is wrong, what was found and what is allowed. Nothing that comes out of
//! a decoder here needs checking for shape again; whether it makes sense on its stream (known ids,
//! counts that do not go back) is for the cores to say.

mod buckets;
mod down;
mod frames;
mod malformed;
mod up;

pub use buckets::{check_service, decode_service, encode_service};
pub use down::{DownEncoder, decode_down, encode_down};
pub use frames::{CHUNK_BYTES, Decoder, Frame, Frames, MAX_DOWN_BYTES, MAX_UP_BYTES};
pub use malformed::{Malformed, Problem};
pub use up::{decode_up, encode_up};

/// The highest term or configuration version that a child may claim to have seen. The receiver goes
/// beyond it, so without a bound one child could use up the numbers.
pub const MAX_SEEN: u64 = 1 << 48;
/// The highest term or configuration version that a parent may publish: beyond every [`MAX_SEEN`]
/// with room to go on.
pub const MAX_PUBLISHED: u64 = 1 << 49;
/// The most services that a hello may ask for, or a report or configuration hold.
pub const MAX_SERVICES: usize = 100_000;
/// The most keys that a report may name, hold or retire, and an update hold directives for.
pub const MAX_KEYS: usize = 1_000_000;
/// The longest time to live of a directive, in milliseconds.
pub const MAX_TTL_MS: u32 = 3_600_000;
/// The longest text of an owner, contact or runbook, in bytes.
pub const MAX_OWNER_BYTES: usize = 4096;
/// The longest pattern, in bytes.
pub const MAX_PATTERN_BYTES: usize = sluicegate_model::MAX_VALUE_BYTES;
/// The most patterns of one condition.
pub const MAX_PATTERNS: usize = 100_000;
/// The most conditions on further dimensions in one match.
pub const MAX_CONDITIONS: usize = 1000;
/// The most exclusions of one bucket.
pub const MAX_EXCLUSIONS: usize = 10_000;
/// The most values of one bucket that have a limit of their own.
pub const MAX_VALUE_LIMITS: usize = 1_000_000;
