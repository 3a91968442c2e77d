//! File and flags together, checked field by field. Each error says whether it is the file's or a
//! flag's.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use sluicegate_model::{Law, MAX_NAME_BYTES, Name};

use super::flags::{
    AggregatorFlags, ClientFlags, ControllerFlags, FromFile, LimitFlags, ListenFlags, NodeFlags,
    SettingDoc, SidecarFlags,
};
use super::settings::{
    AggregatorSettings, ClientLimits, ClientSettings, ControllerSettings, DEFAULT_AGGREGATOR,
    DEFAULT_BUCKETS_DIR, DEFAULT_CALLER_KEY, DEFAULT_CONTROLLER, DEFAULT_LAW,
    DEFAULT_MAX_IDENTITIES, DEFAULT_MAX_VALUES, DEFAULT_PLACE, DEFAULT_PROCEDURE_KEY,
    DEFAULT_RAMP_MS, DEFAULT_TICK_MS, DEFAULT_TTL_MS, Limits, MAX_ADDRESSES, MAX_SERVICES,
    MIN_TICKS_PER_TTL, RAMP_MS, SidecarSettings, TICK_MS, TTL_MS, loopback,
};
use super::{InvalidSettings, Kind, SettingsFile};
use crate::buckets::api_version;
use crate::diagnostic::{At, Diagnostic, Problem, Report, Severity, quoted};
use crate::source;
use crate::tree::{self, Node, Tree, Value};
use crate::walk::{Fields, Trail, grouped, scalar};

/// Checks settings and remembers where each was given.
pub(super) struct Resolver<'s> {
    report: Report<'s>,
    /// Where a field stands in the file.
    places: BTreeMap<String, At>,
    given_by_flag: Vec<&'static str>,
    flag_errors: Vec<Diagnostic>,
    host: String,
}

impl Resolver<'_> {
    /// Reads the file, lays the flags over it, and hands both to `check`.
    pub(super) fn resolve<F: FromFile, S>(
        kind: Kind,
        file: Option<SettingsFile<'_>>,
        flags: F,
        host: &str,
        check: impl FnOnce(&mut Resolver<'_>, F) -> Option<S>,
    ) -> Result<S, InvalidSettings> {
        let (path, text) = match file {
            None => ("", ""),
            Some(file) => match source::text(file.path, file.bytes) {
                Ok(text) => (file.path, text),
                Err(error) => return Err(InvalidSettings { errors: vec![*error] }),
            },
        };
        let mut resolver = Resolver {
            report: Report::new(path, text),
            places: BTreeMap::new(),
            given_by_flag: flags.given(),
            flag_errors: Vec::new(),
            host: host.to_owned(),
        };
        let mut filed = F::default();
        if file.is_some() {
            resolver.read(kind, text, &mut filed);
        }
        let settings = check(&mut resolver, flags.over(filed));
        let (mut errors, _) = resolver.report.finish();
        errors.append(&mut resolver.flag_errors);
        match settings {
            Some(settings) if errors.is_empty() => Ok(settings),
            Some(_) | None => Err(InvalidSettings { errors }),
        }
    }

    fn read<F: FromFile>(&mut self, kind: Kind, text: &str, into: &mut F) {
        let report = &mut self.report;
        let root = match tree::read(text, report) {
            Tree::Whole(root) if !root.is_null() => root,
            Tree::Broken(_) => return,
            Tree::Whole(_) | Tree::Nothing => {
                let p = Problem::new("the file is empty").help(format!(
                    "a settings file begins with `apiVersion: sluicegate/v1` and `kind: {kind}`"
                ));
                report.error(At { line: 1, column: 1, width: 0 }, &"", p);
                return;
            }
        };
        let mut table =
            vec![SettingDoc { name: "apiVersion", doc: "" }, SettingDoc { name: "kind", doc: "" }];
        table.extend(F::docs());
        let what = format!("the settings of {} {kind}", article(kind));
        let Some(fields) = Fields::of(&root, &Trail::Top, &what, &table, report) else { return };
        api_version(&fields, "apiVersion: sluicegate/v1", report);
        check_kind(kind, &fields, report);
        let Value::Map(entries) = &root.value else { return };
        let settings = F::docs();
        for (key, _) in entries {
            let Some(setting) = settings.iter().find(|d| d.name == key.text) else {
                continue;
            };
            let Some(node) = fields.get(setting.name, &Trail::Top, report) else { continue };
            self.places.insert(key.text.clone(), node.at);
            into.set(setting.name, node, report);
        }
    }

    /// Reports what is wrong with a setting, at its flag or at its place in the file.
    fn error(&mut self, field: &'static str, problem: Problem) {
        if self.given_by_flag.contains(&field) {
            let flag = format!("--{}", field.replace('_', "-"));
            let error = Diagnostic::whole(Severity::Error, &flag, problem.message);
            self.flag_errors.push(error.with_help(problem.help));
            return;
        }
        match self.places.get(field) {
            Some(at) => self.report.error(*at, &field, problem),
            None => {
                let error = Diagnostic::whole(Severity::Error, field, problem.message);
                self.flag_errors.push(error.with_help(problem.help));
            }
        }
    }

    fn name(&mut self, field: &'static str, given: Option<String>, default: &str) -> Option<Name> {
        let text = given.as_deref().unwrap_or(default);
        match Name::new(text) {
            Ok(name) => Some(name),
            Err(e) => {
                self.error(field, Problem::new(format!("the name {} {e}", quoted(text))));
                None
            }
        }
    }

    fn number(
        &mut self,
        field: &'static str,
        given: Option<u64>,
        default: u64,
        range: RangeInclusive<u64>,
    ) -> Option<u64> {
        let n = given.unwrap_or(default);
        if range.contains(&n) {
            return Some(n);
        }
        let (low, high) = (grouped(*range.start()), grouped(*range.end()));
        let p = format!("{} is out of range; expected {low} to {high}", grouped(n));
        self.error(field, Problem::new(p));
        None
    }

    fn number_u32(
        &mut self,
        field: &'static str,
        given: Option<u64>,
        default: u32,
        range: RangeInclusive<u32>,
    ) -> Option<u32> {
        let wide = u64::from(*range.start())..=u64::from(*range.end());
        self.number(field, given, u64::from(default), wide).and_then(|n| u32::try_from(n).ok())
    }

    fn socket(
        &mut self,
        field: &'static str,
        given: Option<String>,
        default: SocketAddr,
    ) -> Option<SocketAddr> {
        let Some(text) = given else { return Some(default) };
        let Ok(address) = text.parse() else {
            let p = Problem::new(format!("{} is not an address to listen on", quoted(&text)))
                .help("write an IP address and a port: 127.0.0.1:7400, 0.0.0.0:7400 or [::]:7400");
            self.error(field, p);
            return None;
        };
        Some(address)
    }

    fn addresses(
        &mut self,
        field: &'static str,
        given: Option<Vec<String>>,
        default: &str,
    ) -> Option<Vec<String>> {
        let texts = given.unwrap_or_else(|| vec![default.to_owned()]);
        if texts.is_empty() || texts.len() > MAX_ADDRESSES {
            let p = format!("{} addresses; expected 1 to {MAX_ADDRESSES}", texts.len());
            self.error(field, Problem::new(p));
            return None;
        }
        let mut good = Vec::with_capacity(texts.len());
        for text in &texts {
            match host_and_port(text) {
                Some(address) => good.push(address.to_owned()),
                None => {
                    let p = Problem::new(format!("{} is not host and port", quoted(text)))
                        .help("write 10.0.0.7:7401, aggregator.zone-a:7401 or [::1]:7401");
                    self.error(field, p);
                }
            }
        }
        (good.len() == texts.len()).then_some(good)
    }

    fn key(&mut self, field: &'static str, given: Option<String>, default: &str) -> Option<String> {
        let text = given.unwrap_or_else(|| default.to_owned());
        match Name::new(&text) {
            Ok(_) => Some(text),
            Err(e) => {
                self.error(field, Problem::new(format!("the key {} {e}", quoted(&text))));
                None
            }
        }
    }
}

fn article(kind: Kind) -> &'static str {
    match kind {
        Kind::Aggregator => "an",
        Kind::Controller | Kind::Sidecar | Kind::Client => "a",
    }
}

fn check_kind(kind: Kind, fields: &Fields<'_>, report: &mut Report<'_>) {
    let trail = Trail::Top;
    let help = format!("write kind: {kind}");
    let Some(node): Option<&Node> = fields.require("kind", &trail, &help, report) else { return };
    let trail = trail.field("kind");
    let Some(text) = scalar(node, &trail, "a kind of node", report) else { return };
    if text == kind.as_str() {
        return;
    }
    let problem = match Kind::ALL.iter().find(|k| k.as_str() == text) {
        Some(other) => Problem::new(format!(
            "these are the settings of {} {other}; expected those of {} {kind}",
            article(*other),
            article(kind)
        )),
        None => {
            let all = Kind::ALL.map(|k| format!("`{k}`")).join(", ");
            let p = Problem::new(format!("{} is not a kind of node; expected {all}", quoted(text)));
            match Kind::nearest(text) {
                Some(kind) => p.help(format!("did you mean `{kind}`?")),
                None => p,
            }
        }
    };
    report.error(node.at, &trail, problem);
}

/// `host:port`, with `http://` before it or without.
fn host_and_port(text: &str) -> Option<&str> {
    let address = text.strip_prefix("http://").unwrap_or(text);
    let (host, port) = address.rsplit_once(':')?;
    let port_fits =
        port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|p| p > 0);
    let host_fits = match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']')?.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            (1..=MAX_NAME_BYTES).contains(&host.len())
                && host
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'))
        }
    };
    (port_fits && host_fits).then_some(address)
}

/// What every node has.
struct Common {
    node: Name,
    region: Name,
    tick: Duration,
    ttl: Duration,
}

fn common(r: &mut Resolver<'_>, flags: NodeFlags) -> Option<Common> {
    let NodeFlags { node, region, tick_ms, ttl_ms } = flags;
    let host = r.host.clone();
    let node = r.name("node", node, &host);
    let region = r.name("region", region, DEFAULT_PLACE);
    let tick = r.number("tick_ms", tick_ms, DEFAULT_TICK_MS, TICK_MS);
    let ttl = r.number("ttl_ms", ttl_ms, DEFAULT_TTL_MS, TTL_MS);
    let (tick, ttl) = (tick?, ttl?);
    let least = tick * MIN_TICKS_PER_TTL;
    if ttl < least {
        let field = if ttl_ms.is_some() { "ttl_ms" } else { "tick_ms" };
        let p = Problem::new(format!(
            "ttl_ms is {}, which is less than {MIN_TICKS_PER_TTL} ticks of {} ms: what is in force would run out between two renewals",
            grouped(ttl),
            grouped(tick)
        ))
        .help(format!("set ttl_ms to {} or more, or tick_ms to less", grouped(least)));
        r.error(field, p);
        return None;
    }
    let (tick, ttl) = (Duration::from_millis(tick), Duration::from_millis(ttl));
    Some(Common { node: node?, region: region?, tick, ttl })
}

fn listen(r: &mut Resolver<'_>, flags: ListenFlags, port: u16) -> Option<(SocketAddr, SocketAddr)> {
    const HTTP_OFFSET: u16 = 80;
    let ListenFlags { listen, http_listen } = flags;
    let grpc = r.socket("listen", listen, loopback(port));
    let http = r.socket("http_listen", http_listen, loopback(port + HTTP_OFFSET));
    let (grpc, http) = (grpc?, http?);
    if grpc == http && grpc.port() != 0 {
        let p = Problem::new(format!("{http} is the address of `listen` too"))
            .help("gRPC and HTTP need a port each");
        r.error("http_listen", p);
        return None;
    }
    Some((grpc, http))
}

fn limits(r: &mut Resolver<'_>, flags: LimitFlags, default: Limits) -> Option<Limits> {
    let LimitFlags {
        max_sessions,
        max_keys,
        max_keys_per_session,
        max_message_bytes,
        max_session_rps,
    } = flags;
    let sessions = r.number_u32("max_sessions", max_sessions, default.max_sessions, 1..=1_000_000);
    let keys = r.number_u32("max_keys", max_keys, default.max_keys, 1..=50_000_000);
    let per_session = r.number_u32(
        "max_keys_per_session",
        max_keys_per_session,
        default.max_keys_per_session,
        1..=50_000_000,
    );
    let bytes = r.number_u32(
        "max_message_bytes",
        max_message_bytes,
        default.max_message_bytes,
        65_536..=67_108_864,
    );
    let rps = r.number(
        "max_session_rps",
        max_session_rps,
        default.max_session_rps,
        1..=1_000_000_000_000,
    );
    Some(Limits {
        max_sessions: sessions?,
        max_keys: keys?,
        max_keys_per_session: per_session?,
        max_message_bytes: bytes?,
        max_session_rps: rps?,
    })
}

fn law(r: &mut Resolver<'_>, given: Option<String>) -> Option<Law> {
    let Some(text) = given else { return Some(DEFAULT_LAW) };
    let law = Law::named(&text);
    if law.is_none() {
        let p = format!("{} is not a law; expected `grant` or `ratio`", quoted(&text));
        r.error("law", Problem::new(p));
    }
    law
}

pub(super) fn controller(
    r: &mut Resolver<'_>,
    flags: ControllerFlags,
) -> Option<ControllerSettings> {
    let ControllerFlags { buckets_dir, law: law_name, node, listen: addresses, limits: bounds } =
        flags;
    let common = common(r, node);
    let addresses = listen(r, addresses, 7400);
    let limits = limits(r, bounds, Limits::CONTROLLER);
    let law = law(r, law_name);
    let buckets_dir = buckets_dir.unwrap_or_else(|| DEFAULT_BUCKETS_DIR.into());
    if buckets_dir.as_os_str().is_empty() {
        r.error("buckets_dir", Problem::new("the path is empty"));
    }
    let Common { node, region, tick, ttl } = common?;
    let (listen, http_listen) = addresses?;
    let (law, limits) = (law?, limits?);
    Some(ControllerSettings {
        node,
        region,
        listen,
        http_listen,
        buckets_dir,
        tick,
        ttl,
        law,
        limits,
    })
}

pub(super) fn aggregator(
    r: &mut Resolver<'_>,
    flags: AggregatorFlags,
) -> Option<AggregatorSettings> {
    let AggregatorFlags { zone, controllers, node, listen: addresses, limits: bounds } = flags;
    let common = common(r, node);
    let zone = r.name("zone", zone, DEFAULT_PLACE);
    let addresses = listen(r, addresses, 7401);
    let controllers = r.addresses("controllers", controllers, DEFAULT_CONTROLLER);
    let limits = limits(r, bounds, Limits::AGGREGATOR);
    let Common { node, region, tick, ttl } = common?;
    let (listen, http_listen) = addresses?;
    let (zone, controllers, limits) = (zone?, controllers?, limits?);
    Some(AggregatorSettings {
        node,
        zone,
        region,
        listen,
        http_listen,
        controllers,
        tick,
        ttl,
        limits,
    })
}

pub(super) fn client(r: &mut Resolver<'_>, flags: ClientFlags) -> Option<ClientSettings> {
    let ClientFlags { zone, aggregators, services, ramp_ms, max_identities, max_values, node } =
        flags;
    let common = common(r, node);
    let zone = r.name("zone", zone, DEFAULT_PLACE);
    let aggregators = r.addresses("aggregators", aggregators, DEFAULT_AGGREGATOR);
    let services = wanted(r, services.unwrap_or_default());
    let ramp = r.number("ramp_ms", ramp_ms, DEFAULT_RAMP_MS, RAMP_MS);
    const MOST: u32 = 1 << 24;
    let identities =
        r.number_u32("max_identities", max_identities, DEFAULT_MAX_IDENTITIES, 1..=MOST);
    let values = r.number_u32("max_values", max_values, DEFAULT_MAX_VALUES, 1..=MOST);
    let Common { node, region, tick, ttl } = common?;
    let limits = ClientLimits { max_identities: identities?, max_values: values? };
    let (zone, aggregators, services) = (zone?, aggregators?, services?);
    let ramp = Duration::from_millis(ramp?);
    Some(ClientSettings { node, zone, region, aggregators, services, tick, ttl, ramp, limits })
}

fn wanted(r: &mut Resolver<'_>, texts: Vec<String>) -> Option<Vec<Name>> {
    if texts.len() > MAX_SERVICES {
        let p = format!("{} services; the most is {}", texts.len(), grouped(MAX_SERVICES as u64));
        r.error("services", Problem::new(p));
        return None;
    }
    let mut names: Vec<Name> = Vec::with_capacity(texts.len());
    let mut good = true;
    for text in texts {
        match Name::new(&text) {
            Ok(name) => names.push(name),
            Err(e) => {
                r.error("services", Problem::new(format!("the name {} {e}", quoted(&text))));
                good = false;
            }
        }
    }
    names.sort();
    names.dedup();
    good.then_some(names)
}

pub(super) fn sidecar(r: &mut Resolver<'_>, flags: SidecarFlags) -> Option<SidecarSettings> {
    let SidecarFlags { caller_key, procedure_key, headers, client: inner, listen: addresses } =
        flags;
    let client = client(r, inner);
    let addresses = listen(r, addresses, 7402);
    let caller_key = r.key("caller_key", caller_key, DEFAULT_CALLER_KEY);
    let procedure_key = r.key("procedure_key", procedure_key, DEFAULT_PROCEDURE_KEY);
    let (client, caller_key, procedure_key) = (client?, caller_key?, procedure_key?);
    if caller_key == procedure_key {
        let p = Problem::new(format!("{} is the caller_key too", quoted(&procedure_key)))
            .help("caller and procedure need a key each");
        r.error("procedure_key", p);
        return None;
    }
    let (listen, http_listen) = addresses?;
    let headers = headers.unwrap_or(true);
    Some(SidecarSettings { client, listen, http_listen, caller_key, procedure_key, headers })
}
