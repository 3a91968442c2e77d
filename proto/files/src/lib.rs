//! What people write: bucket files and node settings, from YAML to validated data, with errors that
//! point into the file.
//!
//! Knows no wire, no network and no clock. The only I/O is reading bucket files from disk
//! ([`buckets::load_dir`], [`buckets::load_files`]).

pub mod buckets;
mod diagnostic;
pub mod node;
mod scalar;
pub mod schema;
mod source;
mod suggest;
mod tree;
mod walk;

pub use diagnostic::{Diagnostic, MAX_FINDINGS_PER_FILE, Severity};
pub use tree::{MAX_DEPTH, MAX_FILE_BYTES, MAX_NODES};
