//! The aggregator by itself: what it says upwards, and that nothing it hears breaks it.

mod garbage;
mod upwards;

use sluicegate_model::Flight;
use sluicegate_model::Law;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_aggregator_core::{Aggregator, Config, Limits};
use sluicegate_model::{
    Bucket, Configuration, Counts, Down, Entry, Hello, KeyId, KeyName, KeyValues, Limit, Match,
    Mode, Name, OnControlLoss, Owner, PROTOCOL_VERSION, Report, Role, Rule, Scope, Select,
    ServiceBuckets, Time, TokenRate, Up, Update,
};

fn name(text: &str) -> Name {
    Name::new(text).expect("a sound name")
}

fn at(ms: u64) -> Time {
    Time::from_millis(ms)
}

fn limits() -> Limits {
    Limits { forget_after: Duration::from_secs(30), ..Limits::for_aggregator() }
}

fn aggregator(limits: Limits) -> Aggregator {
    let config = Config {
        node: name("aggregator"),
        session: 77,
        zone: name("a"),
        region: name("r"),
        tick: Duration::from_secs(1),
        ttl: Duration::from_secs(10),
        switches: sluicegate_law::grant::Switches::default(),
        limits,
    };
    Aggregator::new(config, Time::ZERO)
}

fn hello() -> Hello {
    Hello {
        role: Role::Client,
        node: name("client"),
        session: 1,
        zone: name("a"),
        region: name("r"),
        protocol: PROTOCOL_VERSION,
        services: Vec::new(),
        seen_term: 0,
        seen_version: 0,
    }
}

fn value(text: &str) -> KeyName {
    let values = KeyValues::Each([text.into()].into());
    KeyName { service: name("s"), bucket: name("b"), values }
}

fn admitted(n: u64) -> Counts {
    Counts { matched: n, offered: n, admitted: n, would_drop: 0 }
}

fn report(seq: u64, new: &[(KeyId, KeyName)], entries: &[(KeyId, u64, f64)]) -> Up {
    let entries = entries.iter().map(|(key, n, offered_rps)| Entry {
        key: *key,
        counts: admitted(*n),
        offered_rps: *offered_rps,
        usual_rps: 0.0,
        flight: Flight::default(),
        sessions: u32::from(*offered_rps > 0.0),
    });
    Up::Report(Report {
        seq,
        interval: Duration::from_secs(1),
        new_keys: new.to_vec(),
        entries: entries.collect(),
        ..Report::default()
    })
}

fn buckets(limit: u64) -> Arc<ServiceBuckets> {
    Arc::new(ServiceBuckets {
        service: name("s"),
        owner: Owner::default(),
        select: Select::All,
        buckets: vec![Bucket {
            name: name("b"),
            scope: Scope::Region,
            rule: Rule { on: Match::default(), not: Vec::new() },
            limit: Limit::Tokens(TokenRate::per_second(limit, None).expect("sound")),
            mode: Mode::Deny,
            per: None,
            on_control_loss: OnControlLoss::Open,
            guard: false,
            enforce: 1.0,
            max_drop: 1.0,
            sharing: None,
        }],
    })
}

fn configuration(version: u64, term: u64, full: bool) -> Down {
    let services = vec![buckets(version)];
    Down::Configuration(Configuration {
        version,
        term,
        full,
        law: Law::Ratio,
        services,
        removed: Vec::new(),
    })
}

fn ack(seq: u64) -> Down {
    Down::Update(Update { ack_seq: seq, directives: Vec::new() })
}

/// Runs the timers up to `until` and says what goes up.
fn run(a: &mut Aggregator, until: Time) -> Vec<Up> {
    let mut up = Vec::new();
    while a.poll_timeout() <= until {
        let now = a.poll_timeout();
        a.handle_timeout(now);
        up.extend(std::iter::from_fn(|| a.poll_parent()));
    }
    up
}

fn reports(up: Vec<Up>) -> Vec<Report> {
    up.into_iter()
        .filter_map(|up| match up {
            Up::Report(report) => Some(report),
            Up::Hello(_) | Up::ConfigurationApplied(_) | Up::Seen { .. } => None,
        })
        .collect()
}
