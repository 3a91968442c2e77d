//! What comes down: configuration, acknowledgements, directives.
//!
//! A directive and a service's buckets are the same for every child, so each is encoded once and its
//! bytes are shared by all the messages that carry it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use sluicegate_model::{
    AdmitRatio, Configuration, Directive, Down, Grant, KeyId, Law, ServiceBuckets, Update,
};

use super::buckets::{decode_service, encode_service};
use super::malformed::{Malformed, Problem, at_most, finite, names, no_twice, not_allowed};
use super::{MAX_KEYS, MAX_PUBLISHED, MAX_SERVICES, MAX_TTL_MS};
use crate::v1;
use crate::v1::down::Message;

/// The most encoded directives, and the most encoded services, that a [`DownEncoder`] remembers.
const MAX_REMEMBERED: usize = 4096;

/// Encodes for many children, each directive and service once.
#[derive(Debug, Default)]
pub struct DownEncoder {
    bodies: HashMap<BodyKey, Bytes>,
    /// By address. Holding the service keeps its address from being used again.
    services: HashMap<usize, (Arc<ServiceBuckets>, Bytes)>,
}

/// Every field of a directive, bit by bit.
type BodyKey = (u32, u32, u32, u64, u32, u64, u64, u32, Option<(u64, u64)>);

/// The wire form of `down`, for a single receiver.
#[must_use]
pub fn encode_down(down: &Down) -> v1::Down {
    DownEncoder::default().encode(down)
}

/// The message that `down` stands for.
///
/// # Errors
/// Says which field breaks the protocol.
pub fn decode_down(down: v1::Down) -> Result<Down, Malformed> {
    match down.message {
        None => Err(Malformed::new("down.message", Problem::Missing)),
        Some(Message::Configuration(c)) => decode_configuration(c).map(Down::Configuration),
        Some(Message::Update(u)) => decode_update(u).map(Down::Update),
        Some(Message::Chunk(_)) => not_allowed("down.message", "a chunk", "a whole message"),
    }
}

impl DownEncoder {
    /// The wire form of `down`.
    #[must_use]
    pub fn encode(&mut self, down: &Down) -> v1::Down {
        let message = match down {
            Down::Configuration(configuration) => {
                Message::Configuration(self.configuration(configuration))
            }
            Down::Update(update) => Message::Update(self.update(update)),
        };
        v1::Down { message: Some(message) }
    }

    fn configuration(&mut self, configuration: &Configuration) -> v1::Configuration {
        v1::Configuration {
            version: configuration.version,
            term: configuration.term,
            full: configuration.full,
            services: configuration.services.iter().map(|s| self.service(s)).collect(),
            removed: configuration.removed.iter().map(ToString::to_string).collect(),
            law: match configuration.law {
                Law::Ratio => v1::Law::Ratio.into(),
                Law::Grant => v1::Law::Grant.into(),
            },
        }
    }

    fn service(&mut self, service: &Arc<ServiceBuckets>) -> Bytes {
        if self.services.len() >= MAX_REMEMBERED {
            self.services.clear();
        }
        let address = Arc::as_ptr(service).addr();
        let (_, bytes) = self.services.entry(address).or_insert_with(|| {
            (Arc::clone(service), encode_service(service).encode_to_vec().into())
        });
        bytes.clone()
    }

    fn update(&mut self, update: &Update) -> v1::Update {
        let directives = update
            .directives
            .iter()
            .map(|(key, directive)| v1::Directive { key: *key, body: self.body(directive) })
            .collect();
        v1::Update { ack_seq: update.ack_seq, directives }
    }

    fn body(&mut self, directive: &Directive) -> Bytes {
        if self.bodies.len() >= MAX_REMEMBERED {
            self.bodies.clear();
        }
        let body = encode_body(directive);
        let key = (
            body.admit_q32,
            body.headroom.to_bits(),
            body.sigma.to_bits(),
            body.limit_rps.to_bits(),
            body.sessions,
            body.term,
            body.seq,
            body.ttl_ms,
            body.grant.map(|g| (g.rps.to_bits(), g.base_rps.to_bits())),
        );
        self.bodies.entry(key).or_insert_with(|| body.encode_to_vec().into()).clone()
    }
}

fn encode_body(directive: &Directive) -> v1::DirectiveBody {
    let ttl_ms = u32::try_from(directive.ttl.as_millis()).unwrap_or(MAX_TTL_MS);
    v1::DirectiveBody {
        admit_q32: directive.admit.bits(),
        headroom: directive.headroom,
        sigma: directive.sigma,
        limit_rps: directive.limit_rps,
        sessions: directive.sessions,
        term: directive.term,
        seq: directive.seq,
        ttl_ms: ttl_ms.min(MAX_TTL_MS),
        grant: directive.grant.map(|g| v1::Grant { rps: g.rps, base_rps: g.base_rps }),
    }
}

fn published(field: &str, number: u64) -> Result<u64, Malformed> {
    if number > MAX_PUBLISHED {
        return not_allowed(field, number, "0 to 2^49");
    }
    Ok(number)
}

fn decode_configuration(c: v1::Configuration) -> Result<Configuration, Malformed> {
    at_most("configuration.services", c.services.len(), MAX_SERVICES)?;
    if c.full && !c.removed.is_empty() {
        let problem = Problem::Length { found: c.removed.len(), expected: 0 };
        return Err(Malformed::new("configuration.removed", problem));
    }
    let services: Vec<_> = c
        .services
        .into_iter()
        .map(|bytes| {
            let service = v1::ServiceBuckets::decode(bytes).map_err(|e| {
                Malformed::new("configuration.services", Problem::Undecodable(e.to_string()))
            })?;
            decode_service(service).map(Arc::new).map_err(|e| e.within("configuration.services"))
        })
        .collect::<Result<_, _>>()?;
    let removed = names("configuration.removed", &c.removed, MAX_SERVICES)?;
    let all: Vec<_> = services.iter().map(|s| &s.service).chain(&removed).collect();
    no_twice("configuration.services.service", &all)?;
    Ok(Configuration {
        version: published("configuration.version", c.version)?,
        term: published("configuration.term", c.term)?,
        law: match v1::Law::try_from(c.law) {
            Ok(v1::Law::Unspecified | v1::Law::Ratio) => Law::Ratio,
            Ok(v1::Law::Grant) => Law::Grant,
            Err(_) => return not_allowed("configuration.law", c.law, "1 (ratio) or 2 (grant)"),
        },
        full: c.full,
        services,
        removed,
    })
}

fn decode_update(update: v1::Update) -> Result<Update, Malformed> {
    at_most("update.directives", update.directives.len(), MAX_KEYS)?;
    let directives: Vec<_> =
        update.directives.into_iter().map(decode_directive).collect::<Result<_, _>>()?;
    let keys: Vec<KeyId> = directives.iter().map(|(key, _)| *key).collect();
    no_twice("update.directives.key", &keys)?;
    Ok(Update { ack_seq: update.ack_seq, directives })
}

fn decode_directive(directive: v1::Directive) -> Result<(KeyId, Directive), Malformed> {
    let body = v1::DirectiveBody::decode(directive.body).map_err(|e| {
        Malformed::new("update.directives.body", Problem::Undecodable(e.to_string()))
    })?;
    decode_body(&body)
        .map(|made| (directive.key, made))
        .map_err(|e| e.within("update.directives.body"))
}

fn decode_body(body: &v1::DirectiveBody) -> Result<Directive, Malformed> {
    if body.ttl_ms > MAX_TTL_MS {
        return not_allowed("ttl_ms", body.ttl_ms, "0 to 3_600_000");
    }
    let limit_rps = if body.limit_rps == f64::INFINITY {
        body.limit_rps
    } else {
        finite("limit_rps", body.limit_rps)?
    };
    finite("headroom", body.headroom.into())?;
    finite("sigma", body.sigma.into())?;
    Ok(Directive {
        admit: AdmitRatio::from_bits(body.admit_q32),
        headroom: body.headroom + 0.0,
        sigma: body.sigma + 0.0,
        limit_rps,
        sessions: body.sessions,
        term: published("term", body.term)?,
        seq: body.seq,
        ttl: Duration::from_millis(body.ttl_ms.into()),
        grant: body.grant.as_ref().map(decode_grant).transpose()?,
    })
}

fn decode_grant(grant: &v1::Grant) -> Result<Grant, Malformed> {
    let rps = finite("grant.rps", grant.rps)?;
    let base_rps = finite("grant.base_rps", grant.base_rps)?;
    if base_rps > rps {
        return not_allowed("grant.base_rps", base_rps, "at most grant.rps");
    }
    Ok(Grant { rps, base_rps })
}
