//! From Envoy's request to the limiter's view of it. Borrows everything; allocates only for requests
//! larger than usual.

use sluicegate_model::Request;

use crate::Settings;
use crate::rls::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use crate::rls::envoy::service::ratelimit::v3::RateLimitRequest;

/// Up to so many descriptors and dimensions need no allocation.
const DESCRIPTORS_INLINE: usize = 4;
const DIMENSIONS_INLINE: usize = 16;

/// Why a request is refused with `INVALID_ARGUMENT`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Invalid {
    #[error("domain is empty; set it to the name of the service")]
    NoDomain,
    #[error("there are no descriptors; send at least one")]
    NoDescriptors,
    #[error("there are {found} descriptors, the most is {most}")]
    Descriptors { found: usize, most: usize },
    #[error("descriptors[{at}] has no entries")]
    NoEntries { at: usize },
    #[error("descriptors[{at}] has {found} entries, the most is {most}")]
    Entries { at: usize, found: usize, most: usize },
    #[error("descriptors[{at}].entries[{entry}] has an empty key")]
    NoKey { at: usize, entry: usize },
    #[error("descriptors[{at}].entries[{entry}].{part} is {found} bytes long, the most is {most}")]
    TooLong { at: usize, entry: usize, part: &'static str, found: usize, most: usize },
}

/// Checks `request` against every bound.
pub(crate) fn check(request: &RateLimitRequest, settings: &Settings) -> Result<(), Invalid> {
    if request.domain.is_empty() {
        return Err(Invalid::NoDomain);
    }
    if request.descriptors.is_empty() {
        return Err(Invalid::NoDescriptors);
    }
    let (found, most) = (request.descriptors.len(), settings.limits.descriptors);
    if found > most {
        return Err(Invalid::Descriptors { found, most });
    }
    request.descriptors.iter().enumerate().try_for_each(|(at, d)| check_one(at, d, settings))
}

fn check_one(at: usize, d: &RateLimitDescriptor, settings: &Settings) -> Result<(), Invalid> {
    if d.entries.is_empty() {
        return Err(Invalid::NoEntries { at });
    }
    let (found, most) = (d.entries.len(), settings.limits.entries);
    if found > most {
        return Err(Invalid::Entries { at, found, most });
    }
    for (entry, e) in d.entries.iter().enumerate() {
        if e.key.is_empty() {
            return Err(Invalid::NoKey { at, entry });
        }
        let limits = &settings.limits;
        let parts = [("key", &e.key, limits.key_bytes), ("value", &e.value, limits.value_bytes)];
        if let Some((part, text, most)) = parts.into_iter().find(|(_, t, most)| t.len() > *most) {
            return Err(Invalid::TooLong { at, entry, part, found: text.len(), most });
        }
    }
    Ok(())
}

/// How many hits `descriptor` counts for; 0 asks without charging. `request_hits` of 0 means 1, a
/// descriptor's own 0 means 0. Hits to be given back count for none: what was admitted stays so.
pub(crate) fn hits(descriptor: &RateLimitDescriptor, request_hits: u32) -> u32 {
    if descriptor.is_negative_hits {
        return 0;
    }
    match descriptor.hits_addend {
        Some(own) => u32::try_from(own).unwrap_or(u32::MAX),
        None => request_hits.max(1),
    }
}

/// Calls `with` with one view a descriptor, in their order.
pub(crate) fn views<R>(
    request: &RateLimitRequest,
    settings: &Settings,
    with: impl FnOnce(&[Request<'_>]) -> R,
) -> R {
    let descriptors = request.descriptors.len();
    let entries: usize = request.descriptors.iter().map(|d| d.entries.len()).sum();
    let mut few_dimensions = [("", ""); DIMENSIONS_INLINE];
    let mut many_dimensions = Vec::new();
    let dimensions = room(&mut few_dimensions, &mut many_dimensions, entries);
    let mut few_views = [Request::default(); DESCRIPTORS_INLINE];
    let mut many_views = Vec::new();
    let views = room(&mut few_views, &mut many_views, descriptors);

    let mut free = dimensions;
    for (view, descriptor) in views.iter_mut().zip(&request.descriptors) {
        let (own, rest) = std::mem::take(&mut free).split_at_mut(descriptor.entries.len());
        free = rest;
        *view = view_of(&request.domain, descriptor, settings, own);
    }
    with(views)
}

fn room<'a, T: Copy + Default>(
    few: &'a mut [T],
    many: &'a mut Vec<T>,
    count: usize,
) -> &'a mut [T] {
    if count <= few.len() {
        &mut few[..count]
    } else {
        many.resize(count, T::default());
        many
    }
}

/// Of two entries with one key the first counts.
fn view_of<'a>(
    service: &'a str,
    descriptor: &'a RateLimitDescriptor,
    settings: &Settings,
    dimensions: &'a mut [(&'a str, &'a str)],
) -> Request<'a> {
    let mut caller = None;
    let mut procedure = None;
    let mut count = 0;
    for entry in &descriptor.entries {
        if entry.key == settings.caller_key {
            caller = caller.or(Some(&*entry.value));
        } else if entry.key == settings.procedure_key {
            procedure = procedure.or(Some(&*entry.value));
        } else {
            dimensions[count] = (&entry.key, &entry.value);
            count += 1;
        }
    }
    Request {
        service,
        caller: caller.unwrap_or(""),
        procedure: procedure.unwrap_or(""),
        dimensions: &dimensions[..count],
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::rls::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;

    pub(crate) fn descriptor(entries: &[(&str, &str)]) -> RateLimitDescriptor {
        let entry =
            |(key, value): &(&str, &str)| Entry { key: (*key).into(), value: (*value).into() };
        RateLimitDescriptor { entries: entries.iter().map(entry).collect(), ..Default::default() }
    }

    pub(crate) fn request(domain: &str, descriptors: &[&[(&str, &str)]]) -> RateLimitRequest {
        let descriptors = descriptors.iter().map(|d| descriptor(d)).collect();
        RateLimitRequest { domain: domain.into(), descriptors, hits_addend: 0 }
    }

    #[test]
    fn entries_become_caller_procedure_and_dimensions() {
        let settings = Settings { caller_key: "client".into(), ..Settings::default() };
        let request = request(
            "shop",
            &[
                &[("client", "web"), ("procedure", "GET /"), ("ws", "7"), ("client", "second")],
                &[("ws", "7"), ("ws", "8")],
            ],
        );
        assert_eq!(check(&request, &settings), Ok(()));
        views(&request, &settings, |views| {
            assert_eq!(views.len(), 2);
            assert_eq!((views[0].service, views[0].caller), ("shop", "web"));
            assert_eq!((views[0].procedure, views[0].dimensions), ("GET /", &[("ws", "7")][..]));
            assert_eq!(views[1].caller, "");
            assert_eq!(views[1].dimension("ws"), Some("7"), "of two the first counts");
        });
    }

    #[test]
    fn a_descriptors_own_hits_come_first() {
        let own = |hits_addend| RateLimitDescriptor { hits_addend, ..Default::default() };
        assert_eq!(hits(&own(None), 0), 1, "not set means 1");
        assert_eq!(hits(&own(None), 7), 7);
        assert_eq!(hits(&own(Some(3)), 7), 3);
        assert_eq!(hits(&own(Some(0)), 7), 0, "an explicit 0 asks without charging");
        assert_eq!(hits(&own(Some(u64::MAX)), 7), u32::MAX);
        let refund = RateLimitDescriptor { is_negative_hits: true, ..own(Some(5)) };
        assert_eq!(hits(&refund, 7), 0);
    }

    #[test]
    fn large_requests_are_seen_whole() {
        let keys: Vec<String> = (0..30).map(|i| format!("k{i}")).collect();
        let entries: Vec<(&str, &str)> = keys.iter().map(|k| (&**k, "v")).collect();
        let request = request("shop", &vec![&*entries; 40]);
        views(&request, &Settings::default(), |views| {
            assert_eq!(views.len(), 40);
            assert!(views.iter().all(|v| v.dimensions.len() == 30));
            assert_eq!(views[39].dimension("k29"), Some("v"));
        });
    }

    #[test]
    fn what_is_out_of_bounds_is_named() {
        let settings = Settings::default();
        let of = |r: &RateLimitRequest| check(r, &settings).expect_err("refused").to_string();
        let long = "x".repeat(201);
        let longer = "x".repeat(8193);
        let many = vec![&[("a", "b")][..]; 65];
        let wide = vec![("a", "b"); 33];
        for (bad, message) in [
            (request("", &[&[("a", "b")]]), "domain is empty"),
            (request("d", &[]), "there are no descriptors"),
            (request("d", &many), "there are 65 descriptors, the most is 64"),
            (request("d", &[&[("a", "b")], &[]]), "descriptors[1] has no entries"),
            (request("d", &[&wide]), "descriptors[0] has 33 entries, the most is 32"),
            (
                request("d", &[&[("a", "b"), ("", "b")]]),
                "descriptors[0].entries[1] has an empty key",
            ),
            (request("d", &[&[(&long, "b")]]), "entries[0].key is 201 bytes long, the most is 200"),
            (request("d", &[&[("a", &longer)]]), "entries[0].value is 8193 bytes long"),
        ] {
            assert!(of(&bad).contains(message), "{}", of(&bad));
        }
    }

    proptest::proptest! {
        #[test]
        fn any_request_is_refused_or_seen_whole(
            domain in "[a-z]{0,3}",
            shape in proptest::collection::vec(
                proptest::collection::vec(("[a-cp]{0,2}|caller|procedure", ".{0,4}"), 0..36),
                0..70,
            ),
        ) {
            let settings = Settings::default();
            let descriptors = shape
                .iter()
                .map(|d| descriptor(&d.iter().map(|(k, v)| (&**k, &**v)).collect::<Vec<_>>()));
            let request = RateLimitRequest {
                domain,
                descriptors: descriptors.collect(),
                hits_addend: 0,
            };
            if check(&request, &settings).is_ok() {
                views(&request, &settings, |views| {
                    assert_eq!(views.len(), shape.len());
                    for (view, entries) in views.iter().zip(&shape) {
                        for (key, _) in entries {
                            let first = entries.iter().find(|(k, _)| k == key).map(|(_, v)| &**v);
                            // An empty caller or procedure is an absent one.
                            let built_in = ["caller", "procedure"].contains(&&**key);
                            let first = first.filter(|v| !(built_in && v.is_empty()));
                            assert_eq!(view.dimension(key), first);
                        }
                    }
                });
            }
        }
    }
}
