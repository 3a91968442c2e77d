//! How tiers reach each other: addresses, channels and servers with the same keepalive and bounds
//! everywhere.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use http::uri::{Authority, Uri};
use tonic::transport::{Channel, Endpoint, Server};
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::server::HealthReporter;
use tonic_reflection::server::v1::{ServerReflection, ServerReflectionServer};

/// The largest frame (one gRPC message) that a receiver accepts, in bytes, unless it is told
/// otherwise.
pub const MAX_FRAME_BYTES: usize = 4 << 20;
/// How often a connection is probed, idle or not. Without it a peer that vanished without a word is
/// noticed only when TCP gives up.
pub const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
/// How long a probe may take before the connection counts as dead.
pub const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(4);
/// How long a connection may take to come about.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// The most streams of one connection.
pub const MAX_STREAMS_PER_CONNECTION: u32 = 256;

/// Where a tier listens: `host:port` or `http://host:port`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Address(Authority);

/// A text that is not an [`Address`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is not an address: {problem}; write host:port or http://host:port")]
pub struct InvalidAddress {
    /// The text.
    pub found: String,
    /// What is wrong with it.
    pub problem: &'static str,
}

impl Address {
    /// As a URI.
    #[must_use]
    pub fn uri(&self) -> Uri {
        let parts = Uri::builder().scheme("http").authority(self.0.clone()).path_and_query("/");
        parts.build().expect("scheme, authority and path together are a URI")
    }
}

impl FromStr for Address {
    type Err = InvalidAddress;

    fn from_str(text: &str) -> Result<Self, InvalidAddress> {
        let fail = |problem| Err(InvalidAddress { found: text.to_owned(), problem });
        let rest = match text.split_once("://") {
            Some(("http", rest)) => rest.strip_suffix('/').unwrap_or(rest),
            Some(("https", _)) => return fail("TLS is not offered"),
            Some(_) => return fail("its scheme is not http"),
            None => text,
        };
        if rest.contains(['/', '?', '#', '@']) {
            return fail("there is more to it than a host and a port");
        }
        let Ok(authority) = rest.parse::<Authority>() else {
            return fail("its host cannot be read");
        };
        if authority.host().is_empty() {
            return fail("it has no host");
        }
        match authority.as_str().rsplit_once(':') {
            Some((_, port)) if !port.ends_with(']') => match port.parse::<u16>() {
                Ok(0) | Err(_) => fail("its port is not a number from 1 to 65535"),
                Ok(_) => Ok(Self(authority)),
            },
            _ => fail("it has no port"),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl From<std::net::SocketAddr> for Address {
    fn from(address: std::net::SocketAddr) -> Self {
        Self(address.to_string().parse().expect("a socket address is a host and a port"))
    }
}

/// A channel to `address` that connects when it is used, and again after each failure.
#[must_use]
pub fn channel(address: &Address) -> Channel {
    Endpoint::from(address.uri())
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
        .tcp_nodelay(true)
        .connect_lazy()
}

/// A server with keepalive and bounds. Add services, then serve.
#[must_use]
pub fn server() -> Server {
    Server::builder()
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .max_concurrent_streams(MAX_STREAMS_PER_CONNECTION)
        .tcp_nodelay(true)
}

/// The gRPC health service, and the reporter that sets what it says.
#[must_use]
pub fn health() -> (HealthReporter, HealthServer<impl Health>) {
    tonic_health::server::health_reporter()
}

/// The gRPC reflection service for `descriptors` (encoded file descriptor sets) and the health
/// service.
///
/// # Errors
/// If one of them cannot be decoded.
pub fn reflection(
    descriptors: &[&'static [u8]],
) -> Result<ServerReflectionServer<impl ServerReflection>, tonic_reflection::server::Error> {
    let builder = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET);
    descriptors.iter().fold(builder, |b, d| b.register_encoded_file_descriptor_set(d)).build_v1()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_host_and_a_port() {
        for good in ["localhost:7070", "http://localhost:7070", "http://localhost:7070/"] {
            let address: Address = good.parse().expect(good);
            assert_eq!(address.to_string(), "localhost:7070");
            assert_eq!(address.uri(), "http://localhost:7070/");
        }
        assert_eq!("[::1]:80".parse::<Address>().expect("v6").to_string(), "[::1]:80");
        for (bad, problem) in [
            ("", "its host cannot be read"),
            ("[::1]", "it has no port"),
            ("localhost", "it has no port"),
            (":7070", "it has no host"),
            ("localhost:0", "its port is not a number from 1 to 65535"),
            ("localhost:70700", "its port is not a number from 1 to 65535"),
            ("localhost:http", "its port is not a number from 1 to 65535"),
            ("https://localhost:1", "TLS is not offered"),
            ("unix://x", "its scheme is not http"),
            ("localhost:1/path", "there is more to it than a host and a port"),
            ("me@localhost:1", "there is more to it than a host and a port"),
            ("a b:1", "its host cannot be read"),
        ] {
            let error = bad.parse::<Address>().expect_err(bad);
            assert_eq!(error.problem, problem, "{bad:?}");
            assert!(error.to_string().contains("write host:port"), "{error}");
        }
    }

    #[test]
    fn reflection_knows_the_protocol() {
        assert!(reflection(&[crate::FILE_DESCRIPTOR_SET]).is_ok());
        assert!(reflection(&[b"\xff\xff\xff"]).is_err());
    }
}
