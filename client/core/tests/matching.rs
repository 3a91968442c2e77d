//! The compiled matcher and the counting against the reference: `ServiceBuckets::matching`, and the
//! definitions of matched, offered, admitted and would-drop spelt out.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use common::{World, name, per, per_second, settings};
use proptest::prelude::*;
use sluicegate_client_core::KeyHandle;
use sluicegate_model::{
    AdmitRatio, Bucket, Classes, Counts, KeyName, KeyValues, Limit, Match, Mode, OnControlLoss,
    Pattern, Request, Rule, Scope, Select, ServiceBuckets, Sharing,
};

const TEXTS: [&str; 5] = ["", "a", "ab", "b", "abc-longer-than-sixteen-bytes"];
const DIMENSIONS: [&str; 3] = ["x", "y", "caller"];
/// What requests show beside caller and procedure.
const SHOWN: [&str; 3] = ["x", "y", Classes::ATTEMPT];
const ATTEMPTS: [&str; 5] = ["1", "2", "0", "third", "10"];

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

/// How the values of the last dimension share the limit.
fn sharing() -> impl Strategy<Value = Sharing> {
    let order = prop::sample::subsequence(TEXTS.to_vec(), 2..TEXTS.len()).prop_shuffle();
    let classes = (order, any::<prop::sample::Index>()).prop_map(|(order, default)| Classes {
        default: default.index(order.len()),
        order: order.into_iter().map(Box::from).collect(),
    });
    prop_oneof![Just(Sharing::Fair), classes.prop_map(Sharing::Priority)]
}

/// A bucket, and whether its keys drop everything.
fn bucket() -> impl Strategy<Value = (Bucket, bool)> {
    let mode =
        prop_oneof![3 => Just(Mode::Deny), 2 => Just(Mode::Shadow), 1 => Just(Mode::Observe)];
    let scope = prop_oneof![Just(Scope::Zone), Just(Scope::Region), Just(Scope::Global)];
    let not = prop::collection::vec(conditions(), 0..2);
    let each = prop::sample::subsequence(DIMENSIONS.to_vec(), 1..3).prop_shuffle();
    let each = prop::option::weighted(0.4, (each, prop::option::of(sharing())));
    (conditions(), not, mode, scope, each, any::<bool>()).prop_map(
        |(on, not, mode, scope, each, drops)| {
            let (dimensions, sharing) = each.unzip();
            let bucket = Bucket {
                name: name("set below"),
                scope,
                rule: Rule { on, not },
                limit: if mode == Mode::Observe { Limit::Unlimited } else { per_second(5) },
                mode,
                per: dimensions.map(|dimensions| per(&dimensions, 1000)),
                on_control_loss: OnControlLoss::Open,
                guard: false,
                enforce: 1.0,
                max_drop: 1.0,
                sharing: sharing.flatten(),
            };
            (bucket, drops)
        },
    )
}

type Shown = (usize, usize, Vec<(usize, usize)>);

fn shown() -> impl Strategy<Value = Shown> {
    let dimension = (0..SHOWN.len(), 0..TEXTS.len());
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
        let mut values: Vec<_> =
            per.dimensions.iter().map(|d| request.dimension(d.as_str())).collect();
        let last = values.last_mut().expect("at least one dimension");
        match &bucket.sharing {
            Some(Sharing::Priority(classes)) => {
                let attempt = request.dimension(Classes::ATTEMPT);
                *last = Some(&*classes.order[classes.of(*last, attempt)]);
            }
            Some(Sharing::Fair) => *last = last.or(Some("")),
            None => {}
        }
        KeyValues::Each(values.into_iter().map(|v| v.expect("matched").into()).collect())
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
    let text = |name: &str, i: usize| if name == Classes::ATTEMPT { ATTEMPTS[i] } else { TEXTS[i] };
    let dimensions: Vec<(&str, &str)> =
        shown.2.iter().map(|(name, i)| (SHOWN[*name], text(SHOWN[*name], *i))).collect();
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
                let expected: BTreeSet<KeyName> = of
                    .matching(request)
                    .into_iter()
                    .map(|i| &of.buckets[i])
                    .filter(|b| is_known_beforehand(b))
                    .map(|b| key_name(&of, b, request))
                    .collect();
                let before = matched(&fresh, &of);
                let _ = fresh.limiter.decide(request);
                let mut counted = matched(&fresh, &of);
                counted.retain(|key, matched| *matched > before[key]);
                let counted: BTreeSet<KeyName> = counted.into_keys().collect();
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

/// Whether the keys of a bucket are there before the first request.
fn is_known_beforehand(bucket: &Bucket) -> bool {
    let by_class = matches!(bucket.sharing, Some(Sharing::Priority(_)));
    bucket.per.is_none() || by_class && bucket.asked_dimensions().is_empty()
}

/// What the keys that are known beforehand have counted.
fn matched(world: &World, of: &ServiceBuckets) -> BTreeMap<KeyName, u64> {
    let known = |name: &KeyName| {
        let (_, bucket) = of.bucket(name.bucket.as_str()).expect("configured");
        is_known_beforehand(bucket)
    };
    let keys = world.limiter.stats().keys.into_iter().filter(|key| known(&key.name));
    keys.map(|key| (key.name, key.counts.matched)).collect()
}
