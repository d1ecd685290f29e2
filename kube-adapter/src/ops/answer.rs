//! SHELL. One request, one answer. No lock of its own: what is asked is asked of the handles.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use flyball_informer_cache::InformerState;
use flyball_workqueue::{Ages, Counts};
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Bytes;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde_json::{Map, Value, json};

use super::check::Checks;
use super::figures::Known;

pub(super) type Debugged = Box<dyn Fn() -> Value + Send + Sync>;

/// Everything that can be asked.
pub(super) struct Asked {
    pub(super) registry: Registry,
    pub(super) live: Checks,
    pub(super) ready: Checks,
    pub(super) debug: Vec<(&'static str, String, Debugged)>,
    pub(super) known: Arc<Known>,
}

impl Asked {
    pub(super) fn answer<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        let uri = request.uri();
        let verbose = || {
            uri.query()
                .is_some_and(|query| query.split('&').any(|part| part.split('=').next() == Some("verbose")))
        };
        let page: &dyn Fn() -> Response<Full<Bytes>> = match uri.path() {
            "/metrics" => &|| self.metrics(),
            "/healthz" | "/livez" => &|| checked(&self.live, &uri.path()[1..], verbose()),
            "/readyz" => &|| checked(&self.ready, "readyz", verbose()),
            "/debug" => &|| text(StatusCode::OK, JSON, format!("{:#}\n", self.debug())),
            _ => return text(StatusCode::NOT_FOUND, PLAIN, "not found\n"),
        };
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut refused = text(StatusCode::METHOD_NOT_ALLOWED, PLAIN, "only GET and HEAD\n");
            refused.headers_mut().insert(header::ALLOW, header::HeaderValue::from_static("GET, HEAD"));
            return refused;
        }
        catch_unwind(AssertUnwindSafe(page)).unwrap_or_else(|_| {
            text(StatusCode::INTERNAL_SERVER_ERROR, PLAIN, "what was asked has panicked\n")
        })
    }

    fn metrics(&self) -> Response<Full<Bytes>> {
        let mut page = String::new();
        match encode(&mut page, &self.registry) {
            Ok(()) => text(StatusCode::OK, OPEN_METRICS, page),
            Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, PLAIN, "a metric could not be encoded\n"),
        }
    }

    fn debug(&self) -> Value {
        let mut all = Map::new();
        let mut add = |kind: &str, name: &str, view: Value| {
            all.entry(kind).or_insert_with(|| json!({}))[name] = view;
        };
        for (kind, name, view) in &self.debug {
            let view = catch_unwind(AssertUnwindSafe(view)).unwrap_or_else(|_| json!({"panicked": true}));
            add(kind, name, view);
        }
        for (name, cache) in &self.known.caches {
            let status = (cache.status)();
            let view = json!({
                "state": state(status.state),
                "synced": (cache.synced)(),
                "objects": (cache.len)(),
                "version": status.version.get(),
                "relists": status.relists,
                "watchRestarts": status.watch_restarts,
                "lastError": status.last_error.map(|error| error.message.to_string()),
            });
            add("caches", name, view);
        }
        for (name, throttle) in &self.known.throttles {
            let (waits, quota) = (throttle.waits(), throttle.quota());
            let view = json!({
                "tokens": quota.tokens(),
                "periodSeconds": seconds(quota.period()),
                "burst": quota.max_burst(),
                "waiting": throttle.waiting(),
                "requests": waits.requests,
                "delayed": waits.delayed,
                "waitedSeconds": seconds(waits.total),
                "longestWaitSeconds": seconds(waits.longest),
            });
            add("throttles", name, view);
        }
        for (name, standing) in &self.known.elections {
            let view = json!({
                "leads": standing.is_leader(),
                "leader": standing.leader().as_deref(),
                "terms": standing.terms(),
                "renewedSecondsAgo": standing.renewed().map(seconds),
                "lastError": standing.error().as_deref(),
            });
            add("elections", name, view);
        }
        Value::Object(all)
    }
}

/// How full a queue is, and for how long; nothing of one that does not run yet.
pub(super) fn queue(counts: Option<Counts>, ages: Option<Ages>) -> Value {
    counts.map_or(Value::Null, |counts| {
        json!({
            "ready": counts.ready,
            "waiting": counts.waiting,
            "leased": counts.leased,
            "dirty": counts.dirty,
            "oldestReadySeconds": ages.and_then(|ages| ages.ready).map(seconds),
            "oldestLeaseSeconds": ages.and_then(|ages| ages.leased).map(seconds),
        })
    })
}

fn state(state: InformerState) -> String {
    match state {
        InformerState::Waiting { cause, .. } => format!("waiting: {cause:?}"),
        state => format!("{state:?}").to_lowercase(),
    }
}

fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}

fn checked(checks: &Checks, endpoint: &str, verbose: bool) -> Response<Full<Bytes>> {
    let (passed, page) = checks.page(endpoint, verbose);
    let status = if passed { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    text(status, PLAIN, page)
}

fn text(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, header::HeaderValue::from_static("nosniff"));
    response
}

const PLAIN: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
