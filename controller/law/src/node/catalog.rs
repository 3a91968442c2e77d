//! Services and buckets as this node knows them: from configuration, or only because a child named
//! them. It must not know keys, sessions or directives.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluicegate_model::{KeyName, KeyValues, Mode, Name, Scope, ServiceBuckets, ServiceCounts};

/// Attempts at one service. Cumulative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Requests that reached the clients.
    pub attempts: u64,
    /// Requests that went through.
    pub admitted: u64,
    /// Requests that exactly one bucket dropped.
    pub dropped_by_one: u64,
    /// Requests that several buckets dropped.
    pub dropped_by_several: u64,
}

impl Totals {
    /// This, less an earlier state of the same totals.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            attempts: self.attempts.saturating_sub(earlier.attempts),
            admitted: self.admitted.saturating_sub(earlier.admitted),
            dropped_by_one: self.dropped_by_one.saturating_sub(earlier.dropped_by_one),
            dropped_by_several: self.dropped_by_several.saturating_sub(earlier.dropped_by_several),
        }
    }

    /// Adds `more`.
    pub fn add(&mut self, more: &Self) {
        self.attempts = self.attempts.saturating_add(more.attempts);
        self.admitted = self.admitted.saturating_add(more.admitted);
        self.dropped_by_one = self.dropped_by_one.saturating_add(more.dropped_by_one);
        self.dropped_by_several = self.dropped_by_several.saturating_add(more.dropped_by_several);
    }

    /// Whether every count is at least what it was in `earlier`.
    #[must_use]
    pub fn covers(&self, earlier: &Self) -> bool {
        self.attempts >= earlier.attempts
            && self.admitted >= earlier.admitted
            && self.dropped_by_one >= earlier.dropped_by_one
            && self.dropped_by_several >= earlier.dropped_by_several
    }

    /// As counts of `service`.
    #[must_use]
    pub fn of(&self, service: Name) -> ServiceCounts {
        ServiceCounts {
            service,
            attempts: self.attempts,
            admitted: self.admitted,
            dropped_by_one: self.dropped_by_one,
            dropped_by_several: self.dropped_by_several,
        }
    }
}

impl From<&ServiceCounts> for Totals {
    fn from(c: &ServiceCounts) -> Self {
        Self {
            attempts: c.attempts,
            admitted: c.admitted,
            dropped_by_one: c.dropped_by_one,
            dropped_by_several: c.dropped_by_several,
        }
    }
}

#[derive(Debug)]
pub(super) struct Service {
    pub(super) name: Name,
    pub(super) configured: Option<Arc<ServiceBuckets>>,
    pub(super) totals: Totals,
    pub(super) totals_at_tick: Totals,
    pub(super) attempts_rps: f32,
    pub(super) admitted_rps: f32,
    buckets: BTreeMap<Name, u32>,
}

#[derive(Debug)]
pub(super) struct BucketSlot {
    pub(super) service: u32,
    pub(super) name: Name,
    /// Its place in the service's configuration, if it is configured here.
    pub(super) place: Option<u32>,
    /// Keys of any kind.
    pub(super) keys: u32,
    /// Keys of single values.
    pub(super) values: u32,
}

/// Scope and mode of a configured bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) scope: Scope,
    pub(super) mode: Mode,
}

#[derive(Debug)]
pub(super) struct Catalog {
    services: Vec<Option<Service>>,
    free_services: Vec<u32>,
    by_name: BTreeMap<Name, u32>,
    buckets: Vec<Option<BucketSlot>>,
    free_buckets: Vec<u32>,
    unknown_services: u32,
    unknown_buckets: u32,
    max_unknown: u32,
}

impl Catalog {
    pub(super) fn new(max_unknown: u32) -> Self {
        Self {
            services: Vec::new(),
            free_services: Vec::new(),
            by_name: BTreeMap::new(),
            buckets: Vec::new(),
            free_buckets: Vec::new(),
            unknown_services: 0,
            unknown_buckets: 0,
            max_unknown,
        }
    }

    pub(super) fn bucket_count(&self) -> u32 {
        u32::try_from(self.buckets.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn services(&self) -> impl Iterator<Item = &Service> {
        self.by_name.values().filter_map(|at| self.services[*at as usize].as_ref())
    }

    pub(super) fn services_mut(&mut self) -> impl Iterator<Item = &mut Service> {
        self.services.iter_mut().flatten()
    }

    pub(super) fn service_of(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    pub(super) fn service(&self, at: u32) -> Option<&Service> {
        self.services.get(at as usize)?.as_ref()
    }

    pub(super) fn service_mut(&mut self, at: u32) -> Option<&mut Service> {
        self.services.get_mut(at as usize)?.as_mut()
    }

    pub(super) fn bucket(&self, at: u32) -> Option<&BucketSlot> {
        self.buckets.get(at as usize)?.as_ref()
    }

    pub(super) fn bucket_mut(&mut self, at: u32) -> Option<&mut BucketSlot> {
        self.buckets.get_mut(at as usize)?.as_mut()
    }

    pub(super) fn bucket_of(&self, service: &Name, bucket: &Name) -> Option<u32> {
        let service = self.service(self.service_of(service.as_str())?)?;
        service.buckets.get(bucket).copied()
    }

    /// The configured bucket behind a slot.
    pub(super) fn configured(&self, bucket: u32) -> Option<&sluicegate_model::Bucket> {
        let slot = self.bucket(bucket)?;
        let buckets = self.service(slot.service)?.configured.as_ref()?;
        buckets.buckets.get(slot.place? as usize)
    }

    pub(super) fn kind(&self, bucket: u32) -> Option<Kind> {
        self.configured(bucket).map(|b| Kind { scope: b.scope, mode: b.mode })
    }

    pub(super) fn key_name(&self, bucket: u32, values: &KeyValues) -> Option<KeyName> {
        let slot = self.bucket(bucket)?;
        let service = self.service(slot.service)?.name.clone();
        Some(KeyName { service, bucket: slot.name.clone(), values: values.clone() })
    }

    /// The slot of a service, made if it has none; `None` if one more unknown one is too many.
    pub(super) fn intern_service(&mut self, name: &Name) -> Option<u32> {
        if let Some(at) = self.by_name.get(name) {
            return Some(*at);
        }
        if self.unknown_services >= self.max_unknown {
            return None;
        }
        self.unknown_services += 1;
        Some(self.add_service(name.clone()))
    }

    /// The slot of a bucket, made if it has none; `None` if one more unknown one is too many.
    pub(super) fn intern_bucket(&mut self, service: &Name, bucket: &Name) -> Option<u32> {
        if let Some(at) = self.bucket_of(service, bucket) {
            return Some(at);
        }
        let known = self
            .service_of(service.as_str())
            .and_then(|at| self.service(at)?.configured.as_ref()?.bucket(bucket.as_str()))
            .and_then(|(place, _)| u32::try_from(place).ok());
        if known.is_none() && self.unknown_buckets >= self.max_unknown {
            return None;
        }
        let service = self.intern_service(service)?;
        self.unknown_buckets += u32::from(known.is_none());
        let slot = BucketSlot { service, name: bucket.clone(), place: known, keys: 0, values: 0 };
        let at = place_in(&mut self.buckets, &mut self.free_buckets, slot);
        if let Some(s) = self.service_mut(service) {
            s.buckets.insert(bucket.clone(), at);
        }
        Some(at)
    }

    /// Puts a service's buckets in force, or takes them out. Says its slot if that changed
    /// anything.
    pub(super) fn configure(
        &mut self,
        name: &Name,
        buckets: Option<Arc<ServiceBuckets>>,
    ) -> Option<u32> {
        let at = match (self.service_of(name.as_str()), &buckets) {
            (Some(at), _) => at,
            (None, None) => return None,
            (None, Some(_)) => {
                self.unknown_services += 1;
                self.add_service(name.clone())
            }
        };
        let service = self.services[at as usize].as_mut()?;
        if service.configured == buckets {
            return None;
        }
        match (service.configured.is_some(), buckets.is_some()) {
            (false, true) => self.unknown_services = self.unknown_services.saturating_sub(1),
            (true, false) => self.unknown_services += 1,
            (true, true) | (false, false) => {}
        }
        let places: BTreeMap<&str, usize> = buckets
            .iter()
            .flat_map(|b| b.buckets.iter().enumerate())
            .map(|(place, b)| (b.name.as_str(), place))
            .collect();
        for (name, slot) in &service.buckets {
            let Some(slot) = self.buckets[*slot as usize].as_mut() else { continue };
            let place = places.get(name.as_str()).and_then(|p| u32::try_from(*p).ok());
            match (slot.place.is_some(), place.is_some()) {
                (true, false) => self.unknown_buckets += 1,
                (false, true) => self.unknown_buckets = self.unknown_buckets.saturating_sub(1),
                (true, true) | (false, false) => {}
            }
            slot.place = place;
        }
        service.configured = buckets;
        self.release_service(at);
        Some(at)
    }

    /// Frees slots that nothing needs: unknown buckets without keys, then unknown services without
    /// buckets and counts.
    pub(super) fn release_bucket(&mut self, at: u32) {
        let Some(slot) = self.bucket(at) else { return };
        if slot.keys > 0 || slot.place.is_some() {
            return;
        }
        let (service, name) = (slot.service, slot.name.clone());
        self.buckets[at as usize] = None;
        self.free_buckets.push(at);
        self.unknown_buckets = self.unknown_buckets.saturating_sub(1);
        if let Some(s) = self.service_mut(service) {
            s.buckets.remove(&name);
        }
        self.release_service(service);
    }

    /// Frees an unknown service that has no buckets and no counts.
    fn release_service(&mut self, at: u32) {
        let Some(s) = self.service(at) else { return };
        if s.configured.is_some() || !s.buckets.is_empty() || s.totals != Totals::default() {
            return;
        }
        let name = s.name.clone();
        self.by_name.remove(&name);
        self.services[at as usize] = None;
        self.free_services.push(at);
        self.unknown_services = self.unknown_services.saturating_sub(1);
    }

    fn add_service(&mut self, name: Name) -> u32 {
        let service = Service {
            name: name.clone(),
            configured: None,
            totals: Totals::default(),
            totals_at_tick: Totals::default(),
            attempts_rps: 0.0,
            admitted_rps: 0.0,
            buckets: BTreeMap::new(),
        };
        let at = place_in(&mut self.services, &mut self.free_services, service);
        self.by_name.insert(name, at);
        at
    }
}

/// Puts `item` into a free place or a new one. The number of places is bounded by the callers.
pub(super) fn place_in<T>(slots: &mut Vec<Option<T>>, free: &mut Vec<u32>, item: T) -> u32 {
    if let Some(at) = free.pop() {
        slots[at as usize] = Some(item);
        return at;
    }
    let at = u32::try_from(slots.len()).expect("bounded far below 2^32");
    reserve_an_eighth(slots);
    slots.push(Some(item));
    at
}

/// Makes room by an eighth, where doubling would waste up to half of the largest lists there are.
pub(super) fn reserve_an_eighth<T>(items: &mut Vec<T>) {
    if items.len() == items.capacity() {
        items.reserve_exact((items.len() / 8).max(1));
    }
}
