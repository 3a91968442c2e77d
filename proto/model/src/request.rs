//! What a caller shows of a request.

/// One request (or one descriptor of a request) as the limiter sees it. Borrowed, so that building
/// it costs nothing on the hot path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Request<'a> {
    /// What is called: the destination, which owns the buckets.
    pub service: &'a str,
    /// Who calls; empty if not known.
    pub caller: &'a str,
    /// What is called in the service; empty if not known.
    pub procedure: &'a str,
    /// Further dimensions, in any order. Of two with one name the first counts.
    pub dimensions: &'a [(&'a str, &'a str)],
}

impl<'a> Request<'a> {
    /// The value of a dimension by name, the built-in `caller` and `procedure` included. A built-in
    /// dimension with an empty value is absent.
    #[must_use]
    pub fn dimension(&self, name: &str) -> Option<&'a str> {
        match name {
            "caller" => Some(self.caller).filter(|v| !v.is_empty()),
            "procedure" => Some(self.procedure).filter(|v| !v.is_empty()),
            _ => self.dimensions.iter().find(|(n, _)| *n == name).map(|(_, v)| *v),
        }
    }
}
