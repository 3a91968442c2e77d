//! A checked scenario, worked out: services as the cores take them, buckets and kinds of requests
//! by number. Made once for a run.

use std::sync::Arc;

use sluicegate_model as model;
use sluicegate_model::{Limit, Match, Name, Pattern, Request, Rule, ServiceBuckets, TokenRate};

use crate::node::Topology;
use crate::observe::BucketId;
use crate::scenario::{
    Bucket, Kind, Mode, OnControlLoss, Scenario, Scope, Select, Service, Switch, Workload,
};
use crate::workload::{Profile, TraceError};

/// A scenario, worked out.
pub struct Setup<'s> {
    pub(crate) scenario: &'s Scenario,
    pub(crate) topology: Topology,
    pub(crate) seed: u64,
    pub(crate) services: Vec<Arc<ServiceBuckets>>,
    pub(crate) buckets: Vec<BucketInfo>,
    pub(crate) workloads: Vec<Requests<'s>>,
    /// All in nanoseconds of world time.
    pub(crate) warmup: u64,
    pub(crate) end: u64,
}

/// A bucket of a world.
#[derive(Debug, Clone, PartialEq)]
pub struct BucketInfo {
    /// Its service.
    pub service: Name,
    /// Its name.
    pub bucket: Name,
    /// Its limit at first, requests a second.
    pub limit_rps: Option<f64>,
    /// Its burst.
    pub burst: f64,
    /// Whether it drops, would drop, or counts only.
    pub mode: model::Mode,
}

impl BucketInfo {
    /// `service/bucket`.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}/{}", self.service, self.bucket)
    }
}

/// One workload, worked out.
pub(crate) struct Requests<'s> {
    pub(crate) workload: &'s Workload,
    pub(crate) profile: Profile,
    pub(crate) kinds: Vec<KindOfRequest>,
}

/// One kind of requests.
#[derive(Debug, Clone)]
pub struct KindOfRequest {
    service: String,
    caller: String,
    procedure: String,
    dimensions: Vec<(String, String)>,
    pub(crate) share: f64,
    /// The buckets that count it.
    pub(crate) buckets: Vec<BucketId>,
}

impl KindOfRequest {
    /// Lends it as the cores take it.
    pub fn with_request<R>(&self, f: impl FnOnce(&Request<'_>) -> R) -> R {
        let dimensions: Vec<(&str, &str)> =
            self.dimensions.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        f(&Request {
            service: &self.service,
            caller: &self.caller,
            procedure: &self.procedure,
            dimensions: &dimensions,
        })
    }

    /// The buckets that count it.
    #[must_use]
    pub fn buckets(&self) -> &[BucketId] {
        &self.buckets
    }
}

impl<'s> Setup<'s> {
    /// Works a scenario out that has no problems.
    pub(crate) fn new(scenario: &'s Scenario, seed: u64) -> Result<Self, TraceError> {
        let guarded = scenario.guard == Switch::On;
        let services: Vec<Arc<ServiceBuckets>> =
            scenario.all_services().iter().map(|s| Arc::new(service(s, guarded))).collect();
        let buckets: Vec<BucketInfo> = services.iter().flat_map(|s| infos(s)).collect();
        let mut setup = Self {
            scenario,
            topology: Topology::new(scenario),
            seed,
            services,
            buckets,
            workloads: Vec::new(),
            warmup: nanos(scenario.warmup_s),
            end: nanos(scenario.duration_s),
        };
        for workload in std::iter::once(&scenario.workload).chain(&scenario.more_workloads) {
            let limit = scenario.base_limit(&workload.service);
            #[expect(clippy::cast_precision_loss, reason = "at most 10^12")]
            let limit = limit.map(|l| l as f64);
            let profile = Profile::new(workload, limit, setup.warmup)?;
            let kinds = setup.kinds(workload, &profile);
            setup.workloads.push(Requests { workload, profile, kinds });
        }
        Ok(setup)
    }

    /// The bucket of that name.
    #[must_use]
    pub fn bucket(&self, service: &str, bucket: &str) -> Option<BucketId> {
        let place = self
            .buckets
            .iter()
            .position(|b| b.service.as_str() == service && b.bucket.as_str() == bucket)?;
        u16::try_from(place).ok().map(BucketId)
    }

    /// The scenario.
    #[must_use]
    pub fn scenario(&self) -> &Scenario {
        self.scenario
    }

    /// Who there is.
    #[must_use]
    pub fn topology(&self) -> Topology {
        self.topology
    }

    /// The seed.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Every bucket, by number.
    #[must_use]
    pub fn buckets(&self) -> &[BucketInfo] {
        &self.buckets
    }

    /// The kinds of requests of each workload, by number.
    #[must_use]
    pub fn kinds_of(&self, workload: usize) -> &[KindOfRequest] {
        self.workloads.get(workload).map_or(&[], |w| &w.kinds)
    }

    /// Every service, as the cores take it.
    #[must_use]
    pub fn services(&self) -> &[Arc<ServiceBuckets>] {
        &self.services
    }

    /// The kinds of a workload; of a trace, those that the trace names.
    fn kinds(&self, workload: &Workload, profile: &Profile) -> Vec<KindOfRequest> {
        let plain = Kind { share: 1.0, ..Kind::default() };
        let mix = match profile {
            Profile::Trace { file, .. } => {
                let named = |(caller, procedure): &(String, String)| Kind {
                    caller: caller.clone(),
                    procedure: procedure.clone(),
                    ..plain.clone()
                };
                file.kinds.iter().map(named).collect()
            }
            Profile::Constant(_)
            | Profile::Step { .. }
            | Profile::Sine { .. }
            | Profile::OnOff { .. }
                if workload.mix.is_empty() =>
            {
                vec![plain]
            }
            Profile::Constant(_)
            | Profile::Step { .. }
            | Profile::Sine { .. }
            | Profile::OnOff { .. } => workload.mix.clone(),
        };
        let kind = |kind: &Kind| {
            let mut made = KindOfRequest {
                service: workload.service.clone(),
                caller: kind.caller.clone(),
                procedure: kind.procedure.clone(),
                dimensions: kind.dimensions.iter().map(|(n, v)| (n.clone(), v.clone())).collect(),
                share: kind.share,
                buckets: Vec::new(),
            };
            let service = self.services.iter().find(|s| s.service == workload.service[..]);
            if let Some(service) = service {
                let matched = made.with_request(|r| service.matching(r));
                let of = |place: usize| {
                    let bucket = service.buckets[place].name.as_str();
                    self.bucket(&workload.service, bucket)
                };
                made.buckets = matched.into_iter().filter_map(of).collect();
            }
            made
        };
        mix.iter().map(kind).collect()
    }
}

impl Scenario {
    /// The services given, or else `api` with its bucket `all`.
    #[must_use]
    pub fn all_services(&self) -> Vec<Service> {
        if !self.services.is_empty() {
            return self.services.clone();
        }
        let bucket =
            Bucket { limit_rps: Some(self.limit_rps), burst: self.burst, ..Bucket::default() };
        vec![Service { service: "api".into(), buckets: vec![bucket], ..Service::default() }]
    }

    /// The limit that loads of a service are multiples of: its first bucket's that has one.
    #[must_use]
    pub fn base_limit(&self, service: &str) -> Option<u64> {
        let all = self.all_services();
        let service = all.iter().find(|s| s.service == service)?;
        service.buckets.iter().find_map(|b| b.limit_rps)
    }
}

fn infos(service: &ServiceBuckets) -> impl Iterator<Item = BucketInfo> + '_ {
    service.buckets.iter().map(|b| BucketInfo {
        service: service.service.clone(),
        bucket: b.name.clone(),
        limit_rps: b.limit.rate_rps(),
        burst: match b.limit {
            Limit::Unlimited => 0.0,
            Limit::Tokens(t) => t.depth(),
        },
        mode: b.mode,
    })
}

/// As the cores take it.
pub(crate) fn service(service: &Service, guarded: bool) -> ServiceBuckets {
    let name = |text: &str| Name::new(text).expect("names were checked");
    let patterns = |texts: &[String]| texts.iter().map(|t| Pattern::parse(t)).collect();
    let bucket = |b: &Bucket| model::Bucket {
        name: name(&b.bucket),
        scope: match b.scope {
            Scope::Zone => model::Scope::Zone,
            Scope::Region => model::Scope::Region,
            Scope::Global => model::Scope::Global,
        },
        rule: Rule {
            on: Match {
                caller: patterns(&b.caller),
                procedure: patterns(&b.procedure),
                ..Match::default()
            },
            not: Vec::new(),
        },
        limit: match b.limit_rps {
            None => Limit::Unlimited,
            Some(rps) => {
                Limit::Tokens(TokenRate::per_second(rps, b.burst).expect("limits were checked"))
            }
        },
        mode: match b.mode {
            Mode::Deny => model::Mode::Deny,
            Mode::Shadow => model::Mode::Shadow,
            Mode::Observe => model::Mode::Observe,
        },
        per: (!b.per.is_empty()).then(|| model::Per {
            dimensions: b.per.iter().map(|d| name(d)).collect(),
            values: std::collections::BTreeMap::new(),
            max_keys: model::Per::DEFAULT_MAX_KEYS,
            overflow: model::Overflow::Observe,
        }),
        on_control_loss: match b.on_control_loss {
            OnControlLoss::Open => model::OnControlLoss::Open,
            OnControlLoss::Last => model::OnControlLoss::Last,
            OnControlLoss::Share => model::OnControlLoss::Share,
            OnControlLoss::Closed => model::OnControlLoss::Closed,
        },
        guard: guarded,
        enforce: 1.0,
        max_drop: 1.0,
        sharing: None,
    };
    ServiceBuckets {
        service: name(&service.service),
        owner: model::Owner::default(),
        select: match service.select {
            Select::All => model::Select::All,
            Select::MostSpecific => model::Select::MostSpecific,
        },
        buckets: service.buckets.iter().map(bucket).collect(),
    }
}

/// Nanoseconds of a number of seconds that was checked.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked, at most days"
)]
pub(crate) fn nanos(seconds: f64) -> u64 {
    (seconds.max(0.0) * 1e9).round() as u64
}
