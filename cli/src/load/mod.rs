//! `sluice load`: an open-loop load on embedded clients or on an HTTP server, and a report of what
//! came of it.

mod args;
pub(crate) mod embedded;
pub(crate) mod hash;
mod http;
mod plan;
mod progress;
pub(crate) mod schedule;
mod series;
mod stats;
mod text;
mod trace;

use ::http::HeaderValue;
use tokio_util::sync::CancellationToken;

pub(crate) use args::{LoadArgs, built_in, pair};
pub(crate) use stats::Fate;

use self::args::{LoadSettings, Target};
use self::embedded::Clients;
use self::plan::Plan;
use self::series::SeriesFile;
use self::stats::{Stats, Took};
use crate::exit::{Ended, Failure};
use crate::{output, signals};

/// Runs the command.
pub(crate) fn run(args: LoadArgs) -> Ended {
    let LoadSettings {
        target,
        source,
        length,
        callers,
        procedures,
        clients,
        part,
        seed,
        series,
        json,
    } = args.check()?;
    let series = series.map(SeriesFile::create).transpose()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let stop = CancellationToken::new();
    runtime.spawn(signals::cancel(stop.clone()));
    let plan = Plan::new(source, clients, seed, part, length);
    let (stats, took) = match target {
        Target::Http(target) => {
            let names =
                http::Names { callers: values(&callers)?, procedures: values(&procedures)? };
            runtime.block_on(http::drive(&target, &names, plan, length, &stop))?
        }
        Target::Embedded(target) => {
            let names = embedded::Names { callers: callers.clone(), procedures };
            on_clients(&target, &names, plan, length, &stop)?
        }
    };
    // What a long load has found out is told even if the disk is full by now.
    let written = series.map_or(Ok(()), |file| file.write(&stats.series_csv()));
    let report = stats.report(took, &callers);
    if json {
        output::json(&report)?;
    } else {
        output::lines(text::lines(&report))?;
    }
    written?;
    let counts = report.counts;
    if counts.offered > 0 && counts.errors == counts.offered {
        let kinds: Vec<String> =
            report.errors_by.iter().map(|(kind, n)| format!("{kind} ({n})")).collect();
        let told = format!("every request failed: {}", kinds.join(", "));
        return Err(Failure::AtWork(anyhow::Error::msg(told)));
    }
    Ok(())
}

fn on_clients(
    target: &embedded::EmbeddedTarget,
    names: &embedded::Names,
    plan: Plan,
    length: Option<std::time::Duration>,
    stop: &CancellationToken,
) -> Result<(Stats, Took), Failure> {
    let clients = Clients::start(target.clients.clone())?;
    if !clients.wait(target.wait, stop) && !stop.is_cancelled() {
        output::note(format!(
            "{} of {} clients have no buckets after {:?}; the load starts all the same, and until \
             they do they admit everything",
            clients.len() - clients.informed(),
            clients.len(),
            target.wait
        ));
    }
    let service = &target.service;
    if clients.informed() == clients.len() && !clients.have_buckets(service) {
        output::note(format!(
            "no bucket matches: there are none of service {service}, so nothing limits this load"
        ));
    }
    let done = embedded::drive(target, &clients, names, plan, length, stop)?;
    clients.shutdown();
    Ok(done)
}

/// Names as header values.
fn values(names: &[String]) -> Result<Vec<HeaderValue>, Failure> {
    names
        .iter()
        .map(|name| {
            HeaderValue::from_str(name).map_err(|_| {
                Failure::bad_input(format!(
                    "\"{}\" cannot be sent in a header",
                    name.escape_debug()
                ))
            })
        })
        .collect()
}
