//! Definitions of custom resources.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::server::{Server, names};

/// A definition of a custom resource. Definitions have no namespace, so each script uses an API group of its own.
#[derive(Debug)]
pub(crate) struct Definition {
    object: Value,
    group: String,
    plural: String,
    kind: String,
    namespaced: bool,
}

const ALL: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

impl Definition {
    pub(crate) fn new(on: &Server, kind: &str) -> Self {
        let group = format!("{}.example.com", on.namespace);
        let singular = kind.to_lowercase();
        let plural = format!("{singular}s");
        let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let schema = json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {"color": {"type": "string"}}, "x-kubernetes-preserve-unknown-fields": true},
            "status": open,
        }});
        let version = json!({
            "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
            "subresources": {"status": {}},
        });
        let object = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{group}")},
            "spec": {
                "group": group, "scope": "Namespaced", "names": {"kind": kind, "plural": plural, "singular": singular},
                "versions": [version],
            },
        });
        Self { object, group, plural, kind: kind.to_owned(), namespaced: true }
    }

    /// Defines a kind whose objects are in no namespace.
    pub(crate) fn without_namespaces(mut self) -> Self {
        self.object["spec"]["scope"] = json!("Cluster");
        self.namespaced = false;
        self
    }

    pub(crate) fn without_status(mut self) -> Self {
        self.version().as_object_mut().unwrap().remove("subresources");
        self
    }

    pub(crate) fn selectable(mut self, path: &str) -> Self {
        self.version()["selectableFields"] = json!([{"jsonPath": path}]);
        self
    }

    /// Sets the schema of a top-level field.
    pub(crate) fn property(mut self, name: &str, schema: Value) -> Self {
        self.version()["schema"]["openAPIV3Schema"]["properties"][name] = schema;
        self
    }

    fn version(&mut self) -> &mut Value {
        &mut self.object["spec"]["versions"][0]
    }

    fn here(&self) -> String {
        format!("{ALL}/{}.{}", self.plural, self.group)
    }

    /// Creates the definition, and waits until its kind is served.
    pub(crate) async fn create(self, on: &Server) -> Self {
        on.create(ALL, self.object.clone()).await;
        let is_established = |object: &Value| {
            let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
            conditions.filter(|condition| condition["status"] == "True").any(|it| it["type"] == "Established")
        };
        on.until(&self.here(), |reply| is_established(&reply.body)).await;
        on.until(&self.path(), |reply| reply.code == 200).await;
        self
    }

    async fn delete(&self, on: &Server) {
        on.ask("DELETE", &self.here(), Value::Null).await.ok();
        on.until(&self.here(), |reply| reply.code == 404).await;
        on.until(&self.path(), |reply| reply.code == 404).await;
    }

    pub(crate) fn path(&self) -> String {
        self.path_in("v1")
    }

    fn path_in(&self, version: &str) -> String {
        if self.namespaced {
            return format!("{}/{version}/{}", self.group, self.plural);
        }
        self.path_in_all_namespaces(version)
    }

    /// The path of the kind's objects in all namespaces, or of the objects of a kind without namespaces.
    pub(crate) fn path_in_all_namespaces(&self, version: &str) -> String {
        format!("/apis/{}/{version}/{}", self.group, self.plural)
    }

    /// The name by which error messages refer to the kind.
    pub(crate) fn title(&self) -> String {
        format!("{}.{}", self.plural, self.group)
    }

    pub(crate) fn object(&self, name: &str, spec: Value) -> Value {
        let api_version = format!("{}/v1", self.group);
        json!({"apiVersion": api_version, "kind": self.kind, "metadata": {"name": name}, "spec": spec})
    }
}

/// The server writes conditions and accepted names to the status of the definition. After that, objects of its kind can be created.
pub async fn a_definition_is_established_and_serves_its_kind(on: &Server) {
    let sites = Definition::new(on, "Site");
    assert_eq!(on.get(&sites.path()).await.code, 404);
    let sites = sites.create(on).await;
    let definition = on.get(&sites.here()).await.ok();
    let conditions = definition["status"]["conditions"].as_array().unwrap();
    let mut conditions: Vec<_> = conditions
        .iter()
        .map(|it| ["type", "status", "reason"].map(|field| it[field].as_str().unwrap()))
        .collect();
    conditions.sort_unstable();
    let expected =
        [["Established", "True", "InitialNamesAccepted"], ["NamesAccepted", "True", "NoConflicts"]];
    assert_eq!(conditions, expected);
    let status = &definition["status"];
    assert_eq!(
        (&status["storedVersions"], &status["acceptedNames"]["listKind"]),
        (&json!(["v1"]), &json!("SiteList"))
    );
    assert_eq!(
        (&definition["metadata"]["generation"], definition["metadata"].get("finalizers")),
        (&json!(1), None)
    );

    on.create(&sites.path(), sites.object("s", json!({"color": "red"}))).await;
    let list = on.get(&sites.path()).await.ok();
    assert_eq!((list["kind"].as_str(), names(&list)), (Some("SiteList"), vec!["s"]));
    // In a list, custom resources contain their kind, but objects of Kubernetes' own kinds do not.
    assert_eq!(list["items"][0]["kind"], "Site");

    let mut misnamed = sites.object.clone();
    misnamed["metadata"]["name"] = json!("sites");
    let refused = on.ask("POST", ALL, misnamed).await;
    assert_eq!((refused.code, refused.body["reason"].as_str()), (422, Some("Invalid")));
    refused.has_causes(&[("metadata.name", "FieldValueInvalid")]);
}

/// The deletion of a definition deletes its objects and ends their watches. A new definition with the same name has no objects.
pub async fn a_deleted_definition_takes_its_objects_and_watches_with_it(on: &Server) {
    let sites = Definition::new(on, "Site").create(on).await;
    on.create(&sites.path(), sites.object("s", json!({}))).await;
    let path = sites.path();
    let began = Instant::now();
    let delete = async {
        // Half a second is long enough for the watch to be opened.
        tokio::time::sleep(Duration::from_millis(500)).await;
        sites.delete(on).await;
    };
    let (events, ()) = tokio::join!(on.watch_within(50, &path, "application/json"), delete);
    let types: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!((types.first(), types.last()), (Some(&"ADDED"), Some(&"DELETED")));
    assert!(began.elapsed() < Duration::from_secs(40), "the watch ends before its time");
    assert_eq!(on.get(&format!("{}/s", sites.path())).await.code, 404);
    let sites = Definition::new(on, "Site").create(on).await;
    assert!(names(&on.get(&sites.path()).await.ok()).is_empty());
    on.create(&sites.path(), sites.object("t", json!({}))).await;
    assert_eq!(on.watch(&sites.path()).await, ["ADDED t"]);
}

/// A deleted definition remains until its objects with finalizers have been removed. Until then, no object of its kind can be created.
pub async fn objects_with_finalizers_hold_their_definition(on: &Server) {
    let sites = Definition::new(on, "Site").create(on).await;
    let mut held = sites.object("s", json!({}));
    held["metadata"]["finalizers"] = json!(["flyball.test/a"]);
    on.create(&sites.path(), held).await;
    let left = on.ask("DELETE", &sites.here(), Value::Null).await.ok();
    assert_eq!(left["metadata"]["finalizers"], json!(["customresourcecleanup.apiextensions.k8s.io"]));
    let here = format!("{}/s", sites.path());
    on.until(&here, |reply| reply.body["metadata"]["deletionTimestamp"].is_string()).await;
    let refused = on.ask("POST", &sites.path(), sites.object("t", json!({}))).await;
    let why = "create not allowed while custom resource definition is terminating";
    refused.is_error(403, "Forbidden", &format!("{} \"t\" is forbidden: {why}", sites.title()));
    on.merge(&here, json!({"metadata": {"finalizers": null}})).await.ok();
    on.until(&sites.here(), |reply| reply.code == 404).await;
}

/// A definition can have two versions. The server returns the same objects in both versions; only their `apiVersion` differs.
pub async fn a_definition_in_two_versions_serves_the_same_objects(on: &Server) {
    let mut sites = Definition::new(on, "Site");
    let mut second = sites.version().clone();
    second["name"] = json!("v2");
    second["storage"] = json!(false);
    sites.object["spec"]["versions"].as_array_mut().unwrap().push(second);
    let sites = sites.create(on).await;
    let v2 = sites.path_in("v2");
    on.until(&v2, |reply| reply.code == 200).await;
    on.create(&sites.path(), sites.object("s", json!({"color": "red"}))).await;
    let other = format!("{}/v2", sites.group);
    let here = format!("{v2}/s");
    let got = on.get(&here).await.ok();
    assert_eq!((&got["apiVersion"], &got["spec"]["color"]), (&json!(other), &json!("red")));
    let told = on.merge(&here, json!({"spec": {"color": "blue"}})).await.ok();
    assert_eq!((&told["apiVersion"], &told["metadata"]["generation"]), (&json!(other), &json!(2)));
    assert_eq!(on.get(&v2).await.ok()["items"][0]["apiVersion"], json!(other));
    let first = on.get(&format!("{}/s", sites.path())).await.ok();
    assert_eq!(
        (&first["apiVersion"], &first["spec"]["color"]),
        (&sites.object("s", json!({}))["apiVersion"], &json!("blue"))
    );
    let events = on.watch_events(&v2, "application/json").await;
    assert_eq!(events[0]["object"]["apiVersion"], json!(other));
}
