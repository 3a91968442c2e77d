//! The flags of `sluice load`, and what they mean together. Sends nothing.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args};
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use sluicegate_client::Settings;

use super::embedded::EmbeddedTarget;
use super::hash::Weighted;
use super::http::HttpTarget;
use super::plan::Part;
use super::schedule::{Source, Step, Stepped, Steps, rate, span};
use super::trace::{MAX_NAMES, Trace};
use crate::exit::Failure;

/// The most clients of a load.
const MAX_CLIENTS: u64 = 100_000;

/// Send an open-loop load to embedded clients or to an HTTP server, and measure what comes of it
///
/// Requests are sent when they are due, whatever became of earlier ones, so a slow answer hides
/// nothing. Embedded clients (--aggregators) decide inside this process, as a service that embeds
/// them would; an HTTP target (--url) is counted by its answers: 2xx admitted, 429 dropped,
/// anything else an error.
#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("target").required(true).args(["url", "aggregators"]),
    group = ArgGroup::new("shape").required(true).args(["rate", "step", "trace"])
)]
pub(crate) struct LoadArgs {
    /// The HTTP server to send to
    #[arg(long, value_name = "URL", help_heading = "HTTP target")]
    url: Option<Uri>,
    /// A header of every request; may be given several times
    #[arg(long, value_name = "NAME: VALUE", help_heading = "HTTP target", value_parser = header)]
    header: Vec<(HeaderName, HeaderValue)>,
    /// The header that carries a request's caller
    #[arg(long, value_name = "NAME", help_heading = "HTTP target")]
    caller_header: Option<HeaderName>,
    /// The header that carries a request's procedure
    #[arg(long, value_name = "NAME", help_heading = "HTTP target")]
    procedure_header: Option<HeaderName>,
    /// How long an answer may take before it is an error
    #[arg(long, value_name = "TIME", default_value = "5s", help_heading = "HTTP target",
        value_parser = span)]
    timeout: Duration,
    /// The most requests under way at once; those beyond are not sent, and counted
    #[arg(long, value_name = "N", default_value_t = 1024, help_heading = "HTTP target",
        value_parser = clap::value_parser!(u32).range(1..=50_000))]
    max_in_flight: u32,

    /// Aggregators to connect to. With one zone, in order of preference; with several, one for each
    #[arg(long, value_name = "URL,...", value_delimiter = ',', help_heading = "Embedded clients")]
    aggregators: Vec<String>,
    /// The service that the requests are for
    #[arg(
        long,
        value_name = "NAME",
        help_heading = "Embedded clients",
        required_unless_present = "url"
    )]
    service: Option<String>,
    /// The zones of the clients, in turn
    #[arg(
        long,
        value_name = "NAME,...",
        value_delimiter = ',',
        default_value = "default",
        help_heading = "Embedded clients"
    )]
    zone: Vec<String>,
    /// The region of the clients
    #[arg(long, value_name = "NAME", default_value = "default", help_heading = "Embedded clients")]
    region: String,
    /// How many clients the whole load has, each with an agent of its own
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Embedded clients",
        value_parser = clap::value_parser!(u64).range(1..=MAX_CLIENTS))]
    clients: u64,
    /// A dimension of every request; may be given several times
    #[arg(long, value_name = "NAME=VALUE", help_heading = "Embedded clients", value_parser = pair)]
    dimension: Vec<(String, String)>,
    /// How often clients report
    #[arg(long, value_name = "MS", default_value_t = 1000, help_heading = "Embedded clients",
        value_parser = clap::value_parser!(u64).range(50..=60_000))]
    tick_ms: u64,
    /// How long directives hold without a word from the aggregator
    #[arg(long, value_name = "MS", default_value_t = 10_000, help_heading = "Embedded clients",
        value_parser = clap::value_parser!(u64).range(50..=3_600_000))]
    ttl_ms: u64,
    /// Over how long clients then go over to what their buckets say for control loss
    #[arg(long, value_name = "MS", default_value_t = 10_000, help_heading = "Embedded clients",
        value_parser = clap::value_parser!(u64).range(0..=3_600_000))]
    ramp_ms: u64,
    /// How long to wait for the clients to have their buckets before the load starts without
    #[arg(long, value_name = "TIME", default_value = "5s", help_heading = "Embedded clients",
        value_parser = span)]
    wait: Duration,

    /// A constant rate, in requests a second
    #[arg(long, value_name = "RPS", help_heading = "Load", value_parser = rate)]
    rate: Option<f64>,
    /// Rates one after another, each for its time: 100:5s,900:20s
    #[arg(long, value_name = "RPS:TIME,...", help_heading = "Load")]
    step: Option<Steps>,
    /// Recorded traffic: a CSV with the columns timestamp_s,caller,procedure,requests, whose name
    /// ends in the length of its bins (_100ms.csv, _1s.csv, _60s.csv)
    #[arg(long, value_name = "FILE", help_heading = "Load")]
    trace: Option<PathBuf>,
    /// Multiply every count of the trace by this, 1 if not given
    #[arg(long, value_name = "K", help_heading = "Load",
        value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    scale: Option<u64>,
    /// Stop after this time; without it, at the end of the steps or the trace, or at Ctrl-C
    #[arg(long = "for", value_name = "TIME", help_heading = "Load", value_parser = span)]
    length: Option<Duration>,
    /// Who calls, with weights: web=3,app=1 (a trace brings its own)
    #[arg(long, visible_alias = "caller", value_name = "NAME[=WEIGHT],...", value_delimiter = ',',
        help_heading = "Load", value_parser = weighted, conflicts_with = "trace")]
    callers: Vec<(String, f64)>,
    /// What is called (a trace brings its own)
    #[arg(long, value_name = "NAME", help_heading = "Load", conflicts_with = "trace")]
    procedure: Option<String>,
    /// Which part of the load this process sends, where several share one: 2/5
    #[arg(long, value_name = "I/N", help_heading = "Load")]
    part: Option<Part>,
    /// How unevenly requests fall on clients: 0 evenly, 1 by Zipf's law
    #[arg(long, value_name = "S", default_value_t = 0.0, help_heading = "Load")]
    skew: f64,
    /// Chooses the clients of requests, the same in every process
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Load")]
    seed: u64,

    /// Write what happened in each second to this CSV
    #[arg(long, value_name = "FILE", help_heading = "Report")]
    series: Option<PathBuf>,
    /// Print the report as one line of JSON
    #[arg(long, help_heading = "Report")]
    json: bool,
}

/// A load, checked.
#[derive(Debug)]
pub(crate) struct LoadSettings {
    pub(crate) target: Target,
    pub(crate) source: Source,
    /// How long it lasts, if that is known.
    pub(crate) length: Option<Duration>,
    pub(crate) callers: Vec<String>,
    pub(crate) procedures: Vec<String>,
    /// How requests fall on clients.
    pub(crate) clients: Weighted,
    pub(crate) part: Part,
    pub(crate) seed: u64,
    pub(crate) series: Option<PathBuf>,
    pub(crate) json: bool,
}

/// Where a load goes.
#[derive(Debug)]
pub(crate) enum Target {
    Http(Box<HttpTarget>),
    Embedded(EmbeddedTarget),
}

impl LoadArgs {
    /// Checks the flags together, and reads the trace.
    pub(crate) fn check(self) -> Result<LoadSettings, Failure> {
        let part = self.part.unwrap_or(Part::WHOLE);
        if !(0.0..=10.0).contains(&self.skew) {
            return Err(Failure::bad_input(format!("--skew: {} is not in 0 to 10", self.skew)));
        }
        if self.scale.is_some() && self.trace.is_none() {
            return Err(Failure::bad_input("--scale multiplies a trace: give --trace FILE too"));
        }
        let target = self.target(part)?;
        // Over HTTP there are no clients to choose from; requests themselves are shared out.
        let count = match &target {
            Target::Http(_) => part.of as usize,
            Target::Embedded(_) => usize::try_from(self.clients).unwrap_or(usize::MAX),
        };
        let skew = if matches!(target, Target::Http(_)) { 0.0 } else { self.skew };
        let clients = Weighted::zipf(count, skew)
            .ok_or_else(|| Failure::bad_input("--skew: leaves no client to send requests"))?;
        let (source, natural, callers, procedures) = shape(
            self.rate,
            self.step,
            self.trace,
            self.scale.unwrap_or(1),
            self.seed,
            Who { callers: self.callers, procedure: self.procedure, length: self.length },
        )?;
        Ok(LoadSettings {
            target,
            source,
            length: self.length.or(natural),
            callers,
            procedures,
            clients,
            part,
            seed: self.seed,
            series: self.series,
            json: self.json,
        })
    }

    fn target(&self, part: Part) -> Result<Target, Failure> {
        let Some(url) = &self.url else { return self.embedded(part).map(Target::Embedded) };
        if url.scheme_str() != Some("http") || url.host().is_none() {
            return Err(Failure::bad_input(format!(
                "--url: \"{url}\" is not usable, expected http://host[:port][/path]"
            )));
        }
        let mut headers = HeaderMap::new();
        for (name, value) in &self.header {
            headers.append(name.clone(), value.clone());
        }
        Ok(Target::Http(Box::new(HttpTarget {
            url: url.clone(),
            headers,
            caller_header: self.caller_header.clone(),
            procedure_header: self.procedure_header.clone(),
            timeout: self.timeout,
            max_in_flight: self.max_in_flight,
        })))
    }

    fn embedded(&self, part: Part) -> Result<EmbeddedTarget, Failure> {
        let zones = &self.zone;
        if zones.len() > 1 && self.aggregators.len() != zones.len() {
            return Err(Failure::bad_input(format!(
                "--aggregators names {} and --zone {}: with several zones, name one aggregator for \
                 each",
                self.aggregators.len(),
                zones.len()
            )));
        }
        if let Some((name, value)) = built_in(&self.dimension) {
            let flag = if name == "caller" { "callers" } else { "procedure" };
            return Err(Failure::bad_input(format!(
                "--dimension {name}={value}: use --{flag} {value}"
            )));
        }
        let service = self.service.clone().unwrap_or_default();
        let clients = (0..usize::try_from(self.clients).unwrap_or(usize::MAX))
            .filter(|client| part.owns(*client))
            .map(|client| {
                let zone = client % zones.len();
                let aggregators = match zones.len() {
                    1 => self.aggregators.clone(),
                    _ => vec![self.aggregators[zone].clone()],
                };
                let settings = Settings {
                    node: format!("load-{client}"),
                    zone: zones[zone].clone(),
                    region: self.region.clone(),
                    services: vec![service.clone()],
                    tick: Duration::from_millis(self.tick_ms),
                    ttl: Duration::from_millis(self.ttl_ms),
                    ramp: Duration::from_millis(self.ramp_ms),
                    ..Settings::new(aggregators)
                };
                (client, settings)
            })
            .collect();
        Ok(EmbeddedTarget { clients, service, dimensions: self.dimension.clone(), wait: self.wait })
    }
}

struct Who {
    callers: Vec<(String, f64)>,
    procedure: Option<String>,
    length: Option<Duration>,
}

type Shape = (Source, Option<Duration>, Vec<String>, Vec<String>);

fn shape(
    rate_rps: Option<f64>,
    steps: Option<Steps>,
    trace: Option<PathBuf>,
    scale: u64,
    seed: u64,
    who: Who,
) -> Result<Shape, Failure> {
    if let Some(path) = trace {
        let mut trace = Trace::read(&path, scale).map_err(|e| Failure::BadInput(e.into()))?;
        let length = trace.length();
        let callers = std::mem::take(&mut trace.callers);
        let procedures = std::mem::take(&mut trace.procedures);
        return Ok((Source::Replay(trace.replay(seed)), Some(length), callers, procedures));
    }
    let (mut steps, natural) = match (rate_rps, steps) {
        (Some(rate_rps), _) => {
            let length = who.length.unwrap_or(super::schedule::MAX_LENGTH);
            (vec![Step { rate_rps, length }], None)
        }
        (None, Some(Steps(steps))) => {
            let natural = steps.iter().map(|s| s.length).sum();
            (steps, Some(natural))
        }
        (None, None) => return Err(Failure::bad_input("give one of --rate, --step, --trace")),
    };
    // A longer --for stays on the last step.
    if let (Some(length), Some(natural), Some(last)) = (who.length, natural, steps.last_mut()) {
        last.length += length.saturating_sub(natural);
    }
    let given = if who.callers.is_empty() { vec![(String::new(), 1.0)] } else { who.callers };
    if given.len() > MAX_NAMES {
        return Err(Failure::bad_input(format!("--callers: the most is {MAX_NAMES}")));
    }
    let (callers, weights): (Vec<String>, Vec<f64>) = given.into_iter().unzip();
    let weights = Weighted::new(&weights)
        .ok_or_else(|| Failure::bad_input("--callers: at least one weight must be above 0"))?;
    let source = Source::Stepped(Stepped::new(steps, weights, seed));
    Ok((source, natural, callers, who.procedure.into_iter().collect()))
}

fn header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = text.split_once(':').ok_or("expected NAME: VALUE, as in \"x-user: 7\"")?;
    let name = name.trim().parse().map_err(|_| format!("\"{name}\" is no header name"))?;
    let value = value.trim().parse().map_err(|_| format!("\"{value}\" is no header value"))?;
    Ok((name, value))
}

/// Reads `NAME=VALUE`.
pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE, as in workspace_id=42".to_owned()),
    }
}

/// The first of the dimensions that is not one but has a flag of its own.
pub(crate) fn built_in(dimensions: &[(String, String)]) -> Option<&(String, String)> {
    dimensions.iter().find(|(name, _)| matches!(name.as_str(), "caller" | "procedure"))
}

fn weighted(text: &str) -> Result<(String, f64), String> {
    let Some((name, weight)) = text.rsplit_once('=') else { return Ok((text.to_owned(), 1.0)) };
    match weight.parse::<f64>() {
        Ok(w) if w.is_finite() && w >= 0.0 => Ok((name.to_owned(), w)),
        _ => Err(format!("\"{weight}\" is no weight: expected a number, 0 or more, as in web=3")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Flags {
        #[command(flatten)]
        load: LoadArgs,
    }

    fn settings(flags: &str) -> Result<LoadSettings, String> {
        let parsed = Flags::try_parse_from(std::iter::once("load").chain(flags.split(' ')));
        let parsed = parsed.map_err(|e| e.to_string())?;
        parsed.load.check().map_err(|e| e.text().unwrap_or_default())
    }

    #[test]
    fn clients_are_spread_over_zones_and_parts() {
        let s = settings(
            "--aggregators http://a:1,http://b:1 --zone za,zb --clients 6 --service s --rate 1 \
             --part 2/3",
        );
        let Target::Embedded(target) = s.expect("good").target else { panic!("embedded") };
        let seen: Vec<_> = target
            .clients
            .iter()
            .map(|(c, s)| (*c, s.zone.as_str(), s.aggregators[0].as_str()))
            .collect();
        assert_eq!(seen, [(1, "zb", "http://b:1"), (4, "za", "http://a:1")]);
    }

    #[test]
    fn a_longer_time_stays_on_the_last_step() {
        let s = settings("--url http://h/ --step 10:1s,20:1s --for 3s").expect("good");
        assert_eq!(s.length, Some(Duration::from_secs(3)));
        assert_eq!(s.source.count(), 50);
        let s = settings("--url http://h/ --rate 10").expect("good");
        assert_eq!(s.length, None, "until it is stopped");
    }

    #[test]
    fn callers_have_weights() {
        let s = settings("--url http://h/ --rate 8 --for 1s --callers web=3,app").expect("good");
        assert_eq!(s.callers, ["web", "app"]);
        assert_eq!(s.source.filter(|a| a.caller == 0).count(), 6);
    }

    #[test]
    fn wrong_flags_are_told() {
        for (flags, told) in [
            ("--rate 1", "required"),
            ("--url http://h/", "required"),
            ("--url http://h/ --rate 1 --step 1:1s", "cannot be used with"),
            ("--url https://h/ --rate 1", "expected http://host"),
            ("--aggregators http://a:1 --rate 1", "--service"),
            (
                "--aggregators http://a:1 --service s --rate 1 --dimension caller=web",
                "use --callers web",
            ),
            ("--aggregators http://a:1 --service s --zone x,y --rate 1", "one aggregator for each"),
            ("--url http://h/ --rate 1 --callers a=x", "no weight"),
            ("--url http://h/ --rate 1 --callers a=0", "above 0"),
            ("--url http://h/ --rate 1 --header nocolon", "expected NAME: VALUE"),
            ("--url http://h/ --rate 1 --skew 11", "0 to 10"),
            ("--url http://h/ --rate 1 --scale 2", "--trace"),
            ("--url http://h/ --trace /no/such_1s.csv", "cannot be read"),
            ("--url http://h/ --rate 1 --part 3/2", "expected I/N"),
        ] {
            let error = settings(flags).expect_err(flags);
            assert!(error.contains(told), "{flags}: {error}");
        }
    }
}
