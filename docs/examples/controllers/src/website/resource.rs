//! PURE. The custom resource: the spec and the status of a website.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// A page, and the pods that serve it.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(group = "examples.flyball.rs", version = "v1", kind = "Website", plural = "websites", namespaced)]
#[kube(status = "WebsiteStatus", shortname = "web", derive = "PartialEq")]
#[kube(
    printcolumn = r#"{"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type == 'Ready')].status"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct WebsiteSpec {
    /// The page.
    pub html: String,
    /// The number of pods that serve the page.
    #[serde(default = "one")]
    pub replicas: i32,
    /// The image of the server, which serves the files in `/usr/share/nginx/html`.
    #[serde(default = "nginx")]
    pub image: String,
}

/// The status of a website.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebsiteStatus {
    /// The generation of the spec to which this status applies.
    pub observed_generation: Option<i64>,
    /// The number of available pods.
    #[serde(default)]
    pub available_replicas: i32,
    /// The condition `Ready`: all pods are available and serve the current page.
    #[serde(default)]
    #[schemars(schema_with = "conditions")]
    pub conditions: Vec<Condition>,
}

/// Returns the schema of a list that has one condition per type. With this schema, a server-side apply of one condition does not remove the others.
fn conditions(_: &mut SchemaGenerator) -> Schema {
    let text = json_schema!({ "type": "string" });
    json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status", "reason", "message", "lastTransitionTime"],
            "properties": {
                "type": text, "status": text, "reason": text, "message": text,
                "lastTransitionTime": { "type": "string", "format": "date-time" },
                "observedGeneration": { "type": "integer", "format": "int64" },
            },
        },
    })
}

fn one() -> i32 {
    1
}

fn nginx() -> String {
    "nginx:stable".to_owned()
}
