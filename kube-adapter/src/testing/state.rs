//! PURE. All that the server knows: kinds, objects, one counter of versions, what changed, and who watches.
//!
//! # Invariants
//! 1. Every write takes a version of its own, and leaves a [`Change`].
//! 2. An object is kept under its own name and namespace, with the version of its last write.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use kube::core::Status;
use serde_json::Value;

use super::dependents;
use super::history::{Change, History};
use super::kind::Kind;
use super::meta;
use super::problem;
use super::request::Request;
use super::watches::Watches;

pub(super) type Objects = BTreeMap<String, Arc<Value>>;

#[derive(Debug, Default)]
pub(super) struct State {
    kinds: Vec<(Kind, Objects)>,
    pub(super) history: History,
    pub(super) watches: Watches,
    pub(super) version: u64,
    /// A dry run: what is written now is answered, and not kept.
    pub(super) dry: bool,
    /// Deleted objects that wait for their dependents.
    pub(super) waiting: BTreeSet<(usize, String)>,
    uids: u64,
    names: u64,
}

impl State {
    /// As a cluster that is not new: version 0 means "any", and 1 is what an empty server has.
    pub(super) fn new() -> Self {
        Self { version: 1, ..Self::default() }
    }

    pub(super) fn register(&mut self, kind: Kind) {
        let place = self.place_of(&kind.resource.group, &kind.resource.version, &kind.resource.plural);
        match place {
            Some(place) => self.kinds[place].0 = kind,
            None => self.kinds.push((kind, Objects::new())),
        }
    }

    pub(super) fn place(&self, request: &Request) -> Result<usize, Box<Status>> {
        self.place_of(&request.group, &request.version, &request.plural)
            .ok_or_else(|| problem::not_registered(&request.plural))
    }

    pub(super) fn place_of(&self, group: &str, version: &str, plural: &str) -> Option<usize> {
        self.kinds.iter().position(|(kind, _)| {
            let resource = &kind.resource;
            resource.group == group && resource.version == version && resource.plural == plural
        })
    }

    pub(super) fn kind(&self, place: usize) -> &Kind {
        &self.kinds[place].0
    }

    pub(super) fn kinds(&self) -> usize {
        self.kinds.len()
    }

    pub(super) fn objects(&self, place: usize) -> &Objects {
        &self.kinds[place].1
    }

    /// Writes an object, or, with none, deletes the one of this key. What is told of a deleted one is its last state.
    pub(super) fn commit(&mut self, place: usize, key: String, object: Option<Value>) -> Arc<Value> {
        if self.dry {
            // With the version that there is: none of a new one.
            return object.map_or_else(|| self.objects(place)[&key].clone(), Arc::new);
        }
        match object.as_ref().is_some_and(dependents::waits) {
            true => drop(self.waiting.insert((place, key.clone()))),
            false => drop(self.waiting.remove(&(place, key.clone()))),
        }
        self.version += 1;
        let version = self.version;
        let objects = &mut self.kinds[place].1;
        let after = object.map(|object| Arc::new(meta::with_version(&object, version)));
        let before = match &after {
            Some(after) => objects.insert(key.clone(), after.clone()),
            None => objects.remove(&key),
        };
        let now = match (&after, &before) {
            (Some(after), _) => after.clone(),
            (None, Some(before)) => Arc::new(meta::with_version(before, version)),
            (None, None) => unreachable!("only what is there is deleted"),
        };
        self.history.push(Change { version, kind: place, key, before, after });
        now
    }

    /// What every new object gets.
    pub(super) fn born(&mut self, place: usize, object: &mut Value, now: Timestamp) {
        self.uids += 1;
        let resource = &self.kinds[place].0.resource;
        object["apiVersion"] = resource.api_version.clone().into();
        object["kind"] = resource.kind.clone().into();
        meta::set(object, "uid", format!("00000000-0000-4000-8000-{:012x}", self.uids));
        meta::set(object, "creationTimestamp", seconds(now));
        if object.get("spec").is_some() {
            meta::set(object, "generation", 1);
        }
    }

    /// An ending for a name that was asked for with `generateName`: five characters, as the real one's, but the same in every run.
    pub(super) fn ending(&mut self) -> String {
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

    /// Forgets the history: who asks for a version before this one, or goes on with a list from before, has to begin again.
    pub(super) fn compact(&mut self) {
        let told = self.watches.slowest().unwrap_or(u64::MAX);
        self.history.forget(self.version, told);
    }
}

/// Kubernetes' times have whole seconds.
pub(super) fn seconds(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
