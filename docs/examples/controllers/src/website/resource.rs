//! PURE. The resource: what somebody wants, and what has become of it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// A page that is served by so many pods.
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
    /// By how many pods it is served.
    #[serde(default = "one")]
    pub replicas: i32,
    /// What serves it, out of `/usr/share/nginx/html`.
    #[serde(default = "nginx")]
    pub image: String,
}

/// What has become of a website.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebsiteStatus {
    /// The generation that this is about.
    pub observed_generation: Option<i64>,
    /// How many pods serve the page as it is now.
    #[serde(default)]
    pub available_replicas: i32,
    /// Whether it is as wanted.
    #[serde(default)]
    #[schemars(schema_with = "conditions")]
    pub conditions: Vec<Condition>,
}

/// One of each type, so that appliers of one do not take away another.
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
