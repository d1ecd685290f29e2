//! The API server in memory beside the real one: the same requests, the same answers, as far as what it claims to be goes.

use std::fmt::Write;

use flyball_kube_testing::ApiServer;
use http::{Method, Request, header};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use serde_json::{Value, json};

use crate::cluster::{Namespace, client, soon};

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const METADATAS: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// One of the two servers, and what it said so far.
struct Asked {
    client: Client,
    namespace: String,
    answers: String,
}

impl Asked {
    fn new(client: Client, namespace: &str) -> Self {
        Self { client, namespace: namespace.to_owned(), answers: String::new() }
    }

    /// Asks, notes what was answered at these places, and returns all of it.
    async fn ask(&mut self, method: Method, path: &str, body: Value, places: &[&str]) -> Value {
        self.ask_as(method, path, JSON, body, places).await
    }

    async fn ask_as(
        &mut self,
        method: Method,
        path: &str,
        kind: &str,
        body: Value,
        places: &[&str],
    ) -> Value {
        let (accept, content) = match kind {
            METADATA | METADATAS => (kind, JSON),
            _ => (JSON, kind),
        };
        let (group, rest) = path.split_once('/').unwrap();
        let root = if group == "v1" { "/api/v1".to_owned() } else { format!("/apis/{group}/v1") };
        let request = Request::builder()
            .method(&method)
            .uri(format!("{root}/namespaces/{}/{rest}", self.namespace))
            .header(header::ACCEPT, accept)
            .header(header::CONTENT_TYPE, content)
            .body(if body.is_null() { Vec::new() } else { body.to_string().into_bytes() })
            .unwrap();
        write!(self.answers, "{method} {path} {body}:").unwrap();
        let answer = match self.client.request_text(request).await {
            Ok(text) => serde_json::from_str(&text).unwrap_or(Value::String(text)),
            Err(kube::Error::Api(status)) => {
                write!(self.answers, " {} {}", status.code, status.reason).unwrap();
                // What is wrong with which field; the words of other refusals have versions in them.
                for cause in status.details.iter().flat_map(|details| &details.causes) {
                    write!(self.answers, " {}: {}", cause.field, cause.reason).unwrap();
                }
                Value::Null
            }
            Err(error) => panic!("{error}"),
        };
        for place in places {
            write!(self.answers, " {place}={}", answer.pointer(place).unwrap_or(&Value::Null)).unwrap();
        }
        self.answers.push('\n');
        answer
    }

    fn note(&mut self, what: &str, answer: impl std::fmt::Debug) {
        writeln!(self.answers, "{what}: {answer:?}").unwrap();
    }
}

fn map(name: &str, labels: Value, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}, "data": {"value": value}})
}

fn version(object: &Value) -> String {
    object["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

async fn writes(asked: &mut Asked) {
    let maps = "v1/configmaps";
    let kinds = ["/kind", "/apiVersion", "/metadata/name", "/metadata/generation", "/data", "/status"];
    asked.ask(Method::GET, "v1/configmaps/a", Value::Null, &[]).await;
    let first = asked.ask(Method::POST, maps, map("a", json!({"app": "x"}), "1"), &kinds).await;
    asked.ask(Method::POST, maps, map("a", json!({}), "1"), &[]).await;
    asked
        .ask(Method::POST, maps, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}), &[])
        .await;
    asked
        .ask(
            Method::POST,
            maps,
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "A_"}}),
            &[],
        )
        .await;
    let generated = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "made-"}});
    let made = asked.ask(Method::POST, maps, generated, &["/kind"]).await;
    let name = made["metadata"]["name"].as_str().unwrap();
    asked.note("generated", (name.starts_with("made-"), name.len()));
    let request = asked.client.clone();
    let uri = format!("/api/v1/namespaces/{}/configmaps/{name}", asked.namespace);
    request.request_text(Request::delete(uri).body(Vec::new()).unwrap()).await.unwrap();

    // Optimistic concurrency.
    let mut next = map("a", json!({"app": "x"}), "2");
    next["metadata"]["resourceVersion"] = json!(version(&first));
    let second = asked.ask_quietly("v1/configmaps/a", next.clone()).await;
    asked.note("a new version", version(&second) != version(&first));
    let refused = asked_code(asked, "v1/configmaps/a", next).await;
    asked.note("a stale one", refused);
    asked
        .ask(
            Method::PUT,
            "v1/configmaps/a",
            map("a", json!({"app": "y"}), "3"),
            &["/data", "/metadata/labels"],
        )
        .await;
    asked.ask(Method::PUT, "v1/configmaps/none", map("none", json!({}), "3"), &[]).await;
    asked.ask(Method::PUT, "v1/configmaps/a", map("b", json!({}), "3"), &[]).await;

    // Patches.
    let patch = json!({"metadata": {"labels": {"app": null, "new": "yes"}}, "data": {"more": "4"}});
    let patched = asked
        .ask_as(Method::PATCH, "v1/configmaps/a", MERGE, patch.clone(), &["/data", "/metadata/labels"])
        .await;
    let again = asked.ask_as(Method::PATCH, "v1/configmaps/a", MERGE, patch, &["/data"]).await;
    asked.note("nothing changed", version(&patched) == version(&again));
    asked.ask_as(Method::PATCH, "v1/configmaps/none", MERGE, json!({"data": {}}), &[]).await;

    // Deletion.
    asked.ask(Method::DELETE, "v1/configmaps/none", Value::Null, &[]).await;
    let wrong = json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": "another"}});
    asked.ask(Method::DELETE, "v1/configmaps/a", wrong, &[]).await;
    asked.ask(Method::DELETE, "v1/configmaps/a", Value::Null, &["/kind", "/status"]).await;
    let mut kept = map("kept", json!({}), "1");
    kept["metadata"]["finalizers"] = json!(["flyball.test/keep"]);
    asked.ask(Method::POST, maps, kept, &["/metadata/finalizers"]).await;
    let deleted = asked
        .ask(Method::DELETE, "v1/configmaps/kept", Value::Null, &["/kind", "/metadata/finalizers"])
        .await;
    asked.note("it is on its way", deleted["metadata"]["deletionTimestamp"].is_string());
    let twice = asked.ask(Method::DELETE, "v1/configmaps/kept", Value::Null, &["/metadata/finalizers"]).await;
    asked.note(
        "the time stays",
        twice["metadata"]["deletionTimestamp"] == deleted["metadata"]["deletionTimestamp"],
    );
    let free = json!({"metadata": {"finalizers": null}});
    asked.ask_as(Method::PATCH, "v1/configmaps/kept", MERGE, free, &["/kind", "/metadata/finalizers"]).await;
    asked.ask(Method::GET, "v1/configmaps/kept", Value::Null, &[]).await;
}

async fn refusals(asked: &mut Asked) {
    // Nothing is added to what goes.
    let mut held = map("held", json!({}), "1");
    held["metadata"]["finalizers"] = json!(["flyball.test/a", "flyball.test/b"]);
    asked.ask(Method::POST, "v1/configmaps", held, &[]).await;
    let here = "v1/configmaps/held";
    asked.ask(Method::DELETE, here, Value::Null, &["/kind"]).await;
    for finalizers in [
        json!(["flyball.test/a", "flyball.test/c"]),
        json!(["flyball.test/b"]),
        json!(["flyball.test/a"]),
        json!(null),
    ] {
        let patch = json!({"metadata": {"finalizers": finalizers}});
        asked.ask_as(Method::PATCH, here, MERGE, patch, &["/metadata/finalizers"]).await;
    }
    asked.ask(Method::GET, here, Value::Null, &[]).await;

    // What the mark of an unreadable object relies on: nobody stores it.
    let mut marked = map("marked", json!({}), "1");
    marked["metadata"]["selfLink"] = json!("unreadable: of old");
    asked.ask(Method::POST, "v1/configmaps", marked.clone(), &["/metadata/selfLink"]).await;
    asked.ask(Method::PUT, "v1/configmaps/marked", marked, &["/metadata/selfLink"]).await;
    let patch = json!({"metadata": {"selfLink": "unreadable: of old"}});
    asked.ask_as(Method::PATCH, "v1/configmaps/marked", MERGE, patch, &["/metadata/selfLink"]).await;

    // Writes that do not say what they write over.
    let leases = "coordination.k8s.io/leases";
    let here = "coordination.k8s.io/leases/l";
    let lease = |version: Option<String>| {
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "l", "resourceVersion": version}, "spec": {"holderIdentity": "a"},
        })
    };
    let made = asked.ask(Method::POST, leases, lease(None), &["/spec"]).await;
    asked.ask(Method::PUT, here, lease(None), &[]).await;
    asked.ask_quietly(here, lease(Some(version(&made)))).await;
    asked.ask_as(Method::PATCH, here, MERGE, json!({"spec": {"holderIdentity": "b"}}), &["/spec"]).await;
    asked.ask(Method::DELETE, here, Value::Null, &["/status"]).await;
    asked.ask(Method::POST, "v1/configmaps", map("named", json!({}), "1"), &[]).await;
    let nameless = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}});
    asked.ask(Method::PUT, "v1/configmaps/named", nameless, &[]).await;
    let stale = json!({"preconditions": {"resourceVersion": "1"}});
    asked.ask(Method::DELETE, "v1/configmaps/named", stale, &[]).await;
    asked.ask(Method::DELETE, "v1/configmaps/named", Value::Null, &["/status"]).await;
}

async fn dry_runs(asked: &mut Asked) {
    let places = ["/kind", "/data", "/metadata/name", "/metadata/finalizers"];
    let made = asked.ask(Method::POST, "v1/configmaps?dryRun=All", map("dry", json!({}), "1"), &places).await;
    let meta = &made["metadata"];
    asked.note("made", (meta["uid"].is_string(), meta["resourceVersion"].is_string()));
    asked.ask(Method::GET, "v1/configmaps/dry", Value::Null, &[]).await;
    asked.ask(Method::POST, "v1/configmaps?dryRun=Some", map("dry", json!({}), "1"), &[]).await;

    let mut kept = map("dry", json!({}), "1");
    kept["metadata"]["finalizers"] = json!(["flyball.test/a"]);
    let kept = asked.ask(Method::POST, "v1/configmaps", kept, &places).await;
    let here = "v1/configmaps/dry?dryRun=All";
    asked.ask(Method::POST, "v1/configmaps?dryRun=All", map("dry", json!({}), "1"), &[]).await;
    let put = asked.ask(Method::PUT, here, map("dry", json!({}), "2"), &places).await;
    let patched = asked.ask_as(Method::PATCH, here, MERGE, json!({"data": {"value": "3"}}), &places).await;
    let deleted = asked.ask(Method::DELETE, here, Value::Null, &places).await;
    asked.note("on its way", deleted["metadata"]["deletionTimestamp"].is_string());
    let all = json!({"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"]});
    asked.ask(Method::DELETE, "v1/configmaps/dry", all, &places).await;
    let now = asked.ask(Method::GET, "v1/configmaps/dry", Value::Null, &places).await;
    let versions = [&put, &patched, &deleted, &now].map(|object| version(object) == version(&kept));
    asked.note("one version", versions);
    let free = json!({"metadata": {"finalizers": null}});
    asked.ask_as(Method::PATCH, "v1/configmaps/dry", MERGE, free, &[]).await;
    asked.ask(Method::DELETE, here, Value::Null, &["/status"]).await;
    asked.ask(Method::DELETE, "v1/configmaps/dry", Value::Null, &["/status"]).await;
    asked.ask(Method::GET, "v1/configmaps/dry", Value::Null, &[]).await;
}

/// As far as it goes without kube-controller-manager: a dependent holds its owner.
async fn dependents(asked: &mut Asked) {
    for policy in ["Foreground", "Background", "Orphan"] {
        let owner = asked.ask(Method::POST, "v1/configmaps", map("owner", json!({}), "1"), &[]).await;
        let mut child = map("child", json!({}), "1");
        child["metadata"]["finalizers"] = json!(["flyball.test/a"]);
        child["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"],
            "blockOwnerDeletion": true,
        }]);
        asked.ask_unseen(Method::POST, "v1/configmaps", child).await;
        let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy});
        let places = ["/kind", "/status", "/metadata/finalizers"];
        let left = asked.ask(Method::DELETE, "v1/configmaps/owner", options, &places).await;
        asked.note("on its way", left["metadata"]["deletionTimestamp"].is_string());
        if policy == "Foreground" {
            asked.ask(Method::GET, "v1/configmaps/owner", Value::Null, &places).await;
            // It may be told otherwise.
            let options = json!({"propagationPolicy": "Background"});
            asked.ask(Method::DELETE, "v1/configmaps/owner", options, &["/kind"]).await;
            asked.ask(Method::GET, "v1/configmaps/owner", Value::Null, &places).await;
        }
        // On a real server somebody else would.
        let free = json!({"metadata": {"finalizers": null}});
        for name in ["owner", "child"] {
            let path = format!("v1/configmaps/{name}");
            asked.ask_unseen(Method::PATCH, &path, free.clone()).await;
            asked.ask_unseen(Method::DELETE, &path, Value::Null).await;
        }
    }
}

impl Asked {
    /// A request that is not noted, and may fail.
    async fn ask_unseen(&mut self, method: Method, path: &str, body: Value) {
        let length = self.answers.len();
        let kind = if method == Method::PATCH { MERGE } else { JSON };
        self.ask_as(method, path, kind, body, &[]).await;
        self.answers.truncate(length);
    }

    /// A PUT that nobody notes.
    async fn ask_quietly(&mut self, path: &str, body: Value) -> Value {
        let length = self.answers.len();
        let answer = self.ask(Method::PUT, path, body, &[]).await;
        self.answers.truncate(length);
        answer
    }
}

/// What a PUT is refused with; its body has versions, which differ between the two.
async fn asked_code(asked: &mut Asked, path: &str, body: Value) -> String {
    let length = asked.answers.len();
    asked.ask(Method::PUT, path, body, &[]).await;
    let line = asked.answers.split_off(length);
    line.rsplit(':').next().unwrap().trim().to_owned()
}

async fn statuses(asked: &mut Asked) {
    let places = ["/metadata/generation", "/spec/replicas", "/status/replicas"];
    let template =
        json!({"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "a"}}, "template": template},
        "status": {"replicas": 7},
    });
    asked.ask(Method::POST, "apps/deployments", deployment, &places).await;
    for (path, patch) in [
        ("apps/deployments/d", json!({"spec": {"replicas": 2}})),
        ("apps/deployments/d", json!({"metadata": {"labels": {"a": "b"}}})),
        ("apps/deployments/d", json!({"status": {"replicas": 8}})),
        ("apps/deployments/d/status", json!({"status": {"replicas": 9}})),
        ("apps/deployments/d/status", json!({"spec": {"replicas": 3}})),
    ] {
        asked.ask_as(Method::PATCH, path, MERGE, patch, &places).await;
    }
}

async fn lists(asked: &mut Asked) {
    for (name, app) in [("a", "x"), ("b", "y"), ("c", "x")] {
        asked.ask(Method::POST, "v1/configmaps", map(name, json!({"app": app}), "1"), &[]).await;
    }
    let places = ["/kind", "/apiVersion", "/items/0/kind", "/items/0/apiVersion", "/items/0/metadata/name"];
    let counted = async |asked: &mut Asked, query: &str| {
        let list = asked.ask(Method::GET, &format!("v1/configmaps?{query}"), Value::Null, &places).await;
        asked.note("items", list["items"].as_array().map(Vec::len));
        list
    };
    counted(asked, "labelSelector=app").await;
    counted(asked, "labelSelector=app%3Dx").await;
    counted(asked, "labelSelector=app%21%3Dx,app").await;
    counted(asked, "labelSelector=app+in+(y,z)").await;
    counted(asked, "labelSelector=app%3D%3D%3D").await;
    counted(asked, "fieldSelector=metadata.name%3Db").await;
    counted(asked, "labelSelector=app&resourceVersion=0").await;
    counted(asked, "limit=1&continue=nonsense").await;
    counted(asked, "resourceVersion=nonsense").await;
    counted(asked, "resourceVersionMatch=NotOlderThan").await;
    let page = counted(asked, "labelSelector=app&limit=2").await;
    let token = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
    asked.note("there is more", !token.is_empty());
    let length = asked.answers.len();
    let rest = counted(asked, &format!("labelSelector=app&limit=2&continue={token}")).await;
    asked.answers.truncate(length);
    asked.note("the rest", rest["items"].as_array().map(Vec::len));
    asked.note("of one version", rest["metadata"]["resourceVersion"] == page["metadata"]["resourceVersion"]);

    // Metadata alone.
    let places = ["/kind", "/apiVersion", "/items/0/kind", "/items/0/data"];
    asked.ask_as(Method::GET, "v1/configmaps?labelSelector=app", METADATAS, Value::Null, &places).await;
    let places = ["/kind", "/apiVersion", "/metadata/name", "/data"];
    asked.ask_as(Method::GET, "v1/configmaps/a", METADATA, Value::Null, &places).await;

    // A watch: what enters a selection is added, what leaves it is deleted.
    let from = asked.ask(Method::GET, "v1/configmaps/c", Value::Null, &[]).await;
    let label = |app: &str| json!({"metadata": {"labels": {"app": app}}});
    for (name, app) in [("b", "x"), ("a", "x2"), ("c", "x"), ("a", "x")] {
        asked.ask_as(Method::PATCH, &format!("v1/configmaps/{name}"), MERGE, label(app), &[]).await;
    }
    asked.ask_as(Method::PATCH, "v1/configmaps/c", MERGE, json!({"data": {"value": "2"}}), &[]).await;
    asked.ask(Method::DELETE, "v1/configmaps/c", Value::Null, &[]).await;
    watched(asked, &format!("labelSelector=app%3Dx&resourceVersion={}", version(&from))).await;
    watched(asked, "labelSelector=app%3Dx&resourceVersion=0").await;
    let streamed = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    watched(asked, &format!("labelSelector=app%3Dx&{streamed}")).await;
}

/// What a watch of a second tells.
async fn watched(asked: &mut Asked, query: &str) {
    let uri =
        format!("/api/v1/namespaces/{}/configmaps?watch=true&timeoutSeconds=1&{query}", asked.namespace);
    let text = asked.client.request_text(Request::get(uri).body(Vec::new()).unwrap()).await.unwrap();
    for line in text.lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        let object = &event["object"];
        // When bookmarks come in between is the server's affair.
        let end = object["metadata"]["annotations"].get("k8s.io/initial-events-end").is_some();
        if event["type"] != "BOOKMARK" || end {
            let told = [
                &event["type"],
                &object["kind"],
                &object["apiVersion"],
                &object["metadata"]["name"],
                &object["data"],
            ];
            asked.note("told", (told.map(Value::to_string), end));
        }
    }
}

#[tokio::test]
#[ignore = "needs an API server: cargo xtask e2e"]
async fn the_server_in_memory_answers_as_a_real_one() {
    let client = client().await;
    let namespace = Namespace::fresh(&client).await;
    let memory = ApiServer::new();
    memory.register::<ConfigMap>().register::<Deployment>().register::<Lease>();
    let mut real = Asked::new(client, &namespace.name);
    let mut fake = Asked::new(memory.client(), "default");
    soon(async {
        for asked in [&mut real, &mut fake] {
            writes(asked).await;
            statuses(asked).await;
            lists(asked).await;
            refusals(asked).await;
            dry_runs(asked).await;
            dependents(asked).await;
        }
    })
    .await;
    assert!(real.answers.lines().count() > 120);
    let differences: Vec<_> =
        std::iter::zip(real.answers.lines(), fake.answers.lines()).filter(|(a, b)| a != b).collect();
    let differences: Vec<_> = differences.iter().map(|(a, b)| format!("real {a}\nours {b}")).collect();
    assert!(differences.is_empty(), "{}", differences.join("\n\n"));
    assert_eq!(real.answers.lines().count(), fake.answers.lines().count());
}
