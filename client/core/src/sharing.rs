//! Buckets whose values share one limit: the dimension that every request has a value of, and the
//! slots of classes, which are few and known beforehand.

use std::sync::Arc;

use sluicegate_model::{Bucket, Classes, Name, Sharing};

use crate::matcher::per_dimensions;
use crate::open::{Dimension, Dimensions};
use crate::slot::RuleSlot;

/// A dimension whose values share a limit. Unlike any other, no request lacks it.
#[derive(Debug)]
pub(crate) enum SharedDimension {
    /// Where there is none, the value is empty.
    Fair(Dimension),
    /// The value is the name of the request's class.
    Priority(ClassOf),
}

impl SharedDimension {
    /// The one of `bucket`, if it has one.
    pub(crate) fn new(bucket: &Bucket) -> Option<Self> {
        let dimension = Dimension::new(per_dimensions(bucket).last()?);
        Some(match bucket.sharing.as_ref()? {
            Sharing::Fair => Self::Fair(dimension),
            Sharing::Priority(classes) => {
                Self::Priority(ClassOf { dimension, classes: classes.clone() })
            }
        })
    }

    /// What `request` is counted under.
    pub(crate) fn value<'a, D: Dimensions>(&'a self, request: &'a D) -> &'a str {
        match self {
            Self::Fair(dimension) => request.dimension(dimension).unwrap_or_default(),
            Self::Priority(of) => of.classes.order.get(of.class(request)).map_or("", |name| name),
        }
    }
}

/// How a request shows its class.
#[derive(Debug)]
pub(crate) struct ClassOf {
    dimension: Dimension,
    classes: Classes,
}

impl ClassOf {
    fn class<D: Dimensions>(&self, request: &D) -> usize {
        self.classes.of(request.dimension(&self.dimension), request.named(Classes::ATTEMPT))
    }
}

/// The dimension and the classes of a bucket whose keys differ by class and nothing else.
pub(crate) fn only_classes(bucket: &Bucket) -> Option<(&Name, &Classes)> {
    match (&bucket.sharing, per_dimensions(bucket)) {
        (Some(Sharing::Priority(classes)), [dimension]) => Some((dimension, classes)),
        (Some(_) | None, _) => None,
    }
}

/// Such a bucket on the hot path.
#[derive(Debug)]
pub(crate) struct ClassBucket {
    of: ClassOf,
    /// Beside the order of the classes.
    pub(crate) rules: Box<[Arc<RuleSlot>]>,
}

impl ClassBucket {
    pub(crate) fn new(dimension: &Name, classes: &Classes, rules: Box<[Arc<RuleSlot>]>) -> Self {
        let of = ClassOf { dimension: Dimension::new(dimension), classes: classes.clone() };
        Self { of, rules }
    }

    /// What counts `request`.
    #[inline]
    pub(crate) fn rule<D: Dimensions>(&self, request: &D) -> Option<&Arc<RuleSlot>> {
        self.rules.get(self.of.class(request))
    }
}
