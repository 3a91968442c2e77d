//! The requests: when they come, and from whom. Knows no law.

mod file;
mod profile;
mod replay;
mod source;

pub use file::TraceError;
pub(crate) use profile::Profile;
pub(crate) use source::Source;
