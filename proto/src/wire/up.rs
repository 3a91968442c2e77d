//! What goes up: hello, reports, acknowledgements.

use std::time::Duration;

use sluicegate_model::{
    Counts, Entry, Flight, Hello, KeyId, KeyName, KeyValues, MAX_VALUE_BYTES, Per, Report, Role,
    ServiceCounts, Up,
};

use super::malformed::{Malformed, Problem, at_most, finite, name, names, no_twice, not_allowed};
use super::{MAX_KEYS, MAX_SEEN, MAX_SERVICES};
use crate::v1;
use crate::v1::up::Message;

/// The wire form of `up`.
#[must_use]
pub fn encode_up(up: &Up) -> v1::Up {
    let message = match up {
        Up::Hello(hello) => Message::Hello(encode_hello(hello)),
        Up::Report(report) => Message::Report(encode_report(report)),
        Up::ConfigurationApplied(version) => {
            Message::ConfigurationApplied(v1::ConfigurationApplied { version: *version })
        }
        Up::Seen { term, version } => Message::Seen(v1::Seen { term: *term, version: *version }),
    };
    v1::Up { message: Some(message) }
}

/// The message that `up` stands for.
///
/// # Errors
/// Says which field breaks the protocol.
pub fn decode_up(up: v1::Up) -> Result<Up, Malformed> {
    match up.message {
        None => Err(Malformed::new("up.message", Problem::Missing)),
        Some(Message::Hello(hello)) => decode_hello(&hello).map(Up::Hello),
        Some(Message::Report(report)) => decode_report(report).map(Up::Report),
        Some(Message::ConfigurationApplied(applied)) => {
            Ok(Up::ConfigurationApplied(seen("configuration_applied.version", applied.version)?))
        }
        Some(Message::Seen(s)) => Ok(Up::Seen {
            term: seen("seen.term", s.term)?,
            version: seen("seen.version", s.version)?,
        }),
        Some(Message::Chunk(_)) => not_allowed("up.message", "a chunk", "a whole message"),
    }
}

fn seen(field: &str, number: u64) -> Result<u64, Malformed> {
    if number > MAX_SEEN {
        return not_allowed(field, number, "0 to 2^48");
    }
    Ok(number)
}

fn encode_hello(hello: &Hello) -> v1::Hello {
    let role = match hello.role {
        Role::Client => v1::Role::Client,
        Role::Aggregator => v1::Role::Aggregator,
    };
    v1::Hello {
        role: role.into(),
        node: hello.node.to_string(),
        session: hello.session,
        zone: hello.zone.to_string(),
        region: hello.region.to_string(),
        protocol: hello.protocol,
        services: hello.services.iter().map(ToString::to_string).collect(),
        seen_term: hello.seen_term,
        seen_version: hello.seen_version,
    }
}

fn decode_hello(hello: &v1::Hello) -> Result<Hello, Malformed> {
    let role = match v1::Role::try_from(hello.role) {
        Ok(v1::Role::Client) => Role::Client,
        Ok(v1::Role::Aggregator) => Role::Aggregator,
        Ok(v1::Role::Unspecified) | Err(_) => {
            return not_allowed("hello.role", hello.role, "1 (client) or 2 (aggregator)");
        }
    };
    Ok(Hello {
        role,
        node: name("hello.node", &hello.node)?,
        session: hello.session,
        zone: name("hello.zone", &hello.zone)?,
        region: name("hello.region", &hello.region)?,
        protocol: hello.protocol,
        services: names("hello.services", &hello.services, MAX_SERVICES)?,
        seen_term: seen("hello.seen_term", hello.seen_term)?,
        seen_version: seen("hello.seen_version", hello.seen_version)?,
    })
}

fn encode_report(report: &Report) -> v1::Report {
    v1::Report {
        seq: report.seq,
        interval_ns: u64::try_from(report.interval.as_nanos()).unwrap_or(u64::MAX),
        new_keys: report.new_keys.iter().map(encode_new_key).collect(),
        retired_keys: report.retired_keys.clone(),
        entries: (!report.entries.is_empty()).then(|| encode_entries(&report.entries)),
        services: report.services.iter().map(encode_service_counts).collect(),
    }
}

fn decode_report(report: v1::Report) -> Result<Report, Malformed> {
    if report.seq == 0 {
        return not_allowed("report.seq", 0, "1 or more");
    }
    if report.interval_ns == 0 {
        return not_allowed("report.interval_ns", 0, "1 or more");
    }
    at_most("report.new_keys", report.new_keys.len(), MAX_KEYS)?;
    at_most("report.retired_keys", report.retired_keys.len(), MAX_KEYS)?;
    at_most("report.services", report.services.len(), MAX_SERVICES)?;
    let new_keys: Vec<_> =
        report.new_keys.into_iter().map(decode_new_key).collect::<Result<_, _>>()?;
    let new_ids: Vec<KeyId> = new_keys.iter().map(|(id, _)| *id).collect();
    no_twice("report.new_keys.id", &new_ids)?;
    no_twice("report.retired_keys", &report.retired_keys)?;
    let services: Vec<_> =
        report.services.iter().map(decode_service_counts).collect::<Result<_, _>>()?;
    let service_names: Vec<_> = services.iter().map(|s| &s.service).collect();
    no_twice("report.services.service", &service_names)?;
    Ok(Report {
        seq: report.seq,
        interval: Duration::from_nanos(report.interval_ns),
        new_keys,
        retired_keys: report.retired_keys,
        entries: report.entries.map_or(Ok(Vec::new()), decode_entries)?,
        services,
    })
}

fn encode_new_key((id, key): &(KeyId, KeyName)) -> v1::NewKey {
    let (values, overflow) = match &key.values {
        KeyValues::Whole => (Vec::new(), false),
        KeyValues::Each(values) => (values.iter().map(ToString::to_string).collect(), false),
        KeyValues::Overflow => (Vec::new(), true),
    };
    v1::NewKey {
        id: *id,
        service: key.service.to_string(),
        bucket: key.bucket.to_string(),
        values,
        overflow,
    }
}

fn decode_new_key(key: v1::NewKey) -> Result<(KeyId, KeyName), Malformed> {
    let field = "report.new_keys.values";
    let values = match (key.overflow, key.values.len()) {
        (false, 0) => KeyValues::Whole,
        (true, 0) => KeyValues::Overflow,
        (true, found) => {
            return Err(Malformed::new(field, Problem::Length { found, expected: 0 }));
        }
        (false, found) => {
            at_most(field, found, Per::MAX_DIMENSIONS)?;
            if let Some(long) = key.values.iter().find(|v| v.len() > MAX_VALUE_BYTES) {
                let problem = Problem::TooLong { found: long.len(), most: MAX_VALUE_BYTES };
                return Err(Malformed::new(field, problem));
            }
            KeyValues::Each(key.values.into_iter().map(String::into_boxed_str).collect())
        }
    };
    let service = name("report.new_keys.service", &key.service)?;
    let bucket = name("report.new_keys.bucket", &key.bucket)?;
    Ok((key.id, KeyName { service, bucket, values }))
}

fn encode_entries(entries: &[Entry]) -> v1::Entries {
    let mut columns = v1::Entries::default();
    columns.keys.reserve_exact(entries.len());
    columns.matched.reserve_exact(entries.len());
    columns.offered.reserve_exact(entries.len());
    columns.admitted.reserve_exact(entries.len());
    columns.offered_rps.reserve_exact(entries.len());
    for entry in entries {
        columns.keys.push(entry.key);
        columns.matched.push(entry.counts.matched);
        columns.offered.push(entry.counts.offered);
        columns.admitted.push(entry.counts.admitted);
        columns.offered_rps.push(entry.offered_rps);
    }
    if entries.iter().any(|e| e.counts.would_drop != 0) {
        columns.would_drop = entries.iter().map(|e| e.counts.would_drop).collect();
    }
    if entries.iter().any(|e| e.sessions != 1) {
        columns.sessions = entries.iter().map(|e| e.sessions).collect();
    }
    let unless_0 = |of: fn(&Entry) -> f64| -> Vec<f64> {
        if entries.iter().any(|e| of(e) > 0.0) { entries.iter().map(of).collect() } else { vec![] }
    };
    columns.usual_rps = unless_0(|e| e.usual_rps);
    columns.flight_requests = unless_0(|e| e.flight.requests);
    columns.flight_rps = unless_0(|e| e.flight.rps);
    columns
}

fn decode_entries(columns: v1::Entries) -> Result<Vec<Entry>, Malformed> {
    let rows = columns.keys.len();
    at_most("report.entries.keys", rows, MAX_KEYS)?;
    no_twice("report.entries.keys", &columns.keys)?;
    let column = |field: &str, found: usize, optional: bool| {
        if found == rows || (optional && found == 0) {
            return Ok(());
        }
        let problem = Problem::Length { found, expected: rows };
        Err(Malformed::new(format!("report.entries.{field}"), problem))
    };
    column("matched", columns.matched.len(), false)?;
    column("offered", columns.offered.len(), false)?;
    column("admitted", columns.admitted.len(), false)?;
    column("would_drop", columns.would_drop.len(), true)?;
    column("offered_rps", columns.offered_rps.len(), false)?;
    column("sessions", columns.sessions.len(), true)?;
    column("usual_rps", columns.usual_rps.len(), true)?;
    column("flight_requests", columns.flight_requests.len(), true)?;
    column("flight_rps", columns.flight_rps.len(), true)?;
    let number = |field: &str, column: &[f64], row: usize| {
        finite(field, column.get(row).copied().unwrap_or(0.0))
    };
    (0..rows)
        .map(|row| {
            Ok(Entry {
                key: columns.keys[row],
                counts: Counts {
                    matched: columns.matched[row],
                    offered: columns.offered[row],
                    admitted: columns.admitted[row],
                    would_drop: columns.would_drop.get(row).copied().unwrap_or(0),
                },
                offered_rps: finite("report.entries.offered_rps", columns.offered_rps[row])?,
                usual_rps: number("report.entries.usual_rps", &columns.usual_rps, row)?,
                sessions: columns.sessions.get(row).copied().unwrap_or(1),
                flight: Flight {
                    requests: number(
                        "report.entries.flight_requests",
                        &columns.flight_requests,
                        row,
                    )?,
                    rps: number("report.entries.flight_rps", &columns.flight_rps, row)?,
                },
            })
        })
        .collect()
}

fn encode_service_counts(counts: &ServiceCounts) -> v1::ServiceCounts {
    v1::ServiceCounts {
        service: counts.service.to_string(),
        attempts: counts.attempts,
        admitted: counts.admitted,
        dropped_by_one: counts.dropped_by_one,
        dropped_by_several: counts.dropped_by_several,
    }
}

fn decode_service_counts(counts: &v1::ServiceCounts) -> Result<ServiceCounts, Malformed> {
    Ok(ServiceCounts {
        service: name("report.services.service", &counts.service)?,
        attempts: counts.attempts,
        admitted: counts.admitted,
        dropped_by_one: counts.dropped_by_one,
        dropped_by_several: counts.dropped_by_several,
    })
}
