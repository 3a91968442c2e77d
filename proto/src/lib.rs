//! The contract between tiers: generated code, the one place where wire becomes model, and how a
//! connection is made. It knows nothing of counting, laws or limits.

pub mod backoff;
pub mod link;
pub mod transport;
pub mod wire;

pub use backoff::Backoff;
pub use transport::{Address, InvalidAddress};

/// Generated from `proto/sluicegate/v1/*.proto`.
#[allow(clippy::all, clippy::pedantic, clippy::cast_possible_truncation, reason = "generated")]
#[allow(unreachable_pub, unused_qualifications, missing_docs, reason = "generated")]
pub mod v1 {
    tonic::include_proto!("sluicegate.v1");
}

/// The encoded description of the protocol, for gRPC reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptor.bin"));
