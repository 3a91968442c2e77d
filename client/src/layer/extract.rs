//! What of an HTTP request the limiter sees.

use http::HeaderMap;
use http::header::{CONTENT_TYPE, HeaderName};
use sluicegate_model::Request;

/// The most dimensions [`FromHttp`] takes from headers.
pub const MAX_HTTP_DIMENSIONS: usize = 8;

/// Bytes of "method path" that are put together without allocating.
const PROCEDURE_BYTES: usize = 256;

/// Says what of a request the limiter sees.
///
/// The view is handed to a function instead of returned, so that it can borrow from what stands on
/// the stack.
pub trait Extract {
    /// Calls `decide` once with the view of `request`.
    fn with<B, R>(&self, request: &http::Request<B>, decide: impl FnOnce(&Request<'_>) -> R) -> R;
}

/// A fixed service; the caller and further dimensions from headers; the procedure is `METHOD /path`
/// without the query, of a gRPC call `package.Service/Method`.
///
/// A header that is absent, or is not text, is a dimension that is absent. Where paths hold
/// identifiers, write an [`Extract`] that uses the route's pattern: each new path is one more thing
/// for the client to learn.
#[derive(Debug, Clone)]
pub struct FromHttp {
    service: String,
    caller: Option<HeaderName>,
    dimensions: Vec<(String, HeaderName)>,
}

impl FromHttp {
    /// Of the service `service`.
    pub fn new(service: impl Into<String>) -> Self {
        Self { service: service.into(), caller: None, dimensions: Vec::new() }
    }

    /// The header that names the caller.
    ///
    /// # Panics
    /// If `header` is not the name of a header in lower case.
    #[must_use]
    pub fn caller_header(mut self, header: &'static str) -> Self {
        self.caller = Some(HeaderName::from_static(header));
        self
    }

    /// The header that holds the dimension `name`.
    ///
    /// # Panics
    /// If `header` is not the name of a header in lower case, or there are
    /// [`MAX_HTTP_DIMENSIONS`] already.
    #[must_use]
    pub fn dimension(mut self, name: impl Into<String>, header: &'static str) -> Self {
        assert!(
            self.dimensions.len() < MAX_HTTP_DIMENSIONS,
            "at most {MAX_HTTP_DIMENSIONS} dimensions can come from headers"
        );
        self.dimensions.push((name.into(), HeaderName::from_static(header)));
        self
    }
}

impl Extract for FromHttp {
    fn with<B, R>(&self, request: &http::Request<B>, decide: impl FnOnce(&Request<'_>) -> R) -> R {
        let text = |header| request.headers().get(header).and_then(|v| v.to_str().ok());
        let mut found = [("", ""); MAX_HTTP_DIMENSIONS];
        let mut count = 0;
        for (name, header) in &self.dimensions {
            if let Some(value) = text(header) {
                found[count] = (name, value);
                count += 1;
            }
        }
        let decide_with = |procedure: &str| {
            decide(&Request {
                service: &self.service,
                caller: self.caller.as_ref().and_then(text).unwrap_or(""),
                procedure,
                dimensions: &found[..count],
            })
        };
        let path = request.uri().path();
        if is_grpc(request.headers()) {
            return decide_with(path.strip_prefix('/').unwrap_or(path));
        }
        joined(request.method().as_str(), path, decide_with)
    }
}

pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    let Some(kind) = headers.get(CONTENT_TYPE) else { return false };
    match kind.as_bytes().strip_prefix(b"application/grpc") {
        Some(rest) => matches!(rest.first(), None | Some(b'+' | b';' | b' ')),
        None => false,
    }
}

/// Calls `with` with `method path`, which allocates only if it is long.
fn joined<R>(method: &str, path: &str, with: impl FnOnce(&str) -> R) -> R {
    let mut bytes = [0; PROCEDURE_BYTES];
    let (m, length) = (method.len(), method.len() + 1 + path.len());
    if length <= bytes.len() {
        bytes[..m].copy_from_slice(method.as_bytes());
        bytes[m] = b' ';
        bytes[m + 1..length].copy_from_slice(path.as_bytes());
        if let Ok(text) = std::str::from_utf8(&bytes[..length]) {
            return with(text);
        }
    }
    with(&format!("{method} {path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(extract: &FromHttp, request: http::request::Builder) -> (String, String, Vec<String>) {
        extract.with(&request.body(()).expect("a request"), |r| {
            assert_eq!(r.service, "shop");
            let dimensions = r.dimensions.iter().map(|(n, v)| format!("{n}={v}")).collect();
            (r.caller.into(), r.procedure.into(), dimensions)
        })
    }

    #[test]
    fn http_requests_show_method_path_and_headers() {
        let extract = FromHttp::new("shop")
            .caller_header("x-caller")
            .dimension("ws", "x-ws")
            .dimension("region", "x-region");
        let get = http::Request::get("http://h/cart/items?page=2").header("x-caller", "web");
        let (caller, procedure, dimensions) = seen(&extract, get.header("x-region", "eu"));
        assert_eq!((&*caller, &*procedure), ("web", "GET /cart/items"));
        assert_eq!(dimensions, ["region=eu"], "an absent header is an absent dimension");
        let odd = http::Request::get("/").header("x-caller", b"\xff".as_slice());
        assert_eq!(seen(&extract, odd).0, "", "what is not text is absent");
    }

    #[test]
    fn long_paths_are_whole() {
        let path = format!("/{}", "x".repeat(400));
        let (_, procedure, _) = seen(&FromHttp::new("shop"), http::Request::get(&path));
        assert_eq!(procedure, format!("GET {path}"));
        let exact = format!("/{}", "x".repeat(PROCEDURE_BYTES - "GET /".len()));
        let (_, procedure, _) = seen(&FromHttp::new("shop"), http::Request::get(&exact));
        assert_eq!(procedure, format!("GET {exact}"));
    }

    #[test]
    fn grpc_calls_show_service_and_method() {
        for kind in ["application/grpc", "application/grpc+proto", "application/grpc; x=y"] {
            let call = http::Request::post("/pay.v1.Pay/Charge").header("content-type", kind);
            assert_eq!(seen(&FromHttp::new("shop"), call).1, "pay.v1.Pay/Charge", "{kind}");
        }
        let web = http::Request::post("/pay").header("content-type", "application/grpc-web");
        assert_eq!(seen(&FromHttp::new("shop"), web).1, "POST /pay", "grpc-web is plain HTTP here");
    }
}
