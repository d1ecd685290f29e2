//! SHELL. Routes a request to its response. There is no lock, because every request reads all values from handles.

use std::panic::{AssertUnwindSafe, catch_unwind};

use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Bytes;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use super::checks::Checks;
use super::debug_view::DebugView;
use super::response::{JSON, OPEN_METRICS, PLAIN, text};

/// The sources of the server's responses.
pub(super) struct Endpoints {
    pub(super) registry: Registry,
    pub(super) liveness: Checks,
    pub(super) readiness: Checks,
    pub(super) debug: DebugView,
}

impl Endpoints {
    pub(super) fn respond<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        let uri = request.uri();
        let verbose = || {
            uri.query()
                .is_some_and(|query| query.split('&').any(|part| part.split('=').next() == Some("verbose")))
        };
        let page: &dyn Fn() -> Response<Full<Bytes>> = match uri.path() {
            "/metrics" => &|| self.metrics(),
            "/healthz" | "/livez" => &|| checked(&self.liveness, &uri.path()[1..], verbose()),
            "/readyz" => &|| checked(&self.readiness, "readyz", verbose()),
            "/debug" => &|| text(StatusCode::OK, JSON, format!("{:#}\n", self.debug.page())),
            _ => return text(StatusCode::NOT_FOUND, PLAIN, "not found\n"),
        };
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut refused = text(StatusCode::METHOD_NOT_ALLOWED, PLAIN, "only GET and HEAD\n");
            refused.headers_mut().insert(header::ALLOW, header::HeaderValue::from_static("GET, HEAD"));
            return refused;
        }
        catch_unwind(AssertUnwindSafe(page))
            .unwrap_or_else(|_| text(StatusCode::INTERNAL_SERVER_ERROR, PLAIN, "the endpoint has panicked\n"))
    }

    fn metrics(&self) -> Response<Full<Bytes>> {
        let mut page = String::new();
        match encode(&mut page, &self.registry) {
            Ok(()) => text(StatusCode::OK, OPEN_METRICS, page),
            Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, PLAIN, "a metric could not be encoded\n"),
        }
    }
}

fn checked(checks: &Checks, endpoint: &str, verbose: bool) -> Response<Full<Bytes>> {
    let (passed, page) = checks.page(endpoint, verbose);
    let status = if passed { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    text(status, PLAIN, page)
}
