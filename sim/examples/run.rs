//! Runs a scenario by name and prints what it comes to, and how long that took. For measuring the
//! simulator itself; people use the command.

use std::time::Instant;

use sluicegate_sim::{Law, run, scenario};

fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip(1);
    let name = args.next().unwrap_or_else(|| "surge".into());
    let law: Law = args.next().unwrap_or_else(|| "ratio".into()).parse()?;
    let seeds: u64 = args.next().map_or(Ok(1), |n| n.parse())?;
    let settings: Vec<String> = args.collect();
    let Some(builtin) = scenario::builtin(&name) else { anyhow::bail!("no scenario {name}") };
    let scenario = scenario::parse(&format!("{name}.yaml"), builtin.text, &settings)?;
    for seed in 1..=seeds {
        #[expect(clippy::disallowed_methods, reason = "how long it takes is what is asked")]
        let begin = Instant::now();
        let mut outcome = run(&scenario, law, seed, &mut |_| {})?.outcome;
        outcome.wall_s = begin.elapsed().as_secs_f64();
        #[expect(clippy::print_stdout, reason = "a command")]
        {
            println!("{}", serde_json::to_string(&outcome)?);
        }
    }
    Ok(())
}
