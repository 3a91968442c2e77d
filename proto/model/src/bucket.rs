//! Buckets: the rules of a service, as validated data.

use std::collections::BTreeMap;

use crate::{AdmitRatio, Limit, Name, Rule};

/// The most buckets a service may have.
pub const MAX_BUCKETS_PER_SERVICE: usize = 10_000;

/// Over what a limit is summed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Each zone has the whole limit for itself; its aggregator is the root.
    Zone,
    /// Each region has the whole limit for itself; its controller is the root.
    Region,
    /// One limit for all regions.
    Global,
}

/// What a bucket does with what is over its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Drops it.
    Deny,
    /// Counts what would have been dropped, and drops nothing.
    Shadow,
    /// Has no limit: counts only.
    Observe,
}

/// Which of the buckets that match a request count it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Select {
    /// Every one.
    #[default]
    All,
    /// Of each scope, only the one with the highest [`crate::Specificity`].
    MostSpecific,
}

/// What a client does for a bucket once the control plane has been silent for ttl and ramp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum OnControlLoss {
    /// Admits everything.
    #[default]
    Open,
    /// Keeps the last admit ratio.
    Last,
    /// Admits what this client itself last admitted on average.
    Share,
    /// Admits nothing.
    Closed,
}

/// What applies to a value that has no key of its own (yet, or because `max_keys` is reached).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Overflow {
    /// All such values together are counted, not limited.
    Observe,
    /// All such values together have this limit.
    Limit(Limit),
}

/// One count for each value (or combination of values) of some dimensions.
#[derive(Debug, Clone, PartialEq)]
pub struct Per {
    /// The dimensions, at least one, none twice. `caller` and `procedure` are allowed. Where values
    /// share a limit ([`Bucket::sharing`]), theirs is the last one.
    pub dimensions: Vec<Name>,
    /// Limits of single values, each list as long as `dimensions` (without the one whose values share
    /// a limit) and in their order.
    pub values: BTreeMap<Vec<Box<str>>, Limit>,
    /// The most values that have keys of their own at once, 1 or more.
    pub max_keys: u32,
    /// What applies beyond.
    pub overflow: Overflow,
}

impl Per {
    /// `max_keys` where a file gives none.
    pub const DEFAULT_MAX_KEYS: u32 = 100_000;
    /// The most that `max_keys` may be.
    pub const MAX_MAX_KEYS: u32 = 10_000_000;
    /// The most dimensions.
    pub const MAX_DIMENSIONS: usize = 4;
}

/// Whose demand comes first where the values of a bucket's last `per` dimension share one limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sharing {
    /// Max-min fair: no value gets more than another that wants more than it gets.
    Fair,
    /// By class: what is over the limit is dropped from the worst class first.
    Priority(Classes),
}

/// The classes of a [`Sharing::Priority`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Classes {
    /// Values of the dimension, the best first: at least two, at most [`Classes::MAX`], none twice.
    pub order: Vec<Box<str>>,
    /// The place in `order` of requests with another value, or without one.
    pub default: usize,
}

impl Classes {
    /// The most classes.
    pub const MAX: usize = 8;
    /// The dimension that says which attempt a request is. From the second on it is in the worst
    /// class, whatever its value.
    pub const ATTEMPT: &str = "attempt";

    /// The class of a request with `value`, on its attempt `attempt`: a place in `order`.
    #[must_use]
    pub fn of(&self, value: Option<&str>, attempt: Option<&str>) -> usize {
        let is_retry = attempt.and_then(|a| a.parse::<u64>().ok()).is_some_and(|a| a >= 2);
        if is_retry {
            return self.order.len().saturating_sub(1);
        }
        let named = value.and_then(|v| self.order.iter().position(|o| **o == *v));
        named.unwrap_or(self.default)
    }
}

/// One rule of a service.
#[derive(Debug, Clone, PartialEq)]
pub struct Bucket {
    /// Its name, unique in the service.
    pub name: Name,
    /// Over what the limit is summed.
    pub scope: Scope,
    /// Which requests it counts.
    pub rule: Rule,
    /// How much. [`Limit::Unlimited`] if the mode is observe.
    pub limit: Limit,
    /// What happens to the rest.
    pub mode: Mode,
    /// One count a value, or one for all.
    pub per: Option<Per>,
    /// What happens when the control plane is gone.
    pub on_control_loss: OnControlLoss,
    /// Whether clients cut a surge off by themselves, before word of it comes back.
    pub guard: bool,
    /// The share of its drops that is enforced, above 0 up to 1; the rest is counted as a shadow's.
    pub enforce: f64,
    /// The largest share of what is offered that may be dropped, above 0 up to 1.
    pub max_drop: f64,
    /// If the values of the last dimension of `per` share one limit, how. There is a `per` then.
    pub sharing: Option<Sharing>,
}

impl Bucket {
    /// One count, with the defaults of a bucket file.
    #[must_use]
    pub fn plain(name: Name, scope: Scope, limit: Limit) -> Self {
        Self {
            name,
            scope,
            rule: Rule::default(),
            limit,
            mode: Mode::Deny,
            per: None,
            on_control_loss: OnControlLoss::Open,
            guard: false,
            enforce: 1.0,
            max_drop: 1.0,
            sharing: None,
        }
    }

    /// What is enforced of a ratio: [`Self::enforce`] of its drops, and never more than
    /// [`Self::max_drop`].
    #[must_use]
    pub fn softened(&self, admit: AdmitRatio) -> AdmitRatio {
        if admit == AdmitRatio::ALL || !self.is_softened() {
            return admit;
        }
        AdmitRatio::from_share(1.0 - (admit.drop_ratio() * self.enforce).min(self.max_drop))
    }

    /// Whether some of its drops are not enforced.
    #[must_use]
    pub fn is_softened(&self) -> bool {
        self.enforce < 1.0 || self.max_drop < 1.0
    }

    /// The values that name the limit which a key of these values draws on: without the last one
    /// where its values share one.
    #[must_use]
    pub fn group_of<'v>(&self, values: &'v [Box<str>]) -> &'v [Box<str>] {
        match (&self.sharing, values.split_last()) {
            (Some(_), Some((_, group))) => group,
            (Some(_), None) | (None, _) => values,
        }
    }

    /// The limit of one key of this bucket; of a key that shares one, that limit.
    #[must_use]
    pub fn limit_of(&self, values: &crate::KeyValues) -> Limit {
        use crate::KeyValues;
        match (&self.per, values) {
            (Some(per), KeyValues::Each(values)) => {
                per.values.get(self.group_of(values)).copied().unwrap_or(self.limit)
            }
            (Some(per), KeyValues::Overflow) if self.shares_whole() => self.limit,
            (Some(per), KeyValues::Overflow) => match per.overflow {
                Overflow::Observe => Limit::Unlimited,
                Overflow::Limit(limit) => limit,
            },
            (Some(_) | None, KeyValues::Whole) | (None, _) => self.limit,
        }
    }

    /// The dimensions of `per` that a request must have to be counted here. One whose values share a
    /// limit is not among them: a request without it is counted as one with an empty value.
    #[must_use]
    pub fn asked_dimensions(&self) -> &[Name] {
        let dimensions = self.per.as_ref().map_or(&[][..], |p| &p.dimensions);
        match (&self.sharing, dimensions.split_last()) {
            (Some(_), Some((_, asked))) => asked,
            (Some(_), None) | (None, _) => dimensions,
        }
    }

    /// Whether all its keys, the overflow key included, share one limit.
    #[must_use]
    pub fn shares_whole(&self) -> bool {
        self.sharing.is_some() && self.per.as_ref().is_some_and(|p| p.dimensions.len() == 1)
    }

    /// Whether `values` is a shape of key that this bucket has.
    #[must_use]
    pub fn has_key(&self, values: &crate::KeyValues) -> bool {
        use crate::KeyValues;
        match (&self.per, values) {
            (Some(per), KeyValues::Each(values)) => values.len() == per.dimensions.len(),
            (Some(_), KeyValues::Overflow) | (None, KeyValues::Whole) => true,
            (Some(_), KeyValues::Whole) | (None, KeyValues::Each(_) | KeyValues::Overflow) => false,
        }
    }
}

/// Who answers for a service. Shown wherever the service is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Owner {
    /// The team.
    pub owner: Option<String>,
    /// How to reach it.
    pub contact: Option<String>,
    /// What to do at 3 a.m.
    pub runbook: Option<String>,
}

/// Every bucket of one service: the unit of configuration, applied whole or not at all.
#[derive(Debug, Clone, PartialEq)]
pub struct ServiceBuckets {
    /// The service.
    pub service: Name,
    /// Who answers for it.
    pub owner: Owner,
    /// Which of several matching buckets count.
    pub select: Select,
    /// The buckets, in the order of the file, names unique, at most [`MAX_BUCKETS_PER_SERVICE`].
    pub buckets: Vec<Bucket>,
}

impl ServiceBuckets {
    /// The bucket of that name, with its place in the file.
    #[must_use]
    pub fn bucket(&self, name: &str) -> Option<(usize, &Bucket)> {
        self.buckets.iter().enumerate().find(|(_, b)| b.name.as_str() == name)
    }

    /// Which buckets count a request that matches those for which `matched` says yes: the one place
    /// where `select` is decided. Places in `buckets`, in the order of the file.
    #[must_use]
    pub fn selected(&self, matched: impl Fn(usize, &Bucket) -> bool) -> Vec<usize> {
        let fitting = self.buckets.iter().enumerate().filter(|(i, b)| matched(*i, b));
        match self.select {
            Select::All => fitting.map(|(i, _)| i).collect(),
            Select::MostSpecific => {
                let mut best: BTreeMap<Scope, (crate::Specificity, usize)> = BTreeMap::new();
                for (i, bucket) in fitting {
                    let s = bucket.rule.specificity();
                    let entry = best.entry(bucket.scope).or_insert((s, i));
                    if s > entry.0 {
                        *entry = (s, i);
                    }
                }
                let mut places: Vec<usize> = best.into_values().map(|(_, i)| i).collect();
                places.sort_unstable();
                places
            }
        }
    }

    /// Which buckets count `request`, evaluated as the rules stand: every condition of the rule, and
    /// every `per` dimension present.
    #[must_use]
    pub fn matching(&self, request: &crate::Request<'_>) -> Vec<usize> {
        self.selected(|_, b| {
            let mut asked = b.asked_dimensions().iter();
            b.rule.fits(request) && asked.all(|d| request.dimension(d.as_str()).is_some())
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{KeyValues, Request, TokenRate};

    fn classes() -> impl Strategy<Value = Classes> {
        let order = prop::collection::btree_set("[a-d]{0,2}", 2..=Classes::MAX);
        let order = order.prop_map(|names| names.into_iter().collect::<Vec<_>>()).prop_shuffle();
        (order, any::<prop::sample::Index>()).prop_map(|(order, default)| Classes {
            default: default.index(order.len()),
            order: order.into_iter().map(Box::from).collect(),
        })
    }

    proptest! {
        #[test]
        fn a_first_attempt_is_in_the_class_it_names(
            classes in classes(),
            value in prop::option::of("[a-d]{0,3}"),
            attempt in prop::sample::select(vec![None, Some(""), Some("0"), Some("1"), Some("2nd")]),
        ) {
            let class = classes.of(value.as_deref(), attempt);
            match value.filter(|v| classes.order.iter().any(|name| **name == **v)) {
                Some(value) => prop_assert_eq!(&*classes.order[class], value),
                None => prop_assert_eq!(class, classes.default),
            }
        }

        #[test]
        fn a_further_attempt_is_in_the_worst_class(
            classes in classes(),
            value in prop::option::of("[a-d]{0,3}"),
            attempt in 2_u64..,
        ) {
            let class = classes.of(value.as_deref(), Some(&attempt.to_string()));
            prop_assert_eq!(class, classes.order.len() - 1);
        }
    }

    /// `ws` and `user`, of which `user` shares as `sharing` says; one workspace has its own limit.
    fn per_user(sharing: Option<Sharing>) -> Bucket {
        let name = |text| Name::new(text).expect("a name");
        let limit = |n| Limit::Tokens(TokenRate::per_second(n, None).expect("a rate"));
        let listed =
            if sharing.is_some() { vec!["vip".into()] } else { vec!["vip".into(), "".into()] };
        Bucket {
            per: Some(Per {
                dimensions: vec![name("ws"), name("user")],
                values: BTreeMap::from([(listed, limit(7))]),
                max_keys: Per::DEFAULT_MAX_KEYS,
                overflow: Overflow::Observe,
            }),
            sharing,
            ..Bucket::plain(name("b"), Scope::Region, limit(5))
        }
    }

    #[test]
    fn only_what_shares_no_limit_must_be_shown() {
        let order = ["good", "bad"].map(Box::from).into();
        let priority = Sharing::Priority(Classes { order, default: 0 });
        let shown = [("ws", "vip")];
        let without_user = Request { dimensions: &shown, ..Request::default() };
        for (sharing, counts) in
            [(None, false), (Some(Sharing::Fair), true), (Some(priority), true)]
        {
            let of = ServiceBuckets {
                service: Name::new("s").expect("a name"),
                owner: Owner::default(),
                select: Select::All,
                buckets: vec![per_user(sharing)],
            };
            assert_eq!(of.matching(&without_user).len(), usize::from(counts));
            assert!(of.matching(&Request::default()).is_empty());
        }
    }

    #[test]
    fn keys_of_a_group_have_its_limit() {
        let key = |ws: &str, user: &str| KeyValues::Each([ws.into(), user.into()].into());
        let rps = |bucket: &Bucket, ws, user| bucket.limit_of(&key(ws, user)).rate_rps();
        let fair = per_user(Some(Sharing::Fair));
        assert_eq!((rps(&fair, "vip", "a"), rps(&fair, "vip", "")), (Some(7.0), Some(7.0)));
        assert_eq!(rps(&fair, "other", "a"), Some(5.0));
        assert_eq!(fair.limit_of(&KeyValues::Overflow), Limit::Unlimited);
        let apart = per_user(None);
        assert_eq!((rps(&apart, "vip", "a"), rps(&apart, "vip", "")), (Some(5.0), Some(7.0)));
    }
}
