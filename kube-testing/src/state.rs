//! PURE. The state of the server: kinds, objects, one counter of versions, the history and the watches.
//!
//! # Invariants
//! 1. Every write has a version of its own, and adds a [`Change`] to the history.
//! 2. An object is stored under its own name and namespace, with the version of its last write.
//! 3. The index of a kind in `kinds` never changes: removing a kind only marks its entry as retired, and registering the kind again adds a new entry.

pub(crate) mod answer;
mod apply;
mod create;
mod definitions;
mod delete;
mod dependents;
mod discovery;
mod field_set;
mod garbage_collection;
mod history;
pub(crate) mod kind;
mod label_selector;
mod list;
pub(crate) mod metadata;
mod options;
mod owners;
mod patch;
mod selection;
mod strategic_merge;
mod update;
mod validation;
pub(crate) mod watch;
pub(crate) mod watches;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use kube::core::{ApiResource, Status};
use serde_json::Value;

use crate::request::RecordedRequest;
use crate::state::apply::managers::Writer;
use crate::state::history::{Change, History};
use crate::state::kind::Kind;
use crate::state::owners::Owners;
use crate::state::watches::Watches;
use crate::status_error;

pub(crate) type Objects = BTreeMap<String, Arc<Value>>;

#[derive(Debug, Default)]
pub(crate) struct State {
    kinds: Vec<Served>,
    pub(crate) history: History,
    pub(crate) watches: Watches,
    pub(crate) version: u64,
    /// Whether the current request is a dry run, whose result is sent to the client but not stored.
    pub(crate) dry: bool,
    /// The manager of the fields that the current request writes; `None` for deletions, for the controllers of the server, and for an apply, which
    /// sets the managers itself.
    writer: Option<Arc<Writer>>,
    last_writer: Option<Arc<Writer>>,
    pub(crate) owners: Owners,
    /// The keys of custom resource definitions whose kinds must be registered, changed or removed.
    definitions: BTreeSet<String>,
    uids: u64,
    names: u64,
}

/// A kind and its objects.
#[derive(Debug)]
struct Served {
    kind: Kind,
    objects: Objects,
    retired: bool,
}

impl State {
    /// Creates a state at version 1, because 0 means "any" in requests.
    pub(crate) fn new() -> Self {
        Self { version: 1, ..Self::default() }
    }

    /// Registers a kind, or another version of a registered kind.
    ///
    /// # Panics
    /// Panics for a second version of a built-in kind, because its versions have different fields.
    #[track_caller]
    pub(crate) fn register(&mut self, mut kind: Kind) {
        let ApiResource { group, version, plural, .. } = kind.resource.clone();
        let Some(kind_id) = self.kind_in_any_version(&group, &plural) else {
            self.kinds.push(Served { kind, objects: Objects::new(), retired: false });
            // Owners of this kind could not be looked up before, so all owner references are checked again.
            self.owners.reconsider_all();
            return;
        };
        let known = &mut self.kinds[kind_id].kind;
        if !known.versions.contains(&version) {
            assert!(
                !kind.is_built_in(),
                "{plural} in version {version}: it is served in {}, and versions of Kubernetes' own kinds are not converted",
                known.resource.version
            );
        }
        // The kind keeps the API version in which its objects are stored.
        kind.resource.version.clone_from(&known.resource.version);
        kind.resource.api_version.clone_from(&known.resource.api_version);
        let versions = known.versions.iter().chain(&kind.versions).cloned().collect::<Vec<_>>();
        kind.versions.clear();
        for version in versions {
            if !kind.versions.contains(&version) {
                kind.versions.push(version);
            }
        }
        // A registration, unlike a definition, has no schemas, so the known schemas are kept.
        kind.schemas.append(&mut known.schemas);
        *known = kind;
    }

    /// Removes a kind: requests for it are answered with 404, and its watches end.
    fn retire(&mut self, kind_id: usize) {
        self.kinds[kind_id].retired = true;
        for watch in self.watches.living().filter(|watch| watch.kind_id == kind_id) {
            watch.closing = true;
        }
    }

    pub(crate) fn kind_id(&self, request: &RecordedRequest) -> Result<usize, Box<Status>> {
        self.kind_id_of(&request.group, &request.version, &request.plural)
            .ok_or_else(|| status_error::not_registered(&request.plural))
    }

    pub(crate) fn kind_id_of(&self, group: &str, version: &str, plural: &str) -> Option<usize> {
        let kind_id = self.kind_in_any_version(group, plural)?;
        self.kind(kind_id).versions.iter().any(|served| served == version).then_some(kind_id)
    }

    fn kind_in_any_version(&self, group: &str, plural: &str) -> Option<usize> {
        self.find_kind(|kind| kind.resource.group == group && kind.resource.plural == plural)
    }

    fn find_kind(&self, is_it: impl Fn(&Kind) -> bool) -> Option<usize> {
        self.kinds.iter().position(|served| !served.retired && is_it(&served.kind))
    }

    pub(crate) fn kind(&self, kind_id: usize) -> &Kind {
        &self.kinds[kind_id].kind
    }

    /// Returns all kinds that are served.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = &Kind> {
        self.kinds.iter().filter(|served| !served.retired).map(|served| &served.kind)
    }

    pub(crate) fn objects(&self, kind_id: usize) -> &Objects {
        &self.kinds[kind_id].objects
    }

    /// Writes `object` and returns its new state. If `object` is `None`, deletes the object with this key and returns its last state.
    pub(crate) fn commit(&mut self, kind_id: usize, key: String, object: Option<Value>) -> Arc<Value> {
        if self.dry {
            // A dry run does not change the `resourceVersion`.
            return object.map_or_else(|| self.objects(kind_id)[&key].clone(), Arc::new);
        }
        self.version += 1;
        let version = self.version;
        let objects = &mut self.kinds[kind_id].objects;
        let after = object.map(|object| Arc::new(metadata::with_version(&object, version)));
        let before = match &after {
            Some(after) => objects.insert(key.clone(), after.clone()),
            None => objects.remove(&key),
        };
        self.owners.observe(kind_id, &key, before.as_deref(), after.as_deref());
        if self.kind(kind_id).is_definition() {
            self.definitions.insert(key.clone());
        }
        let now = match (&after, &before) {
            (Some(after), _) => after.clone(),
            (None, Some(before)) => Arc::new(metadata::with_version(before, version)),
            (None, None) => unreachable!("only an existing object is deleted"),
        };
        let writer = self.writer.clone();
        self.history.push(Change { version, kind: kind_id, key, before, after, writer });
        now
    }

    /// Does what the controllers of a real cluster do shortly after a write: collects garbage, and registers or removes the kinds of custom resource
    /// definitions.
    pub(crate) fn settle(&mut self, now: Timestamp) {
        while self.collect(now) || self.define(now) {}
    }

    /// Sets the metadata of a new object.
    pub(crate) fn init_metadata(&mut self, kind_id: usize, object: &mut Value, now: Timestamp) {
        self.uids += 1;
        let kind = &self.kinds[kind_id].kind;
        kind.store_types(object);
        // The `uid` in a client's request was removed earlier, so an object that has a `uid` here was written with `ApiServer::put`.
        if metadata::text(object, "uid").is_none() {
            metadata::set(object, "uid", format!("00000000-0000-4000-8000-{:012x}", self.uids));
        }
        metadata::set(object, "creationTimestamp", seconds(now));
        match kind.has_generation() {
            true => metadata::set(object, "generation", 1),
            false => drop(metadata::of(object).remove("generation")),
        }
    }

    /// Returns the suffix of a name for `generateName`: five characters, as on a real server, but the same in every run.
    pub(crate) fn ending(&mut self) -> String {
        const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        self.names += 1;
        // The factor is coprime to 27^5, so the first 27^5 suffixes are all different.
        let mut number = self.names.wrapping_mul(7_368_787);
        let letter = |_| {
            let letter = LETTERS[(number % 27) as usize];
            number /= 27;
            char::from(letter)
        };
        (0..5).map(letter).collect()
    }

    /// Drops the history up to now, except events that open watches have not sent.
    pub(crate) fn compact(&mut self) {
        let sent = self.watches.slowest().unwrap_or(u64::MAX);
        self.history.forget(self.version, sent);
    }
}

/// Formats a time as Kubernetes does, in whole seconds.
pub(crate) fn seconds(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
