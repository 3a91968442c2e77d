//! The compiled matcher and the counting against the reference: `ServiceBuckets::matching`, and the
//! definitions of matched, offered, admitted and would-drop spelt out.

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use common::{World, name, per, per_second, settings};
use proptest::prelude::*;
use sluicegate_client_core::KeyHandle;
use sluicegate_model::{
    AdmitRatio, Bucket, Counts, KeyName, KeyValues, Limit, Match, Mode, OnControlLoss, Pattern,
    Request, Rule, Scope, Select, ServiceBuckets,
};

const TEXTS: [&str; 5] = ["", "a", "ab", "b", "abc-longer-than-sixteen-bytes"];
const DIMENSIONS: [&str; 3] = ["x", "y", "caller"];

fn pattern() -> impl Strategy<Value = Pattern> {
    prop_oneof![
        Just(Pattern::Any),
        (0..TEXTS.len()).prop_map(|i| Pattern::Exact(TEXTS[i].into())),
        prop_oneof![Just("a"), Just("ab"), Just("b")].prop_map(|p| Pattern::Prefix(p.into())),
    ]
}

fn patterns() -> impl Strategy<Value = Vec<Pattern>> {
    prop_oneof![3 => Just(Vec::new()), 4 => prop::collection::vec(pattern(), 1..3)]
}

fn conditions() -> impl Strategy<Value = Match> {
    let dimensions = prop::collection::btree_map(0..DIMENSIONS.len(), patterns(), 0..2);
    (patterns(), patterns(), dimensions).prop_map(|(caller, procedure, dimensions)| Match {
        caller,
        procedure,
        dimensions: dimensions.into_iter().map(|(i, p)| (name(DIMENSIONS[i]), p)).collect(),
    })
}

/// A bucket, and whether its keys drop everything.
fn bucket() -> impl Strategy<Value = (Bucket, bool)> {
    let mode =
        prop_oneof![3 => Just(Mode::Deny), 2 => Just(Mode::Shadow), 1 => Just(Mode::Observe)];
    let scope = prop_oneof![Just(Scope::Zone), Just(Scope::Region), Just(Scope::Global)];
    let not = prop::collection::vec(conditions(), 0..2);
    let each = prop::option::weighted(0.3, prop::sample::subsequence(DIMENSIONS.to_vec(), 1..3));
    (conditions(), not, mode, scope, each, any::<bool>()).prop_map(
        |(on, not, mode, scope, each, drops)| {
            let bucket = Bucket {
                name: name("set below"),
                scope,
                rule: Rule { on, not },
                limit: if mode == Mode::Observe { Limit::Unlimited } else { per_second(5) },
                mode,
                per: each.map(|dimensions| per(&dimensions, 1000)),
                on_control_loss: OnControlLoss::Open,
                guard: false,
                enforce: 1.0,
                max_drop: 1.0,
                sharing: None,
            };
            (bucket, drops)
        },
    )
}

type Shown = (usize, usize, Vec<(usize, usize)>);

fn shown() -> impl Strategy<Value = Shown> {
    let dimension = (0..2_usize, 0..TEXTS.len());
    (0..TEXTS.len(), 0..TEXTS.len(), prop::collection::vec(dimension, 0..3))
}

/// What the counts must be, by the definitions.
#[derive(Default)]
struct Reference {
    keys: BTreeMap<KeyName, Counts>,
    admitted: u64,
    by_one: u64,
    by_several: u64,
}

impl Reference {
    fn take(&mut self, of: &ServiceBuckets, drops: &[bool], request: &Request<'_>) -> bool {
        let matching = of.matching(request);
        let denies = |i: usize| of.buckets[i].mode == Mode::Deny && drops[i];
        let droppers = matching.iter().filter(|i| denies(**i)).count();
        for &i in &matching {
            let bucket = &of.buckets[i];
            let others = droppers - usize::from(denies(i));
            let offered = u64::from(others == 0);
            let admitted = u64::from(droppers == 0);
            let would = bucket.mode == Mode::Shadow && drops[i] && droppers == 0;
            let more = Counts { matched: 1, offered, admitted, would_drop: u64::from(would) };
            self.keys.entry(key_name(of, bucket, request)).or_default().add(&more);
        }
        self.admitted += u64::from(droppers == 0);
        self.by_one += u64::from(droppers == 1);
        self.by_several += u64::from(droppers > 1);
        droppers == 0
    }
}

fn key_name(of: &ServiceBuckets, bucket: &Bucket, request: &Request<'_>) -> KeyName {
    let values = bucket.per.as_ref().map_or(KeyValues::Whole, |per| {
        let values = per.dimensions.iter().map(|d| request.dimension(d.as_str()));
        KeyValues::Each(values.map(|v| v.expect("matched").into()).collect())
    });
    KeyName { service: of.service.clone(), bucket: bucket.name.clone(), values }
}

fn set(world: &mut World, of: &ServiceBuckets, drops: &[bool]) {
    for key in world.keeper.keys().collect::<Vec<KeyHandle>>() {
        let name = world.keeper.name(key).expect("there");
        let (place, _) = of.bucket(name.bucket.as_str()).expect("configured");
        let admit = if drops[place] { AdmitRatio::NONE } else { AdmitRatio::ALL };
        world.keeper.set_admit(key, admit, Duration::ZERO);
    }
}

fn with<R>(shown: &Shown, f: impl FnOnce(&Request<'_>) -> R) -> R {
    let dimensions: Vec<(&str, &str)> =
        shown.2.iter().map(|(name, value)| (DIMENSIONS[*name], TEXTS[*value])).collect();
    f(&Request {
        service: "shop",
        caller: TEXTS[shown.0],
        procedure: TEXTS[shown.1],
        dimensions: &dimensions,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn counts_are_as_the_rules_stand(
        buckets in prop::collection::vec(bucket(), 1..24),
        most_specific in any::<bool>(),
        requests in prop::collection::vec(shown(), 1..12),
        promoted in any::<bool>(),
    ) {
        let (mut buckets, drops): (Vec<Bucket>, Vec<bool>) = buckets.into_iter().unzip();
        for (i, bucket) in buckets.iter_mut().enumerate() {
            bucket.name = name(&format!("b{i}"));
        }
        let select = if most_specific { Select::MostSpecific } else { Select::All };
        let of = common::service("shop", select, buckets);
        let mut world = World::new(&settings(), std::slice::from_ref(&of));
        // Asking makes identities and values known without counting anything.
        for shown in &requests {
            for _ in 0..2 {
                with(shown, |request| world.limiter.decide_n(request, 0).is_admitted());
                world.look();
            }
        }
        if promoted {
            for key in world.keeper.keys().collect::<Vec<_>>() {
                prop_assert!(world.keeper.promote(key));
            }
        }
        set(&mut world, &of, &drops);
        let mut reference = Reference::default();
        for shown in &requests {
            with(shown, |request| {
                let expected = reference.take(&of, &drops, request);
                prop_assert_eq!(world.limiter.decide(request).is_admitted(), expected);
                reference.take(&of, &drops, request);
                let handle = world.limiter.prepare(request);
                prop_assert_eq!(handle.decide().is_admitted(), expected);
                reference.take(&of, &drops, request);
                let mut verdicts = Vec::new();
                let twice = [*request, *request];
                let outcome = world.limiter.decide_each(&twice, 1, &mut verdicts);
                prop_assert_eq!(outcome.is_admitted(), expected);
                prop_assert!(verdicts.iter().all(|v| v.admitted == expected));
                Ok(())
            })?;
        }
        // An identity that nobody knows yet is matched on the spot: the same again.
        let fresh = World::new(&settings(), std::slice::from_ref(&of));
        for shown in &requests {
            with(shown, |request| {
                let whole = |i: &usize| of.buckets[*i].per.is_none();
                let expected: Vec<usize> = of.matching(request).into_iter().filter(whole).collect();
                let before: Vec<u64> = matched(&fresh, &of);
                let _ = fresh.limiter.decide(request);
                let after = matched(&fresh, &of);
                let counted: Vec<usize> =
                    (0..before.len()).filter(|i| after[*i] > before[*i]).filter(whole).collect();
                prop_assert_eq!(counted, expected);
                Ok(())
            })?;
        }
        for key in world.keeper.keys() {
            let name = world.keeper.name(key).expect("there");
            let expected = reference.keys.remove(&name).unwrap_or_default();
            prop_assert_eq!(world.keeper.totals(key), expected, "{}", name);
        }
        prop_assert!(reference.keys.is_empty(), "no key for {:?}", reference.keys);
        let shop = world.keeper.service_totals().next().expect("one service");
        prop_assert_eq!(
            (shop.admitted, shop.dropped_by_one, shop.dropped_by_several),
            (reference.admitted, reference.by_one, reference.by_several)
        );
    }
}

/// By place in the file.
fn matched(world: &World, of: &ServiceBuckets) -> Vec<u64> {
    let stats = world.limiter.stats();
    let of_bucket = |bucket: &Bucket| {
        let keys = stats.keys.iter().filter(|k| k.name.bucket == bucket.name);
        keys.map(|k| k.counts.matched).sum()
    };
    of.buckets.iter().map(of_bucket).collect()
}
