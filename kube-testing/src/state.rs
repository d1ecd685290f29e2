//! PURE. The state of the server: kinds, objects, one counter of versions, the history and the watches.
//!
//! # Invariants
//! 1. Every write takes a version of its own, and leaves a [`Change`].
//! 2. An object is kept under its own name and namespace, with the version of its last write.

pub(crate) mod answer;
mod garbage_collection;
mod history;
pub(crate) mod kind;
mod label_selector;
mod list;
pub(crate) mod metadata;
mod selection;
pub(crate) mod status_error;
pub(crate) mod watch;
pub(crate) mod watches;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use kube::core::Status;
use serde_json::Value;

use crate::request::RecordedRequest;
use crate::state::history::{Change, History};
use crate::state::kind::Kind;
use crate::state::watches::Watches;

pub(crate) type Objects = BTreeMap<String, Arc<Value>>;

#[derive(Debug, Default)]
pub(crate) struct State {
    kinds: Vec<(Kind, Objects)>,
    pub(crate) history: History,
    pub(crate) watches: Watches,
    pub(crate) version: u64,
    /// A dry run: what is written is answered, and not kept.
    pub(crate) dry: bool,
    /// Deleted objects that wait for their dependents.
    pub(crate) waiting: BTreeSet<(usize, String)>,
    uids: u64,
    names: u64,
}

impl State {
    /// Begins with version 1, as 0 means "any" in requests.
    pub(crate) fn new() -> Self {
        Self { version: 1, ..Self::default() }
    }

    pub(crate) fn register(&mut self, kind: Kind) {
        let kind_id = self.kind_id_of(&kind.resource.group, &kind.resource.version, &kind.resource.plural);
        match kind_id {
            Some(kind_id) => self.kinds[kind_id].0 = kind,
            None => self.kinds.push((kind, Objects::new())),
        }
    }

    pub(crate) fn kind_id(&self, request: &RecordedRequest) -> Result<usize, Box<Status>> {
        self.kind_id_of(&request.group, &request.version, &request.plural)
            .ok_or_else(|| status_error::not_registered(&request.plural))
    }

    pub(crate) fn kind_id_of(&self, group: &str, version: &str, plural: &str) -> Option<usize> {
        self.kinds.iter().position(|(kind, _)| {
            let resource = &kind.resource;
            resource.group == group && resource.version == version && resource.plural == plural
        })
    }

    pub(crate) fn kind(&self, kind_id: usize) -> &Kind {
        &self.kinds[kind_id].0
    }

    pub(crate) fn kinds(&self) -> usize {
        self.kinds.len()
    }

    pub(crate) fn objects(&self, kind_id: usize) -> &Objects {
        &self.kinds[kind_id].1
    }

    /// Writes an object, or, with none, deletes the one of this key, and returns its last state.
    pub(crate) fn commit(&mut self, kind_id: usize, key: String, object: Option<Value>) -> Arc<Value> {
        if self.dry {
            // With the old version.
            return object.map_or_else(|| self.objects(kind_id)[&key].clone(), Arc::new);
        }
        match object.as_ref().is_some_and(garbage_collection::waits) {
            true => drop(self.waiting.insert((kind_id, key.clone()))),
            false => drop(self.waiting.remove(&(kind_id, key.clone()))),
        }
        self.version += 1;
        let version = self.version;
        let objects = &mut self.kinds[kind_id].1;
        let after = object.map(|object| Arc::new(metadata::with_version(&object, version)));
        let before = match &after {
            Some(after) => objects.insert(key.clone(), after.clone()),
            None => objects.remove(&key),
        };
        let now = match (&after, &before) {
            (Some(after), _) => after.clone(),
            (None, Some(before)) => Arc::new(metadata::with_version(before, version)),
            (None, None) => unreachable!("only what is there is deleted"),
        };
        self.history.push(Change { version, kind: kind_id, key, before, after });
        now
    }

    /// Sets the metadata that every new object gets.
    pub(crate) fn init_metadata(&mut self, kind_id: usize, object: &mut Value, now: Timestamp) {
        self.uids += 1;
        let resource = &self.kinds[kind_id].0.resource;
        object["apiVersion"] = resource.api_version.clone().into();
        object["kind"] = resource.kind.clone().into();
        metadata::set(object, "uid", format!("00000000-0000-4000-8000-{:012x}", self.uids));
        metadata::set(object, "creationTimestamp", seconds(now));
        if object.get("spec").is_some() {
            metadata::set(object, "generation", 1);
        }
    }

    /// The ending of a name for `generateName`: five characters, as on a real server, but the same in every run.
    pub(crate) fn ending(&mut self) -> String {
        const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        self.names += 1;
        // Multiplied by a number prime to 27^5, so that neighbours do not look alike and none comes twice.
        let mut number = self.names.wrapping_mul(7_368_787);
        let letter = |_| {
            let letter = LETTERS[(number % 27) as usize];
            number /= 27;
            char::from(letter)
        };
        (0..5).map(letter).collect()
    }

    /// Forgets the history up to now, but for what open watches have not sent.
    pub(crate) fn compact(&mut self) {
        let sent = self.watches.slowest().unwrap_or(u64::MAX);
        self.history.forget(self.version, sent);
    }
}

/// Kubernetes' times have whole seconds.
pub(crate) fn seconds(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
