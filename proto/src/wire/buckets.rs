//! Buckets: what a bucket file says, checked once more on arrival, because a parent is not trusted
//! to have the same bounds.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use prost::Message as _;
use sluicegate_model::{
    Bucket, Classes, Limit, MAX_BUCKETS_PER_SERVICE, MAX_VALUE_BYTES, Match, Mode, Name,
    OnControlLoss, Overflow, Owner, Pattern, Patterns, Per, Rule, Scope, Select, ServiceBuckets,
    Sharing, TokenRate,
};

use super::malformed::{Malformed, Problem, at_most, name, names, no_twice, not_allowed, text};
use super::{
    MAX_CONDITIONS, MAX_DOWN_BYTES, MAX_EXCLUSIONS, MAX_OWNER_BYTES, MAX_PATTERN_BYTES,
    MAX_PATTERNS, MAX_VALUE_LIMITS,
};
use crate::v1;

/// Whether every child can take in `service`: whether its encoding decodes, and fits.
///
/// # Errors
/// Says which part of the service does not fit into a message.
pub fn check_service(service: &ServiceBuckets) -> Result<(), Malformed> {
    let encoded = encode_service(service);
    // Half, so that there is room for what goes with it.
    let (found, most) = (encoded.encoded_len(), MAX_DOWN_BYTES / 2);
    if found > most {
        return Err(Malformed::new("service", Problem::TooLong { found, most }));
    }
    decode_service(encoded).map(|_| ())
}

/// The wire form of `service`.
#[must_use]
pub fn encode_service(service: &ServiceBuckets) -> v1::ServiceBuckets {
    let select = match service.select {
        Select::All => v1::Select::All,
        Select::MostSpecific => v1::Select::MostSpecific,
    };
    let Owner { owner, contact, runbook } = service.owner.clone();
    v1::ServiceBuckets {
        service: service.service.to_string(),
        owner: Some(v1::Owner { owner, contact, runbook }),
        select: select.into(),
        buckets: service.buckets.iter().map(encode_bucket).collect(),
    }
}

/// The service that `service` stands for.
///
/// # Errors
/// Says which field breaks the protocol.
pub fn decode_service(service: v1::ServiceBuckets) -> Result<ServiceBuckets, Malformed> {
    let name = name("service", &service.service)?;
    let owner = service.owner.unwrap_or_default();
    let bounded = |field: &str, t: Option<String>| {
        t.map(|t| text(&format!("owner.{field}"), t, MAX_OWNER_BYTES)).transpose()
    };
    let owner = Owner {
        owner: bounded("owner", owner.owner)?,
        contact: bounded("contact", owner.contact)?,
        runbook: bounded("runbook", owner.runbook)?,
    };
    let select = match v1::Select::try_from(service.select) {
        Ok(v1::Select::All) => Select::All,
        Ok(v1::Select::MostSpecific) => Select::MostSpecific,
        Ok(v1::Select::Unspecified) | Err(_) => {
            return not_allowed("select", service.select, "1 (all) or 2 (most specific)");
        }
    };
    at_most("buckets", service.buckets.len(), MAX_BUCKETS_PER_SERVICE)?;
    let mut buckets = Vec::with_capacity(service.buckets.len());
    let mut seen: BTreeSet<Name> = BTreeSet::new();
    for (place, bucket) in service.buckets.into_iter().enumerate() {
        let bucket = decode_bucket(bucket).map_err(|e| e.within(format!("buckets[{place}]")))?;
        if !seen.insert(bucket.name.clone()) {
            let what = bucket.name.to_string();
            return Err(Malformed::new("buckets.name", Problem::Twice { what }));
        }
        buckets.push(bucket);
    }
    Ok(ServiceBuckets { service: name, owner, select, buckets })
}

fn encode_bucket(bucket: &Bucket) -> v1::Bucket {
    let scope = match bucket.scope {
        Scope::Zone => v1::Scope::Zone,
        Scope::Region => v1::Scope::Region,
        Scope::Global => v1::Scope::Global,
    };
    let mode = match bucket.mode {
        Mode::Deny => v1::Mode::Deny,
        Mode::Shadow => v1::Mode::Shadow,
        Mode::Observe => v1::Mode::Observe,
    };
    let on_control_loss = match bucket.on_control_loss {
        OnControlLoss::Open => v1::OnControlLoss::Open,
        OnControlLoss::Last => v1::OnControlLoss::Last,
        OnControlLoss::Share => v1::OnControlLoss::Share,
        OnControlLoss::Closed => v1::OnControlLoss::Closed,
    };
    v1::Bucket {
        name: bucket.name.to_string(),
        scope: scope.into(),
        on: Some(encode_match(&bucket.rule.on)),
        not: bucket.rule.not.iter().map(encode_match).collect(),
        limit: Some(encode_limit(bucket.limit)),
        mode: mode.into(),
        per: bucket.per.as_ref().map(encode_per),
        on_control_loss: on_control_loss.into(),
        guard: bucket.guard,
        enforce: (bucket.enforce < 1.0).then_some(bucket.enforce),
        max_drop: (bucket.max_drop < 1.0).then_some(bucket.max_drop),
        sharing: bucket.sharing.as_ref().map(encode_sharing),
    }
}

fn decode_bucket(bucket: v1::Bucket) -> Result<Bucket, Malformed> {
    let scope = match v1::Scope::try_from(bucket.scope) {
        Ok(v1::Scope::Zone) => Scope::Zone,
        Ok(v1::Scope::Region) => Scope::Region,
        Ok(v1::Scope::Global) => Scope::Global,
        Ok(v1::Scope::Unspecified) | Err(_) => {
            return not_allowed("scope", bucket.scope, "1 (zone), 2 (region) or 3 (global)");
        }
    };
    let mode = match v1::Mode::try_from(bucket.mode) {
        Ok(v1::Mode::Deny) => Mode::Deny,
        Ok(v1::Mode::Shadow) => Mode::Shadow,
        Ok(v1::Mode::Observe) => Mode::Observe,
        Ok(v1::Mode::Unspecified) | Err(_) => {
            return not_allowed("mode", bucket.mode, "1 (deny), 2 (shadow) or 3 (observe)");
        }
    };
    let on_control_loss = match v1::OnControlLoss::try_from(bucket.on_control_loss) {
        Ok(v1::OnControlLoss::Open) => OnControlLoss::Open,
        Ok(v1::OnControlLoss::Last) => OnControlLoss::Last,
        Ok(v1::OnControlLoss::Share) => OnControlLoss::Share,
        Ok(v1::OnControlLoss::Closed) => OnControlLoss::Closed,
        Ok(v1::OnControlLoss::Unspecified) | Err(_) => {
            let allowed = "1 (open), 2 (last), 3 (share) or 4 (closed)";
            return not_allowed("on_control_loss", bucket.on_control_loss, allowed);
        }
    };
    let limit = decode_limit("limit", bucket.limit)?;
    if mode == Mode::Observe && limit != Limit::Unlimited {
        return not_allowed("limit", limit, "no limit, because the mode is observe");
    }
    at_most("not", bucket.not.len(), MAX_EXCLUSIONS)?;
    let on = decode_match(bucket.on.unwrap_or_default()).map_err(|e| e.within("on"))?;
    let not = bucket.not.into_iter().map(|m| decode_match(m).map_err(|e| e.within("not")));
    let sharing = bucket.sharing.map(|s| decode_sharing(s).map_err(|e| e.within("sharing")));
    let sharing = sharing.transpose()?;
    let per = bucket.per.map(|p| decode_per(p, sharing.is_some()).map_err(|e| e.within("per")));
    let per = per.transpose()?;
    if sharing.is_some() && per.is_none() {
        return Err(Malformed::new("per", Problem::Missing));
    }
    Ok(Bucket {
        name: name("name", &bucket.name)?,
        scope,
        rule: Rule { on, not: not.collect::<Result<_, _>>()? },
        limit,
        mode,
        per,
        on_control_loss,
        guard: bucket.guard,
        enforce: share("enforce", bucket.enforce)?,
        max_drop: share("max_drop", bucket.max_drop)?,
        sharing,
    })
}

fn share(field: &str, share: Option<f64>) -> Result<f64, Malformed> {
    let share = share.unwrap_or(1.0);
    if share > 0.0 && share <= 1.0 {
        return Ok(share);
    }
    not_allowed(field, share, "above 0 and at most 1")
}

fn encode_sharing(sharing: &Sharing) -> v1::Sharing {
    use v1::sharing::Sharing as Wire;
    let sharing = match sharing {
        Sharing::Fair => Wire::Fair(true),
        Sharing::Priority(classes) => Wire::Priority(v1::Classes {
            order: classes.order.iter().map(ToString::to_string).collect(),
            default_place: u32::try_from(classes.default).unwrap_or(0),
        }),
    };
    v1::Sharing { sharing: Some(sharing) }
}

fn decode_sharing(sharing: v1::Sharing) -> Result<Sharing, Malformed> {
    use v1::sharing::Sharing as Wire;
    let classes = match sharing.sharing {
        None => return Err(Malformed::new("sharing", Problem::Missing)),
        Some(Wire::Fair(true)) => return Ok(Sharing::Fair),
        Some(Wire::Fair(false)) => return not_allowed("fair", false, "true"),
        Some(Wire::Priority(classes)) => classes,
    };
    let found = classes.order.len();
    at_most("priority.order", found, Classes::MAX)?;
    if found < 2 {
        return not_allowed("priority.order", found, "2 to 8 values");
    }
    if let Some(long) = classes.order.iter().find(|v| v.len() > MAX_VALUE_BYTES) {
        let problem = Problem::TooLong { found: long.len(), most: MAX_VALUE_BYTES };
        return Err(Malformed::new("priority.order", problem));
    }
    no_twice("priority.order", &classes.order)?;
    let default = classes.default_place as usize;
    if default >= found {
        return not_allowed("priority.default_place", default, "a place in order");
    }
    let order = classes.order.into_iter().map(String::into_boxed_str).collect();
    Ok(Sharing::Priority(Classes { order, default }))
}

fn encode_match(m: &Match) -> v1::Match {
    let dimensions = m.dimensions.iter().map(|(name, patterns)| v1::DimensionMatch {
        name: name.to_string(),
        patterns: encode_patterns(patterns),
    });
    v1::Match {
        caller: encode_patterns(&m.caller),
        procedure: encode_patterns(&m.procedure),
        dimensions: dimensions.collect(),
    }
}

fn decode_match(m: v1::Match) -> Result<Match, Malformed> {
    at_most("dimensions", m.dimensions.len(), MAX_CONDITIONS)?;
    let mut dimensions: BTreeMap<Name, Patterns> = BTreeMap::new();
    for condition in m.dimensions {
        let dimension = name("dimensions.name", &condition.name)?;
        let patterns = decode_patterns("dimensions.patterns", condition.patterns)?;
        if dimensions.insert(dimension, patterns).is_some() {
            let problem = Problem::Twice { what: condition.name };
            return Err(Malformed::new("dimensions.name", problem));
        }
    }
    Ok(Match {
        caller: decode_patterns("caller", m.caller)?,
        procedure: decode_patterns("procedure", m.procedure)?,
        dimensions,
    })
}

fn encode_patterns(patterns: &Patterns) -> Vec<v1::Pattern> {
    use v1::pattern::Pattern as Wire;
    let encode = |pattern: &Pattern| match pattern {
        Pattern::Any => Wire::Any(true),
        Pattern::Exact(value) => Wire::Exact(value.to_string()),
        Pattern::Prefix(prefix) => Wire::Prefix(prefix.to_string()),
    };
    patterns.iter().map(|p| v1::Pattern { pattern: Some(encode(p)) }).collect()
}

fn decode_patterns(field: &str, patterns: Vec<v1::Pattern>) -> Result<Patterns, Malformed> {
    use v1::pattern::Pattern as Wire;
    at_most(field, patterns.len(), MAX_PATTERNS)?;
    let decode = |pattern: v1::Pattern| match pattern.pattern {
        None => Err(Malformed::new(field, Problem::Missing)),
        Some(Wire::Any(true)) => Ok(Pattern::Any),
        Some(Wire::Any(false)) => not_allowed(field, "any: false", "any: true"),
        Some(Wire::Exact(value)) => {
            Ok(Pattern::Exact(text(field, value, MAX_PATTERN_BYTES)?.into_boxed_str()))
        }
        Some(Wire::Prefix(prefix)) if prefix.is_empty() => {
            not_allowed(field, "an empty prefix", "any: true")
        }
        Some(Wire::Prefix(prefix)) => {
            Ok(Pattern::Prefix(text(field, prefix, MAX_PATTERN_BYTES)?.into_boxed_str()))
        }
    };
    patterns.into_iter().map(decode).collect()
}

fn encode_limit(limit: Limit) -> v1::Limit {
    let tokens = match limit {
        Limit::Unlimited => None,
        Limit::Tokens(t) => Some(v1::TokenRate {
            requests: t.requests(),
            window_ns: u64::try_from(t.window().as_nanos()).unwrap_or(u64::MAX),
            depth: t.depth(),
        }),
    };
    v1::Limit { tokens }
}

fn decode_limit(field: &str, limit: Option<v1::Limit>) -> Result<Limit, Malformed> {
    let Some(limit) = limit else { return Err(Malformed::new(field, Problem::Missing)) };
    let Some(t) = limit.tokens else { return Ok(Limit::Unlimited) };
    TokenRate::from_parts(t.requests, Duration::from_nanos(t.window_ns), t.depth)
        .map(Limit::Tokens)
        .map_err(|e| Malformed::new(field, Problem::Limit(e)))
}

fn encode_per(per: &Per) -> v1::Per {
    let values = per.values.iter().map(|(values, limit)| v1::ValueLimit {
        values: values.iter().map(ToString::to_string).collect(),
        limit: Some(encode_limit(*limit)),
    });
    v1::Per {
        dimensions: per.dimensions.iter().map(ToString::to_string).collect(),
        values: values.collect(),
        max_keys: per.max_keys,
        overflow: match per.overflow {
            Overflow::Observe => None,
            Overflow::Limit(limit) => Some(encode_limit(limit)),
        },
    }
}

fn decode_per(per: v1::Per, shared: bool) -> Result<Per, Malformed> {
    let dimensions = names("dimensions", &per.dimensions, Per::MAX_DIMENSIONS)?;
    if dimensions.is_empty() {
        return Err(Malformed::new("dimensions", Problem::Missing));
    }
    if per.max_keys == 0 || per.max_keys > Per::MAX_MAX_KEYS {
        return not_allowed("max_keys", per.max_keys, "1 to 10_000_000");
    }
    let expected = dimensions.len() - usize::from(shared);
    at_most("values", per.values.len(), if expected == 0 { 0 } else { MAX_VALUE_LIMITS })?;
    let mut values: BTreeMap<Vec<Box<str>>, Limit> = BTreeMap::new();
    for value in per.values {
        let found = value.values.len();
        if found != expected {
            return Err(Malformed::new("values.values", Problem::Length { found, expected }));
        }
        let limit = decode_limit("values.limit", value.limit)?;
        let combination: Vec<Box<str>> = value
            .values
            .into_iter()
            .map(|v| text("values.values", v, MAX_VALUE_BYTES).map(String::into_boxed_str))
            .collect::<Result<_, _>>()?;
        let what = combination.join(", ");
        if values.insert(combination, limit).is_some() {
            return Err(Malformed::new("values.values", Problem::Twice { what }));
        }
    }
    let overflow = match per.overflow {
        None => Overflow::Observe,
        Some(limit) => Overflow::Limit(decode_limit("overflow", Some(limit))?),
    };
    Ok(Per { dimensions, values, max_keys: per.max_keys, overflow })
}
