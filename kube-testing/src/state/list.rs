//! PURE. Reads: single objects, and lists in pages, of the current version or an earlier one.

use std::ops::Bound;
use std::sync::Arc;

use kube::core::Status;
use serde_json::Value;

use crate::request::RecordedRequest;
use crate::state::selection::Selection;
use crate::state::status_error;
use crate::state::{Objects, State};

/// A page of a list.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) items: Vec<Arc<Value>>,
    pub(crate) version: u64,
    pub(crate) more: Option<String>,
    pub(crate) remaining: Option<usize>,
}

/// Where a page begins. Its token is `version/key of the last object`.
struct Place {
    version: u64,
    after: String,
}

impl State {
    pub(crate) fn get(&self, kind_id: usize, request: &RecordedRequest) -> Result<Arc<Value>, Box<Status>> {
        let kind = self.kind(kind_id);
        let name = request.name.as_deref().unwrap_or_default();
        let key = kind.key(request.namespace.as_deref(), name);
        self.objects(kind_id).get(&key).cloned().ok_or_else(|| status_error::not_found(kind, name))
    }

    pub(crate) fn list(&self, kind_id: usize, request: &RecordedRequest) -> Result<Page, Box<Status>> {
        let selection = Selection::of(request)?;
        let asked = number(request, "resourceVersion")?;
        let begin = self.begin(kind_id, request, asked)?;
        // A list from the cache of a real server ignores the limit.
        let limit = if asked == Some(0) { None } else { number(request, "limit")? };
        let limit = limit.filter(|limit| *limit > 0).map_or(usize::MAX, |limit| limit as usize);

        let then;
        let objects = if begin.version == self.version {
            self.objects(kind_id)
        } else {
            then = self.objects_at(kind_id, begin.version);
            &then
        };
        let rest = objects.range::<str, _>((Bound::Excluded(begin.after.as_str()), Bound::Unbounded));
        let mut rest = rest.filter(|(_, object)| selection.matches(object));
        let page: Vec<_> = rest.by_ref().take(limit).collect();
        let remaining = rest.count();
        let more = page.last().filter(|_| remaining > 0).map(|(last, _)| format!("{}/{last}", begin.version));
        let items = page.into_iter().map(|(_, object)| object.clone()).collect();
        let remaining = (more.is_some() && selection.is_everything()).then_some(remaining);
        Ok(Page { items, version: begin.version, more, remaining })
    }

    /// The version of a list, and where it begins.
    fn begin(
        &self,
        kind_id: usize,
        request: &RecordedRequest,
        asked: Option<u64>,
    ) -> Result<Place, Box<Status>> {
        let matching = request.query_param("resourceVersionMatch");
        if let Some(token) = request.query_param("continue") {
            if asked.is_some_and(|version| version != 0) {
                return Err(status_error::bad_request(
                    "specifying resource version is not allowed when using continue",
                ));
            }
            let place = Place::parse(token)?;
            if place.version < self.history.floor() {
                return Err(status_error::expired(
                    "The provided continue parameter is too old to display a consistent list result. \
                     You can start a new list without the continue parameter.",
                ));
            }
            return Ok(place);
        }
        let version = match (asked, matching) {
            (None, Some(_)) => {
                return Err(self.forbidden_match(kind_id, "unless resourceVersion is provided"));
            }
            (Some(0), Some("Exact")) => {
                return Err(self.forbidden_match(kind_id, "\"exact\" for resourceVersion \"0\""));
            }
            (Some(asked), _) if asked > self.version => {
                return Err(status_error::too_large(asked, self.version));
            }
            (Some(exact), Some("Exact")) => exact,
            // Legacy: a version with a limit means exactly this version.
            (Some(exact), None) if exact > 0 && request.query_param("limit").is_some() => exact,
            (None | Some(_), None | Some("NotOlderThan")) => self.version,
            (_, Some(_)) => return Err(self.forbidden_match(kind_id, "with this value")),
        };
        if version < self.history.floor() {
            return Err(status_error::expired("The resourceVersion for the provided list is too old."));
        }
        Ok(Place { version, after: String::new() })
    }

    fn forbidden_match(&self, kind_id: usize, when: &str) -> Box<Status> {
        let why = format!("Forbidden: resourceVersionMatch is forbidden {when}");
        status_error::invalid(self.kind(kind_id), "", "resourceVersionMatch", &why)
    }

    /// All objects as of an earlier version: the current ones, with later changes undone.
    fn objects_at(&self, kind_id: usize, version: u64) -> Objects {
        let mut objects = self.objects(kind_id).clone();
        for change in self.history.after(version).rev().filter(|change| change.kind == kind_id) {
            match &change.before {
                Some(before) => drop(objects.insert(change.key.clone(), before.clone())),
                None => drop(objects.remove(&change.key)),
            }
        }
        objects
    }
}

impl Place {
    fn parse(token: &str) -> Result<Self, Box<Status>> {
        let read = token.split_once('/').and_then(|(version, after)| Some((version.parse().ok()?, after)));
        let (version, after) = read.ok_or_else(|| {
            status_error::bad_request("continue key is not valid: it is not of this server")
        })?;
        Ok(Self { version, after: after.to_owned() })
    }
}

/// A numeric parameter.
pub(crate) fn number(request: &RecordedRequest, name: &str) -> Result<Option<u64>, Box<Status>> {
    let Some(text) = request.query_param(name) else { return Ok(None) };
    let problem = |_| status_error::bad_request(&format!("{name}: Invalid value: {text:?}"));
    text.parse().map(Some).map_err(problem)
}
