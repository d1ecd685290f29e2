//! The user functions of a controller, as for kube-runtime: the controller creates a ConfigMap with the text of each `Note`. This code is the same
//! with kube-runtime and with flyball.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::{Api, Client, CustomResource, Resource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.dev", version = "v1", kind = "Note", namespaced, status = "NoteStatus")]
pub(crate) struct NoteSpec {
    pub(crate) text: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub(crate) struct NoteStatus {
    pub(crate) length: usize,
}

/// The state that all reconciles share.
pub(crate) struct Context {
    pub(crate) client: Client,
}

#[derive(Debug)]
pub(crate) enum Error {
    Empty,
    Kube(kube::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("a note without a text"),
            Self::Kube(error) => write!(f, "a request failed: {error}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Empty => None,
            Self::Kube(error) => Some(error),
        }
    }
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        Self::Kube(error)
    }
}

pub(crate) async fn reconcile(note: Arc<Note>, context: Arc<Context>) -> Result<Action, Error> {
    if note.spec.text.is_empty() {
        return Err(Error::Empty);
    }
    let namespace = note.namespace().unwrap_or_default();
    let name = note.name_any();

    let maps = Api::<ConfigMap>::namespaced(context.client.clone(), &namespace);
    let owner = note.controller_owner_ref(&()).expect("it came from a server");
    let map = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": name, "ownerReferences": [owner] },
        "data": { "text": note.spec.text },
    });
    let apply = PatchParams::apply("notes.example.dev").force();
    maps.patch(&name, &apply, &Patch::Apply(map)).await?;

    let status = NoteStatus { length: note.spec.text.len() };
    if note.status.as_ref() != Some(&status) {
        let notes = Api::<Note>::namespaced(context.client.clone(), &namespace);
        let patch = json!({ "apiVersion": "example.dev/v1", "kind": "Note", "status": status });
        notes.patch_status(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    }
    Ok(Action::requeue(Duration::from_secs(300)))
}

pub(crate) fn error_policy(_: Arc<Note>, error: &Error, _: Arc<Context>) -> Action {
    match error {
        Error::Empty => Action::await_change(),
        Error::Kube(_) => Action::requeue(Duration::from_secs(1)),
    }
}
