//! PURE. Reads: single objects, and paged lists at the current version or at an earlier version.

use std::ops::Bound;
use std::sync::Arc;

use kube::core::Status;
use serde_json::Value;

use crate::request::{RecordedRequest, Verb};
use crate::state::selection::Selection;
use crate::state::{Objects, State};
use crate::status_error;

/// A page of a list.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) items: Vec<Arc<Value>>,
    pub(crate) version: u64,
    pub(crate) more: Option<String>,
    pub(crate) remaining: Option<usize>,
}

/// The start of a page. The continue token consists of the version, a slash, and the key of the last object of the previous page.
struct Place {
    version: u64,
    after: String,
}

impl State {
    pub(crate) fn get(&self, kind_id: usize, request: &RecordedRequest) -> Result<Arc<Value>, Box<Status>> {
        if let Some(asked) = request.number("resourceVersion")?.filter(|asked| *asked > self.version)
            && request.verb == Verb::Get
        {
            return Err(status_error::too_large(asked, self.version));
        }
        let kind = self.kind(kind_id);
        let name = request.name.as_deref().unwrap_or_default();
        let key = kind.key(request.namespace.as_deref(), name);
        self.objects(kind_id).get(&key).cloned().ok_or_else(|| status_error::not_found(&kind.resource, name))
    }

    pub(crate) fn list(&self, kind_id: usize, request: &RecordedRequest) -> Result<Page, Box<Status>> {
        let selection = Selection::of(self.kind(kind_id), request)?;
        let asked = request.number("resourceVersion")?;
        let begin = self.begin(request, asked)?;
        // A real server ignores the limit if it answers the list from its cache.
        let limit = if asked == Some(0) { None } else { request.number("limit")? };
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
        let more =
            page.last().filter(|_| remaining > 0).map(|(last, _)| Place::token(Some(begin.version), last));
        let items = page.into_iter().map(|(_, object)| object.clone()).collect();
        let remaining = (more.is_some() && selection.is_everything()).then_some(remaining);
        Ok(Page { items, version: begin.version, more, remaining })
    }

    /// Returns the version of a list, and the key after which its page starts.
    fn begin(&self, request: &RecordedRequest, asked: Option<u64>) -> Result<Place, Box<Status>> {
        check_match(request)?;
        if let Some(token) = request.query_param("continue") {
            if asked.is_some_and(|version| version != 0) {
                return Err(status_error::bad_request(
                    "specifying resource version is not allowed when using continue",
                ));
            }
            let place = Place::parse(token, self.version)?;
            if place.version < self.history.floor() {
                return Err(status_error::continue_expired(Place::token(None, &place.after)));
            }
            return Ok(place);
        }
        let version = match (asked, request.query_param("resourceVersionMatch")) {
            (Some(asked), _) if asked > self.version => {
                return Err(status_error::too_large(asked, self.version));
            }
            (Some(exact), Some("Exact")) => exact,
            // For compatibility, a request with a limit and without `resourceVersionMatch` gets the list at exactly the requested version.
            (Some(exact), None) if exact > 0 && request.query_param("limit").is_some() => exact,
            _ => self.version,
        };
        if version < self.history.floor() {
            return Err(status_error::expired("The resourceVersion for the provided list is too old."));
        }
        Ok(Place { version, after: String::new() })
    }

    /// Returns all objects at an earlier version: the current ones, with later changes undone.
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

/// Returns an error if the parameters of a list cannot be combined.
fn check_match(request: &RecordedRequest) -> Result<(), Box<Status>> {
    let mut wrong = Vec::new();
    if let Some(matching) = request.query_param("resourceVersionMatch") {
        let mut forbid = |when: &str| {
            let why = format!("Forbidden: resourceVersionMatch {when}");
            wrong.push(("resourceVersionMatch", why));
        };
        let asked = request.query_param("resourceVersion");
        if asked.is_none() {
            forbid("is forbidden unless resourceVersion is provided");
        }
        if request.query_param("continue").is_some() {
            forbid("is forbidden when continue is provided");
        }
        if matching == "Exact" && asked == Some("0") {
            forbid("\"exact\" is forbidden for resourceVersion \"0\"");
        }
        if !["Exact", "NotOlderThan"].contains(&matching) {
            let why = format!(
                "Unsupported value: {matching:?}: supported values: \"Exact\", \"NotOlderThan\", \"\""
            );
            wrong.push(("resourceVersionMatch", why));
        }
    }
    if request.query_param("sendInitialEvents").is_some() {
        wrong.push(("sendInitialEvents", "Forbidden: sendInitialEvents is forbidden for list".to_owned()));
    }
    if wrong.is_empty() { Ok(()) } else { Err(status_error::invalid_options("ListOptions", &wrong)) }
}

impl Place {
    /// Returns a continue token. Without a version, the next page has the objects that exist when it is requested.
    fn token(version: Option<u64>, after: &str) -> String {
        let version = version.map_or("-1".to_owned(), |version| version.to_string());
        format!("{version}/{after}")
    }

    fn parse(token: &str, current: u64) -> Result<Self, Box<Status>> {
        let read = token.split_once('/').and_then(|(version, after)| {
            let version = if version == "-1" { current } else { version.parse().ok()? };
            Some((version, after))
        });
        let (version, after) = read.ok_or_else(|| {
            status_error::bad_request("continue key is not valid: it is not of this server")
        })?;
        Ok(Self { version, after: after.to_owned() })
    }
}
