//! The keys that the rivals count, by number: one for each bucket, or for each combination of values
//! of a bucket with `per` that the workloads name. Knows no law.
//!
//! What rivals do not simulate is how limits reach the nodes: all know them at once.

use std::sync::Arc;

use sluicegate_model::{KeyValues, Limit, Mode, Scope, ServiceBuckets};

use crate::node::{NodeId, Topology};
use crate::observe::{Ask, BucketId};
use crate::setup::Setup;

/// A key, by its number.
pub(crate) type KeyId = u32;

/// A key.
#[derive(Debug, Clone)]
pub(crate) struct Key {
    pub(crate) bucket: BucketId,
    pub(crate) mode: Mode,
    /// What it limits to; `None` while it limits nothing.
    pub(crate) limit: Option<Bound>,
    scope: Scope,
    values: KeyValues,
    /// Service and bucket.
    names: (String, String),
}

/// How much a key admits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Bound {
    /// Requests a second.
    pub(crate) rps: f64,
    /// Requests at once after a pause.
    pub(crate) burst: f64,
}

/// All keys of a world.
#[derive(Debug)]
pub(crate) struct Keys {
    keys: Vec<Key>,
    /// Those of a request, by workload and kind.
    of: Vec<Vec<Box<[KeyId]>>>,
    regions: usize,
}

impl Keys {
    pub(crate) fn new(setup: &Setup<'_>) -> Self {
        let mut keys: Vec<Key> = Vec::new();
        let mut of = Vec::new();
        for workload in &setup.workloads {
            let mut kinds = Vec::new();
            for kind in &workload.kinds {
                let ids = kind.buckets.iter().filter_map(|id| {
                    let (key, values) = named(setup, *id, kind)?;
                    let known = keys.iter().position(|k| k.bucket == *id && k.values == values);
                    let place = known.unwrap_or_else(|| {
                        keys.push(key);
                        keys.len() - 1
                    });
                    KeyId::try_from(place).ok()
                });
                kinds.push(ids.collect());
            }
            of.push(kinds);
        }
        let mut made = Self { keys, of, regions: setup.topology.regions() };
        made.configure(&setup.services);
        made
    }

    /// The limits are these from now on; a bucket that is gone limits nothing.
    pub(crate) fn configure(&mut self, services: &[Arc<ServiceBuckets>]) {
        for key in &mut self.keys {
            let service = services.iter().find(|s| s.service == key.names.0[..]);
            let bucket = service.and_then(|s| s.buckets.iter().find(|b| b.name == key.names.1[..]));
            key.limit = bucket.and_then(|b| match b.limit_of(&key.values) {
                Limit::Unlimited => None,
                Limit::Tokens(t) => Some(Bound { rps: t.rate_rps(), burst: t.depth() }),
            });
            // There is no tier above the regions here: each has an equal part of a global limit.
            if let (Scope::Global, Some(limit)) = (key.scope, &mut key.limit) {
                #[expect(clippy::cast_precision_loss, reason = "at most 1000")]
                let regions = self.regions as f64;
                *limit = Bound { rps: limit.rps / regions, burst: limit.burst / regions };
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Those that count a request.
    #[inline]
    pub(crate) fn of(&self, ask: &Ask) -> &[KeyId] {
        &self.of[usize::from(ask.workload)][usize::from(ask.kind)]
    }

    #[inline]
    pub(crate) fn get(&self, id: KeyId) -> &Key {
        &self.keys[id as usize]
    }

    /// The node that owns the count of a key for a client.
    pub(crate) fn root(&self, id: KeyId, topology: Topology, client: usize) -> NodeId {
        let zone = topology.zone_of(client);
        match self.get(id).scope {
            Scope::Zone => topology.aggregator(zone),
            Scope::Region | Scope::Global => topology.controller(topology.region_of(zone)),
        }
    }

    /// Whether aggregators own the count of a key.
    pub(crate) fn is_zonal(&self, id: KeyId) -> bool {
        self.get(id).scope == Scope::Zone
    }
}

fn named(
    setup: &Setup<'_>,
    id: BucketId,
    kind: &crate::setup::KindOfRequest,
) -> Option<(Key, KeyValues)> {
    let info = setup.buckets.get(usize::from(id.0))?;
    let service = setup.services.iter().find(|s| s.service == info.service)?;
    let bucket = service.buckets.iter().find(|b| b.name == info.bucket)?;
    let values = match &bucket.per {
        None => KeyValues::Whole,
        Some(per) => kind.with_request(|request| {
            let of = |name: &sluicegate_model::Name| request.dimension(name.as_str());
            let all = per.dimensions.iter().map(|d| of(d).unwrap_or("").into());
            KeyValues::Each(all.collect())
        }),
    };
    let key = Key {
        bucket: id,
        mode: bucket.mode,
        limit: None,
        scope: bucket.scope,
        values: values.clone(),
        names: (info.service.to_string(), info.bucket.to_string()),
    };
    Some((key, values))
}
