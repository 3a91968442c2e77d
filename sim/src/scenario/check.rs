//! What fields must be together. One place, so that files, settings and generated scenarios meet
//! the same rules.

use super::types::{FaultKind, Mode, Scenario, Shape, Tier, Workload};
use super::{Bucket, Fault};

/// The most clients.
const MAX_CLIENTS: usize = 100_000;
/// The longest run.
const MAX_DURATION_S: f64 = 86_400.0;
/// The most requests a second of one workload.
const MAX_RPS: f64 = 1e8;

/// A field that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct Problem {
    /// Where, such as `workload.period_ms` or `faults[2].zone`.
    pub field: String,
    /// What is wrong, and what was expected.
    pub message: String,
}

/// What was found so far.
#[derive(Default)]
struct Findings(Vec<Problem>);

impl Findings {
    fn unless(&mut self, fine: bool, field: &str, message: impl FnOnce() -> String) {
        if !fine {
            self.0.push(Problem { field: field.to_owned(), message: message() });
        }
    }

    fn within(&mut self, value: f64, least: f64, most: f64, field: &str) {
        let fine = (least..=most).contains(&value);
        self.unless(fine, field, || format!("is {value}, must be {least} to {most}"));
    }

    fn share(&mut self, value: f64, field: &str) {
        self.within(value, 0.0, 1.0, field);
    }
}

impl Scenario {
    /// Everything that makes no sense. Empty is good.
    #[must_use]
    pub fn problems(&self) -> Vec<Problem> {
        let mut f = Findings::default();
        self.world(&mut f);
        self.buckets(&mut f);
        for (field, message) in self.rivals.problems() {
            f.0.push(Problem { field, message });
        }
        let all = std::iter::once(&self.workload).chain(&self.more_workloads);
        for (i, workload) in all.enumerate() {
            let prefix = match i {
                0 => "workload".to_owned(),
                i => format!("more_workloads[{}]", i - 1),
            };
            self.workload_problems(&mut f, workload, &prefix);
        }
        for (i, fault) in self.faults.iter().enumerate() {
            self.fault_problems(&mut f, fault, &format!("faults[{i}]"));
        }
        f.0
    }

    /// The limit of a bucket, requests a second; `None` if it has none or does not exist.
    #[must_use]
    pub fn limit_of(&self, service: &str, bucket: &str) -> Option<u64> {
        let all = self.all_services();
        let service = all.iter().find(|s| s.service == service)?;
        service.buckets.iter().find(|b| b.bucket == bucket)?.limit_rps
    }

    fn world(&self, f: &mut Findings) {
        let count = |n: usize| f64::from(u32::try_from(n).unwrap_or(u32::MAX));
        f.within(count(self.clients), 1.0, count(MAX_CLIENTS), "clients");
        f.within(count(self.zones), 1.0, 1000.0, "zones");
        f.within(count(self.regions), 1.0, count(self.zones), "regions");
        f.unless(self.zones.checked_rem(self.regions) == Some(0), "regions", || {
            format!("{} zones cannot be shared out evenly to {} regions", self.zones, self.regions)
        });
        f.within(self.duration_s, 0.1, MAX_DURATION_S, "duration_s");
        f.within(self.warmup_s, 0.0, self.duration_s, "warmup_s");
        f.within(ms(self.tick_ms), 50.0, 60_000.0, "tick_ms");
        f.within(ms(self.look_ms), 1.0, 1000.0, "look_ms");
        f.within(self.ttl_s, 0.1, 3600.0, "ttl_s");
        f.within(self.ramp_s, 0.0, 3600.0, "ramp_s");
        f.share(self.hops.loss, "hops.loss");
        f.share(self.hops.duplicate, "hops.duplicate");
    }

    fn buckets(&self, f: &mut Findings) {
        for (i, service) in self.services.iter().enumerate() {
            let field = format!("services[{i}].service");
            let named = sluicegate_model::Name::new(&service.service);
            f.unless(named.is_ok(), &field, || format!("{:?} is not a name", service.service));
            let twice = self.services[..i].iter().any(|s| s.service == service.service);
            f.unless(!twice, &field, || format!("{:?} stands twice", service.service));
            for (j, bucket) in service.buckets.iter().enumerate() {
                let field = format!("services[{i}].buckets[{j}]");
                bucket_problems(f, bucket, &field);
                let twice = service.buckets[..j].iter().any(|b| b.bucket == bucket.bucket);
                f.unless(!twice, &format!("{field}.bucket"), || "stands twice".into());
            }
        }
        let most = 1_000_000_000_000;
        f.unless(self.limit_rps <= most, "limit_rps", || format!("must be at most {most}"));
        f.unless(self.burst != Some(0), "burst", || "must be 1 or more".into());
    }

    fn workload_problems(&self, f: &mut Findings, w: &Workload, prefix: &str) {
        let field = |name: &str| format!("{prefix}.{name}");
        let known = self.all_services().iter().any(|s| s.service == w.service);
        f.unless(known, &field("service"), || format!("there is no service {:?}", w.service));
        let loads = [("load_x", w.load_x), ("load_rps", w.load_rps)];
        let froms = [("from_x", w.from_x), ("from_rps", w.from_rps)];
        for (name, value) in loads.iter().chain(&froms) {
            if let Some(value) = value {
                f.within(*value, 0.0, MAX_RPS, &field(name));
            }
        }
        let needs_load = w.shape != Shape::Trace;
        f.unless(!needs_load || loads.iter().any(|l| l.1.is_some()), prefix, || {
            "needs load_x or load_rps".into()
        });
        let needs_from =
            matches!(w.shape, Shape::Step | Shape::Sine | Shape::OnOff | Shape::Bursts);
        f.unless(!needs_from || froms.iter().any(|l| l.1.is_some()), prefix, || {
            "needs from_x or from_rps: the load before the step, at the bottom of the wave, in \
             the off phase or between bursts"
                .into()
        });
        let needs_period = matches!(w.shape, Shape::Sine | Shape::OnOff | Shape::Bursts);
        match w.period_ms {
            Some(period) => f.within(period, 1.0, 3_600_000.0, &field("period_ms")),
            None => f.unless(!needs_period, prefix, || "needs period_ms".into()),
        }
        if let Some(on) = w.on_ms {
            f.within(on, 0.0, w.period_ms.unwrap_or(0.0), &field("on_ms"));
        }
        if let Some(at) = w.at_s {
            f.within(at, 0.0, self.duration_s, &field("at_s"));
        }
        f.unless(w.shape != Shape::Trace || w.file.is_some(), prefix, || "needs file".into());
        f.within(w.time_divisor, 1e-3, 1e6, &field("time_divisor"));
        if let Some(bin) = w.bin_ms {
            f.within(bin, 1.0, 3_600_000.0, &field("bin_ms"));
        }
        f.within(w.zipf, 0.0, 5.0, &field("zipf"));
        f.within(w.batch, 1.0, 1000.0, &field("batch"));
        if let Some(retries) = &w.retries {
            f.within(f64::from(retries.max), 0.0, 100.0, &field("retries.max"));
            f.share(retries.probability, &field("retries.probability"));
        }
        f.unless(w.mix.len() <= usize::from(u16::MAX), &field("mix"), || "is too long".into());
        for (i, kind) in w.mix.iter().enumerate() {
            f.within(kind.share, 0.0, 1e9, &field(&format!("mix[{i}].share")));
        }
        let is_relative = (w.load_x.is_some() || w.from_x.is_some()) && known;
        let has_limit = !is_relative || self.base_limit(&w.service).is_some();
        f.unless(has_limit, prefix, || {
            format!("no bucket of {:?} has a limit, so load must be in load_rps", w.service)
        });
    }

    fn fault_problems(&self, f: &mut Findings, fault: &Fault, prefix: &str) {
        let field = |name: &str| format!("{prefix}.{name}");
        f.within(fault.at_s, 0.0, self.duration_s, &field("at_s"));
        if let Some(for_s) = fault.for_s {
            f.within(for_s, 0.0, MAX_DURATION_S, &field("for_s"));
        }
        let count = match fault.tier {
            Tier::Client => self.clients,
            Tier::Aggregator => self.zones,
            Tier::Controller => self.regions,
        };
        if let super::Which::One(one) = fault.node {
            f.unless(one < count, &field("node"), || format!("is {one}, there are {count}"));
        }
        if let Some(zone) = fault.zone {
            f.unless(zone < self.zones, &field("zone"), || {
                format!("is {zone}, there are {}", self.zones)
            });
        }
        f.share(fault.loss, &field("loss"));
        f.share(fault.duplicate, &field("duplicate"));
        f.within(fault.skew_ms, 0.0, 86_400_000.0, &field("skew_ms"));
        f.within(fault.drift_ppm, -100_000.0, 100_000.0, &field("drift_ppm"));
        f.within(fault.load_x, 0.0, 1e6, &field("load_x"));
        let of_links =
            matches!(fault.fault, FaultKind::Cut | FaultKind::Degrade | FaultKind::Break);
        f.unless(!of_links || fault.tier != Tier::Controller, &field("tier"), || {
            "there is no link above a controller".into()
        });
        let of_clients = matches!(
            fault.fault,
            FaultKind::PauseAgent | FaultKind::Load | FaultKind::OneClient | FaultKind::Churn
        );
        f.unless(!of_clients || fault.tier == Tier::Client, &field("tier"), || {
            "only clients have that".into()
        });
        if fault.fault == FaultKind::Remove {
            let known = self.all_services().iter().any(|s| s.service == fault.service);
            f.unless(known, &field("service"), || format!("there is no {:?}", fault.service));
        }
        if fault.fault == FaultKind::Limit {
            let known = self.limit_of(&fault.service, &fault.bucket).is_some();
            f.unless(known, &field("bucket"), || {
                format!("there is no bucket {}/{} with a limit", fault.service, fault.bucket)
            });
            f.unless(fault.limit_rps.is_some(), prefix, || "needs limit_rps".into());
        }
    }
}

fn bucket_problems(f: &mut Findings, bucket: &Bucket, prefix: &str) {
    let named = sluicegate_model::Name::new(&bucket.bucket);
    f.unless(named.is_ok(), &format!("{prefix}.bucket"), || {
        format!("{:?} is not a name", bucket.bucket)
    });
    let limited = bucket.mode != Mode::Observe;
    f.unless(bucket.limit_rps.is_some() == limited, &format!("{prefix}.limit_rps"), || {
        if limited { "is missing".into() } else { "mode observe has no limit".into() }
    });
    f.unless(bucket.burst != Some(0), &format!("{prefix}.burst"), || "must be 1 or more".into());
    for (i, name) in bucket.per.iter().enumerate() {
        f.unless(sluicegate_model::Name::new(name).is_ok(), &format!("{prefix}.per[{i}]"), || {
            format!("{name:?} is not a name")
        });
    }
    f.unless(bucket.per.len() <= 4, &format!("{prefix}.per"), || "the most is 4".into());
}

#[expect(clippy::cast_precision_loss, reason = "compared with small bounds only")]
fn ms(ms: u64) -> f64 {
    ms as f64
}
