//! One GET over plain HTTP, for looking at other processes.

use std::time::Duration;

use anyhow::{Context, bail};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The largest answer that is read.
const MAX_BYTES: usize = 64 << 20;

/// The status code and the body of `url`.
pub(crate) async fn get(url: String) -> anyhow::Result<(u16, String)> {
    let uri: http::Uri = url.parse().with_context(|| format!("{url} is no address"))?;
    if uri.scheme_str() != Some("http") {
        bail!("{url} is not of the form http://host:port");
    }
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<bytes::Bytes>>();
    let answer = async {
        let response = client.get(uri).await.with_context(|| format!("{url} does not answer"))?;
        let code = response.status().as_u16();
        let body = Limited::new(response.into_body(), MAX_BYTES).collect().await;
        let body = body.map_err(|e| anyhow::anyhow!("the answer of {url} cannot be read: {e}"))?;
        let text = String::from_utf8(body.to_bytes().into())
            .with_context(|| format!("the answer of {url} is no text"))?;
        Ok((code, text))
    };
    match tokio::time::timeout(TIMEOUT, answer).await {
        Ok(done) => done,
        Err(_) => bail!("{url} did not answer within {TIMEOUT:?}"),
    }
}
