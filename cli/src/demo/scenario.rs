//! What the demo shows: its bucket files, and the flows of requests that meet them. Each flow is
//! counted by exactly one bucket, so that what the load measures can be laid beside its limit.

use std::path::Path;

use anyhow::{Context, bail};
use sluicegate_files::buckets;
use sluicegate_model::{Bucket, KeyValues, Mode, Request, Scope, ServiceBuckets};

/// The zones of the demo.
pub(crate) const ZONES: [&str; 2] = ["zone-a", "zone-b"];
/// The region of the demo.
pub(crate) const REGION: &str = "demo";

/// The bucket files, as they are written for the controller.
pub(crate) const FILES: [(&str, &str); 7] = [
    ("api.yaml", include_str!("../../demo/api.yaml")),
    ("assets.yaml", include_str!("../../demo/assets.yaml")),
    ("login.yaml", include_str!("../../demo/login.yaml")),
    ("media.yaml", include_str!("../../demo/media.yaml")),
    ("notify.yaml", include_str!("../../demo/notify.yaml")),
    ("payments.yaml", include_str!("../../demo/payments.yaml")),
    ("search.yaml", include_str!("../../demo/search.yaml")),
];

/// Who sends a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Via {
    /// The embedded clients of all zones.
    Clients,
    /// The embedded clients of one zone, by its place in [`ZONES`].
    ClientsOf(usize),
    /// The sidecar.
    Sidecar,
}

/// A flow of requests that all look alike.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Flow {
    pub(crate) service: &'static str,
    /// The bucket that counts it.
    pub(crate) bucket: &'static str,
    pub(crate) caller: &'static str,
    pub(crate) procedure: &'static str,
    pub(crate) dimensions: &'static [(&'static str, &'static str)],
    pub(crate) via: Via,
    /// Requests a second before the step, and after it.
    pub(crate) before_rps: f64,
    pub(crate) after_rps: f64,
}

const FLOW: Flow = Flow {
    service: "",
    bucket: "",
    caller: "",
    procedure: "",
    dimensions: &[],
    via: Via::Clients,
    before_rps: 0.0,
    after_rps: 0.0,
};

const API: Flow = Flow { service: "api", bucket: "per-workspace", ..FLOW };

/// The flows, in the order in which they are shown.
pub(crate) const FLOWS: [Flow; 13] = [
    Flow {
        service: "payments",
        bucket: "checkout-web",
        caller: "checkout-web",
        before_rps: 450.0,
        after_rps: 1500.0,
        ..FLOW
    },
    Flow {
        service: "payments",
        bucket: "billing",
        caller: "billing",
        before_rps: 120.0,
        after_rps: 120.0,
        ..FLOW
    },
    Flow {
        service: "search",
        bucket: "suggest",
        caller: "web",
        procedure: "search.v1.Suggest/Complete",
        before_rps: 150.0,
        after_rps: 350.0,
        ..FLOW
    },
    Flow {
        service: "media",
        bucket: "thumbnails",
        caller: "web",
        via: Via::ClientsOf(0),
        before_rps: 100.0,
        after_rps: 400.0,
        ..FLOW
    },
    Flow {
        service: "media",
        bucket: "thumbnails",
        caller: "web",
        via: Via::ClientsOf(1),
        before_rps: 100.0,
        after_rps: 100.0,
        ..FLOW
    },
    Flow { dimensions: &[("workspace_id", "acme")], before_rps: 60.0, after_rps: 240.0, ..API },
    Flow { dimensions: &[("workspace_id", "globex")], before_rps: 60.0, after_rps: 160.0, ..API },
    Flow { dimensions: &[("workspace_id", "initech")], before_rps: 200.0, after_rps: 300.0, ..API },
    Flow { dimensions: &[("workspace_id", "hooli")], before_rps: 30.0, after_rps: 30.0, ..API },
    Flow { dimensions: &[("workspace_id", "umbrella")], before_rps: 50.0, after_rps: 50.0, ..API },
    Flow {
        service: "notify",
        bucket: "push",
        caller: "campaigns",
        before_rps: 180.0,
        after_rps: 600.0,
        ..FLOW
    },
    Flow {
        service: "login",
        bucket: "attempts",
        caller: "edge",
        procedure: "POST /login",
        via: Via::Sidecar,
        before_rps: 60.0,
        after_rps: 220.0,
        ..FLOW
    },
    Flow {
        service: "assets",
        bucket: "downloads",
        caller: "web",
        before_rps: 150.0,
        after_rps: 250.0,
        ..FLOW
    },
];

impl Flow {
    /// As the limiter sees it.
    pub(crate) fn request(&self) -> Request<'static> {
        Request {
            service: self.service,
            caller: self.caller,
            procedure: self.procedure,
            dimensions: self.dimensions,
        }
    }
}

/// What is known of a flow before it starts: the line of the table that it fills.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    pub(crate) service: &'static str,
    pub(crate) bucket: &'static str,
    /// The values of `per`, the zone of a bucket of scope zone, or nothing.
    pub(crate) key: String,
    pub(crate) scope: Scope,
    pub(crate) mode: Mode,
    /// None where nothing is limited.
    pub(crate) limit_rps: Option<f64>,
}

/// The lines of all flows, from the bucket files themselves.
pub(crate) fn rows() -> anyhow::Result<Vec<Row>> {
    let services = services()?;
    FLOWS.iter().map(|flow| row(flow, &services)).collect()
}

fn services() -> anyhow::Result<Vec<ServiceBuckets>> {
    FILES
        .iter()
        .map(|(name, text)| {
            let parsed = buckets::parse(name, text);
            match (parsed.service, parsed.errors.first()) {
                (Some(service), None) => Ok(service),
                (_, Some(error)) => bail!("{error}"),
                (None, None) => bail!("{name} names no service"),
            }
        })
        .collect()
}

fn row(flow: &Flow, services: &[ServiceBuckets]) -> anyhow::Result<Row> {
    let service = services.iter().find(|s| s.service == *flow.service);
    let found = service.and_then(|s| s.bucket(flow.bucket)).map(|(_, bucket)| bucket);
    let bucket = found.with_context(|| format!("no bucket {}/{}", flow.service, flow.bucket))?;
    let values = values(flow, bucket);
    let key = match (&values, flow.via) {
        (KeyValues::Whole, Via::ClientsOf(zone)) => format!("zone={}", ZONES[zone]),
        _ => values.to_string(),
    };
    Ok(Row {
        service: flow.service,
        bucket: flow.bucket,
        key,
        scope: bucket.scope,
        mode: bucket.mode,
        limit_rps: bucket.limit_of(&values).rate_rps(),
    })
}

fn values(flow: &Flow, bucket: &Bucket) -> KeyValues {
    let Some(per) = &bucket.per else { return KeyValues::Whole };
    let request = flow.request();
    let values = per.dimensions.iter().filter_map(|d| request.dimension(d.as_str()));
    KeyValues::Each(values.map(Box::from).collect())
}

/// Writes the bucket files into a directory.
pub(crate) fn write_files(dir: &Path) -> anyhow::Result<()> {
    for (name, text) in FILES {
        let path = dir.join(name);
        std::fs::write(&path, text)
            .with_context(|| format!("{} cannot be written", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flow_is_counted_by_its_bucket_and_no_other() {
        let services = services().expect("the demo's bucket files are valid");
        for flow in &FLOWS {
            let service = services.iter().find(|s| s.service == *flow.service).expect("configured");
            let matching = service.matching(&flow.request());
            let names: Vec<_> =
                matching.iter().map(|p| service.buckets[*p].name.as_str()).collect();
            assert_eq!(names, [flow.bucket], "{flow:?}");
        }
    }

    #[test]
    fn the_scenario_shows_what_it_promises() {
        let rows = rows().expect("every flow has a bucket");
        let both = || FLOWS.iter().zip(&rows);
        let over = |f: &Flow, r: &Row| r.limit_rps.is_some_and(|l| f.after_rps > 1.2 * l);
        let denied = |f: &Flow, r: &Row| r.mode == Mode::Deny && over(f, r);
        for scope in [Scope::Zone, Scope::Region, Scope::Global] {
            assert!(
                both().any(|(f, r)| r.scope == scope && denied(f, r)),
                "{scope:?} over its limit"
            );
        }
        assert!(both().any(|(f, r)| r.mode == Mode::Shadow && over(f, r)));
        assert!(both().any(|(_, r)| r.mode == Mode::Observe && r.limit_rps.is_none()));
        assert!(both().any(|(f, r)| f.via == Via::Sidecar && denied(f, r)));
        let exception = both().find(|(_, r)| r.key == "initech").expect("there");
        assert_eq!(exception.1.limit_rps, Some(400.0));
        let per = |f: &Flow, r: &Row| f.bucket == "per-workspace" && denied(f, r);
        assert!(both().filter(|(f, r)| per(f, r)).count() >= 2, "a few values go over");
        assert!(both().filter(|(f, r)| f.bucket == "per-workspace" && !denied(f, r)).count() >= 2);
        for (flow, row) in both() {
            let limit = row.limit_rps.unwrap_or(f64::INFINITY);
            assert!(flow.before_rps < 0.9 * limit, "below the limit before the step: {flow:?}");
            let clear = flow.after_rps < 0.9 * limit || flow.after_rps > 1.2 * limit;
            assert!(clear, "neither at nor near its limit after the step: {flow:?}");
        }
    }
}
