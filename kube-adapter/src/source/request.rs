//! EDGE. Sends one request and reads its response. kube's own methods work in the same way, but they drop the delay that the server requests, and
//! decode the body as text.
//!
//! No layer of the client repeats a request, because the reflector decides what follows each answer. kube's own retries would repeat a list whose
//! version the server will never reach, turn a refused watch into a timeout, after which the reflector lists, and hide the cause of an outage.

use http::header::{ACCEPT_ENCODING, HeaderValue, RETRY_AFTER};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use kube::core::Status;
use kube::core::response::StatusDetails;
use tokio::task::coop::consume_budget;

use flyball_kube_lease::single_attempt;
use flyball_sync::locks::{AtomicU64, Ordering};

/// Makes the server send the watch uncompressed. Otherwise, servers from Kubernetes 1.37 on compress each event separately, which kube's client
/// cannot decode.
pub(super) fn uncompressed(mut request: Request<Vec<u8>>) -> Request<Vec<u8>> {
    request.headers_mut().entry(ACCEPT_ENCODING).or_insert(HeaderValue::from_static("identity"));
    request
}

/// Sends a request. Returns an error if the response has an error status.
pub(super) async fn send(client: &Client, request: Request<Vec<u8>>) -> Result<Body, kube::Error> {
    let (head, body) = request.into_parts();
    let request = Request::from_parts(head, single_attempt(Body::from(body)).await?);
    let (head, body) = client.send(request).await?.into_parts();
    if !head.status.is_client_error() && !head.status.is_server_error() {
        return Ok(body);
    }
    // An unreadable body is ignored, because the status code alone identifies the failure.
    let words = body.collect_bytes().await.unwrap_or_default();
    Err(kube::Error::Api(Box::new(status(head.status, &head.headers, &words))))
}

/// Reads the whole body, and adds the length of each chunk to `arrived` when the chunk arrives. The task yields between chunks.
pub(super) async fn read(mut body: Body, arrived: &AtomicU64) -> Result<Vec<u8>, kube::Error> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            // Ordering: see `ApiSource::list_progress`.
            arrived.fetch_add(data.len() as u64, Ordering::Relaxed);
            bytes.extend_from_slice(&data);
        }
        consume_budget().await;
    }
    Ok(bytes)
}

/// Returns the status of a response. When the server's flow control rejects a request, the body is plain text, and the delay is only in a header.
fn status(code: StatusCode, headers: &HeaderMap, words: &[u8]) -> Status {
    let mut status = serde_json::from_slice::<Status>(words).unwrap_or_else(|_| {
        Status::failure(String::from_utf8_lossy(words).trim(), "Failed to parse error data")
    });
    if status.code == 0 {
        status.code = code.as_u16();
    }
    let seconds = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
    if let Some(seconds) = seconds {
        let details = status.details.get_or_insert_with(|| StatusDetails {
            name: String::new(),
            group: String::new(),
            kind: String::new(),
            uid: String::new(),
            causes: Vec::new(),
            retry_after_seconds: 0,
        });
        if details.retry_after_seconds == 0 {
            details.retry_after_seconds = seconds;
        }
    }
    status
}
