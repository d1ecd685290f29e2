//! The API server to which a script sends its requests, and its responses.

use std::fmt::Debug;
use std::time::Duration;

use http::{Request, header};
use kube::{Client, Error};
use serde_json::{Value, json};

const JSON: &str = "application/json";

/// An API server, and a namespace that only one script uses.
#[derive(Clone)]
pub struct Server {
    /// The client that sends the requests.
    pub client: Client,
    /// The namespace of the script. It exists, and contains only the objects that a cluster creates in each namespace.
    pub namespace: String,
}

impl Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

/// A response: a status code and a body. The body of an error is a `Status`.
#[derive(Debug)]
pub struct Reply {
    /// The status code; always 200 for a success.
    pub code: u16,
    /// The body.
    pub body: Value,
}

impl Server {
    /// Sends a request. `path` is either relative to the namespace, such as `v1/configmaps/a` or `apps/v1/deployments?limit=1`, or absolute.
    pub async fn ask(&self, method: &str, path: &str, body: Value) -> Reply {
        self.ask_as(method, path, JSON, JSON, body).await
    }

    /// Sends a GET request.
    pub async fn get(&self, path: &str) -> Reply {
        self.ask("GET", path, Value::Null).await
    }

    /// Creates an object, and returns the created object.
    pub async fn create(&self, path: &str, object: Value) -> Value {
        self.ask("POST", path, object).await.ok()
    }

    /// Patches an object with a JSON merge patch.
    pub async fn merge(&self, path: &str, patch: Value) -> Reply {
        self.ask_as("PATCH", path, "application/merge-patch+json", JSON, patch).await
    }

    /// Sends a request with a content type and an accepted type.
    ///
    /// # Panics
    /// Panics if the server cannot be reached.
    pub async fn ask_as(&self, method: &str, path: &str, content: &str, accept: &str, body: Value) -> Reply {
        let request = Request::builder()
            .method(method)
            .uri(self.uri(path))
            .header(header::ACCEPT, accept)
            .header(header::CONTENT_TYPE, content)
            .body(if body.is_null() { Vec::new() } else { body.to_string().into_bytes() });
        match self.client.request_text(request.expect("a request")).await {
            Ok(text) => {
                let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
                Reply { code: 200, body }
            }
            Err(Error::Api(status)) => {
                let body = serde_json::to_value(&status).expect("JSON");
                Reply { code: status.code, body }
            }
            Err(error) => panic!("{method} {path}: {error}"),
        }
    }

    fn uri(&self, path: &str) -> String {
        if path.starts_with('/') {
            return path.to_owned();
        }
        let (version, rest) = path.split_once('/').expect("a version and a resource");
        let (root, rest) = match (version, rest.split_once('/')) {
            ("v1", _) => ("/api/v1".to_owned(), rest),
            (group, Some((version, rest))) => (format!("/apis/{group}/{version}"), rest),
            _ => panic!("{path}: a group without a version"),
        };
        format!("{root}/namespaces/{}/{rest}", self.namespace)
    }

    /// Watches for one second, and returns the events in short form: the type of the event and the name of the object.
    pub async fn watch(&self, path: &str) -> Vec<String> {
        let events = self.watch_events(path, JSON).await;
        let line = |event: &Value| {
            let object = &event["object"];
            let what = if event["type"] == "ERROR" { &object["reason"] } else { &object["metadata"]["name"] };
            let end = object["metadata"]["annotations"].get("k8s.io/initial-events-end").is_some();
            let name = if end { "end" } else { what.as_str().unwrap_or_default() };
            format!("{} {name}", event["type"].as_str().unwrap_or_default())
        };
        // Drops all bookmarks except the one that ends the initial events, because a server may send the others at any time.
        events.iter().map(line).filter(|line| line != "BOOKMARK ").collect()
    }

    /// Watches for one second, and returns the events.
    ///
    /// # Panics
    /// Panics if the watch is refused.
    pub async fn watch_events(&self, path: &str, accept: &str) -> Vec<Value> {
        self.watch_within(1, path, accept).await
    }

    /// Watches for `seconds` seconds, and returns the events.
    pub(crate) async fn watch_within(&self, seconds: u32, path: &str, accept: &str) -> Vec<Value> {
        let joint = if path.contains('?') { '&' } else { '?' };
        let uri = self.uri(&format!("{path}{joint}watch=true&timeoutSeconds={seconds}"));
        let request = Request::get(uri).header(header::ACCEPT, accept).body(Vec::new());
        let text = self.client.request_text(request.expect("a request")).await.expect("a watch");
        text.lines().map(|line| serde_json::from_str(line).expect("an event")).collect()
    }

    /// Repeats a GET request for `path` until `is_it` returns true for the response, which may take some time on a real server.
    ///
    /// # Panics
    /// Panics if no response meets the condition in time.
    #[track_caller]
    pub fn until(&self, path: &str, is_it: impl Fn(&Reply) -> bool) -> impl Future<Output = Reply> {
        let place = std::panic::Location::caller();
        async move {
            let mut last = self.get(path).await;
            for _ in 0..600 {
                if is_it(&last) {
                    return last;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
                last = self.get(path).await;
            }
            panic!("{place}: {path} stays {last:?}")
        }
    }
}

impl Reply {
    /// The body of a success.
    ///
    /// # Panics
    /// Panics if the response is an error.
    #[track_caller]
    pub fn ok(self) -> Value {
        assert_eq!(self.code, 200, "{:#}", self.body);
        self.body
    }

    /// Asserts that the response is the error with this code, reason and message.
    ///
    /// # Panics
    /// Panics if the error differs or if there is none.
    #[track_caller]
    pub fn is_error(&self, code: u16, reason: &str, message: &str) {
        let is = (self.code, self.body["reason"].as_str(), self.body["message"].as_str());
        assert_eq!(is, (code, Some(reason), Some(message)), "{:#}", self.body);
    }

    /// Asserts that the causes of an error have these fields and reasons.
    ///
    /// # Panics
    /// Panics if the causes differ.
    #[track_caller]
    pub fn has_causes(&self, expected: &[(&str, &str)]) {
        let causes = self.body["details"]["causes"].as_array().into_iter().flatten();
        let causes: Vec<_> = causes
            .map(|cause| (cause["field"].as_str().unwrap_or_default(), cause["reason"].as_str().unwrap()))
            .collect();
        assert_eq!(causes, expected, "{:#}", self.body);
    }
}

/// The names of the items of a list.
pub(crate) fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().expect("a list");
    items.iter().map(|item| item["metadata"]["name"].as_str().expect("a name")).collect()
}

pub(crate) fn version(object: &Value) -> &str {
    object["metadata"]["resourceVersion"].as_str().expect("a version")
}

pub(crate) fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().expect("a uid")
}

pub(crate) fn config_map(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"value": value}})
}

pub(crate) fn labelled(name: &str, labels: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}})
}

pub(crate) fn pod(name: &str, spec: Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "image": "image"}], "terminationGracePeriodSeconds": 30},
    });
    if let (Some(fields), Value::Object(more)) = (pod["spec"].as_object_mut(), spec) {
        fields.extend(more);
    }
    pod
}

pub(crate) fn deployment(name: &str, replicas: u32) -> Value {
    let template = json!({
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [{"name": "main", "image": "image"}]},
    });
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template},
    })
}
