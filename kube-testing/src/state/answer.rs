//! PURE. Answers requests.

use std::sync::Arc;

use jiff::Timestamp;
use kube::core::Status;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::request::RecordedRequest;
use crate::request_matcher::Verb;
use crate::state::State;
use crate::state::garbage_collection::Dependents;
use crate::state::kind::Kind;
use crate::state::list::Page;
use crate::state::metadata;
use crate::state::selection::Selection;
use crate::state::status_error;
use crate::state::write::{Deleted, parse};

/// What is sent back.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Code and body.
    Whole(u16, Vec<u8>),
    /// A watch, by its number.
    Stream(u64),
}

impl Answer {
    pub(crate) fn error(status: &Status) -> Self {
        Self::Whole(status.code, said(status))
    }
}

impl State {
    pub(crate) fn answer(&mut self, request: &RecordedRequest, body: &[u8], now: Timestamp) -> Answer {
        let answer = self.try_answer(request, body, now);
        self.dry = false;
        answer.unwrap_or_else(|status| Answer::error(&status))
    }

    fn try_answer(
        &mut self,
        request: &RecordedRequest,
        body: &[u8],
        now: Timestamp,
    ) -> Result<Answer, Box<Status>> {
        let kind_id = self.kind_id(request)?;
        if request.subresource.as_deref().is_some_and(|part| part != "status") {
            return Err(status_error::no_such_path());
        }
        let deletes = matches!(request.verb, Verb::Delete | Verb::DeleteCollection);
        let options = if deletes && !body.is_empty() { parse(body)? } else { Value::Null };
        let dry = options["dryRun"].as_array().into_iter().flatten().filter_map(Value::as_str);
        for asked in dry.chain(request.query_param("dryRun")) {
            if asked != "All" {
                return Err(status_error::no_such_dry_run(self.kind(kind_id), asked));
            }
            self.dry = true;
        }
        let object = |code, object: Arc<Value>| {
            if request.metadata_only {
                Answer::Whole(code, bytes(&metadata::partial(&object)))
            } else {
                Answer::Whole(code, bytes(&*object))
            }
        };
        Ok(match request.verb {
            Verb::Get => object(200, self.get(kind_id, request)?),
            Verb::List => {
                let page = self.list(kind_id, request)?;
                Answer::Whole(200, list(self.kind(kind_id), &page, request.metadata_only))
            }
            Verb::Watch => Answer::Stream(self.watch(kind_id, request)?),
            Verb::Create => object(201, self.create(kind_id, request, parse(body)?, now)?),
            Verb::Update => object(200, self.update(kind_id, request, parse(body)?)?),
            Verb::Patch => {
                let code = if self.get(kind_id, request).is_ok() { 200 } else { 201 };
                object(code, self.patch(kind_id, request, body, now)?)
            }
            Verb::Delete => match self.delete(kind_id, request, &options, now)? {
                Deleted::Terminating(left) => object(200, left),
                Deleted::Removed(last) => {
                    let uid = metadata::text(&last, "uid").unwrap_or_default();
                    Answer::Whole(
                        200,
                        said(&status_error::deleted(self.kind(kind_id), metadata::name(&last), uid)),
                    )
                }
            },
            Verb::DeleteCollection => {
                let selection = Selection::of(request)?;
                let doomed = self.objects(kind_id).iter().filter(|(_, object)| selection.matches(object));
                let doomed: Vec<_> = doomed.map(|(key, object)| (key.clone(), object.clone())).collect();
                for (key, object) in &doomed {
                    let dependents = Dependents::asked(request, &options);
                    self.begin_delete(kind_id, key.clone(), object, dependents, now);
                }
                let items = doomed.into_iter().map(|(_, object)| object).collect();
                let page = Page { items, version: self.version, more: None, remaining: None };
                Answer::Whole(200, list(self.kind(kind_id), &page, request.metadata_only))
            }
        })
    }
}

fn list(kind: &Kind, page: &Page, metadata_only: bool) -> Vec<u8> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct List<'a> {
        kind: &'a str,
        api_version: &'a str,
        metadata: Value,
        items: Items<'a>,
    }
    #[derive(Serialize)]
    #[serde(untagged)]
    enum Items<'a> {
        Whole(Vec<&'a Value>),
        Untyped(Vec<Untyped<'a>>),
        Partial(Vec<Value>),
    }
    let mut metadata = json!({"resourceVersion": page.version.to_string()});
    if let Some(more) = &page.more {
        metadata["continue"] = more.clone().into();
    }
    if let Some(remaining) = page.remaining {
        metadata["remainingItemCount"] = remaining.into();
    }
    let items = page.items.iter().map(|item| &**item);
    let name = format!("{}List", kind.resource.kind);
    if metadata_only {
        let items = Items::Partial(items.map(metadata::partial).collect());
        let (kind, api_version) = ("PartialObjectMetadataList", "meta.k8s.io/v1");
        return bytes(&List { kind, api_version, metadata, items });
    }
    let items = match kind.is_built_in() {
        true => Items::Untyped(items.map(Untyped).collect()),
        false => Items::Whole(items.collect()),
    };
    bytes(&List { kind: &name, api_version: &kind.resource.api_version, metadata, items })
}

/// An object without `kind` and `apiVersion`, as lists of built-in kinds have them.
struct Untyped<'a>(&'a Value);

impl Serialize for Untyped<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let fields = self.0.as_object().into_iter().flatten();
        serializer.collect_map(fields.filter(|(name, _)| *name != "kind" && *name != "apiVersion"))
    }
}

/// A status as the body of an answer.
fn said(status: &Status) -> Vec<u8> {
    let mut body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}});
    if let (Some(body), Ok(Value::Object(status))) = (body.as_object_mut(), serde_json::to_value(status)) {
        body.extend(status);
    }
    bytes(&body)
}

fn bytes(body: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(body).expect("JSON of JSON")
}
