//! PURE. Answers requests.

use std::sync::Arc;

use jiff::Timestamp;
use kube::core::Status;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::request::{RecordedRequest, Representation, Verb};
use crate::state::delete::Deleted;
use crate::state::kind::Kind;
use crate::state::list::Page;
use crate::state::patch::parse;
use crate::state::update::Updated;
use crate::state::{State, metadata, options};
use crate::status_error;

/// The maximum size of the body of a request, in bytes.
const LARGEST_BODY: usize = 3 * 1024 * 1024;

/// A response.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The status code and the body.
    Whole(u16, Vec<u8>),
    /// The status code, the body, and the seconds of the header `Retry-After` if they are not 0.
    Failed(u16, Vec<u8>, u32),
    /// The id of the watch to stream.
    Stream(u64),
}

impl Answer {
    fn object(request: &RecordedRequest, code: u16, object: &Arc<Value>) -> Self {
        if request.metadata_only {
            return Self::Whole(code, bytes(&metadata::partial(object)));
        }
        Self::Whole(code, bytes(&*metadata::in_version(object, &request.api_version())))
    }

    pub(crate) fn error(status: &Status) -> Self {
        // As on a real server, the header repeats what the body says.
        let retry_after = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
        Self::Failed(status.code, bytes(&status_error::body(status)), retry_after)
    }
}

impl State {
    pub(crate) fn answer(&mut self, request: &RecordedRequest, body: &[u8], now: Timestamp) -> Answer {
        self.begin_write(request, now);
        let answer = self.try_answer(request, body, now);
        self.writer = None;
        self.dry = false;
        answer.unwrap_or_else(|status| Answer::error(&status))
    }

    fn try_answer(
        &mut self,
        request: &RecordedRequest,
        body: &[u8],
        now: Timestamp,
    ) -> Result<Answer, Box<Status>> {
        if request.representation == Representation::Unknown {
            return Err(status_error::not_acceptable());
        }
        if request.plural.is_empty() {
            return Ok(Answer::Whole(200, bytes(&self.discover(request)?)));
        }
        let kind_id = self.kind_id(request)?;
        self.kind(kind_id).check_subresource(request)?;
        self.kind(kind_id).check_scope(request)?;
        let options = self.options(request, body)?;
        let object = |code, object: Arc<Value>| Answer::object(request, code, &object);
        Ok(match request.verb {
            Verb::Get => object(200, self.get(kind_id, request)?),
            Verb::List => {
                let page = self.list(kind_id, request)?;
                Answer::Whole(200, list(self.kind(kind_id), request, &page))
            }
            Verb::Watch => Answer::Stream(self.watch(kind_id, request)?),
            Verb::Create if request.name.is_some() => return Err(status_error::no_such_method()),
            Verb::Create => object(201, self.create(kind_id, request, parse(body)?, None, now)?),
            Verb::Update | Verb::Patch => {
                let updated = match request.verb {
                    Verb::Patch => self.patch(kind_id, request, body, now)?,
                    _ => self.put_object(kind_id, request, parse(body)?, now)?,
                };
                match updated {
                    Updated::Created(made) => object(201, made),
                    Updated::Changed(changed) => object(200, changed),
                }
            }
            Verb::Delete => match self.delete(kind_id, request, &options, now)? {
                Deleted::Terminating(left) => object(200, left),
                Deleted::Removed(last) if self.kind(kind_id).returns_deleted() => object(200, last),
                Deleted::Removed(last) => {
                    let uid = metadata::text(&last, "uid").unwrap_or_default();
                    let kind = self.kind(kind_id);
                    Answer::Whole(
                        200,
                        bytes(&status_error::body(&status_error::deleted(
                            &kind.resource,
                            metadata::name(&last),
                            uid,
                        ))),
                    )
                }
            },
            Verb::DeleteCollection => {
                let items = self.delete_collection(kind_id, request, &options, now)?;
                let page = Page { items, version: self.version, more: None, remaining: None };
                Answer::Whole(200, list(self.kind(kind_id), request, &page))
            }
        })
    }

    /// Checks the media type and the size of the body, and the options of a write. Returns the options in the body of a deletion, and null for any other
    /// request.
    fn options(&mut self, request: &RecordedRequest, body: &[u8]) -> Result<Value, Box<Status>> {
        let sends = matches!(request.verb, Verb::Create | Verb::Update);
        if sends && !["", "application/json"].contains(&request.media_type()) {
            return Err(status_error::unsupported_media(&["application/json"]));
        }
        if body.len() > LARGEST_BODY {
            return Err(status_error::body_too_large(LARGEST_BODY));
        }
        let deletes = matches!(request.verb, Verb::Delete | Verb::DeleteCollection);
        let deletion = if deletes && !body.is_empty() { parse(body)? } else { Value::Null };
        self.dry = options::check(request, &deletion)?;
        Ok(deletion)
    }
}

fn list(kind: &Kind, request: &RecordedRequest, page: &Page) -> Vec<u8> {
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
    let api_version = request.api_version();
    let items: Vec<_> = page.items.iter().map(|item| metadata::in_version(item, &api_version)).collect();
    let items = items.iter().map(|item| &**item);
    let name = format!("{}List", kind.resource.kind);
    if request.metadata_only {
        let items = Items::Partial(items.map(metadata::partial).collect());
        let (kind, api_version) = ("PartialObjectMetadataList", "meta.k8s.io/v1");
        return bytes(&List { kind, api_version, metadata, items });
    }
    let items = match kind.is_built_in() {
        true => Items::Untyped(items.map(Untyped).collect()),
        false => Items::Whole(items.collect()),
    };
    bytes(&List { kind: &name, api_version: &api_version, metadata, items })
}

/// Serialises an object without `kind` and `apiVersion`, as in lists of built-in kinds.
struct Untyped<'a>(&'a Value);

impl Serialize for Untyped<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let fields = self.0.as_object().into_iter().flatten();
        serializer.collect_map(fields.filter(|(name, _)| *name != "kind" && *name != "apiVersion"))
    }
}

fn bytes(body: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(body).expect("JSON of JSON")
}
