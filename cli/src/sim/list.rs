//! `sluice sim list`: which scenarios and laws there are.

use clap::Args;
use serde::Serialize;
use sluicegate_sim::{Law, Measure, scenario};

use crate::exit::Ended;
use crate::output;
use crate::table::{Align, Table};

/// List the scenarios, what each shows, and the measures that tell most there
#[derive(Debug, Args)]
pub(super) struct ListArgs {
    /// Print the list as one line of JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Answer {
    scenarios: Vec<Entry>,
    laws: Vec<&'static str>,
}

#[derive(Debug, Serialize)]
struct Entry {
    name: &'static str,
    about: String,
    measures: Vec<Measure>,
}

/// Runs the command.
pub(super) fn run(args: ListArgs) -> Ended {
    let ListArgs { json } = args;
    let answer = Answer {
        scenarios: scenario::builtins().iter().map(entry).collect::<Result<_, _>>()?,
        laws: Law::ALL.iter().map(|l| l.name()).collect(),
    };
    if json {
        return Ok(output::json(&answer)?);
    }
    let mut table =
        Table::new([("SCENARIO", Align::Left), ("SHOWS", Align::Left), ("MEASURES", Align::Left)]);
    for Entry { name, about, measures } in &answer.scenarios {
        let measures: Vec<&str> = measures.iter().map(|m| m.name()).collect();
        table.row([(*name).to_owned(), about.clone(), measures.join(" ")]);
    }
    // A long line is better broken by the terminal than cut: its measures would be lost.
    output::lines(table.lines(None))?;
    output::line(format!("\nLaws: {}", answer.laws.join(", ")))?;
    Ok(())
}

fn entry(builtin: &scenario::Builtin) -> anyhow::Result<Entry> {
    let scenario = scenario::parse(builtin.name, builtin.text, &[])?;
    let measures = scenario.telling_measures().to_vec();
    Ok(Entry { name: builtin.name, about: scenario.about, measures })
}
