//! PURE. Reads: one object, and lists, page by page, of now or of a version that has gone by.

use std::ops::Bound;
use std::sync::Arc;

use kube::core::Status;
use serde_json::Value;

use crate::request::Request;
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

/// From where on, and of which version. As a token: `version/key of the last object`.
struct Place {
    version: u64,
    after: String,
}

impl State {
    pub(crate) fn get(&self, place: usize, request: &Request) -> Result<Arc<Value>, Box<Status>> {
        let kind = self.kind(place);
        let name = request.name.as_deref().unwrap_or_default();
        let key = kind.key(request.namespace.as_deref(), name);
        self.objects(place).get(&key).cloned().ok_or_else(|| status_error::not_found(kind, name))
    }

    pub(crate) fn list(&self, place: usize, request: &Request) -> Result<Page, Box<Status>> {
        let selection = Selection::of(request)?;
        let asked = number(request, "resourceVersion")?;
        let begin = self.begin(place, request, asked)?;
        // Served out of its memory, a real server does not look at the limit.
        let limit = if asked == Some(0) { None } else { number(request, "limit")? };
        let limit = limit.filter(|limit| *limit > 0).map_or(usize::MAX, |limit| limit as usize);

        let then;
        let objects = if begin.version == self.version {
            self.objects(place)
        } else {
            then = self.objects_at(place, begin.version);
            &then
        };
        let rest = objects.range::<str, _>((Bound::Excluded(begin.after.as_str()), Bound::Unbounded));
        let mut rest = rest.filter(|(_, object)| selection.holds(object));
        let page: Vec<_> = rest.by_ref().take(limit).collect();
        let remaining = rest.count();
        let more = page.last().filter(|_| remaining > 0).map(|(last, _)| format!("{}/{last}", begin.version));
        let items = page.into_iter().map(|(_, object)| object.clone()).collect();
        let remaining = (more.is_some() && selection.is_everything()).then_some(remaining);
        Ok(Page { items, version: begin.version, more, remaining })
    }

    /// Of which version a list is, and from where on.
    fn begin(&self, place: usize, request: &Request, asked: Option<u64>) -> Result<Place, Box<Status>> {
        let matching = request.param("resourceVersionMatch");
        if let Some(token) = request.param("continue") {
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
            (None, Some(_)) => return Err(self.forbidden_match(place, "unless resourceVersion is provided")),
            (Some(0), Some("Exact")) => {
                return Err(self.forbidden_match(place, "\"exact\" for resourceVersion \"0\""));
            }
            (Some(asked), _) if asked > self.version => {
                return Err(status_error::too_large(asked, self.version));
            }
            (Some(exact), Some("Exact")) => exact,
            // The legacy of pages: a version with a limit means exactly this one.
            (Some(exact), None) if exact > 0 && request.param("limit").is_some() => exact,
            (None | Some(_), None | Some("NotOlderThan")) => self.version,
            (_, Some(_)) => return Err(self.forbidden_match(place, "with this value")),
        };
        if version < self.history.floor() {
            return Err(status_error::expired("The resourceVersion for the provided list is too old."));
        }
        Ok(Place { version, after: String::new() })
    }

    fn forbidden_match(&self, place: usize, when: &str) -> Box<Status> {
        let why = format!("Forbidden: resourceVersionMatch is forbidden {when}");
        status_error::invalid(self.kind(place), "", "resourceVersionMatch", &why)
    }

    /// All objects as they were: today's, with what changed since undone.
    fn objects_at(&self, place: usize, version: u64) -> Objects {
        let mut objects = self.objects(place).clone();
        for change in self.history.after(version).rev().filter(|change| change.kind == place) {
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

/// A number that is asked with, if it is one.
pub(crate) fn number(request: &Request, name: &str) -> Result<Option<u64>, Box<Status>> {
    let Some(text) = request.param(name) else { return Ok(None) };
    let problem = |_| status_error::bad_request(&format!("{name}: Invalid value: {text:?}"));
    text.parse().map(Some).map_err(problem)
}
