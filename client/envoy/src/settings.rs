//! What an operator sets, and why a sidecar may not start.

use std::net::{Ipv4Addr, SocketAddr};

use sluicegate_model::MAX_NAME_BYTES;

/// How a sidecar runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The embedded client.
    pub client: sluicegate_client::Settings,
    /// Where Envoy finds the service. Port 0 takes any that is free.
    pub listen: SocketAddr,
    /// The key of the descriptor entry that names the caller. That entry is the request's caller
    /// and no further dimension.
    pub caller_key: String,
    /// The key of the descriptor entry that names the procedure, in the same way.
    pub procedure_key: String,
    /// Whether a refused request's answer gets `x-ratelimit-*` and `retry-after`. Off if Envoy
    /// makes them itself (`enable_x_ratelimit_headers`): it would send both.
    pub headers: bool,
    /// Bounds on what a request may hold.
    pub limits: Limits,
}

/// Bounds on requests. What is beyond one is refused with `INVALID_ARGUMENT`, which Envoy lets pass
/// unless it is told to deny on failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Descriptors of a request.
    pub descriptors: usize,
    /// Entries of a descriptor.
    pub entries: usize,
    /// Bytes of an entry's key.
    pub key_bytes: usize,
    /// Bytes of an entry's value. Longer than [`sluicegate_model::MAX_VALUE_BYTES`] it gets no count
    /// of its own.
    pub value_bytes: usize,
    /// Bytes of a request.
    pub message_bytes: usize,
    /// Requests under way on one connection.
    pub streams: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            descriptors: 64,
            entries: 32,
            key_bytes: MAX_NAME_BYTES,
            value_bytes: 8 * 1024,
            message_bytes: 256 * 1024,
            streams: 1024,
        }
    }
}

impl Default for Settings {
    /// On 127.0.0.1:8081; `caller` and `procedure` are the keys of their own names.
    fn default() -> Self {
        Self {
            client: sluicegate_client::Settings::default(),
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8081)),
            caller_key: "caller".into(),
            procedure_key: "procedure".into(),
            headers: true,
            limits: Limits::default(),
        }
    }
}

/// Why a sidecar does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The embedded client does not.
    #[error("the sidecar's client does not start: {0}")]
    Client(#[from] sluicegate_client::StartError),
    /// The address is taken or not this machine's.
    #[error("listen: {address} cannot be bound: {source}; choose a free address of this machine")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The keys for caller and procedure are the same, or empty.
    #[error("caller_key {caller:?} and procedure_key {procedure:?} must be two different keys")]
    Keys {
        /// The key for the caller.
        caller: String,
        /// The key for the procedure.
        procedure: String,
    },
    /// A bound of nothing.
    #[error("limits.{field}: 0 would refuse every request; it must be 1 or more")]
    Zero {
        /// Which setting.
        field: &'static str,
    },
    /// Reflection cannot be offered.
    #[error("the service's description cannot be read: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
}

impl Settings {
    pub(crate) fn check(&self) -> Result<(), StartError> {
        let (caller, procedure) = (&self.caller_key, &self.procedure_key);
        if caller == procedure || caller.is_empty() || procedure.is_empty() {
            let (caller, procedure) = (caller.clone(), procedure.clone());
            return Err(StartError::Keys { caller, procedure });
        }
        let Limits { descriptors, entries, key_bytes, value_bytes, message_bytes, streams } =
            self.limits;
        let bounds = [
            ("descriptors", descriptors),
            ("entries", entries),
            ("key_bytes", key_bytes),
            ("value_bytes", value_bytes),
            ("message_bytes", message_bytes),
            ("streams", streams as usize),
        ];
        match bounds.into_iter().find(|(_, bound)| *bound == 0) {
            Some((field, _)) => Err(StartError::Zero { field }),
            None => Ok(()),
        }
    }
}
