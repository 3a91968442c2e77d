//! Values that share a limit: fair values, and classes, whose keys no request waits for.

mod common;

use std::time::Duration;

use common::{World, bucket, counts, each, per, per_second, request, service, settings};
use proptest::prelude::*;
use sluicegate_client_core::{Decision, KeyEvent, StalePolicy};
use sluicegate_model::{
    AdmitRatio, Bucket, Classes, Counts, KeyValues, Limit, Mode, Overflow, Request, Select, Sharing,
};

const RETRY: Duration = Duration::from_millis(1500);
const CLASSES: [&str; 3] = ["critical", "normal", "bulk"];

/// A bucket per `dimensions`, of which the last one's values share the limit.
fn shared(dimensions: &[&str], max_keys: u32, sharing: Sharing) -> Bucket {
    let mut shared = bucket("shared", Mode::Deny);
    shared.per = Some(per(dimensions, max_keys));
    shared.sharing = Some(sharing);
    shared
}

fn classes() -> Sharing {
    Sharing::Priority(Classes { order: CLASSES.map(Box::from).into(), default: 1 })
}

fn world(bucket: Bucket) -> World {
    World::new(&settings(), &[service("shop", Select::All, vec![bucket])])
}

/// What the key of the bucket `shared` with these values counted.
fn totals(world: &World, values: &[&str]) -> Counts {
    world.keeper.totals(world.key("shared", &each(values)))
}

fn admits(world: &World, dimensions: &[(&str, &str)]) -> bool {
    world.limiter.decide(&request("web", dimensions)).is_admitted()
}

#[test]
fn a_class_has_its_ratio_from_the_first_request_on() {
    let mut world = world(shared(&["tier"], 1, classes()));
    let names = world.keeper.keys().map(|k| world.keeper.name(k).expect("there").to_string());
    let names: Vec<String> = names.collect();
    assert_eq!(names, ["shop/shared[critical]", "shop/shared[normal]", "shop/shared[bulk]"]);
    let bulk = world.key("shared", &each(&["bulk"]));
    world.keeper.set_admit(bulk, AdmitRatio::NONE, RETRY);
    let shown: [(&[(&str, &str)], bool); 7] = [
        (&[("tier", "bulk")], false),
        (&[("tier", "critical")], true),
        (&[], true),
        (&[("tier", "unheard of")], true),
        (&[("tier", "critical"), ("attempt", "2")], false),
        (&[("attempt", "3")], false),
        (&[("attempt", "1"), ("tier", "normal")], true),
    ];
    // First by the rules, then by the known identity.
    for _ in 0..2 {
        for (dimensions, expected) in shown {
            assert_eq!(admits(&world, dimensions), expected, "{dimensions:?}");
            let request = request("web", dimensions);
            assert_eq!(world.limiter.prepare(&request).decide().is_admitted(), expected);
            assert_eq!(world.limiter.decide_n(&request, 0).is_admitted(), expected);
        }
        assert_eq!(world.look(), [], "nothing to learn but identities");
    }
    assert_eq!(totals(&world, &["critical"]), counts(4, 4, 4, 0));
    assert_eq!(totals(&world, &["normal"]), counts(12, 12, 12, 0));
    assert_eq!(totals(&world, &["bulk"]), counts(12, 12, 0, 0));
    let stats = world.limiter.stats();
    assert_eq!((stats.keys.len(), stats.values, stats.refused_values), (3, 0, 0));
    assert_eq!(stats.keys[2].name.values, each(&["bulk"]));
    assert_eq!((stats.keys[2].limit, stats.keys[2].admit), (per_second(1000), AdmitRatio::NONE));
}

#[test]
fn a_class_is_never_given_up() {
    let mut world = world(shared(&["tier"], 1, classes()));
    for class in CLASSES {
        let key = world.key("shared", &each(&[class]));
        assert!(!world.keeper.is_value(key) && !world.keeper.evict(world.now, key), "{class}");
        assert!(world.keeper.promote(key));
    }
    world.pass(Duration::from_secs(3600));
    assert_eq!(world.look(), []);
    assert!(admits(&world, &[("tier", "bulk")]));
    assert_eq!(totals(&world, &["bulk"]), counts(1, 1, 1, 0));
}

/// The class may be what caller or procedure say, and an attempt may still make it the worst.
#[test]
fn built_in_dimensions_tell_classes_too() {
    let order = ["web", "job"].map(Box::from).into();
    let world = world(shared(&["caller"], 1, Sharing::Priority(Classes { order, default: 1 })));
    for _ in 0..2 {
        let _ = world.limiter.decide(&request("web", &[]));
        let _ = world.limiter.decide(&request("web", &[("attempt", "2")]));
        let _ = world.limiter.decide(&request("", &[]));
        let _ = world.limiter.decide(&Request { service: "shop", ..Request::default() });
    }
    assert_eq!(totals(&world, &["web"]).matched, 2);
    assert_eq!(totals(&world, &["job"]).matched, 6);
}

#[test]
fn a_drop_of_a_class_names_its_bucket_and_limit() {
    let mut world = world(shared(&["tier"], 1, classes()));
    let normal = world.key("shared", &each(&["normal"]));
    world.keeper.set_admit(normal, AdmitRatio::NONE, RETRY);
    let Decision::Drop { bucket, retry_after } =
        world.limiter.decide(&request("web", &[])).details()
    else {
        panic!("admitted at ratio 0")
    };
    assert_eq!(retry_after, RETRY);
    assert_eq!(world.limiter.bucket(bucket).expect("configured").bucket.as_str(), "shared");
    let mut verdicts = Vec::new();
    let critical = [("tier", "critical")];
    let both = [request("web", &critical), request("web", &[])];
    for _ in 0..2 {
        assert!(!world.limiter.decide_each(&both, 1, &mut verdicts).is_admitted());
        assert_eq!(verdicts.iter().map(|v| v.admitted).collect::<Vec<_>>(), [true, false]);
        assert!(verdicts.iter().all(|v| v.limit == per_second(1000) && v.bucket.is_some()));
        world.look();
    }
    assert_eq!(totals(&world, &["critical"]), counts(2, 0, 0, 0), "blocked by the other class");
    assert_eq!(totals(&world, &["normal"]), counts(3, 3, 0, 0));
}

#[test]
fn with_values_before_it_the_class_is_a_part_of_the_key() {
    let mut each_one = shared(&["ws", "tier"], 3, classes());
    let rules = each_one.per.as_mut().expect("per");
    rules.values.insert(vec!["vip".into()], per_second(5000));
    rules.overflow = Overflow::Limit(per_second(10));
    let mut world = world(each_one);
    assert!(admits(&world, &[("tier", "bulk")]), "no workspace: no match");
    assert!(admits(&world, &[("ws", "vip"), ("tier", "bulk")]));
    let overflow = world.key("shared", &KeyValues::Overflow);
    assert_eq!(world.keeper.totals(overflow), counts(1, 1, 1, 0));
    assert_eq!(world.keeper.limit(overflow), per_second(10));
    assert_eq!(world.look(), [KeyEvent::New(world.key("shared", &each(&["vip", "bulk"])))]);
    let bulk = world.key("shared", &each(&["vip", "bulk"]));
    assert_eq!(world.keeper.limit(bulk), per_second(5000), "the workspace's");
    world.keeper.set_admit(bulk, AdmitRatio::NONE, RETRY);
    let retry = [("ws", "vip"), ("tier", "critical"), ("attempt", "2")];
    assert!(!admits(&world, &retry), "a retry is in the worst class");
    assert!(admits(&world, &[("ws", "vip")]) && world.look().len() == 1);
    assert!(admits(&world, &[("ws", "vip"), ("tier", "unheard of")]));
    assert_eq!(totals(&world, &["vip", "normal"]), counts(1, 1, 1, 0), "the default, once known");
    assert!(admits(&world, &[("ws", "other")]) && world.look().len() == 1);
    assert!(admits(&world, &[("ws", "third")]) && world.look().is_empty(), "max_keys is 3");
    assert_eq!(world.keeper.totals(overflow), counts(4, 4, 4, 0));
    assert!(world.keeper.evict(world.now, bulk), "a value key like any other");
    world.pass(Duration::from_secs(1));
    assert_eq!(world.look(), [KeyEvent::Retired(bulk)]);
    assert_eq!(world.retired[0].0, "shop/shared[vip, bulk]");
}

#[test]
fn a_request_without_the_fair_dimension_has_the_empty_value() {
    for dimensions in [&["user"][..], &["caller", "user"]] {
        let key = |user| {
            let mut values = vec!["web"; dimensions.len()];
            values[dimensions.len() - 1] = user;
            values
        };
        let mut world = world(shared(dimensions, 3, Sharing::Fair));
        let (ann, none) = ([("user", "ann")], [("user", "")]);
        for _ in 0..2 {
            assert!(admits(&world, &ann) && admits(&world, &[]));
            world.look();
        }
        assert_eq!(totals(&world, &key("ann")), counts(1, 1, 1, 0));
        assert_eq!(totals(&world, &key("")), counts(1, 1, 1, 0));
        let empty = world.key("shared", &each(&key("")));
        world.keeper.set_admit(empty, AdmitRatio::NONE, RETRY);
        assert!(admits(&world, &ann) && !admits(&world, &[]) && !admits(&world, &none));
        let handles = [&ann[..], &[], &none].map(|d| world.limiter.prepare(&request("web", d)));
        assert_eq!(handles.map(|h| h.decide().is_admitted()), [true, false, false]);
        assert_eq!(totals(&world, &key("")), counts(5, 5, 1, 0));
        // Bounded and given up like other values.
        assert!(admits(&world, &[("user", "bob")]) && world.look().len() == 1);
        assert!(admits(&world, &[("user", "cid")]) && world.look().is_empty());
        let overflow = world.key("shared", &KeyValues::Overflow);
        assert_eq!(world.keeper.totals(overflow), counts(4, 4, 4, 0));
        let whole = dimensions.len() == 1;
        let expected = if whole { per_second(1000) } else { Limit::Unlimited };
        assert_eq!(world.keeper.limit(overflow), expected, "what is shared by all, or nothing");
        assert!(world.keeper.evict(world.now, empty));
        world.pass(Duration::from_secs(1));
        assert_eq!(world.look(), [KeyEvent::Retired(empty)]);
        assert!(admits(&world, &[("user", "cid")]) && world.look().len() == 1);
    }
}

/// Without a flood of values of the shared dimension taking keys for ever.
#[test]
fn a_group_with_a_limit_of_zero_is_denied_whoever_asks() {
    for sharing in [Sharing::Fair, classes()] {
        let fair = sharing == Sharing::Fair;
        let mut zero = shared(&["ws", "user"], 5, sharing);
        let rules = zero.per.as_mut().expect("per");
        rules.values.insert(vec!["banned".into()], per_second(0));
        let mut world = world(zero);
        let users: Vec<String> = (0..20).map(|i| format!("user {i}")).collect();
        for _ in 0..2 {
            for user in &users {
                assert!(!admits(&world, &[("ws", "banned"), ("user", user)]));
            }
            assert!(!admits(&world, &[("ws", "banned")]));
            assert!(!admits(&world, &[("ws", "banned"), ("attempt", "2")]));
            assert_eq!(world.look(), []);
        }
        let banned: &[&str] = if fair { &[""] } else { &CLASSES };
        let of_class = |class: &str| match (fair, class) {
            (true, _) => 44,
            (false, "normal") => 42,
            (false, "bulk") => 2,
            (false, _) => 0,
        };
        for class in banned {
            let key = world.key("shared", &each(&["banned", class]));
            assert_eq!(world.keeper.totals(key).matched, of_class(class), "{class}");
            world.keeper.set_stale_policy(key, StalePolicy::Admit);
            assert!(!world.keeper.evict(world.now, key), "a limit of 0 stays in force");
        }
        assert!(admits(&world, &[("ws", "other")]) && world.look().len() == 1);
    }
}

#[test]
fn fair_values_of_a_group_that_was_closed_later_can_go() {
    let of = |limit: u64| {
        let mut fair = shared(&["ws", "user"], 5, Sharing::Fair);
        let rules = fair.per.as_mut().expect("per");
        rules.values.insert(vec!["a".into()], per_second(limit));
        service("shop", Select::All, vec![fair])
    };
    let mut world = World::new(&settings(), &[of(10)]);
    let ann = [("ws", "a"), ("user", "ann")];
    assert!(admits(&world, &ann) && world.look().len() == 1 && admits(&world, &ann));
    world.keeper.configure(world.now, &[of(0)]);
    assert!(!admits(&world, &ann) && !admits(&world, &[("ws", "a"), ("user", "bob")]));
    world.look();
    let key = world.key("shared", &each(&["a", "ann"]));
    assert!(world.keeper.evict(world.now, key), "the empty value's key denies all");
    world.pass(Duration::from_secs(1));
    assert_eq!(world.look(), [KeyEvent::Retired(key)]);
    assert_eq!(world.retired[0].1, counts(2, 2, 1, 0));
    assert!(!admits(&world, &ann) && world.look().is_empty());
    assert_eq!(totals(&world, &["a", ""]), counts(2, 2, 0, 0));
    world.keeper.configure(world.now, &[of(10)]);
    assert_eq!(world.look().len(), 2, "overflow and the empty value changed");
    assert!(admits(&world, &ann) && world.look().len() == 1, "a key of its own again");
}

#[test]
fn a_reload_keeps_classes_unless_they_change() {
    let of = |limit: u64, default: usize| {
        let order = CLASSES.map(Box::from).into();
        let mut by_class = shared(&["tier"], 1, Sharing::Priority(Classes { order, default }));
        by_class.limit = per_second(limit);
        service("shop", Select::All, vec![by_class])
    };
    let mut world = World::new(&settings(), &[of(10, 1)]);
    let handle = world.limiter.prepare(&request("web", &[]));
    let normal = world.key("shared", &each(&["normal"]));
    world.keeper.set_admit(normal, AdmitRatio::NONE, RETRY);
    assert!(!handle.decide().is_admitted());
    world.keeper.configure(world.now, &[of(20, 1)]);
    assert_eq!(world.look().len(), 3, "every class changed");
    assert_eq!(world.keeper.limit(normal), per_second(20));
    assert!(!handle.decide().is_admitted(), "the ratio stays");
    world.keeper.configure(world.now, &[of(20, 2)]);
    assert_eq!(world.look().len(), 3, "every class anew");
    assert!(handle.decide().is_admitted());
    world.pass(Duration::from_secs(1));
    world.look();
    let retired: Vec<_> = world.retired.iter().map(|(name, c)| (&**name, c.matched)).collect();
    let name = ["shop/shared[critical]", "shop/shared[normal]", "shop/shared[bulk]"];
    assert_eq!(retired, [(name[0], 0), (name[1], 2), (name[2], 0)]);
    assert_eq!(totals(&world, &["bulk"]), counts(1, 1, 1, 0));
    world.keeper.configure(world.now, &[of(0, 2)]);
    assert!(!handle.decide().is_admitted() && !admits(&world, &[("tier", "critical")]));
    world.keeper.configure(world.now, &[]);
    world.pass(Duration::from_secs(1));
    world.look();
    assert_eq!(world.keeper.keys().count(), 0);
}

proptest! {
    /// Whatever the classes' ratios, a request meets its own class's and is counted there.
    #[test]
    fn no_request_is_counted_on_another_class(
        drops in prop::array::uniform3(any::<bool>()),
        default in 0..CLASSES.len(),
        grouped in any::<bool>(),
        shown in prop::collection::vec((0..5_usize, 0..4_usize), 1..60),
    ) {
        let order = CLASSES.map(Box::from).into();
        let classes = Classes { order, default };
        let dimensions = if grouped { &["caller", "tier"][..] } else { &["tier"] };
        let mut world = world(shared(dimensions, 10, Sharing::Priority(classes.clone())));
        let key = |class: usize| if grouped { vec!["web", CLASSES[class]] } else { vec![CLASSES[class]] };
        if grouped {
            for class in CLASSES {
                admits(&world, &[("tier", class)]);
            }
            world.look();
        }
        for (class, drops) in drops.into_iter().enumerate() {
            let admit = if drops { AdmitRatio::NONE } else { AdmitRatio::ALL };
            let handle = world.key("shared", &each(&key(class)));
            world.keeper.set_admit(handle, admit, RETRY);
        }
        let mut expected = [0_u64; CLASSES.len()];
        for (tier, attempt) in shown {
            let tier = ["critical", "normal", "bulk", "critica", "bulk "].get(tier).copied();
            let attempt = [None, Some("1"), Some("2"), Some("two")][attempt];
            let mut shown = Vec::new();
            shown.extend(attempt.map(|attempt| (Classes::ATTEMPT, attempt)));
            shown.extend(tier.map(|tier| ("tier", tier)));
            let class = classes.of(tier, attempt);
            expected[class] += 1;
            prop_assert_eq!(admits(&world, &shown), !drops[class], "{:?}", shown);
        }
        for (class, expected) in expected.into_iter().enumerate() {
            let admitted = if drops[class] { 0 } else { expected };
            prop_assert_eq!(totals(&world, &key(class)), counts(expected, expected, admitted, 0));
        }
    }
}
