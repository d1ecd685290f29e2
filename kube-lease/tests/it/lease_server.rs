//! An API server with one Lease and with fault injection.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use http::{Method, Request, Response};
use k8s_openapi::api::coordination::v1::Lease;
use kube::client::retry::RetryPolicy;
use kube::client::{Body, ClientBuilder};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::{Instant, advance, sleep};
use tower::retry::RetryLayer;
use tower::{BoxError, service_fn};

/// What happens to requests.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Connection {
    #[default]
    Ok,
    /// Requests do not arrive.
    RequestsLost,
    /// Requests are executed, but never answered.
    ResponsesLost,
    /// Writes are executed, but never answered.
    WriteResponsesLost,
    /// Requests are executed after this delay, and answered after the same delay again.
    Slow(Duration),
    /// Requests are not executed, and are answered with this status.
    Refuses(u16),
    /// Requests are not executed, and are answered with the status 404 about an object of this kind and name.
    Missing(&'static str, &'static str),
    /// Requests are executed, and then this time passes before the client receives the response, as if the client's thread were blocked.
    BlocksClient(Duration),
}

#[derive(Clone)]
pub(crate) struct LeaseServer {
    state: Arc<Mutex<State>>,
    start: Instant,
}

#[derive(Default)]
struct State {
    /// The prefix of all versions.
    prefix: &'static str,
    lease: Option<Value>,
    version: u64,
    connection: Connection,
    log: Vec<(u128, Method, Value)>,
    sent: Vec<Method>,
}

impl LeaseServer {
    pub(crate) fn new() -> Self {
        Self { state: Arc::default(), start: Instant::now() }
    }

    /// Returns a client with kube's retries. [`connection`](Self::connection) sets what happens to its requests.
    pub(crate) fn client(&self) -> kube::Client {
        self.client_with(Arc::default())
    }

    pub(crate) fn client_with(&self, connection: Arc<Mutex<Connection>>) -> kube::Client {
        let this = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let (this, connection) = (this.clone(), *connection.lock());
            // As on a real server, a request is executed even if the client has dropped it.
            let served = tokio::spawn(async move { this.serve(request, connection).await });
            async move {
                let answer = served.await.unwrap();
                if let Connection::BlocksClient(time) = connection {
                    advance(time).now_or_never();
                }
                Ok::<_, BoxError>(answer)
            }
        });
        let retries = RetryLayer::new(RetryPolicy::server_retry());
        ClientBuilder::new(service, "default").with_layer(&retries).build()
    }

    async fn serve(&self, request: Request<Body>, connection: Connection) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await.unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let connection = {
            let state = &mut *self.state.lock();
            state.sent.push(parts.method.clone());
            if connection == Connection::Ok { state.connection } else { connection }
        };
        if connection == Connection::RequestsLost {
            std::future::pending::<()>().await;
        }
        if let Connection::Refuses(code) = connection {
            return status(code, "refused");
        }
        if let Connection::Missing(kind, name) = connection {
            return missing(kind, name);
        }
        if let Connection::Slow(time) = connection {
            sleep(time).await;
        }
        let answer = self.answer(&parts.method, body);
        if let Connection::Slow(time) = connection {
            sleep(time).await;
        }
        if connection == Connection::ResponsesLost
            || connection == Connection::WriteResponsesLost && parts.method != Method::GET
        {
            std::future::pending::<()>().await;
        }
        answer
    }

    fn answer(&self, method: &Method, body: Value) -> Response<Body> {
        let state = &mut *self.state.lock();
        state.log.push((self.start.elapsed().as_millis(), method.clone(), body.clone()));
        let now = state.lease.as_ref().map(|lease| lease["metadata"]["resourceVersion"].clone());
        match *method {
            Method::GET if now.is_none() => return missing("leases", "l"),
            Method::GET => {}
            Method::POST if now.is_some() => return status(409, "AlreadyExists"),
            Method::PUT if now.as_ref() != Some(&body["metadata"]["resourceVersion"]) => {
                return status(409, "Conflict");
            }
            _ => state.write(body),
        }
        Response::new(Body::from(serde_json::to_vec(state.lease.as_ref().unwrap()).unwrap()))
    }

    pub(crate) fn connection(&self, connection: Connection) {
        self.state.lock().connection = connection;
    }

    /// Returns the methods of all requests that were sent, executed or not.
    pub(crate) fn sent(&self) -> Vec<Method> {
        self.state.lock().sent.clone()
    }

    /// Returns the time in milliseconds and the method of each request that was executed.
    pub(crate) fn requests(&self) -> Vec<(u128, Method)> {
        self.state.lock().log.iter().map(|(at, method, _)| (*at, method.clone())).collect()
    }

    pub(crate) fn lease(&self) -> Lease {
        serde_json::from_value(self.state.lock().lease.clone().unwrap()).unwrap()
    }

    pub(crate) fn holder(&self) -> String {
        self.lease().spec.unwrap().holder_identity.unwrap_or_default()
    }

    pub(crate) fn holder_if_any(&self) -> Option<String> {
        self.state.lock().lease.as_ref()?["spec"]["holderIdentity"].as_str().map(str::to_owned)
    }

    /// Changes the Lease without checking any rule, as a user can.
    pub(crate) fn overwrite(&self, edit: impl FnOnce(&mut Value)) {
        let state = &mut *self.state.lock();
        let mut lease = state.lease.take().unwrap_or_else(|| json!({"metadata": {"name": "l"}, "spec": {}}));
        edit(&mut lease);
        state.write(lease);
    }

    /// Sets the prefix of all versions that are written from now on.
    pub(crate) fn prefix_versions(&self, prefix: &'static str) {
        self.state.lock().prefix = prefix;
    }

    pub(crate) fn version(&self) -> String {
        self.lease().metadata.resource_version.unwrap()
    }

    pub(crate) fn remove(&self) {
        self.state.lock().lease = None;
    }
}

impl State {
    fn write(&mut self, mut lease: Value) {
        self.version += 1;
        lease["metadata"]["resourceVersion"] = json!(format!("{}{}", self.prefix, self.version));
        self.lease = Some(lease);
    }
}

fn status(code: u16, reason: &str) -> Response<Body> {
    respond(
        code,
        &json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": reason}),
    )
}

/// Returns the response of an API server that has no such object.
fn missing(kind: &str, name: &str) -> Response<Body> {
    let details = json!({"name": name, "group": "coordination.k8s.io", "kind": kind});
    respond(
        404,
        &json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "reason": "NotFound", "message": "", "details": details}),
    )
}

fn respond(code: u16, body: &Value) -> Response<Body> {
    Response::builder().status(code).body(Body::from(serde_json::to_vec(&body).unwrap())).unwrap()
}
