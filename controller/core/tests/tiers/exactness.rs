//! Lost, repeated, late and reordered messages between all tiers change no count.

use std::time::Duration;

use proptest::prelude::*;
use sluicegate_model::{Counts, KeyName, Scope};

use crate::world::{Faults, Use, World, bucket, key, rate, service};

fn keys() -> Vec<KeyName> {
    ["region", "zone", "unknown"].map(|b| key("s", b)).into()
}

fn noisy(seed: u64, faults: Faults) -> World {
    let buckets =
        vec![bucket("region", Scope::Region, rate(100)), bucket("zone", Scope::Zone, rate(50))];
    let mut w = World::new(2, vec![service("s", buckets)], seed);
    w.faults = faults;
    for client in 0..6_u32 {
        let uses = keys().into_iter().map(|k| Use::of(k, f64::from(client) * 7.3 + 5.0)).collect();
        w.add_client(client as usize % 2, uses);
    }
    w
}

fn quiesce(w: &mut World) {
    for used in w.clients.iter_mut().flat_map(|c| &mut c.uses) {
        used.offered_rps = 0.0;
    }
    w.run(Duration::from_secs(3));
    w.faults = Faults::default();
    w.run(Duration::from_secs(15));
}

fn at_controller(w: &World, name: &KeyName) -> Counts {
    w.view().keys.iter().find(|k| k.name == *name).map(|k| k.counts).unwrap_or_default()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_count_arrives_once(
        seed in any::<u64>(),
        lost in 0_u64..400,
        repeated in 0_u64..400,
        late in 0_u64..400,
        seconds in 5_u64..40,
    ) {
        let mut w = noisy(seed, Faults { lost, repeated, late });
        w.run(Duration::from_secs(seconds));
        quiesce(&mut w);
        for name in keys() {
            prop_assert_eq!(at_controller(&w, &name), w.total(&name), "{}", name);
        }
        prop_assert_eq!(w.view().services[0].counts.attempts, w.attempts());
        prop_assert!(w.view().keys.iter().all(|k| k.offered_rps.abs() < 1e-9 && k.sessions == 0));
    }

    #[test]
    fn streams_closed_at_rest_lose_and_repeat_nothing(seed in any::<u64>()) {
        let mut w = noisy(seed, Faults::default());
        for round in 0..4 {
            w.run(Duration::from_secs(5));
            let rates: Vec<f64> = w.clients.iter().map(|c| c.uses[0].offered_rps).collect();
            quiesce(&mut w);
            w.cut_parent(round % 2);
            w.cut_client(round);
            for (client, rate) in w.clients.iter_mut().zip(rates) {
                client.uses.iter_mut().for_each(|u| u.offered_rps = rate);
            }
        }
        w.run(Duration::from_secs(5));
        quiesce(&mut w);
        for name in keys() {
            prop_assert_eq!(at_controller(&w, &name), w.total(&name), "{}", name);
        }
    }

    #[test]
    fn a_stream_that_breaks_under_load_repeats_no_more_than_was_not_acknowledged(
        seed in any::<u64>(),
        cuts in 1_u64..6,
    ) {
        let mut w = noisy(seed, Faults::default());
        w.run(Duration::from_secs(5));
        for cut in 0..cuts {
            w.run(Duration::from_millis(1_337));
            w.cut_parent(usize::try_from(cut % 2).expect("small"));
        }
        quiesce(&mut w);
        for name in keys() {
            let (here, there) = (w.total(&name), at_controller(&w, &name));
            prop_assert!(there.covers(&here), "{} was lost", name);
            // At most what one zone reports in one interval, for each cut.
            let zone_rps: u64 = 5 + 20 + 34 + 12 + 27 + 42;
            prop_assert!(there.matched - here.matched <= cuts * zone_rps, "{}", name);
        }
    }
}
