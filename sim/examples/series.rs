//! Prints a run bin by bin: for looking into a law. `series NAME LAW SEED BIN_MS FROM_S TO_S [PATH=VALUE]...`
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::cast_precision_loss)]
use std::path::Path;
fn main() {
    let a: Vec<String> = std::env::args().skip(1).collect();
    let file = format!("sim/scenarios/{}.yaml", a[0]);
    let scenario = sluicegate_sim::scenario::load(Path::new(&file), &a[6..].to_vec()).unwrap();
    let made =
        sluicegate_sim::run(&scenario, a[1].parse().unwrap(), a[2].parse().unwrap(), &mut |_| ())
            .unwrap();
    let (bin, from, to): (f64, f64, f64) =
        (a[3].parse().unwrap(), a[4].parse().unwrap(), a[5].parse().unwrap());
    let step = f64::from(made.series.step_ms);
    let n = (bin / step).max(1.0) as usize;
    for b in &made.series.buckets {
        println!("{}", b.bucket);
        for (i, w) in b.admitted_rps.chunks(n).enumerate() {
            let t = i as f64 * n as f64 * step / 1000.0;
            if t < from || t > to {
                continue;
            }
            let off = b.offered_rps[i * n..].iter().take(n).sum::<f64>() / w.len() as f64;
            let lim = b.limit_rps[i * n].unwrap_or(1.0);
            println!(
                "{t:7.2} off {:.3} adm {:.3}",
                off / lim,
                w.iter().sum::<f64>() / w.len() as f64 / lim
            );
        }
    }
    println!("{:?}", made.outcome.buckets);
}
