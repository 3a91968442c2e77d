//! What there is to count, by number, and which of it counts a request: the oracle's own reading of
//! the rules of matching. It must not ask the model's.

use std::collections::BTreeMap;

use sluicegate_model::{
    Bucket, KeyName, KeyValues, Match, Mode, Name, OnControlLoss, Pattern, Request, Scope, Select,
    ServiceBuckets,
};

use crate::observe::BucketId;
use crate::setup::Setup;

/// A key or a service by number.
pub(super) type Thing = usize;

/// What is counted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum What {
    /// A key.
    Key(KeyName),
    /// The attempts at a service.
    Service(Name),
}

/// A bucket, as far as judging needs it. Limits change, and are known by client.
#[derive(Debug)]
pub(super) struct BucketFacts {
    pub(super) service: Name,
    pub(super) name: Name,
    pub(super) mode: Mode,
    pub(super) scope: Scope,
    pub(super) on_loss: OnControlLoss,
}

/// What one kind of request is counted on.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) service: Thing,
    pub(super) service_name: Name,
    pub(super) hits: Vec<Hit>,
}

/// One bucket that counts it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hit {
    pub(super) bucket: BucketId,
    pub(super) key: Thing,
}

/// Everything that can be counted in a world.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) things: Vec<What>,
    by_what: BTreeMap<What, Thing>,
    pub(super) buckets: Vec<BucketFacts>,
    /// By workload and kind.
    pub(super) kinds: Vec<Vec<Asked>>,
}

impl Directory {
    pub(super) fn new(setup: &Setup<'_>) -> Self {
        let mut made = Self {
            things: Vec::new(),
            by_what: BTreeMap::new(),
            buckets: Vec::new(),
            kinds: Vec::new(),
        };
        let mut first = BTreeMap::new();
        for service in setup.services() {
            first.insert(service.service.clone(), made.buckets.len());
            made.buckets.extend(service.buckets.iter().map(|b| BucketFacts {
                service: service.service.clone(),
                name: b.name.clone(),
                mode: b.mode,
                scope: b.scope,
                on_loss: b.on_control_loss,
            }));
        }
        for workload in 0..setup.workloads.len() {
            let kinds = setup.kinds_of(workload).iter();
            let asked = kinds.map(|k| k.with_request(|r| made.asked(setup, &first, r))).collect();
            made.kinds.push(asked);
        }
        made
    }

    fn asked(
        &mut self,
        setup: &Setup<'_>,
        first: &BTreeMap<Name, usize>,
        request: &Request<'_>,
    ) -> Asked {
        let name = Name::new(request.service).expect("names were checked");
        let service = self.thing(What::Service(name.clone()));
        let mut hits = Vec::new();
        let configured = setup.services().iter().find(|s| s.service == name);
        for (place, values) in configured.map(|s| counting(s, request)).unwrap_or_default() {
            let Some(from) = first.get(&name) else { continue };
            let facts = &self.buckets[from + place];
            let (service, bucket) = (facts.service.clone(), facts.name.clone());
            let id = u16::try_from(from + place).map(BucketId).expect("few buckets");
            let key = self.thing(What::Key(KeyName { service, bucket, values }));
            hits.push(Hit { bucket: id, key });
        }
        Asked { service, service_name: name, hits }
    }

    /// The number of something, given to it if it has none.
    pub(super) fn thing(&mut self, what: What) -> Thing {
        if let Some(thing) = self.by_what.get(&what) {
            return *thing;
        }
        self.things.push(what.clone());
        self.by_what.insert(what, self.things.len() - 1);
        self.things.len() - 1
    }

    pub(super) fn name(&self, thing: Thing) -> String {
        match &self.things[thing] {
            What::Key(key) => key.to_string(),
            What::Service(name) => format!("service {name}"),
        }
    }

    /// Whether it is the key of one value of a bucket.
    pub(super) fn is_value(&self, thing: Thing) -> bool {
        matches!(&self.things[thing], What::Key(key) if matches!(key.values, KeyValues::Each(_)))
    }

    /// The bucket of a key.
    pub(super) fn bucket_of(&self, thing: Thing) -> Option<BucketId> {
        let What::Key(key) = &self.things[thing] else { return None };
        let of = |b: &BucketFacts| b.service == key.service && b.name == key.bucket;
        u16::try_from(self.buckets.iter().position(of)?).ok().map(BucketId)
    }
}

/// The buckets that count a request, with the key of each.
fn counting(service: &ServiceBuckets, request: &Request<'_>) -> Vec<(usize, KeyValues)> {
    let all = service.buckets.iter().enumerate();
    let fitting: Vec<(usize, KeyValues)> = all
        .filter(|(_, b)| meets(&b.rule.on, request))
        .filter(|(_, b)| b.rule.not.iter().all(|not| !meets(not, request)))
        .filter_map(|(place, b)| Some((place, values(b, request)?)))
        .collect();
    if service.select == Select::All {
        return fitting;
    }
    let narrowness = |place: usize| narrowness(&service.buckets[place]);
    let beaten = |place: usize| {
        let scope = service.buckets[place].scope;
        let rivals = fitting.iter().map(|f| f.0);
        let mut rivals = rivals.filter(|p| service.buckets[*p].scope == scope);
        rivals.any(|p| match narrowness(p).cmp(&narrowness(place)) {
            std::cmp::Ordering::Greater => true,
            std::cmp::Ordering::Equal => p < place,
            std::cmp::Ordering::Less => false,
        })
    };
    fitting.iter().filter(|f| !beaten(f.0)).cloned().collect()
}

fn meets(on: &Match, request: &Request<'_>) -> bool {
    let one = |patterns: &[Pattern], value: Option<&str>| {
        patterns.is_empty()
            || value.is_some_and(|value| {
                patterns.iter().any(|pattern| match pattern.to_string().strip_suffix('*') {
                    Some(prefix) => value.starts_with(prefix),
                    None => pattern.to_string() == value,
                })
            })
    };
    one(&on.caller, value_of(request, "caller"))
        && one(&on.procedure, value_of(request, "procedure"))
        && on.dimensions.iter().all(|(name, p)| one(p, value_of(request, name.as_str())))
}

fn value_of<'r>(request: &Request<'r>, name: &str) -> Option<&'r str> {
    let built_in = |value: &'r str| if value.is_empty() { None } else { Some(value) };
    match name {
        "caller" => built_in(request.caller),
        "procedure" => built_in(request.procedure),
        other => request.dimensions.iter().find(|d| d.0 == other).map(|d| d.1),
    }
}

fn values(bucket: &Bucket, request: &Request<'_>) -> Option<KeyValues> {
    let Some(per) = &bucket.per else { return Some(KeyValues::Whole) };
    let values = per.dimensions.iter().map(|d| value_of(request, d.as_str()).map(Box::from));
    values.collect::<Option<Box<[Box<str>]>>>().map(KeyValues::Each)
}

/// Exact conditions, then prefixes, then their length, then mere presence, then exclusions. A list
/// is as wide as its widest pattern.
fn narrowness(bucket: &Bucket) -> [usize; 5] {
    let on = &bucket.rule.on;
    let mut n = [0, 0, 0, 0, bucket.rule.not.len()];
    for patterns in [&on.caller, &on.procedure].into_iter().chain(on.dimensions.values()) {
        let texts: Vec<String> = patterns.iter().map(Pattern::to_string).collect();
        if texts.is_empty() {
        } else if texts.iter().any(|t| t == "*") {
            n[3] += 1;
        } else if texts.iter().any(|t| t.ends_with('*')) {
            n[1] += 1;
            n[2] += texts.iter().map(|t| t.trim_end_matches('*').len()).min().unwrap_or(0);
        } else {
            n[0] += 1;
        }
    }
    n
}
